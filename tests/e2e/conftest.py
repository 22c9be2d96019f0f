"""Runs the project's scripts as a user does (in a process of their own) or quickly (in this one); images for them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from accelerate.state import AcceleratorState
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]

SMALL = ["--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.batch_size", "32"]
"""A network so small that a test may train it."""


def launched(script: str, *words: str, cwd: Path, launcher: bool = False) -> subprocess.CompletedProcess[str]:
    """A script in its own process, optionally under ``accelerate launch``."""
    command = [sys.executable, *(["-m", "accelerate.commands.launch"] if launcher else []), str(ROOT / script), *words]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


class InProcess:
    """Scripts in this process, with their own command line and working directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.chdir(cwd)

    def __call__(self, script: str, *words: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        self.monkeypatch.setattr(sys, "argv", [str(ROOT / script), *words])
        AcceleratorState._reset_state()  # the script before may have had another precision
        status = 0
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 1
        captured = self.capsys.readouterr()
        return status, captured.out, captured.err


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> InProcess:
    return InProcess(monkeypatch, capsys, tmp_path)


@pytest.fixture(name="launched", scope="session")
def launched_fixture():
    return launched


@pytest.fixture(scope="session")
def small() -> list[str]:
    return SMALL


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of 30 small colour images of different sizes: dark and bright."""
    rng = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 40)):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for i in range(30):
            size = (20 + i % 7, 24 + i % 5, 3)
            pixels = (level + rng.integers(0, 60, size)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    return tmp_path / "photos"
