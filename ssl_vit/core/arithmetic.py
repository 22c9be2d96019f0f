"""What computes, and how exactly: the device that Accelerate takes, and whether products are rounded to TF32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def is_on(variable: str) -> bool:
    """Whether a variable of the environment says yes, as Accelerate reads them."""
    return os.environ.get(variable, "false").lower() in ("1", "true", "yes", "on", "y", "t")


def computes_on() -> str:
    """Type of the device that Accelerate takes: ``cpu`` also beside a GPU, where ACCELERATE_USE_CPU asks for it."""
    if is_on("ACCELERATE_USE_CPU"):
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if found is None else found.type


_rounded = [False]
"""What was chosen; torch does not tell where CPUs were given a choice of their own."""


def choose_tf32(rounded: bool) -> None:
    """Products of single precision with factors of 10 bits, or exact; convolutions too, which torch rounds unasked."""
    _set_tf32(rounded)
    _rounded[:] = [rounded]


def _set_tf32(rounded: bool) -> None:
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = rounded


def rounds_to_tf32() -> bool:
    """Whether products of single precision are rounded to TF32 here: it gives a number another meaning."""
    return _rounded[0] and computes_on() == "cuda" and torch.cuda.get_device_capability() >= (8, 0)


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Products of pixels are exact meanwhile, whatever was chosen for networks.

    A factor of 10 bits keeps a level of 8-bit images. Of images of 16 bits that use a small part of their range it
    keeps nothing: at a level of 30,000 it rounds away differences of up to 8, before the mean is taken off.

    Args:
        device: Of the factors.
    """
    if device.type != "cuda" or not _rounded[0]:
        yield
        return
    _set_tf32(False)
    try:
        yield
    finally:
        _set_tf32(True)
