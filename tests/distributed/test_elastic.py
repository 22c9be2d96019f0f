"""A rank is killed under torchrun and under Accelerate's launcher: the job goes on by itself, bit for bit.

A launcher keeps its store over restarts, with the addresses of the dead in it (``training.joining.agree``); the run's
lock is taken over from the dead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from made_processes import LAUNCHERS

PROGRAM = """
import os, signal, sys
from ssl_vit.configs import FitConfig, ModelConfig, RunConfig
from ssl_vit.core.started import main_of
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.objectives.mae import MAE
from ssl_vit.script import mistakes_told

folder, rank = sys.argv[1:]
if rank != "none":
    open("start-" + os.environ["TORCHELASTIC_RESTART_COUNT"], "w").close()

def after_step(self, clock):
    if clock.step == 4 and os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

MAE.after_step = after_step
fit = FitConfig(epochs=1e-6, min_steps=7, batch_size=32, log_every=1, checkpoint_steps=3)
model = ModelConfig(width=16, depth=2, heads=2)
with mistakes_told():
    main_of("recipes/mae.py")(MAERecipe(model=model, fit=fit, run=RunConfig(folder)))
"""
LONGEST_HERE = 300
"""Seconds for two starts of a launcher, which import everything anew."""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--max-restarts", "2"]
ACCELERATE = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--max_restarts", "2", "--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no",
]  # fmt: skip


def launched(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Status and what was said; a launcher that takes too long leaves no process behind, though each has a session."""
    out, err = folder / "out", folder / "err"
    with out.open("w") as said, err.open("w") as told:
        launcher = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=told)
        try:
            launcher.wait(LONGEST_HERE)
        finally:
            left = [launcher] if launcher.poll() is None else []
            left += psutil.Process(launcher.pid).children(recursive=True) if left else []
            for process in left:
                process.kill()
            launcher.wait()
    return launcher.returncode, out.read_text(), err.read_text()


@pytest.fixture(scope="module")
def whole(launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, of which nothing is killed."""
    folder = tmp_path_factory.mktemp("elastic")
    (folder / "program.py").write_text(PROGRAM)
    done = launch(2, str(folder / "program.py"), "whole", "none", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "whole"


# Accelerate has torchrun's agent, so that both launchers and both ranks are in two jobs.
@pytest.mark.parametrize(("launcher", "rank"), [(TORCHRUN, "0"), (ACCELERATE, "1")])
def test_a_job_goes_on_by_itself(launcher: list[str], rank: str, whole: Path, tmp_path: Path) -> None:
    program = whole.parent / "program.py"
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    environment |= {
        "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)
    }  # fmt: skip
    status, out, err = launched([sys.executable, *launcher, str(program), "killed", rank], tmp_path, environment)
    assert status == 0, err[-5000:]
    assert out.count("continues after step 3 of 7") == 1
    assert sorted(path.name for path in tmp_path.glob("start-*")) == ["start-0", "start-1"]  # no other was needed
    if rank == "0":
        assert "is taken over from process" in err
    assert (whole / "metrics.jsonl").read_text() == (tmp_path / "killed" / "metrics.jsonl").read_text()
