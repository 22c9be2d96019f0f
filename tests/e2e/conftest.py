"""Runs the project's scripts as a user does, in a process of their own; images for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_processes import LAUNCHERS, LONGEST, Warm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def launched(warm: Warm):
    def launched(
        script: str | Path, *words: str, cwd: Path, launcher: bool = False, cold: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """A script in its own process, optionally under ``accelerate launch``, or as a start of Python."""
        if not (launcher or cold):
            return warm(ROOT / script, *words, cwd=cwd)
        start = [sys.executable, *(["-m", "accelerate.commands.launch"] if launcher else [])]
        environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
        return subprocess.run(
            [*start, str(ROOT / script), *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )

    return launched


def save_photos(folder: Path) -> Path:
    """Two classes of 30 small colour images of different sizes, dark and bright, in ``folder/photos``."""
    rng = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 40)):
        place = folder / "photos" / name
        place.mkdir(parents=True)
        for i in range(30):
            size = (20 + i % 7, 24 + i % 5, 3)
            pixels = (level + rng.integers(0, 60, size)).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{i:02d}.png")
    return folder / "photos"


@pytest.fixture(name="save_photos", scope="session")
def save_photos_fixture():
    return save_photos


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_photos(tmp_path)
