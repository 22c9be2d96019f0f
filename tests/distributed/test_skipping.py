"""Two processes agree on a batch that made one of them blow up, and leave it out together."""

from __future__ import annotations

import json
from pathlib import Path

import torch

ONE = """
import os, sys
from ssl_vit.configs import FitConfig, ModelConfig, RunConfig
from ssl_vit.core.started import main_of
from ssl_vit.data.loading.loader import Loader
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.objectives.base import StepOutput
from ssl_vit.objectives.mae import MAE

folder, bad = sys.argv[1], int(sys.argv[2])
made, forward, begin, now = Loader.__init__, MAE.forward, MAE.begin_step, {}

def make(self, *args, **options):
    made(self, *args, **options)
    now["loader"] = self

def begin_step(self, clock):
    begin(self, clock)
    now["batch"] = now["loader"].number(clock.step)

def forwards(self, inputs):
    output = forward(self, inputs)
    if os.environ["RANK"] == "1" and now.get("batch") == bad:
        return StepOutput(output.loss + float("nan"), output.metrics)  # its gradient stays as it is
    return output

Loader.__init__, MAE.begin_step, MAE.forward = make, begin_step, forwards
fit = FitConfig(
    epochs=1e-6, min_steps=8, batch_size=32, log_every=1, checkpoint_steps=2, on_divergence="skip", precision="fp32"
)
main_of("recipes/mae.py")(MAERecipe(model=ModelConfig(width=16, depth=2, heads=2), fit=fit, run=RunConfig(folder)))
"""


def test_a_loss_of_one_process_is_left_out_by_all(launch, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ONE)
    skipped = launch(2, str(tmp_path / "program.py"), "a", "5", cwd=tmp_path)
    assert skipped.returncode == 0, skipped.stderr[-3000:]
    assert "its 32 images are named in a/diverged.jsonl. Back to step 4" in skipped.stderr
    (record,) = [json.loads(line) for line in (tmp_path / "a" / "diverged.jsonl").read_text().splitlines()]
    assert (record["batch"], record["step"], len(record["images"])) == (5, 6, 32)
    assert len({image["index"] for image in record["images"]}) == 32
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "environment.json").write_text("{}")
    (tmp_path / "b" / "diverged.jsonl").write_text('{"batch": 5}\n')
    (tmp_path / "b" / "config.yaml").write_text((tmp_path / "a" / "config.yaml").read_text())
    never = launch(2, str(tmp_path / "program.py"), "b", "-1", cwd=tmp_path)
    assert never.returncode == 0, never.stderr[-3000:]
    assert (tmp_path / "a" / "metrics.jsonl").read_text() == (tmp_path / "b" / "metrics.jsonl").read_text()
    one, other = (
        torch.load(tmp_path / name / "checkpoints" / "step_000000008.pt", weights_only=True)["objective"]
        for name in ("a", "b")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
