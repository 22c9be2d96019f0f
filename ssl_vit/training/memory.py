"""How much memory a process has used at most, and whether it had too little."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import torch


def peak_memory(device: torch.device) -> int:
    """Bytes: of tensors on a CUDA device since the start, else of the whole process in RAM."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def forget_peak() -> None:
    """Counts the peak from here on, where the system can: a process that has done other work before starts anew."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def out_of_memory(error: RuntimeError) -> bool:
    """Whether a failure is that of an allocation, on a device or in RAM."""
    known = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in known)
