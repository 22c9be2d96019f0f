"""Continued pre-training on two processes: the curve of one, the same end by an alarm, and exact going on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import json, sys
from dataclasses import replace
from ssl_vit.configs import ContinuedConfig, FitConfig, ModelConfig, OptimConfig, RunConfig
from ssl_vit.methods import METHODS
from ssl_vit.training.pretraining import pretrain

name, start, run, more = sys.argv[1:]
more, method = json.loads(more), METHODS[name]
usual = method.recipe()
asked = replace(
    usual, model=ModelConfig(weights=start), run=RunConfig(dir=run),
    fit=replace(usual.fit, epochs=0.3, batch_size=32, precision="fp64", log_every=1, checkpoint_steps=4,
                keep_checkpoints=9),
    optim=replace(usual.optim, **more.pop("optim", {})), continued=ContinuedConfig(look_percent=10.0, **more),
)
pretrain(method, asked)
"""


def rows(run: Path, file: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / file).read_text().splitlines()]


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "continue.py").write_text(SCRIPT)
    return str(tmp_path / "continue.py")


@pytest.mark.parametrize(
    ("name", "more", "stopped"),
    [("dino", {"blocks": 1}, False),
     ("mae", {"rate": 1.0, "heads_first": 0.0, "least_agreement": 0.9, "optim": {"lr": 0.5}}, True)],
)  # fmt: skip
def test_one_and_two_processes_and_one_that_was_cut_off(
    name: str, more: dict[str, object], stopped: bool, script: str, tiny_run: Path, tmp_path: Path, launch
) -> None:
    def go(processes: int, run: str) -> str:
        done = launch(processes, script, name, str(tiny_run), run, json.dumps(more), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for processes, run in ((1, "one"), (2, "two")):
        go(processes, run)
    one, two = (rows(tmp_path / run, "health.jsonl") for run in ("one", "two"))
    assert [row["step"] for row in one] == [row["step"] for row in two]
    for a, b in zip(one, two, strict=True):
        assert a["drift/agreement"] == pytest.approx(b["drift/agreement"], abs=1e-3)
        assert a["drift/cka"] == pytest.approx(b["drift/cka"], abs=1e-5)
    losses = [[row["loss"] for row in rows(tmp_path / run, "metrics.jsonl")] for run in ("one", "two")]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    ends = [json.loads((tmp_path / run / "environment.json").read_text())["drift"] for run in ("one", "two")]
    assert ends[0]["exported"]["step"] == ends[1]["exported"]["step"]
    assert [(end["passed"] is not None) for end in ends] == [stopped, stopped]
    weights = (tmp_path / "two/backbone/model.safetensors").read_bytes()
    newest = max((tmp_path / "two/checkpoints").glob("*.pt"))
    newest.unlink()  # as if the end had never been written
    go(2, "two")
    assert (tmp_path / "two/backbone/model.safetensors").read_bytes() == weights
    assert rows(tmp_path / "two", "health.jsonl") == two
