"""A run imports what its first step needs: each of these would take up to a second of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
def test_pre_training_begins_without_what_only_some_runs_need() -> None:
    code = "import sys, ssl_vit.training.pretraining; print(*sys.modules)"
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=True)
    assert not {"datasets", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib"} & set(done.stdout.split())
