"""Two processes that open different images under one path, as on two nodes: both refuse in one line, none hangs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_processes import Warm

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = """
import os, runpy, sys

os.chdir(f"node-{os.environ['RANK']}")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("script", ["mae", "supervised"])
def test_nodes_with_other_images_are_named(script: str, warm: Warm, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for node, count in enumerate((12, 11)):
        for n in range(count):
            place = tmp_path / f"node-{node}" / "cells" / "ab"[n % 2] / f"{n:02}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (12, 12), dtype=np.uint8)).save(place)
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    words = ["--data.path", "cells", "--fit.batch_size", "4", "--run.dir", str(tmp_path / "run")]
    done = warm(
        tmp_path / "elsewhere.py", str(ROOT / "recipes" / f"{script}.py"), *words, cwd=tmp_path, processes=2,
        ACCELERATE_USE_CPU="1",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    told = {line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line}
    assert len(told) == 1, told  # in the same words, whoever comes to say them
    assert told.pop().startswith("the processes of this job see different images in cells: ")
    assert not (tmp_path / "run").exists()
