"""Scripts on one or several real processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from made_processes import Warm

ROOT = Path(__file__).resolve().parents[2]


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def launch(warm: Warm):
    def launch(processes: int, script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return warm(ROOT / script, *words, cwd=cwd, processes=processes, ACCELERATE_USE_CPU="1")

    return launch


@pytest.fixture(name="losses", scope="session")
def losses_fixture():
    return losses
