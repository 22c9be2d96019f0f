"""The project's scripts in the process of the tests: no second start of Python, no second import of torch."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SMALL = ["--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.batch_size", "32"]
"""A network so small that a test may train it."""


class InProcess:
    """Scripts in this process, with their own command line and working directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cwd: Path) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.chdir(cwd)

    def __call__(self, script: str, *words: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        from accelerate.state import AcceleratorState

        self.monkeypatch.setattr(sys, "argv", [str(ROOT / script), *words])
        AcceleratorState._reset_state()  # the script before may have had another precision
        status, out, err = 0, io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runpy.run_path(str(ROOT / script), run_name="__main__")
            except SystemExit as stopped:
                status = stopped.code if isinstance(stopped.code, int) else 1
        return status, out.getvalue(), err.getvalue()
