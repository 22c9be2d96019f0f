"""Folders of runs inside a verdict: whatever interrupts them, the same command goes on."""

from __future__ import annotations

import shutil
from pathlib import Path


def prepare(folder: Path) -> None:
    """Leaves a run that may be continued, and removes what an interruption left that is none.

    Args:
        folder: Where a run is to be, inside a verdict.
    """
    if not (folder / "config.yaml").exists():
        shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path) -> None:
    """Removes a run that is no longer needed; half of one is never taken for a run.

    Args:
        folder: Of the run; nothing happens where there is none.
    """
    aside = folder.with_name(f"{folder.name}.gone")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
        shutil.rmtree(aside)
