"""How this process meets the others of its job, and which engines are refused."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin

from ssl_vit.core import slurm
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once

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
        UserError: Where another engine is chosen than data parallelism, or the tasks of ``srun`` do not meet.
    """
    refuse_engines()
    _take_over_sharding()
    task = slurm.adopted
    if task is not None:
        _choose_device(task)
    try:
        return Accelerator(mixed_precision=mixed_precision)
    except torch.distributed.DistError as error:
        if task is None:
            raise
        raise UserError(
            f"the {task.tasks} tasks of srun did not meet at {task.address}:{task.port} "
            f"({str(error).splitlines()[0]}); set MASTER_ADDR and MASTER_PORT in the batch script to meet elsewhere"
        ) from None


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("1", "true", "yes", "on", "y", "t")


def refuse_engines() -> None:
    """Stops where ``accelerate config`` has chosen an engine that splits the network, other than FSDP2.

    Raises:
        UserError: Naming it, and why.
    """
    for name, engine in _ENGINES.items():
        if _is_on(name):
            raise UserError(
                f"accelerate config chooses {engine}, which splits the network over processes in its own way; "
                "checkpoints, averaged teachers and clipping rely on whole networks (DistributedDataParallel) or on "
                "torch's own sharding (FSDP2). For networks that do not fit take --fit.shard true; else choose "
                "multi-GPU without it, or give accelerate launch --multi_gpu"
            )
    if not _is_on(_FSDP):
        return
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError(
            "accelerate config chooses FSDP of version 1; here it is version 2 (accelerate launch --use_fsdp "
            "--fsdp_version 2), or --fit.shard true without it"
        )
    if _is_on("FSDP_OFFLOAD_PARAMS"):
        raise UserError(
            "accelerate config has FSDP keep weights in the machine's memory (fsdp_offload_params); leave that out: "
            "gradients are clipped and averaged on the device"
        )


_chosen: dict[str, bool] = {}
"""What Accelerate's plugin was told, where its launcher chose FSDP2."""


def _take_over_sharding() -> None:
    """Reads Accelerate's choice of FSDP2 and keeps it from doing it, too (``training.sharding``)."""
    if _is_on(_FSDP):
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
