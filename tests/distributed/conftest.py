"""Scripts on one or several real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def launch(processes: int, script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    runner = (
        [sys.executable]
        if processes == 1
        else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    )
    return subprocess.run(
        [*runner, str(ROOT / script), *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(name="launch", scope="session")
def launch_fixture():
    return launch


@pytest.fixture(name="losses", scope="session")
def losses_fixture():
    return losses
