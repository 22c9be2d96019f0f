"""Training that diverges ends on all processes at the same step, so that together they can go on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

TRIALS = """
import json
from dataclasses import replace
from pathlib import Path

from made_study import STUDY
from ssl_vit.training import launch
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict import work
from ssl_vit.verdict.runner import Runner, Task

if __name__ == "__main__":
    main = launch.join().is_main_process
    model = replace(STUDY.model, width=16, depth=2, heads=2)
    recipe = verdict_recipe()(verdict=VerdictConfig(seeds=1, length=0.02))
    study = replace(STUDY, folder=Path("v"), recipe=recipe, model=model)
    good = study.usual("scratch", 1000)
    bad = good._replace(lr=1e30)
    tasks = [Task(f"trial-{j}", work.trial, (study, "scratch", 1000, j, c), 1.0) for j, c in enumerate((bad, good))]
    tasks.append(Task("training", work.training, (study, "scratch", 1000, 0, bad), 1.0))
    found = Runner(study.folder, 0, main).run(tasks)
    if main:
        Path("found.json").write_text(json.dumps(found))
"""

ONE = """
import os
from pathlib import Path

import torch
from ssl_vit.configs import FitConfig, ModelConfig, RunConfig
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.core.errors import Diverged
from ssl_vit.objectives.base import StepOutput
from ssl_vit.objectives.mae import MAE
from ssl_vit.core.started import main_of

rank, now = os.environ["RANK"], []
whole, begin = MAE.forward, MAE.begin_step

def forward(self, inputs):
    output = whole(self, inputs)
    if rank == "1" and now[-1:] == [BAD]:
        return StepOutput(output.loss + float("nan"), output.metrics)  # its gradient stays as it is
    return output

def begin_step(self, clock):
    now.append(clock.step)
    begin(self, clock)

MAE.forward, MAE.begin_step = forward, begin_step
fit = FitConfig(epochs=1e-6, min_steps=6, batch_size=32, log_every=5, checkpoint_steps=2)
try:
    main_of("recipes/mae.py")(MAERecipe(model=ModelConfig(width=16, depth=2, heads=2), fit=fit, run=RunConfig("r")))
except Diverged as error:
    torch.distributed.barrier()  # everybody is here
    Path(f"told-{rank}").write_text(f"{len(now)}: {error}")
"""


@pytest.fixture(autouse=True)
def made_things_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))


def test_trials_after_one_that_diverged_are_made(launch, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TRIALS)
    done = launch(2, str(tmp_path / "program.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["trial-0"]["score"] is None
    assert found["trial-0"]["why"].startswith("the loss stopped being a finite number")
    assert 0 < found["trial-1"]["score"] <= 100
    assert found["training"]["note"].endswith("diverged, so the usual ones were taken")
    assert not list((tmp_path / "v" / "work").iterdir())


@pytest.mark.parametrize(
    ("bad", "told", "saved"),
    [(1, "between steps 0 and 2; lower", []), (4, "between steps 0 and 5", [2, 4])],
    ids=["before it is saved", "at a line"],
)
def test_a_loss_of_one_process_ends_all(bad: int, told: str, saved: list[int], launch, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ONE.replace("BAD", str(bad)))
    done = launch(2, str(tmp_path / "program.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    one, other = ((tmp_path / f"told-{rank}").read_text() for rank in range(2))
    assert one.startswith(f"{bad + 1}: ")
    assert told in one
    assert other == one.replace(" (last checkpoint: step 4)", "")
    assert (
        sorted(int(path.stem.removeprefix("step_")) for path in (tmp_path / "r" / "checkpoints").glob("*.pt")) == saved
    )
