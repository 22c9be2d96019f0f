"""Before the loop: processes, precision, sizes of batches, and what a run prints about itself."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, cast

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState

from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.configs.presets import TINY
from ssl_vit.core import garbage, notices, peers
from ssl_vit.core.arithmetic import choose_tf32, computes_on, rounds_to_tf32
from ssl_vit.core.dist import check_world_size, gather_lists, use_idle_cores
from ssl_vit.core.errors import UserError
from ssl_vit.core.schedules import whole_steps
from ssl_vit.data.decoding import current
from ssl_vit.data.loading.loader import Loader
from ssl_vit.objectives.base import Objective
from ssl_vit.training.joining import joined
from ssl_vit.training.metering import forget_peak
from ssl_vit.training.optim import peak_learning_rate, warmup_steps, warn_of_rate
from ssl_vit.training.products import Products, bf16_is_faster, choose_products, chosen_products

DTYPES = {"fp64": torch.float64}
"""Arithmetic of parameters and images; lower precisions keep fp32 masters under autocast."""


def join(precision: str = "fp32", seed: int = 0, products: Products = "auto") -> Accelerator:
    """Joins the other processes, settles precision and products, and seeds what initialises weights.

    UserError where the device cannot compute so, or the number of processes is not what was asked for.
    """
    resolved = auto_precision() if precision == "auto" else precision
    if resolved == "fp16" and computes_on() == "cpu":
        raise UserError("--fit.precision fp16 needs a GPU; use fp32 or bf16 on a CPU")
    if resolved == "tf32" and computes_on() != "cuda":
        raise UserError("--fit.precision tf32 is arithmetic of NVIDIA GPUs, and none computes here; use fp32")
    accelerator = joined(resolved if resolved in ("bf16", "fp16") else "no")
    cast(Any, accelerator).ddp_handler = OwnBuffers()
    if accelerator.num_processes > 1:
        if not _joined:
            atexit.register(_leave)
        _joined[:] = [accelerator]  # one that came before, and its network, may go
        peers.learn(gather_lists([peers.myself(accelerator.process_index)]))
    if resolved == "fp64" and accelerator.device.type == "mps":
        raise UserError("--fit.precision fp64: Apple's GPU (mps) has no fp64; use fp32, or set ACCELERATE_USE_CPU=1")
    check_world_size(accelerator.num_processes)
    if accelerator.device.type == "cpu":
        choose_products(products)
    elif accelerator.device.type == "cuda":
        choose_tf32(resolved not in ("fp32", "fp64"))
    torch.manual_seed(seed)
    garbage.as_usual()  # what a script needs is imported
    return accelerator


def forget_what_was() -> None:
    """Begins as a process does that has done nothing: precision, notices and peak memory of work before are gone."""
    AcceleratorState._reset_state()
    notices.forget()
    current.quarantined.clear()
    forget_peak()


@dataclass
class OwnBuffers(DistributedDataParallelKwargs):
    """Every process keeps the buffers it computed, under the name that this version of torch has for it.

    Gradients lie in the buckets that are summed, so that there is one copy of them; the graph is the same in every
    step.
    """

    def to_kwargs(self) -> dict[str, Any]:
        """Arguments for DistributedDataParallel."""
        known = signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        return {buffers: False, "gradient_as_bucket_view": True, "static_graph": self.static_graph}


_joined: list[Accelerator] = []


def _leave() -> None:
    """Parts from the other processes while Python still runs.

    A thread of the process group that frees a tensor after Python has begun to shut down aborts the process, and the
    launcher then takes a finished run for a failed one. After a traceback the group is left as it is: others may be in
    the middle of a sum, and NCCL would wait for them.
    """
    if getattr(sys, "last_value", None) is None:
        for accelerator in _joined:
            accelerator.free_memory()  # the network's wrapper holds the group as well
            accelerator.end_training()


def auto_precision() -> str:
    """What ``auto`` is on this device: bf16 where it computes in it, else fp32."""
    if computes_on() == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if computes_on() == "cpu" and bf16_is_faster() else "fp32"


def use_cores(accelerator: Accelerator, size: int) -> None:
    """Lets a lone CPU process compute on every core, where images of that side (pixels) are large enough.

    On images of a few pixels a second thread gains little, and costs a factor of ten where another program needs the
    core: its threads wait for each other after every small operation. Beside a GPU there are only such operations, the
    draws of a batch's views. So one thread does them, as under ``accelerate launch``, unless OMP_NUM_THREADS says more.
    """
    if accelerator.device.type == "cpu" and size > TINY:
        use_idle_cores(accelerator.num_processes)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def describe(accelerator: Accelerator) -> dict[str, Any]:
    """Devices, processes and arithmetic, for environment.json."""
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "device": name,
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "mixed_precision": accelerator.mixed_precision,
        "matrix_products": chosen_products() if device.type == "cpu" else "torch's own choice",
        **({"fp32_products": "tf32"} if rounds_to_tf32() else {}),
    }


def micro_batch_size(cfg: ResolvedFit, processes: int) -> int:
    """Images per process and forward pass; UserError where the effective batch cannot be shared evenly."""
    if cfg.given_micro_batch:
        return cfg.given_micro_batch
    if cfg.batch_size % processes:
        raise UserError(f"--fit.batch_size {cfg.batch_size} cannot be shared evenly by {processes} processes")
    return cfg.batch_size // processes


def with_statistics(cfg: ResolvedFit, processes: int, taken: bool) -> ResolvedFit:
    """Records over how many images statistics are ``taken``, if they are: they make another run of it."""
    return replace(cfg, statistics_batch=micro_batch_size(cfg, processes) * processes if taken else None)


def count_steps(cfg: ResolvedFit, loader: Loader) -> int:
    """Optimiser steps of the whole run."""
    return whole_steps(cfg.epochs * loader.steps_per_epoch, cfg.min_steps)


def summarise(
    objective: Objective, loader: Loader, cfg: ResolvedFit, optim: ResolvedOptim, tokens: str, accelerator: Accelerator
) -> None:
    """Prints once what the options came to; a learning rate that is probably a mistake is warned of."""
    if not accelerator.is_main_process:
        return
    warn_of_rate(optim, loader.batch_size)
    steps = count_steps(cfg, loader)
    warmup = warmup_steps(optim, steps, loader.steps_per_epoch)
    trained = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    backbone = sum(p.numel() for p in objective.exported().parameters())
    exact = cfg.precision in ("fp64", "tf32")
    precision = cfg.precision if exact else accelerator.mixed_precision.replace("no", "fp32")
    images, (channels, bits) = loader.images, loader.images.form
    decoded = images.shape
    size = "of many sizes" if decoded is None else f"decoded to {decoded[1]} x {decoded[0]} px"
    if loader.crops is not None:
        size = f"cut to {loader.crops.side} x {loader.crops.side} px as they are decoded"
    split = f"{loader.micro_batch} per device x {loader.accumulation} accumulation"
    asked = whole_steps(cfg.epochs * loader.steps_per_epoch, 0)
    least = f"; --fit.min_steps {cfg.min_steps:,} overrules {asked:,}" if cfg.min_steps > asked else ""
    print(
        f"images          {len(images):,} from {images.name} ({loader.kept}), {tokens}\n"
        f"pixels          {channels} channel(s), {bits} bits, {size}\n"
        f"effective batch {loader.batch_size} = {loader.world} process(es) x "
        f"{'as many per device as fit' if cfg.micro_batch == 'auto' else split}\n"
        f"learning rate   {peak_learning_rate(optim, loader.batch_size):.4g} peak, {steps:,} steps "
        f"({steps / loader.steps_per_epoch:,.1f} epochs{least}), {warmup:,} warm-up\n"
        f"parameters      {backbone:,} in the backbone, {trained:,} trained, {precision} on {accelerator.device.type}",
        flush=True,
    )
