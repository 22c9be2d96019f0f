"""What each of several commands may use of this machine."""

from __future__ import annotations

import os

from ssl_vit.core.errors import UserError


def shares(at_once: int) -> list[dict[str, str]]:
    """What every one of so many commands gets of this machine, as variables of its environment.

    Args:
        at_once: With several, each gets its share of the cores, and of the GPUs that are visible.

    Raises:
        UserError: For more commands than GPUs, where there are any.
    """
    if at_once == 1:
        return [{}]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, _cores() // at_once))}
    gpus = _gpus()
    if 0 < len(gpus) < at_once:
        raise UserError(
            f"--at_once {at_once}: this machine has {len(gpus)} GPU(s); give at most {len(gpus)}, or set "
            "ACCELERATE_USE_CPU=1"
        )
    return [threads | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus[n::at_once])} if gpus else {}) for n in range(at_once)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """Numbers of the GPUs that may be used."""
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        return []
    import torch

    count = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible and count else [str(n) for n in range(count)]
