"""A rank is killed under torchrun and under Accelerate's launcher: the job goes on by itself, bit for bit.

What torch's processes keep in their store has a prefix for every restart (``/worker/attempt_N``), and this project
keeps nothing of its own there; the run's lock is taken over from the dead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from made_processes import LAUNCHERS, LONGEST

PROGRAM = """
import os, signal, sys
from ssl_vit.configs import FitConfig, ModelConfig, RunConfig
from ssl_vit.core.started import main_of
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.objectives.mae import MAE
from ssl_vit.script import mistakes_told

folder, rank = sys.argv[1:]

def after_step(self, clock):
    if clock.step == 4 and os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

MAE.after_step = after_step
fit = FitConfig(epochs=1e-6, min_steps=7, batch_size=32, log_every=1, checkpoint_steps=3)
model = ModelConfig(width=16, depth=2, heads=2)
with mistakes_told():
    main_of("recipes/mae.py")(MAERecipe(model=model, fit=fit, run=RunConfig(folder)))
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--max-restarts", "2"]
ACCELERATE = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--max_restarts", "2", "--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no",
]  # fmt: skip


@pytest.mark.parametrize(("launcher", "rank"), [(TORCHRUN, "0"), (TORCHRUN, "1"), (ACCELERATE, "1")])
def test_a_job_goes_on_by_itself(launcher: list[str], rank: str, launch, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    whole = launch(2, str(program), "whole", "none", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr[-3000:]
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    environment |= {
        "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)
    }  # fmt: skip
    killed = subprocess.run(
        [sys.executable, *launcher, str(program), "killed", rank],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONGEST,
    )  # fmt: skip
    assert killed.returncode == 0, killed.stderr[-5000:]
    assert "continues after step 3 of 7" in killed.stdout
    if rank == "0":
        assert "is taken over from process" in killed.stderr
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "killed" / "metrics.jsonl").read_text()
