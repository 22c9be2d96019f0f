"""The tallies of docs and README, small: kills at random and at named points, and every sample once an epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ran(name: str, *words: str, cwd: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *words, "--work", str(cwd / "work"), "--out", str(cwd)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]


def test_nothing_differs_and_nothing_is_lost_where_commands_are_killed(tmp_path: Path) -> None:
    words = ["--trials", "6", "--commands", "mae", "dino", "finetune"]
    ran("chaos.py", *words, cwd=tmp_path)
    result = json.loads((tmp_path / "chaos.json").read_text())
    rows = result["rows"]
    assert len(rows) == 6
    assert result["summary"]["kills"] >= 4  # a process may be done before a point comes
    for name in ("differing_bytes", "steps_lost_beyond_the_newest_checkpoint", "did_not_go_on", "left_behind"):
        assert result["summary"][name] == 0, rows
    before = (tmp_path / "work" / "trials.jsonl").read_text()
    ran("chaos.py", *words, cwd=tmp_path)  # what is finished is not made again
    assert (tmp_path / "work" / "trials.jsonl").read_text() == before
    assert f"Made by `{result['about']['command']}`" in (tmp_path / "chaos.md").read_text()


def test_a_byte_that_differs_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from chaos import differing

    for name, line in (("a", '{"step": 1}\n'), ("b", '{"step": 2}\n{}\n')):
        (tmp_path / name / "results").mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text(line)
        result = {"rows": [1.0], "seconds": ord(name), "made_with": {"commit": name}}
        (tmp_path / name / "results" / "knn.json").write_text(json.dumps(result))
    (tmp_path / "b" / "backbone").mkdir()
    (tmp_path / "b" / "backbone" / "model.safetensors").write_bytes(b"1234")
    assert differing(tmp_path / "a", tmp_path / "b") == {"metrics.jsonl": 4, "backbone/model.safetensors": 4}


def test_every_sample_is_seen_once_an_epoch(tmp_path: Path) -> None:
    longer = ["--epochs", "3", "--stops", "1"]  # ended inside the second: it is finished in another life, and one begun
    ran("once_an_epoch.py", "--samples", "6000", "--shard", "500", "--batch", "100", *longer, cwd=tmp_path)
    result = json.loads((tmp_path / "once_an_epoch.json").read_text())
    (row,) = result["rows"]
    assert (row["samples_seen"], row["not_exactly_once"]) == (18_000, 0)
    assert sorted(path.name for path in (tmp_path / "work").glob("seen-*.npy")) == [
        f"seen-{life}-{rank}.npy" for life in range(2) for rank in range(2)
    ]
    assert f"Made by `{result['about']['command']}`" in (tmp_path / "once_an_epoch.md").read_text()
