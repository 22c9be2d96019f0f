"""Whether a step is compiled: what is asked for, or where it pays and can be had."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from ssl_vit.core.errors import UserError

_WORTH = 1200.0
"""Seconds of uncompiled passes from which on compiling pays: it takes some minutes and saves a quarter
(benchmarks/results/gpu-nvidia-h100-80gb-hbm3/suite.md)."""
_SLOWER = 3.0
"""Time of an uncompiled pass as a multiple of what its arithmetic takes at the ceiling (as there)."""
_LAUNCHED = 0.03
"""Seconds that launching a pass takes at least, kernel by kernel."""


def compiles(asked: bool | None, device: torch.device, seconds: float, passes: int) -> bool:
    """Whether the passes of a run are compiled: where nothing is asked for, on GPUs that a long run has.

    Args:
        asked: ``--fit.compile``.
        device: Where they run.
        seconds: Least time of one, see ``Meter.least_seconds``.
        passes: Of the whole run on this process, so that a run that goes on decides as it did.

    Raises:
        UserError: When it is asked for on a CPU without a compiler.
    """
    if asked is None:
        long = passes * max(_SLOWER * seconds, _LAUNCHED) >= _WORTH
        able = find_spec("triton") is not None and _compiler("CC", "gcc", "clang", "cc")
        if not (device.type == "cuda" and long and able):
            return False
        import torch._dynamo

        # Nobody asked: what cannot be compiled after all runs as it is.
        torch._dynamo.config.suppress_errors = True
        return True
    if asked and device.type == "cpu" and not _compiler("CXX", "g++", "clang++"):
        raise UserError("--fit.compile true needs a C++ compiler on a CPU: install g++ (or clang++), or leave it out")
    return asked


def _compiler(variable: str, *usual: str) -> bool:
    return any(map(shutil.which, (os.environ.get(variable, usual[0]), *usual)))
