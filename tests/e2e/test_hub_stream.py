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
from made_processes import Warm
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


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """The run of the files on a disk, however many processes load them, beside the files."""
    folder = tmp_path_factory.mktemp("here")
    write(folder / "files")
    (folder / "program.py").write_text(PROGRAM)
    line = ["-1", str(ROOT / "recipes/mae.py"), *WORDS, "--data.path", "files", "--data.stream", "true"]
    done = warm(folder / "program.py", *line, "--data.workers", "0", "--run.dir", "run", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_streamed_run_that_is_killed_goes_on(workers: str, here: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in (here / "files").iterdir()}
    kind = type("Now", (Hub,), {"files": files, "ranges": [], "faults": ["half of it", "418"] * 3, "lists": []})

    def run(at: int = -1) -> subprocess.CompletedProcess[str]:
        """A start of Python: which hub there is, is read when its library is imported."""
        line = [str(here / "program.py"), str(at), str(ROOT / "recipes/mae.py"), *WORDS, "--data.path", "tiny/pets"]
        line += ["--data.stream", "true", "--data.workers", workers, "--run.dir", "there"]
        own = environment(address, tmp_path) | {"SSL_VIT_CACHE": str(tmp_path / "blocks"), "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *line], cwd=tmp_path, env=own, capture_output=True, text=True)

    with serving(kind) as address:
        killed = run(at=9)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
        again = run()
        assert again.returncode == 0, again.stderr[-3000:]
    assert "continues after step 6" in again.stdout
    assert not kind.faults
    for name in ("metrics.jsonl", "backbone/model.safetensors"):
        assert (tmp_path / "there" / name).read_bytes() == (here / "run" / name).read_bytes()
    assert not list((tmp_path / "cache").rglob("*.parquet"))  # nothing was downloaded whole
