"""One of two processes hangs, the other waits for it: both say where, and the job ends with "try again"."""

from __future__ import annotations

import json
from pathlib import Path

PROGRAM = """
import os, sys, threading
from ssl_vit.configs import FitConfig, ModelConfig, RunConfig
from ssl_vit.core.started import main_of
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.objectives.mae import MAE
from ssl_vit.training import watchdog

now = [0.0]  # the clock: an hour passes as soon as a step begins that will hang
watchdog.LOOKS = 0.01
usual = watchdog.Watchdog.__init__

def watched(self, minutes, run):
    usual(self, minutes, run, clock=lambda: now[0])

begin = MAE.begin_step

def waits_for_ever():
    threading.Event().wait()

def begin_step(self, clock):
    begin(self, clock)
    if clock.step == 5 and sys.argv[2] == "hangs":
        now[0] = 3600.0
        if os.environ["RANK"] == "1":
            waits_for_ever()

watchdog.Watchdog.__init__, MAE.begin_step = watched, begin_step
fit = FitConfig(epochs=1e-6, min_steps=8, batch_size=32, log_every=1, checkpoint_steps=3, watchdog=30.0)
model = ModelConfig(width=16, depth=2, heads=2)
main_of("recipes/mae.py")(MAERecipe(model=model, fit=fit, run=RunConfig(sys.argv[1])))
"""


def test_both_say_where_and_the_same_command_goes_on(launch, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    hung = launch(2, str(tmp_path / "program.py"), "r", "hangs", cwd=tmp_path)
    assert hung.returncode == 75, hung.stderr[-3000:]
    assert hung.stderr.count("no step for 30 min (--fit.watchdog), in step 6") == 1
    one, other = sorted((tmp_path / "r" / "stacks").iterdir())
    assert one.name.endswith("process_0.txt")
    assert "in step 6" in one.read_text()
    assert "waits_for_ever" in other.read_text()
    assert [path.stem for path in (tmp_path / "r" / "checkpoints").glob("*.pt")] == ["step_000000003"]
    assert json.loads((tmp_path / "r" / "ended.json").read_text())["status"] == 75
    again = launch(2, str(tmp_path / "program.py"), "r", "goes on", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "continues after step 3 of 8" in again.stdout
    whole = launch(2, str(tmp_path / "program.py"), "w", "does not hang", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert (tmp_path / "r" / "metrics.jsonl").read_text() == (tmp_path / "w" / "metrics.jsonl").read_text()
