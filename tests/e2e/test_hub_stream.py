"""A data set of the hub that is streamed: the run of its files on a disk, also where it is killed and goes on."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from made_hub import Hub, environment, serving
from made_streamed import PROGRAM, WORDS

ROOT = Path(__file__).resolve().parents[2]


def write(folder: Path) -> None:
    """Two parquet files of 60 images each, in row groups of ten."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(2):
        images = []
        for _ in range(60):
            out = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(out, "PNG")
            images.append(out.getvalue())
        table = pyarrow.table({"image": images, "label": [0, 1] * 30})
        pyarrow.parquet.write_table(table, folder / f"train-{number}.parquet", row_group_size=10)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_streamed_run_that_is_killed_goes_on(workers: str, tmp_path: Path) -> None:
    write(tmp_path / "files")
    files = {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()}
    kind = type("Now", (Hub,), {"files": files, "ranges": [], "faults": ["half of it", "418"] * 3, "lists": []})
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(data: str, name: str, at: int = -1) -> subprocess.CompletedProcess[str]:
        line = [str(tmp_path / "program.py"), str(at), str(ROOT / "recipes/mae.py"), *WORDS, "--data.path", data]
        line += ["--data.stream", "true", "--data.workers", workers, "--run.dir", name]
        own = environment(address, tmp_path) | {"SSL_VIT_CACHE": str(tmp_path / "blocks"), "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *line], cwd=tmp_path, env=own, capture_output=True, text=True)

    with serving(kind) as address:
        here = run(str(tmp_path / "files"), "here")
        assert here.returncode == 0, here.stderr[-3000:]
        assert not kind.ranges
        killed = run("tiny/pets", "there", at=9)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
        again = run("tiny/pets", "there")
        assert again.returncode == 0, again.stderr[-3000:]
    assert "continues after step 6" in again.stdout
    assert not kind.faults
    for name in ("metrics.jsonl", "backbone/model.safetensors"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert not list((tmp_path / "cache").rglob("*.parquet"))  # nothing was downloaded whole
