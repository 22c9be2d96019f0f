"""How many processes there are, how many were asked for, and sums over them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from ssl_vit.core import started
from ssl_vit.core.errors import UserError
from ssl_vit.core.machine import usable_cores
from ssl_vit.core.reading import mapping_in


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def local_processes() -> int:
    """Number of processes of this job on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", rank_and_world()[1]))


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum of a tensor over all processes (every process must call it)."""
    if rank_and_world()[1] > 1:
        dist.all_reduce(values)
    return values


class _SumOverProcesses(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


def differentiable_sum(values: Tensor) -> Tensor:
    """Sum of a tensor over all processes that gradients go back through (every process must call it, both ways)."""
    return _SumOverProcesses.apply(values) if rank_and_world()[1] > 1 else values


def max_over_ranks(values: Tensor) -> Tensor:
    """Largest value of every element over all processes (every process must call it)."""
    if rank_and_world()[1] > 1:
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values


def mean_over_ranks(values: Tensor) -> Tensor:
    """Mean of a tensor over all processes (every process must call it)."""
    _, world = rank_and_world()
    return sum_over_ranks(values) / world if world > 1 else values


def meet() -> None:
    """Waits for every process (every process must call it)."""
    if rank_and_world()[1] > 1:
        dist.barrier()


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenates tensors that differ only in their number of rows, in rank order, without padding or duplicates."""
    _, world = rank_and_world()
    if world == 1:
        return rows
    count = torch.tensor([rows.shape[0]], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    longest = int(max(c.item() for c in counts))
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    gathered = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(gathered, padded)
    return torch.cat([part[: int(c.item())] for part, c in zip(gathered, counts, strict=True)])


def gather_lists(values: list[str]) -> list[str]:
    """Concatenates lists of text in rank order (every process must call it)."""
    _, world = rank_and_world()
    if world == 1:
        return values
    gathered: list[list[str]] = [[] for _ in range(world)]
    dist.all_gather_object(gathered, values)
    return [value for part in gathered for value in part]


def _accelerate_launcher() -> tuple[dict[str, str], dict[str, str]] | None:
    """Options and environment of the ``accelerate launch`` that is this process's parent, None where there is none."""
    try:
        parent = psutil.Process().parent()
        words = parent.cmdline() if parent is not None else []
        if parent is None or not any(w.endswith("accelerate") or "accelerate.commands" in w for w in words):
            return None
        environment = parent.environ()
    except psutil.Error:
        return None
    options: dict[str, str] = {}
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            options[name[2:].replace("-", "_")] = value if equals else " ".join(words[position + 1 : position + 2])
    return options, environment


def use_idle_cores(processes: int) -> None:
    """Lets CPU processes of a job compute on every core where nobody chose a number of threads.

    ``accelerate launch`` and ``ssl-vit`` start a process with OMP_NUM_THREADS=1 unless they are told otherwise; a
    number that was given to them, or set in the environment they were called from, is kept. Several processes share the
    cores where ``ssl-vit`` started them.
    """
    if started.threads_open:
        torch.set_num_threads(max(1, usable_cores() // local_processes()))
        return
    launcher = _accelerate_launcher()
    if launcher is None or processes != 1:
        return
    options, environment = launcher
    if "num_cpu_threads_per_process" not in options and "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(usable_cores())


def _asked_of_accelerate() -> int | None:
    """How many processes its launcher was asked for: by an option, or by the file that ``accelerate config`` wrote."""
    launcher = _accelerate_launcher()
    if launcher is None:
        return None
    options, _ = launcher
    asked: object = options.get("num_processes")
    if asked is None:
        from accelerate.commands.config import default_config_file

        usual = None if "cpu" in options else default_config_file  # as the launcher does
        file = options.get("config_file", usual)
        asked = (mapping_in(Path(file)) or {}).get("num_processes") if file else None
    return int(str(asked)) if str(asked).isdecimal() else None


def check_world_size(actual: int) -> None:
    """Stops (UserError) a run that was asked for N processes and got another number from Accelerate.

    ``accelerate launch --cpu --num_processes 2`` starts one process without a word, as does a file of ``accelerate
    config`` that says ``num_processes: 2`` for CPUs, and torchrun on a machine without
    GPUs starts independent jobs unless Accelerate is told to use the CPU; both would silently train something else.
    """
    world = int(os.environ.get("WORLD_SIZE", "0")) or None
    asked = world or _asked_of_accelerate()
    if asked is None or asked == actual:
        return
    raise UserError(
        f"{asked} processes were asked for, but this job has {actual}. Several processes: ssl-vit COMMAND --processes "
        f"{asked} ...; several CPU processes by hand: "
        f"ACCELERATE_USE_CPU=1 OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node {asked} SCRIPT ...; "
        f"several GPUs: accelerate launch --num_processes {asked} SCRIPT ... on a machine that has them"
    )
