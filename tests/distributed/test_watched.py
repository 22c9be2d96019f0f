"""``--fit.watch knn`` of every method on two processes: training does not notice, not even one that was cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ssl_vit.methods import METHODS

from made_teacher import save_teacher

WORDS = ["--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--fit.batch_size", "32", "--fit.epochs",
         "0.2", "--fit.log_every", "1", "--fit.checkpoint_steps", "4", "--fit.keep_checkpoints", "9"]  # fmt: skip
WATCH = ["--fit.watch", "knn", "--fit.watch_percent", "30"]


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", METHODS)
def test_a_watched_run_trains_what_one_without_a_watch_trains(name: str, tmp_path: Path, launch) -> None:
    taught = ["--teacher", save_teacher(tmp_path / "teacher")] if name == "distill" else []
    for run, more in (("plain", taught), ("watched", [*taught, *WATCH])):
        done = launch(2, METHODS[name].script, *WORDS, *more, "--run.dir", run, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "watched         k-NN, top-1 %, of 284 labelled training images by 1,154 others, every 30 %" in done.stdout
    weights, watched = (tmp_path / "plain/backbone/model.safetensors").read_bytes(), tmp_path / "watched"
    assert (watched / "backbone/model.safetensors").read_bytes() == weights
    found = rows(watched)
    assert [row["step"] for row in found if "watch/knn_top1" in row] == [0, 3, 6, 9]
    plain = [{k: v for k, v in row.items() if not k.startswith("watch/")} for row in found[1:]]
    assert plain == rows(tmp_path / "plain")
    max((watched / "checkpoints").glob("*.pt")).unlink()  # as if the end had never been written
    again = launch(2, METHODS[name].script, *WORDS, *taught, *WATCH, "--run.dir", "watched", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 8 of 9" in again.stdout
    assert (watched / "backbone/model.safetensors").read_bytes() == weights
    assert rows(watched) == found
