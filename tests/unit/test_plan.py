"""Plans: what is estimated, what a plan begins with, what it adds, and that it keeps its budget or is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.methods.starts import start_called
from ssl_vit.verdict.estimate import DONE, END, FULL, Line, Pace, Terms, idle
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.plan import LEAST_EPOCHS, LEAST_SHARE, MORE, PRETRAINING, Plan, make_plan, plan_as_json, read_plan
from ssl_vit.verdict.study import Study

STARTS = ("mae", "dino", "lejepa@cnn", "scratch", "cnn", "pixels", "random")
MODEL = ResolvedModel("vit_tiny_patch16_224", 8, pool="mean")
STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(), kind="class", metric="top1", labels=(10, 20, 50, 100, 1438),
    starts=STARTS, preset="digits", model=MODEL, networks={"cnn": ModelConfig("test_resnet", 32)}, given={},
    epochs={"mae": 139.0, "dino": 139.0, "lejepa@cnn": 139.0}, base_lr={"scratch": 4e-3, "finetune": 2e-3},
    tuned=(100, 1438), matched=(10, 1438), judged=1797, heads=(5120, 640),
)  # fmt: skip
PACES = {
    "scratch": Pace(2000.0, 0.4, 2e7, 64.0), "cnn": Pace(1500.0, 0.4, 2.4e7, 64.0),
    "mae": Pace(3500.0, 1.0, 1.3e7, 128.0), "dino": Pace(1200.0, 1.0, 6.4e7, 128.0),
    "lejepa@cnn": Pace(700.0, 1.0, 5e7, 128.0),
}  # fmt: skip
NONE = Terms(PACES, 1438, None, 1, {}, 0.0)


def within(budget: float, jobs: int = 2, study: Study = STUDY, asked: Sequence[str] = (), **terms: object) -> Plan:
    return make_plan(study, replace(NONE, budget=budget, jobs=jobs, **terms), asked)


def with_options(**changed: object) -> Study:
    return replace(STUDY, recipe=replace(STUDY.recipe, verdict=replace(VerdictConfig(), **changed)))


def test_without_a_budget_nothing_is_cut() -> None:
    plan = make_plan(STUDY, NONE)
    assert plan.study is STUDY
    assert plan.notes == ()
    lines = {line.what: line for line in plan.lines}
    assert lines["MAE: pre-training"].units == 3
    assert lines["MAE: pre-training"].seconds == pytest.approx(139 * 1438 / 3500 + 1)
    assert lines["from scratch"].units == 50
    assert lines["from scratch: trials"].units == lines["MAE, fine-tuned: trials"].units == 12
    # Every network that a method pre-trains has such a baseline, with the most FLOPs of these, at its own speed.
    for start, title, most in (("scratch", "from scratch", 6.4e7), ("cnn", "CNN from scratch", 5e7)):
        rate = PACES[start].images_per_second * PACES[start].flops_per_image
        line = lines[f"{title} at the FLOPs of pre-training"]
        assert line.units == 10 and 0 < line.seconds - 139 * 1438 * most / rate < 300
    assert lines["LeJEPA on a CNN, fine-tuned"].seconds == pytest.approx(lines["CNN from scratch"].seconds)
    whole = sum(line.units * line.seconds for line in plan.lines)
    assert plan.seconds == pytest.approx(END + whole)


def test_pre_training_and_probes_stand_before_training_on_labels() -> None:
    for plan in (make_plan(STUDY, NONE), within(480.0), within(1800.0)):
        before = [line.what.endswith(DONE) for line in plan.lines]
        assert before == sorted(before, reverse=True) and not all(before)


@settings(max_examples=40)
@given(st.floats(30, 1e5), st.integers(1, 8), st.floats(0.1, 10.0), st.floats(0.0, 100.0))
def test_a_plan_keeps_its_budget_or_is_refused_with_one_that_does(
    budget: float, jobs: int, speed: float, spent: float
) -> None:
    paces = {start: pace._replace(images_per_second=speed * pace.images_per_second) for start, pace in PACES.items()}
    terms = replace(NONE, paces=paces, budget=budget, jobs=jobs, spent=spent)
    try:
        plan = make_plan(STUDY, terms)
    except UserError as error:
        minutes = float(str(error).partition("give --verdict.budget ")[2].removesuffix("m"))
        assert 60 * minutes > budget
        plan = make_plan(STUDY, replace(terms, budget=60 * minutes))  # what it names is enough
        budget = 60 * minutes
    assert plan.seconds <= FULL * budget
    study, v = plan.study, plan.study.recipe.verdict
    assert (plan.notes == ()) == (study == STUDY)
    # It can recommend: the baseline, a method and untrained features, three seeds and draws, three numbers of labels.
    assert {"scratch", "mae", "pixels", "random"} <= set(study.starts)
    assert min(v.seeds, v.train_draws, v.probe_draws) >= 3 and len(study.labels) >= 3
    assert (study.labels[0], study.labels[-1]) == (10, 1438)
    assert set(study.tuned) | set(study.matched) <= set(study.labels) <= set(STUDY.labels)
    assert all(max(LEAST_SHARE, LEAST_EPOCHS / 139) <= share + 1e-3 and share <= 1 for share in study.lengths.values())
    assert bool(study.tuned) == (v.trials > 1)


@settings(max_examples=20)
@given(st.floats(200, 1e5), st.floats(1.0, 3.0))
def test_the_first_steps_come_before_all_others(budget: float, more: float) -> None:
    little, much = within(budget).study, within(more * budget).study
    assert set(little.starts) & {"cnn"} <= set(much.starts)  # the first step of all
    if "cnn" in little.starts:
        assert much.length("mae") >= little.length("mae") - 0.01  # the second


def test_digits_in_eight_minutes_pre_train_and_probe_at_full_length() -> None:
    plan = within(480.0, spent=40.0)
    assert plan.study.lengths["mae"] == 1.0
    assert plan.study.labels == STUDY.labels
    assert "cnn" in plan.study.starts and plan.study.recipe.verdict.probe_draws == 10
    assert plan.study.recipe.verdict.length >= 0.2


def test_a_refusal_names_a_budget_and_a_network() -> None:
    named = "--verdict.budget: 60 s is too short to recommend anything; the least that can takes about"
    with pytest.raises(UserError, match=named) as error:
        within(60.0)
    said = str(error.value)
    assert "three draws at 3 numbers of labels), and a plan fills 90% of a budget at most" in said
    assert "--model.name" not in said
    with pytest.raises(UserError, match=r"or a network that fits: --model.name vit_nano$"):
        make_plan(STUDY, replace(NONE, budget=60.0, jobs=2), (), lambda: {"vit_mid": 0.9, "vit_nano": 0.01})


def test_pre_training_fills_at_most_its_share_and_no_run_is_favoured() -> None:
    slow = {start: pace._replace(images_per_second=pace.images_per_second / 20) for start, pace in PACES.items()}
    plan = within(5400.0, paces=slow, asked=("dino",))
    first = [line for line in plan.lines if line.what.endswith(DONE[0])]
    assert len(first) > 1
    assert sum(line.units * line.seconds for line in first) <= PRETRAINING * 5400 * 2
    least = {s for s, share in plan.study.lengths.items() if share <= LEAST_EPOCHS / 139 + 1e-3}
    seconds = [line.seconds for line in first if not any(start_called(s).title in line.what for s in least)]
    assert max(seconds) <= 1.01 * min(seconds)


def test_what_was_asked_for_stays_and_is_shortened() -> None:
    asked = within(1500.0, asked=STARTS)
    assert asked.study.starts == STARTS
    assert min(asked.study.lengths.values()) < 1
    assert set(within(480.0, spent=40.0).study.starts) < set(STARTS)


def test_what_takes_part_follows_what_it_is_worth() -> None:
    found = [within(budget).study.starts for budget in (300.0, 600.0, 1200.0, 3600.0, 2e4)]
    added = [[s for s in after if s not in before] for before, after in pairwise(found)]
    order = [s for starts in ([*found[0]], *added) for s in starts if s in ("cnn", "lejepa@cnn", "dino")]
    assert order == ["cnn", "lejepa@cnn", "dino"]


SMALL = replace(STUDY, preset="px32-cpu", networks={"cnn": ModelConfig("resnet_micro", 32)})


def test_a_method_with_a_network_of_its_own_for_the_preset_comes_first() -> None:
    assert SMALL.worth[:3] == ("cnn", "lejepa@cnn", "mae") and set(SMALL.worth) == set(STUDY.worth)
    named = replace(SMALL, networks={"cnn": ModelConfig("resnet18", 64)})
    assert named.worth == STUDY.worth == replace(SMALL, networks={}).worth
    budgets = [250.0, 270.0, *range(300, 3000, 100)]
    starts = [within(budget, study=SMALL).study.starts for budget in budgets]
    first = next(s for s in starts if "lejepa@cnn" in s)
    assert {"cnn", "scratch"} <= set(first) and not {"mae", "dino"} & set(first)  # with its baseline, before others
    assert all("lejepa@cnn" in s for s in starts[starts.index(first) :])
    assert any({"mae", "lejepa@cnn"} <= set(s) for s in starts)


def test_what_fits_is_begun_with_where_the_first_does_not() -> None:
    slow = {**PACES, "lejepa@cnn": PACES["lejepa@cnn"]._replace(images_per_second=20.0)}
    plan = within(600.0, study=SMALL, paces=slow)
    assert "mae" in plan.study.starts and "lejepa@cnn" not in plan.study.starts
    with pytest.raises(UserError, match="too short to recommend anything") as error:
        within(40.0, study=SMALL, paces=slow)
    minutes = float(str(error.value).partition("give --verdict.budget ")[2].removesuffix("m"))
    assert "mae" in within(60 * minutes, study=SMALL, paces=slow).study.starts


def test_elsewhere_nothing_takes_the_place_of_the_first() -> None:
    slow = {**PACES, "mae": PACES["mae"]._replace(images_per_second=50.0)}
    with pytest.raises(UserError, match="too short to recommend anything"):
        within(600.0, paces=slow)


def test_public_weights_that_are_too_dear_to_train_are_used_as_they_are() -> None:
    study = replace(STUDY, starts=("mae", "public", "scratch", "pixels", "random"))
    paces = {**PACES, "public": Pace(8.0, 1.0, 5e9, 64.0)}
    for asked in ((), ("public",)):
        plan = within(2400.0, study=study, paces=paces, asked=asked)
        assert plan.study.frozen == ("public",)
    assert make_plan(study, replace(NONE, paces=paces)).study.frozen == ()
    assert "public" in plan.study.starts
    assert "public weights: not fine-tuned" in plan.notes
    assert plan.study.uses("public") == ("linear", "knn")
    assert not any(line.what.startswith("public weights, fine-tuned") for line in plan.lines)


def test_a_plan_is_read_back_as_it_was_cut() -> None:
    terms = replace(NONE, budget=600.0, jobs=2)
    plan = make_plan(STUDY, terms)
    told = json.loads(json.dumps(plan_as_json(plan, terms)))
    assert read_plan(STUDY, told) == plan
    assert (told["budget"], told["begun"]) == (600.0, False)
    assert told["paces"]["cnn"]["flops_per_image"] == 2.4e7


def test_once_pre_training_is_done_training_gets_the_time_that_is_left() -> None:
    first = within(1200.0)
    known = dict.fromkeys(first.study.lengths, 1e12)
    study = replace(first.study, recipe=STUDY.recipe, tuned=STUDY.tuned)
    slow, fast = (within(1200.0, study=study, known=known, begun=True, spent=spent) for spent in (900.0, 200.0))
    for plan in (slow, fast):
        assert plan.study.starts == first.study.starts and plan.study.labels == first.study.labels
        assert plan.study.lengths == first.study.lengths
        assert not any(line.what.endswith(DONE) for line in plan.lines)
        assert plan.seconds <= FULL * 1200.0
    assert slow.study.recipe.verdict.length < fast.study.recipe.verdict.length
    late = within(1200.0, study=study, known=known, begun=True, spent=1190.0)  # too late to refuse: the least is made
    assert late.study.recipe.verdict.train_draws == 3 and late.study.recipe.verdict.length == 0.1


def test_what_was_spent_before_counts() -> None:
    early, late = (within(1200.0, spent=spent) for spent in (0.0, 300.0))
    assert late.seconds <= FULL * 1200
    less, more = (sum(line.units * line.seconds for line in plan.lines) for plan in (late, early))
    assert less < more
    assert make_plan(STUDY, replace(NONE, spent=60.0)).seconds == pytest.approx(60 + make_plan(STUDY, NONE).seconds)


def test_two_jobs_take_half_the_time() -> None:
    one, two = (make_plan(STUDY, replace(NONE, jobs=jobs)) for jobs in (1, 2))
    waited = idle(two.lines, 2)
    assert one.seconds - END == pytest.approx(2 * (two.seconds - END) - waited)


@pytest.mark.parametrize(
    ("preset", "labels", "length", "light"),
    [("px32", 20_000, 0.4, 1), ("px32", 20_000, 0.5, 0), ("digits", 20_000, 0.4, 0), ("px32", 2000, 0.4, 0)],
)
def test_training_says_when_it_is_light_because_it_was_cut(preset: str, labels: int, length: float, light: int) -> None:
    study = replace(with_options(length=length), preset=preset, labels=(labels,), tuned=(), matched=())
    notes = make_plan(study, NONE).notes
    said = ("training so short has crops and mirror images alone, no RandAugment, erasing, mixup or CutMix",)
    assert notes == said * light


def test_extracting_features_is_planned_for() -> None:
    plan, larger = (make_plan(replace(STUDY, judged=n), NONE) for n in (1797, 101_797))
    by_name = [{line.what: line.units * line.seconds for line in each.lines} for each in (plan, larger)]
    for name, networks, pace in (("MAE", 4, 2000), ("random weights", 11, 2000), ("raw pixels", 1, 2000),
                                 ("LeJEPA on a CNN", 4, 1500)):  # fmt: skip
        name = f"{name}: k-NN and linear probe"
        assert by_name[1][name] - by_name[0][name] == pytest.approx(networks * 100_000 / (3 * pace))


@pytest.mark.parametrize("budget", [400.0, 1000.0, 5000.0, 1e5])
def test_what_was_asked_for_smaller_is_not_enlarged(budget: float) -> None:
    small = with_options(length=0.01, trials=2, matched_draws=0, train_draws=2, pretraining=0.05)
    cut = within(budget, study=small).study
    v = cut.recipe.verdict
    assert v.length == 0.01 and v.trials <= 2 and (v.matched_draws, v.train_draws) == (0, 2)
    assert all(share == 0.05 for share in cut.lengths.values())


def test_runs_that_are_there_cost_nothing_but_their_flops_are_matched() -> None:
    there = replace(STUDY, starts=("scratch", "mae"), given={"mae": ("run",)})
    terms = replace(NONE, paces={"scratch": PACES["scratch"]}, known={"mae": 4e13})
    lines = {line.what: line for line in make_plan(there, terms).lines}
    assert "MAE: pre-training" not in lines
    assert lines["from scratch at the FLOPs of pre-training"].seconds > 4e13 / (2000 * 2e7)


@pytest.mark.parametrize(("jobs", "runs", "waited"), [(1, 3, 0.0), (2, 3, 100.0), (2, 4, 0.0), (4, 3, 100.0)])
def test_processes_wait_for_the_last_pre_training_run(jobs: int, runs: int, waited: float) -> None:
    lines = [Line("MAE: pre-training", runs, 100.0), Line("MAE, fine-tuned", 9, 50.0)]
    assert idle(lines, jobs) == waited
    assert idle([*lines, Line("DINO: pre-training", 1, 100.0)], 2) == (100.0 if runs == 4 else 0.0 if runs == 3 else 0)


def test_every_step_is_one_that_a_plan_knows() -> None:
    v = vars(VerdictConfig())
    assert {step for step, _ in MORE} <= {"start", "pretraining", "labels", "frozen", "claim", "all", *v}


def test_a_claim_is_worth_more_than_half_of_the_length() -> None:
    """A machine a little slower than measured must not lose the answer whether pre-training pays."""
    budgets = [60.0 * minutes for minutes in range(10, 61)]
    plans = [within(budget, spent=40.0).study for budget in budgets]
    claims = [bool(study.recipe.verdict.matched_draws and study.tuned) for study in plans]
    first = claims.index(True)
    assert claims == [False] * first + [True] * (len(claims) - first), "more time loses no claim"
    lengths = [study.recipe.verdict.length for study in plans]
    assert 0.35 <= lengths[first] < 0.5 < lengths[-1]


def test_a_plan_made_again_says_that_its_budget_is_over() -> None:
    """Pre-training is done, and not even the least that is left fits: it is made, and told."""
    plan = within(480.0, spent=470.0, begun=True)
    assert plan.seconds > 480
    assert plan.notes[0].startswith("the budget is too short: it takes about ")
    assert not any("too short" in note for note in within(1e4, spent=470.0, begun=True).notes)
