"""The course of a verdict: the baseline's length at equal FLOPs, and plans that stay what they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.verdict.course import _planned
from ssl_vit.verdict.draws import Tuned, matched_steps
from ssl_vit.verdict.opening import Opened
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.runner import Runner, Task
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, pool="mean")
STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(verdict=VerdictConfig(length=0.5)), kind="class", metric="top1",
    labels=(20, 6400), starts=("scratch", "mae", "dino"), preset="digits", model=MODEL, networks={}, given={},
    epochs={"mae": 139.0, "dino": 139.0}, base_lr={"scratch": 4e-3, "finetune": 2e-3}, tuned=(6400,), matched=(6400,),
    judged=7000, heads=(5120, 640),
)  # fmt: skip
USUAL = 5000  # steps of 64: a hundred epochs, halved


def of_lengths(**lengths: float) -> dict[tuple[str, int], Candidate]:
    return {(start, 6400): Candidate(1e-3, 0.05, 1.0, length) for start, length in lengths.items()}


@pytest.mark.parametrize(
    ("lengths", "mae", "dino", "steps"),
    [
        ({"scratch": 1.0, "mae": 1.0, "dino": 1.0}, 0.0, 0.0, USUAL),
        (
            {"scratch": 0.5, "mae": 2.0, "dino": 1.0},
            64e4,
            0.0,
            2 * USUAL + 1000,
        ),  # MAE's own length, not the baseline's
        ({"scratch": 0.5, "mae": 0.5, "dino": 1.0}, 64e4, 64e5, USUAL + 10_000),  # the most that any method takes
        ({"scratch": 2.0, "mae": 0.5, "dino": 0.5}, 64e4, 64e4, 2 * USUAL),  # never less than its own
    ],
)
def test_the_baseline_gets_the_flops_of_the_most_expensive_method(
    lengths: dict[str, float], mae: float, dino: float, steps: int
) -> None:
    per_image = 10.0
    assert STUDY.steps(6400) == USUAL
    flops = {"mae": mae, "dino": dino}
    found = matched_steps(STUDY, 6400, Tuned(of_lengths(**lengths), flops, {"scratch": per_image}))
    assert found == steps
    for start in ("mae", "dino"):
        own = USUAL * lengths[start] * 64 * per_image
        assert found * 64 * per_image >= flops[start] + own


def test_every_network_that_is_pre_trained_has_a_baseline_with_all_the_flops() -> None:
    study = replace(STUDY, starts=("mae", "lejepa@cnn", "scratch", "cnn"), networks={"cnn": ModelConfig("test_resnet")})
    assert study.matched_starts() == ("scratch", "cnn")
    assert replace(study, starts=("mae", "scratch", "cnn")).matched_starts() == ("scratch",)
    chosen = {(start, 6400): Candidate(1e-3, 0.05, 1.0, 1.0) for start in study.starts}
    tuned = Tuned(chosen, {"mae": 64e4, "lejepa@cnn": 64e5}, {"scratch": 10.0, "cnn": 20.0})
    for start, flops in (("scratch", 64e4), ("cnn", 64e5)):  # each with the FLOPs of what pre-trains it
        rate = tuned.flops_per_image[start]
        most = flops + USUAL * 64 * rate
        assert most <= matched_steps(study, 6400, tuned, start) * 64 * rate < most + 64 * rate


def test_what_is_not_fine_tuned_counts_with_its_pre_training_alone() -> None:
    study = replace(STUDY, starts=("scratch", "mae", "dino"), frozen=("dino",))
    chosen = {(start, 6400): Candidate(1e-3, 0.05, 1.0, 1.0) for start in ("scratch", "mae")}
    tuned = Tuned(chosen, {"mae": 64e4, "dino": 640e5}, {"scratch": 10.0})
    assert matched_steps(study, 6400, tuned) == 100_000


def opened(folder: Path, budget: float | None, study: Study = STUDY) -> Opened:
    images: Any = None
    return Opened(replace(study, folder=folder), images, images, {}, [], budget, 8, (), {})


def finished() -> dict[str, int]:
    return {}


def test_a_plan_is_kept_for_the_budget_it_was_made_for(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0, main=True)

    def planned(budget: float | None, study: Study = STUDY) -> dict[str, Any] | None:
        return _planned(opened(tmp_path, budget, study), runner)

    assert planned(600.0) is None
    told = {"budget": 600.0, "preset": "digits", "model": {"name": None, "img_size": None}}
    (tmp_path / "plan.json").write_text(json.dumps(told))
    runner.run([Task("measure-mae", finished, (), 1.0)])
    assert planned(600.0) == told
    assert planned(7200.0) is None  # nothing was done by it: another is made
    elsewhere = replace(STUDY, preset="px32")  # what a GPU would choose
    assert planned(600.0, elsewhere) is None
    runner.run([Task("trial-scratch-20-0", finished, (), 1.0)])
    assert planned(600.0) == told
    with pytest.raises(UserError, match=r"a budget of 10 min 00 s, not 2 h 00 min, and some of it is done"):
        planned(7200.0)
    with pytest.raises(UserError, match=r"not no limit"):
        planned(None)
    with pytest.raises(UserError, match=r"preset digits .*would not get \(px32\)"):
        planned(600.0, elsewhere)


def test_a_command_that_does_nothing_is_no_session(tmp_path: Path) -> None:
    Runner(tmp_path, 0, main=True).close()
    assert not (tmp_path / "time.json").exists()
    runner = Runner(tmp_path, 0, main=True)
    runner.run([Task("measure-mae", finished, (), 1.0)])
    again = Runner(tmp_path, 0, main=True)
    again.run([Task("measure-mae", finished, (), 1.0)])
    again.close()
    assert json.loads((tmp_path / "time.json").read_text())["sessions"] == 1


def test_a_plan_is_not_changed_under_a_pre_training_run(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mae-0").mkdir(parents=True)
    (tmp_path / "plan.json").write_text(json.dumps({"budget": None}))
    with pytest.raises(UserError, match="no limit, not 1 min 00 s"):
        _planned(opened(tmp_path, 60.0), Runner(tmp_path, 0, main=True))
