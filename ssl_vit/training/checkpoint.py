"""Checkpoints that survive a crash."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from ssl_vit.core.files import sha256, write_atomically


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], keep: int) -> None:
    """Writes a checkpoint atomically, then removes all but the newest ``keep``.

    The data file is complete on disk before it gets its name, and its hash is written last: a checkpoint without a
    matching hash is never used.

    Args:
        folder: Where checkpoints of the run are.
        step: Optimiser steps taken.
        state: Tensors, numbers and containers of them.
        keep: At least 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:09d}.pt"
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        torch.save({"step": step, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    write_atomically(path.with_suffix(".sha256"), sha256(path) + "\n")
    found = sorted(folder.glob("step_*.pt"))
    # Later steps than this one are damaged ones that were passed over when the run continued.
    for old in [*found[: found.index(path) + 1][:-keep], *found[found.index(path) + 1 :]]:
        old.with_suffix(".sha256").unlink(missing_ok=True)
        old.unlink()


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """What ``save_checkpoint`` was given, and ``step``, of the newest whole checkpoint; damaged ones are named."""
    for path in sorted(folder.glob("step_*.pt"), reverse=True):
        written = path.with_suffix(".sha256")
        if written.exists() and written.read_text().strip() == sha256(path):
            return torch.load(path, map_location="cpu", weights_only=True)
        sys.stderr.write(f"warning: the checkpoint {path} is damaged or incomplete; an older one is used\n")
    return None
