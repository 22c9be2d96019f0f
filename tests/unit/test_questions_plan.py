"""Plans of questions: from paces to trainings within a budget."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.questions.options import NAMES
from ssl_vit.questions.plan import (
    FULL,
    label_counts,
    least,
    lines,
    make_plan,
    numbers_of,
    pace_of,
    plan_as_json,
    read_plan,
    tried,
)
from ssl_vit.questions.scope import Pretraining, Training
from ssl_vit.questions.table import pretrainings, trainings

from made_questions import made_scope, made_terms


def test_everything_is_planned_where_there_is_no_limit() -> None:
    asked = made_scope()
    plan = make_plan(asked, made_terms(asked, None), named=False)
    assert plan.notes == () and dict(plan.scope.epochs) == {"mae": 140.0, "dino": 140.0, "lejepa": 140.0}
    assert replace(plan.scope, epochs=()) == asked


@pytest.mark.parametrize("budget", [300.0, 720.0, 1500.0, 7200.0])
def test_a_plan_keeps_its_budget_and_uses_most_of_it(budget: float) -> None:
    asked = made_scope(labels=(20, 100, 300, 1438))
    plan = make_plan(asked, made_terms(asked, budget), named=False)
    assert plan.seconds <= FULL * budget
    if plan.scope.steps < asked.steps:
        assert plan.seconds > 0.6 * FULL * budget


def test_twelve_minutes_answer_all_questions_at_the_paces_of_digits() -> None:
    asked = made_scope()
    plan = make_plan(asked, made_terms(asked, 720.0), named=False)
    assert (plan.scope.questions, plan.scope.doublings) == (NAMES, 4)


def test_a_longer_budget_never_answers_less() -> None:
    asked = made_scope()
    plans = [make_plan(asked, made_terms(asked, budget), named=False).scope for budget in (250.0, 400.0, 800.0, 3000.0)]
    assert [len(one.questions) for one in plans] == sorted(len(one.questions) for one in plans)
    assert [one.steps for one in plans if len(one.questions) == 6] == sorted(
        one.steps for one in plans if len(one.questions) == 6
    )


def test_the_last_questions_go_first_and_named_ones_stay() -> None:
    asked = made_scope()
    whole = made_terms(asked, None).seconds(least(asked))
    terms = made_terms(asked, 0.9 * whole / FULL)
    plan = make_plan(asked, terms, named=False)
    kept = len(plan.scope.questions)
    assert 0 < kept < len(NAMES) and plan.scope.questions == NAMES[:kept]
    assert f"no answer to {', '.join(NAMES[kept:])}: the budget is too short" in plan.notes
    with pytest.raises(UserError, match=r"--questions\.budget: .* is too short") as refused:
        make_plan(asked, terms, named=True)
    enough = re.search(r"give --questions.budget (\d+)m", str(refused.value))
    assert enough
    assert make_plan(asked, made_terms(asked, 60.0 * int(enough[1])), named=True).scope.questions == NAMES


def test_a_budget_for_nothing_is_refused() -> None:
    asked = made_scope()
    with pytest.raises(UserError, match="the least that answers data"):
        make_plan(asked, made_terms(asked, 10.0), named=False)


def test_a_plan_survives_its_file() -> None:
    asked = made_scope()
    for budget in (720.0, None):
        terms = made_terms(asked, budget)
        plan = make_plan(asked, terms, named=False)
        assert read_plan(json.loads(json.dumps(plan_as_json(plan, terms), allow_nan=False))) == plan


def test_every_kind_of_training_has_a_pace() -> None:
    for questions in (NAMES, *((name,) for name in NAMES)):
        scope = made_scope(questions)
        terms = made_terms(scope, None)
        assert all(line.seconds > 0 for line in lines(scope, terms))
        for one in (*trainings(scope), *pretrainings(scope)):
            assert pace_of(one, scope, terms.paces).images_per_second > 0


def test_sizes_between_two_that_were_measured_have_a_pace_between_theirs() -> None:
    scope = made_scope()
    paces = made_terms(scope, None).paces

    def of(**size: int) -> float:
        return pace_of(Training(**size), scope, paces).images_per_second

    assert of() == 2000.0 and of(width=128) == 500.0 and of(width=8) == 8000.0
    assert of(width=32) == pytest.approx(2000.0 * 4 ** (1 / 3)) and of(width=16) == pytest.approx(2000.0 * 4 ** (2 / 3))
    assert of(width=32, depth=16) == 500.0 and of(width=32, depth=1) == 8000.0
    assert of(width=32, depth=4) == pytest.approx(2000.0) and of(width=32, depth=8) == pytest.approx(1000.0)
    assert pace_of(Pretraining("mae", 0, width=128), scope, paces).images_per_second == pytest.approx(500.0)
    few = {name: pace for name, pace in paces.items() if not name.startswith("train-vit-")}
    assert pace_of(Training(depth=16), scope, few) == few["train-vit"]


def test_what_is_not_asked_for_is_not_measured() -> None:
    assert set(tried(made_scope(("translation",)))) == {
        f"train-{n}" for n in ("vit", "hybrid", "cct", "swin", "resnet")
    }
    assert set(tried(made_scope(("learned",)))) == {"train-vit", "pretrain-mae", "pretrain-dino", "pretrain-lejepa"}


def test_cuts_are_told() -> None:
    asked = made_scope(labels=(20, 100, 300, 1438))
    plan = make_plan(asked, made_terms(asked, 400.0), named=False)
    told = " ".join(plan.notes)
    assert "steps; with the whole time it would have 1,000" in told and "epochs of pre-training" in told
    assert ("width and depth are doubled" in told) == (plan.scope.doublings < 4 and "scale" in plan.scope.questions)


def test_numbers_of_labels() -> None:
    assert label_counts(1438, 10, None) == (20, 100, 300, 1438)
    assert label_counts(50_000, 10, None) == (20, 100, 300, 1000, 5000, 20_000, 50_000)
    assert label_counts(1438, 10, (50,)) == (50, 1438)
    assert label_counts(300, None, None) == (4, 20, 60, 300)
    assert numbers_of((1, 2, 3, 4, 5), 3) == (1, 3, 5) and numbers_of((7,), 3) == (7,)
    with pytest.raises(UserError, match=r"there are 1,438 training labels; give at most 1,438$"):
        label_counts(1438, 10, (2000,))
    with pytest.raises(UserError, match="fewer than one for each of the 10 classes"):
        label_counts(1438, 10, (5,))
    with pytest.raises(UserError, match=r"--questions\.labels 1 are too few; give at least 2"):
        label_counts(1438, None, (1, 100))


def test_the_least_plan_is_no_longer_than_what_was_asked_for() -> None:
    asked = made_scope(steps=2, doublings=1, seconds=math.inf)
    assert (least(asked).steps, least(asked).doublings) == (2, 1)
