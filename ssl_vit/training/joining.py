"""How this process meets the others of its job, and which engines are refused."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import (
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
    KwargsHandler,
)
from torch.distributed.constants import default_pg_timeout
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import register_rendezvous_handler, rendezvous

from ssl_vit.core import slurm
from ssl_vit.core.arithmetic import is_on
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once, write_line
from ssl_vit.core.signals import REQUEUE

_FSDP = "ACCELERATE_USE_FSDP"
_ENGINES = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism configuration",
}


def joined(mixed_precision: str) -> Accelerator:
    """Joins the other processes.

    Args:
        mixed_precision: For Accelerate.

    Raises:
        UserError: Where another engine is chosen than data parallelism, SLURM's GPUs cannot be used, or the tasks of
            ``srun`` do not meet.
    """
    refuse_engines()
    refuse_lost_gpus()
    _take_over_sharding()
    task = slurm.adopted
    if task is not None:
        _choose_device(task)
    handlers: list[KwargsHandler] = []
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        handlers = [InitProcessGroupKwargs(init_method=f"{_SCHEME}://")]
    try:
        # Given, because Accelerate takes from the environment what is not.
        return Accelerator(
            mixed_precision=mixed_precision,
            dynamo_backend="no",
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
            kwargs_handlers=handlers,
        )
    except torch.distributed.DistError as error:
        if task is None:
            raise
        raise UserError(
            f"the {task.tasks} tasks of srun did not meet at {task.address}:{task.port} "
            f"({str(error).splitlines()[0]}); set MASTER_ADDR and MASTER_PORT in the batch script to meet elsewhere"
        ) from None


_SCHEME = "ssl-vit"
_LOOKS = 0.02
"""Seconds between two looks for a process that has not come yet."""


def agree(store: Store, rank: int, world: int, timeout: timedelta) -> str:
    """A name for this start of a job, the same on all of its processes and never used before.

    Launchers that start a job again keep their store, with the addresses of the processes that are dead, and count
    restarts on each machine by itself. So every process asks under a word of its own, which only a first process that
    lives can answer.

    Args:
        store: Of all starts.
        rank: Of this process.
        world: Processes.
        timeout: To wait for the others.

    Raises:
        DistStoreError: Where they do not come.
    """
    own = uuid4().hex
    if rank:
        store.set(f"asks/{rank}", own)
        store.wait([f"answer/{own}"], timeout)
        name = store.get(f"answer/{own}").decode()
        store.set(f"heard/{name}/{rank}", "")
        return name
    missing, until = list(range(1, world)), time.monotonic() + timeout.total_seconds()
    while missing:
        for other in missing:
            if store.check([f"asks/{other}"]):  # perhaps one that is dead: nobody reads that answer
                store.set(f"answer/{store.get(f'asks/{other}').decode()}", own)
        missing = [other for other in missing if not store.check([f"heard/{own}/{other}"])]
        if missing and time.monotonic() > until:
            raise dist.DistStoreError(f"process(es) {', '.join(map(str, missing))} of {world} did not come")
        if missing:
            time.sleep(_LOOKS)
    return own


def _meet(url: str, timeout: timedelta = default_pg_timeout, **more: Any) -> Iterator[tuple[Store, int, int]]:
    """How torch's processes find each other, apart from what an earlier start has left in the launcher's store."""
    store, rank, world = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    ours = PrefixStore(_SCHEME, store)
    yield PrefixStore(f"{_SCHEME}/{agree(ours, rank, world, timeout)}", store), rank, world
    raise RuntimeError("processes meet once")


register_rendezvous_handler(_SCHEME, _meet)


_UNUSED = {
    "ACCELERATE_MIXED_PRECISION": "--fit.precision",
    "ACCELERATE_DYNAMO_BACKEND": "--fit.compile",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "--fit.micro_batch",
}
"""What of Accelerate's environment an option says here."""


def tell_unused(mixed_precision: str) -> None:
    """Says what ``accelerate config`` or its launcher asks of a training that has an option for it here.

    Args:
        mixed_precision: As the training has it.
    """
    for variable, option in _UNUSED.items():
        asked = os.environ.get(variable, "")
        if asked.lower() not in ("", "no", "1", mixed_precision):
            say_once(f"note: {variable}={asked} has no effect here; give {option} instead")


def refuse_engines() -> None:
    """Stops where ``accelerate config`` has chosen an engine that splits the network, other than FSDP2.

    Raises:
        UserError: Naming it, and why.
    """
    for name, engine in _ENGINES.items():
        if is_on(name):
            raise UserError(
                f"accelerate config chooses {engine}, which splits the network over processes in its own way; "
                "checkpoints, averaged teachers and clipping rely on whole networks (DistributedDataParallel) or on "
                "torch's own sharding (FSDP2). For networks that do not fit take --fit.shard true; else choose "
                "multi-GPU without it, or give accelerate launch --multi_gpu"
            )
    if not is_on(_FSDP):
        return
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError(
            "accelerate config chooses FSDP of version 1; here it is version 2 (accelerate launch --use_fsdp "
            "--fsdp_version 2), or --fit.shard true without it"
        )
    if is_on("FSDP_OFFLOAD_PARAMS"):
        raise UserError(
            "accelerate config has FSDP keep weights in the machine's memory (fsdp_offload_params); leave that out: "
            "gradients are clipped and averaged on the device"
        )


_NONE = ("", "-1", "NoDevFiles")
"""What CUDA_VISIBLE_DEVICES says where a person, or SLURM for a step without GPUs, wants none of them."""


def refuse_lost_gpus() -> None:
    """Stops where SLURM has given GPUs and torch sees none: on the CPU a run would take weeks, and be another run.

    A job that SLURM has started again had its GPUs before: it ends with the status on which it is started elsewhere.

    Raises:
        UserError: Naming the node, and what to do.
        SystemExit: With status 75, of a job that was started again.
    """
    gpus = slurm.gpus()
    left_aside = is_on("ACCELERATE_USE_CPU") or os.environ.get("CUDA_VISIBLE_DEVICES") in _NONE
    if not gpus or left_aside or torch.accelerator.is_available():
        return
    made_for = torch.version.cuda or torch.version.hip
    why = f"made for CUDA or ROCm {made_for}: see what nvidia-smi says there" if made_for else "made for CPUs alone"
    message = (
        f"SLURM has given this job {gpus} GPU(s) of {os.environ.get('SLURMD_NODENAME', platform.node())}, and torch "
        f"{torch.__version__} sees none (it is {why}); set ACCELERATE_USE_CPU=1 to compute on the CPU"
    )
    if slurm.job()[1]:
        write_line(f"error: {message}")
        raise SystemExit(REQUEUE)
    raise UserError(message)


_chosen: dict[str, bool] = {}
"""What Accelerate's plugin was told, where its launcher chose FSDP2."""


def _take_over_sharding() -> None:
    """Reads Accelerate's choice of FSDP2 and keeps it from doing it, too (``training.sharding``)."""
    if is_on(_FSDP):
        plugin = FullyShardedDataParallelPlugin()
        _chosen.update(shard=True, reshard=bool(plugin.reshard_after_forward))
        os.environ[_FSDP] = "false"


def asks_to_shard() -> bool:
    """Whether ``accelerate config`` or its launcher chose FSDP2."""
    return _chosen.get("shard", False)


def reshards() -> bool:
    """Whether a block's whole weights go after its forward pass, to be gathered again for the backward pass."""
    return _chosen.get("reshard", True)


def _choose_device(task: slurm.Task) -> None:
    """A task of ``srun`` computes on the CPU, or on its GPU among those that SLURM shows it."""
    if not torch.accelerator.is_available():
        # Accelerate looks for GPUs otherwise, and starts jobs of one process.
        os.environ.setdefault("ACCELERATE_USE_CPU", "1")
        return
    gpus = torch.accelerator.device_count()
    os.environ["LOCAL_RANK"] = str(task.local_rank % gpus)
    if gpus > task.local_tasks:
        say_once(
            f"warning: {gpus} GPUs of this node are visible and {task.local_tasks} task(s) compute, each on one; ask "
            "SLURM for as many tasks as GPUs (--ntasks-per-node)"
        )
