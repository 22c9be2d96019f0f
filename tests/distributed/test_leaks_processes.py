"""The leak guard on two processes: both leave out the same images, as one process does, and train on the same pool."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from made_processes import Warm

MAE = Path(__file__).resolve().parents[2] / "recipes" / "mae.py"


def test_two_processes_leave_out_what_one_does(warm: Warm, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "cells").mkdir()
    lines = ["file,label"]
    for n in range(60):
        Image.fromarray(rng.integers(0, 256, (12, 12), dtype=np.uint8)).save(tmp_path / "cells" / f"{n:02}.png")
        lines += [f"cells/{n:02}.png,{'ab'[n % 2]}"] if n < 40 else []
    Image.open(tmp_path / "cells" / "50.png").rotate(90).save(tmp_path / "turned.png")
    lines += [f"turned.png,{'ab'[n % 2]}" for n in range(20)]  # on both sides of the split that is made
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    words = [
        "--data.path", "cells", "--eval.data.path", "labels.csv", "--model.img_size", "12", "--model.patch_size", "4",
        "--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--fit.batch_size", "16",
        "--fit.epochs", "1",
    ]  # fmt: skip
    told = {}
    for processes in (2, 1):
        run, kept = f"run{processes}", str(tmp_path / f"kept{processes}")  # each looks for itself
        done = warm(
            MAE, *words, "--run.dir", run, cwd=tmp_path, processes=processes, ACCELERATE_USE_CPU="1", SSL_VIT_CACHE=kept
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("leak guard") == 1
        told[processes] = (
            (tmp_path / run / "left_out_pool.csv").read_text(),
            json.loads((tmp_path / run / "environment.json").read_text())["data_fingerprint"],
        )
    assert told[1] == told[2]
    assert "50.png" in told[1][0]
