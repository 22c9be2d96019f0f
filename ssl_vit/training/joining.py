"""How this process meets the others of its job, and which engines are refused."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator

from ssl_vit.core import slurm
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once

_ENGINES = {
    "ACCELERATE_USE_FSDP": "FSDP",
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


def refuse_engines() -> None:
    """Stops where ``accelerate config`` has chosen an engine that splits the network.

    Raises:
        UserError: Naming it, and why.
    """
    for name, engine in _ENGINES.items():
        if os.environ.get(name, "false").lower() in ("1", "true", "yes", "on", "y", "t"):
            raise UserError(
                f"accelerate config chooses {engine}, which splits the network over processes; here every process "
                "holds all of it (DistributedDataParallel): checkpoints, averaged teachers and clipping rely on that. "
                "Choose multi-GPU without it, or give accelerate launch --multi_gpu"
            )


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
