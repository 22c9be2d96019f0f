"""How this process meets the others of its job, and which engines are refused."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator

from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once

_ENGINES = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism configuration",
}


def join(mixed_precision: str) -> Accelerator:
    """Joins the other processes.

    Args:
        mixed_precision: For Accelerate.

    Raises:
        UserError: Where another engine is chosen than data parallelism, or the tasks of ``srun`` do not meet.
    """
    refuse_engines()
    by_slurm = os.environ.get("SLURM_NTASKS") is not None and "TORCHELASTIC_RUN_ID" not in os.environ
    if by_slurm and "WORLD_SIZE" in os.environ:
        _choose_device()
    try:
        return Accelerator(mixed_precision=mixed_precision)
    except torch.distributed.DistError as error:
        if not by_slurm:
            raise
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise UserError(
            f"the {os.environ.get('WORLD_SIZE')} tasks of srun did not meet at {where} "
            f"({str(error).splitlines()[0]}); set MASTER_ADDR and MASTER_PORT in the batch script where another host "
            "or port is to be taken"
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


def _choose_device() -> None:
    """A task of ``srun`` computes on the CPU, or on its GPU among those that SLURM shows it."""
    if not torch.accelerator.is_available():
        os.environ.setdefault(
            "ACCELERATE_USE_CPU", "1"
        )  # else Accelerate looks for GPUs, and starts jobs of one process
        return
    gpus, here = torch.accelerator.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % gpus)
    if gpus > here:
        say_once(
            f"warning: {gpus} GPUs of this node are visible and {here} task(s) compute, each on one; ask SLURM for as "
            "many tasks as GPUs (--ntasks-per-node)"
        )
