"""One of several processes is killed: the others say which, and the same command continues."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest
from ssl_vit.core import peers

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, runpy, signal, sys
from ssl_vit.objectives.mae import MAE

def after_step(self, clock):
    if clock.step == 3 and os.environ["RANK"] == "{rank}":
        os.kill(os.getpid(), signal.SIGKILL)

MAE.after_step = after_step
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_is_named_by_the_others(launch, tmp_path: Path, small: list[str], rank: int) -> None:
    words = [
        *small, "--fit.epochs", "0.2", "--fit.log_every", "1", "--fit.checkpoint_steps", "2", "--run.dir", "run",
    ]  # fmt: skip
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(rank=rank, words=[str(ROOT / "recipes/mae.py"), *words]))
    done = launch(2, str(script), cwd=tmp_path)
    assert done.returncode != 0
    assert f"error: process {rank} of 2 (number " in done.stderr
    assert "the same command continues" in done.stderr
    assert "Traceback" not in done.stderr
    if rank == 1:  # who holds the run is left to say it
        ended = json.loads((tmp_path / "run" / "ended.json").read_text())
        assert ended["why"].startswith("process 1 of 2 (number ") and ended["why"].endswith(" has died")
    again = launch(2, "recipes/mae.py", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 2 of" in again.stdout


@pytest.mark.quick
def test_only_a_broken_connection_to_a_dead_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_known", [])
    broken = RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:42")
    assert peers.lost(broken) is None  # a process by itself
    own = peers.myself(0)
    gone = own.replace(f"{os.getpid()}, ", f"{max(psutil.pids()) + 10**6}, ").replace("[0", "[1", 1)
    peers.learn([own, gone])
    words = peers.lost(broken)
    assert words is not None and words.startswith("process 1 of 2 (number ") and words.endswith(" has died")
    assert peers.is_first()
    assert peers.lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert peers.lost(ValueError("peer")) is None
    monkeypatch.setattr(peers, "_PATIENCE", 0.0)
    peers.learn([own, own])
    assert peers.lost(broken) is None  # nobody is dead
    peers.learn([own, gone.replace('"', '"elsewhere-', 1)])
    words = peers.lost(broken)
    assert words is not None and "a process on another machine (elsewhere-" in words
