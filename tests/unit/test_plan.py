"""Plans: what is estimated, and what is cut first where time is short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.methods.starts import starts
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.plan import (
    FULL,
    Line,
    Pace,
    _idle,
    make_plan,
    plan_as_json,
    read_plan,
)
from ssl_vit.verdict.study import Study

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, pool="mean")
STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(), kind="class", metric="top1", labels=(10, 20, 50, 100, 1438),
    starts=tuple(starts()), preset="digits", model=MODEL, cnn=ModelConfig("test_resnet"), given={},
    epochs={"mae": 139.0, "dino": 139.0}, base_lr={"scratch": 4e-3, "finetune": 2e-3}, tuned=(100, 1438),
    matched=(100, 1438), judged=1797, heads=(5120, 640),
)  # fmt: skip
PACES = {
    "scratch": Pace(2000.0, 0.4, 2e7, 64.0), "cnn": Pace(1500.0, 0.4, 2.4e7, 64.0),
    "mae": Pace(3500.0, 1.0, 1.3e7, 128.0), "dino": Pace(1200.0, 1.0, 6.4e7, 128.0),
}  # fmt: skip


def with_options(**changed: object) -> Study:
    verdict = replace(VerdictConfig(), **changed)
    return replace(STUDY, recipe=replace(STUDY.recipe, verdict=verdict))


def test_without_a_budget_nothing_is_cut() -> None:
    plan = make_plan(STUDY, PACES, 1438, None, 1)
    assert plan.study is STUDY
    assert plan.notes == ()
    lines = {line.what: line for line in plan.lines}
    assert lines["MAE: pre-training"].units == 3
    assert lines["MAE: pre-training"].seconds == pytest.approx(139 * 1438 / 3500 + 1)
    assert lines["from scratch"].units == 25
    assert lines["from scratch: trials"].units == lines["MAE, fine-tuned: trials"].units == 12
    assert lines["from scratch at the FLOPs of pre-training"].units == 10
    # DINO's FLOPs are the larger ones, at the baseline's own speed.
    more = 139 * 1438 * 6.4e7 / (2000 * 2e7)
    assert lines["from scratch at the FLOPs of pre-training"].seconds > more
    assert plan.seconds == pytest.approx(20 + sum(line.units * line.seconds for line in plan.lines))


def test_a_plan_is_read_back_as_it_was_cut() -> None:
    plan = make_plan(STUDY, PACES, 1438, 300.0, 1)
    told = json.loads(json.dumps(plan_as_json(plan, PACES, 300.0)))
    assert read_plan(STUDY, told) == plan
    assert told["budget"] == 300.0
    assert told["paces"]["cnn"]["flops_per_image"] == 2.4e7


def test_what_was_spent_before_counts() -> None:
    plan, late = (make_plan(STUDY, PACES, 1438, 1200.0, 2, spent=spent) for spent in (0.0, 300.0))
    assert late.seconds <= FULL * 1200 and sum(n * s for _, n, s in late.lines) < sum(n * s for _, n, s in plan.lines)
    assert make_plan(STUDY, PACES, 1438, None, 1, spent=60.0).seconds == pytest.approx(
        60 + make_plan(STUDY, PACES, 1438, None, 1).seconds
    )


def test_two_jobs_take_half_the_time() -> None:
    one, two = (make_plan(STUDY, PACES, 1438, None, jobs).seconds - 20 for jobs in (1, 2))
    assert one == pytest.approx(2 * two)


@given(st.floats(60, 1e5), st.integers(1, 8))
def test_a_plan_fits_or_says_that_it_cannot(budget: float, jobs: int) -> None:
    plan = make_plan(STUDY, PACES, 1438, budget, jobs)
    short = [note for note in plan.notes if "too short" in note]
    if plan.seconds > budget:
        assert short
    elif not short and plan.notes:
        assert plan.seconds <= budget
    assert plan.study.labels[-1] == 1438
    assert "scratch" in plan.study.starts
    assert set(plan.study.tuned) | set(plan.study.matched) <= set(plan.study.labels)
    whole = make_plan(STUDY, PACES, 1438, None, jobs).seconds
    assert (plan.notes == ()) == (whole <= FULL * budget)


@pytest.mark.parametrize(("preset", "length", "light"), [("px32", 0.4, 1), ("px32", 0.5, 0), ("digits", 0.4, 0)])
def test_short_training_says_that_it_is_light(preset: str, length: float, light: int) -> None:
    study = replace(with_options(length=length), preset=preset)
    notes = make_plan(study, PACES, 1438, None, 1).notes
    assert (
        notes
        == ("training so short has crops and mirror images alone, no RandAugment, erasing, mixup or CutMix",) * light
    )


def test_what_intervals_stand_on_is_cut_last() -> None:
    plan = make_plan(STUDY, PACES, 1438, 600.0, 2)
    cut = plan.study.recipe.verdict
    assert plan.seconds <= 540
    assert (cut.seeds, cut.train_draws, cut.probe_draws) == (3, 3, 10)
    assert cut.train_draws <= cut.matched_draws and plan.study.matched == STUDY.matched  # what the verdict stands on
    assert cut.length < 1
    assert any(note.startswith("training on labels is") for note in plan.notes)
    least = make_plan(STUDY, PACES, 1438, 1.0, 1)
    assert least.study.recipe.verdict.seeds == 1
    assert "dino" not in least.study.starts
    assert least.notes[-1] == "the budget is too short even for the least that can be done"


@pytest.mark.parametrize("budget", [500.0, 1000.0, 2000.0, 4000.0])
def test_a_method_is_left_out_before_every_other_is_trained_too_short(budget: float) -> None:
    plan = make_plan(STUDY, PACES, 1438, budget, 2)
    if plan.study.recipe.verdict.pretraining < 0.6 or plan.study.recipe.verdict.length < 0.3:
        assert "dino" not in plan.study.starts
    if plan.study.recipe.verdict.pretraining < 0.5 or plan.study.recipe.verdict.length < 0.25:
        assert "cnn" not in plan.study.starts
    assert "mae" in plan.study.starts
    assert len(make_plan(STUDY, PACES, 1438, 1e4, 2).study.starts) == len(starts())


def test_a_method_that_was_asked_for_is_shortened_and_stays() -> None:
    asked = with_options(methods="mae,dino,cnn")
    cut = make_plan(asked, PACES, 1438, 900.0, 2)
    assert set(cut.study.starts) == set(starts())
    assert cut.study.recipe.verdict.pretraining < 0.5
    longer = replace(asked, epochs={"mae": 800.0, "dino": 800.0})
    assert make_plan(longer, PACES, 1438, 900.0, 2).study.recipe.verdict.pretraining >= 20 / 800
    least = make_plan(STUDY, PACES, 1438, 1.0, 1).study.recipe.verdict
    assert least.pretraining == pytest.approx(20 / 139)


def test_extracting_features_is_planned_for() -> None:
    plan, larger = (make_plan(replace(STUDY, judged=n), PACES, 1438, None, 1) for n in (1797, 101_797))
    by_name = [{line.what: line.units * line.seconds for line in each.lines} for each in (plan, larger)]
    passed = 100_000 / (3 * 2000)
    for name, networks in (("MAE", 4), ("random weights", 11), ("raw pixels", 1)):
        name = f"{name}: k-NN and linear probe"
        assert by_name[1][name] - by_name[0][name] == pytest.approx(networks * passed)


def test_what_was_asked_for_smaller_is_not_enlarged() -> None:
    plan = make_plan(with_options(length=0.01, trials=2, matched_draws=0), PACES, 1438, 100.0, 1)
    cut = plan.study.recipe.verdict
    assert (cut.length, cut.trials, cut.matched_draws) == (0.01, 2, 0)


def test_runs_that_are_there_cost_nothing_but_their_flops_are_matched() -> None:
    given = replace(STUDY, starts=("scratch", "mae"), given={"mae": ("run",)})
    paces = {"scratch": PACES["scratch"]}
    plan = make_plan(given, paces, 1438, None, 1, {"mae": 4e13})
    lines = {line.what: line for line in plan.lines}
    assert "MAE: pre-training" not in lines
    each = lines["from scratch at the FLOPs of pre-training"].seconds
    assert each > 4e13 / (2000 * 2e7)


@pytest.mark.parametrize(
    ("jobs", "trials", "idle"), [(1, 0, 0.0), (2, 0, 100.0), (2, 3, 40.0), (2, 9, 0.0), (4, 0, 100.0)]
)
def test_processes_without_work_wait_for_the_last_pre_training_run(jobs: int, trials: int, idle: float) -> None:
    lines = [Line("MAE: pre-training", 3, 100.0), Line("from scratch: trials", trials, 20.0),
             Line("MAE, fine-tuned: trials", 3, 20.0), Line("from scratch", 9, 50.0)]  # fmt: skip
    assert _idle(lines, jobs) == idle
