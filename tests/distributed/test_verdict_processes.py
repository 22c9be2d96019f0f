"""A verdict on two processes: every run is made by both together, and written once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = [
    "--data.path", "images", "--run.dir", "v", "--verdict.methods", "mae,pixels", "--verdict.labels", "[10]",
    "--verdict.seeds", "1", "--verdict.train_draws", "1", "--verdict.probe_draws", "1", "--verdict.matched_draws", "1",
    "--verdict.trials", "2", "--verdict.length", "0.02", "--verdict.pretraining", "0.02",
    "--model.width", "16", "--model.depth", "1", "--model.heads", "2",
]  # fmt: skip


def test_a_leak_that_stops_two_processes_is_written_down(launch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n in range(40):
        path = tmp_path / "images" / ("train" if n < 30 else "test") / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    copied = tmp_path / "images" / "test" / "a" / "30.png"
    (tmp_path / "images" / "train" / "a" / "copy.png").write_bytes(copied.read_bytes())
    done = launch(2, "eval/verdict.py", *WORDS, "--data.on_leak", "stop", cwd=tmp_path)
    assert done.returncode != 0
    assert "1 of 10 test images leak" in done.stderr
    assert "(all in v/leaks.html)" in done.stderr
    assert "images/test/a/30.png" in (tmp_path / "v" / "leaks.html").read_text()
    assert json.loads((tmp_path / "v" / "leaks.json").read_text())["affected"] == [0]


def test_two_processes_make_one_verdict_and_continue_it(launch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "images" / name / f"{i}.png")
    done = launch(2, "eval/verdict.py", *WORDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("leak guard      No copies") == 1
    made = tmp_path / "v"
    for start in ("mae", "scratch"):
        result = json.loads((made / "results" / f"{start}-train-96-labels-draw-0.json").read_text())
        assert result["rows"][0]["images"] == 24  # every test image once, whoever saw it
    assert (made / "report.html").exists()
    finished = {path: path.stat().st_mtime_ns for path in (made / "units").iterdir()}
    (made / "units" / "pictures.json").unlink()
    done = launch(2, "eval/verdict.py", *WORDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    again = {path: path.stat().st_mtime_ns for path in (made / "units").iterdir()}
    assert {path.name for path in finished if again[path] != finished[path]} == {"pictures.json"}
