"""A transfer suite on two processes: the numbers of one, and a set that fails is told once while the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = ["--transfer.protocol", "knn", "--transfer.options", '{"eval.keep_features": false}']


def draw(folder: Path, broken: tuple[int, ...] = ()) -> None:
    """Two classes of 20 small grey images, some of whose files cannot be decoded."""
    rng = np.random.default_rng(len(broken))
    for name, level in (("bright", 150), ("dark", 20)):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            file = folder / name / f"{i:02d}.png"
            Image.fromarray((level + rng.integers(0, 90, (8, 8))).astype(np.uint8)).save(file)
            if name == "bright" and i in broken:
                file.write_bytes(file.read_bytes()[:45])


def rows(place: Path) -> dict[str, Any]:
    (file,) = place.glob("results/transfer/sets-*.json")
    table = json.loads(file.read_text())
    return {row["name"]: {**row, "result": ""} for row in table["sets"]}


def test_a_suite_on_two_processes(launch, tiny_run: Path, tmp_path: Path) -> None:
    """Images that cannot be read lie in the share of one process; the other must not wait for it."""
    for name in ("a", "c"):
        draw(tmp_path / "sets" / name)
    draw(tmp_path / "sets" / "b", broken=(1, 2, 3, 4, 5))
    found = []
    for processes in (1, 2):
        place = f"out-{processes}"
        words = ["--backbone", str(tiny_run), "--suite", "sets", *WORDS, "--run.dir", place]
        done = launch(processes, "eval/transfer.py", *words, cwd=tmp_path)
        assert done.returncode == 1
        failed = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
        assert len(failed) == 1 and failed[0].startswith("failed: b: "), done.stderr
        assert done.stderr.count("error: 1 of 3 sets failed (b)") == 1
        assert "Traceback" not in done.stderr
        assert done.stdout.count("mean of all sets (2 of 3)") == 1
        found.append(rows(tmp_path / place))
    assert found[0] == found[1]
    assert [row["value"] is None for row in found[0].values()] == [False, True, False]
    again = launch(2, "eval/transfer.py", *words, cwd=tmp_path)
    assert again.stdout.count("kept from before: ") == 2
    kept = {name: {**row, "kept": False} for name, row in rows(tmp_path / "out-2").items()}
    assert kept == found[1]
