"""Whether a step is compiled: what is asked for, or where it pays and can be had."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from ssl_vit.core.errors import UserError

_WORTH = 1200.0
"""Seconds of uncompiled passes from which on compiling pays, by a low estimate: it takes minutes, and saved 12 to 36 %
of the time of four trainings (benchmarks/results/gpu-nvidia-h200/suite.md, end to end)."""
_SLOWER = 2.0
"""Time of an uncompiled pass as a multiple of what its arithmetic takes at the ceiling: 2.1 to 4.3 there."""
COMPILING = 30.0
"""Minutes that a first step which compiles may take more than others before it counts as one that hangs."""
_LAUNCHED = 0.03
"""Seconds that launching a pass takes at least, kernel by kernel."""


def compiles(asked: bool | None, device: torch.device, seconds: float, passes: int) -> bool:
    """Whether the passes of a run are compiled: where nothing is asked for, on a GPU in a long run.

    Args:
        asked: ``--fit.compile``.
        device: Where they run.
        seconds: Least time of one, see ``Meter.least_seconds``.
        passes: Of the whole run on this process.

    Raises:
        UserError: When it is asked for on a CPU without a compiler.
    """
    if asked is None:
        long = passes * max(_SLOWER * seconds, _LAUNCHED) >= _WORTH
        able = find_spec("triton") is not None and _compiler("CC", "gcc", "clang", "cc")
        return device.type == "cuda" and long and able
    if asked and device.type == "cpu" and not _compiler("CXX", "g++", "clang++"):
        raise UserError("--fit.compile true needs a C++ compiler on a CPU: install g++ (or clang++), or leave it out")
    return asked


def forgive(unasked: bool) -> None:
    """Where nobody asked for it, a pass that cannot be compiled runs as it is; whoever asked is told.

    The backward pass is compiled with the forward pass then, so that its failure counts, too. This holds for all that
    the process compiles from now on, so only a run that compiles says it.
    """
    import torch._dynamo
    import torch._functorch.config as lowering

    torch._dynamo.config.suppress_errors = unasked
    if hasattr(lowering, "force_non_lazy_backward_lowering"):  # what older versions of torch do always
        lowering.force_non_lazy_backward_lowering = unasked


def _compiler(variable: str, *usual: str) -> bool:
    return any(map(shutil.which, (os.environ.get(variable, usual[0]), *usual)))
