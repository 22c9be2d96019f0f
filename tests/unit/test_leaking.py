"""Test images among the images to pre-train on refuse a verdict, unless they are too few to matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.evaluation.metrics import judge as judged_by
from ssl_vit.report.findings.conclusions import Findings, find
from ssl_vit.report.findings.contract import check
from ssl_vit.report.findings.leaking import bound_sentence, most, reason
from ssl_vit.report.findings.records import Verdict, read_verdict

from made_verdict import Curves, make_verdict, no_leaks

IMAGES = 400
SCRATCH, SAME, BETTER = (50.0, 70.0), (50.5, 70.0), (75.0, 90.0)
REFUSED = "test images are among the images to pre-train on"
Judge = Callable[..., tuple[Verdict, Findings]]


def leak(*positions: int, between: str = "test-pool", kind: str = "near") -> dict[str, Any]:
    many = len(positions)
    return {"kind": kind, "between": between, "pairs": many, "images": many, "leak": True, "test": list(positions),
            "sentence": f"{many} of {IMAGES} test images leak."}  # fmt: skip


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(
        mae: tuple[float, ...], *findings: dict[str, Any], more: Curves | None = None, **options: Any
    ) -> tuple[Verdict, Findings]:
        curves = {("scratch", "train"): SCRATCH, ("mae", "train"): mae, **(more or {})}
        folder = make_verdict(
            tmp_path / "verdict", curves, labels=(100, 1000), images=IMAGES, draws=(10, 5), longer=None,
            leaks=no_leaks(findings=list(findings)), **options,
        )  # fmt: skip
        verdict = read_verdict(folder)
        return verdict, find(verdict)

    return judged


@pytest.mark.parametrize("mae", [SAME, BETTER])
def test_one_image_of_many_does_not_silence_a_verdict(judge: Judge, mae: tuple[float, ...]) -> None:
    verdict, found = judge(mae, leak(7))
    assert found.refused == () and found.judged == ("mae",)
    assert found.headline == find(replace(verdict, leaks=no_leaks())).headline
    assert bound_sentence(verdict, found.primary, found.judged) == (
        "Those among the images to pre-train on can change a difference of MAE by at most 0.3 points, less than a "
        "tenth of its interval's width."
    )
    assert not next(
        i for i in check(verdict) if "among the images to pre-train on" in i.claim
    ).kept  # told all the same


@pytest.mark.parametrize("mae", [SAME, BETTER])
def test_many_do(judge: Judge, mae: tuple[float, ...]) -> None:
    verdict, found = judge(mae, leak(*range(100)), leak(*range(50, 120), kind="same"))
    assert most(verdict) == 30.0  # every image once
    assert found.refused == (REFUSED,) and found.judged == ()
    assert bound_sentence(verdict, found.primary, found.judged) == ""


def test_a_gain_that_one_image_may_have_made_is_none(judge: Judge) -> None:
    verdict, found = judge(BETTER, leak(7))
    (one,) = found.primary
    assert one.interval.low and one.interval.high and one.sign == 1

    def refused(low: float, high: float) -> tuple[str, ...]:
        """Where all differences lie so."""
        d = replace(one, interval=one.interval._replace(low=low, high=high))
        return tuple(filter(None, [reason(verdict, d, [])]))

    assert refused(0.2, 10.0) == (REFUSED,)  # 0.25 points may be the leak's
    assert refused(0.3, 10.0) == ()
    assert refused(4.0, 6.0) == (REFUSED,)  # a large part of what is known
    assert refused(4.0, 6.6) == ()
    loss = replace(one, interval=one.interval._replace(estimate=-5.0, low=-10.0, high=-0.2))
    assert reason(verdict, loss, []) == REFUSED  # a loss that it may have made
    assert reason(verdict, replace(loss, interval=loss.interval._replace(high=-0.3)), []) == ""
    probe = replace(loss, use="knn", labels=100)
    assert reason(verdict, one, [probe]) == REFUSED  # what else is said counts, too


def test_public_weights_have_not_seen_the_pool(judge: Judge) -> None:
    more = {("public", "train"): BETTER}
    _, found = judge(BETTER, leak(*range(200)), more=more)
    assert found.refused == (REFUSED,) and found.judged == ("public",)


def test_what_was_declared_or_is_no_image_of_the_pool_refuses_nothing(judge: Judge) -> None:
    every = range(IMAGES)
    verdict, found = judge(BETTER, leak(*every), transductive=True)
    assert found.refused == () and bound_sentence(verdict, found.primary, found.judged) == ""
    for harmless in (leak(*every, between="test-train"), leak(*every, kind="group"), leak(*every) | {"leak": False}):
        verdict, found = judge(BETTER, harmless)
        assert found.refused == () and bound_sentence(verdict, found.primary, found.judged) == ""


def test_relatives_in_the_pool_have_no_bound(judge: Judge) -> None:
    verdict, found = judge(BETTER, leak(7), leak(*range(IMAGES), kind="group"))
    assert found.refused == () and bound_sentence(verdict, found.primary, found.judged) == ""


def test_images_that_were_not_judged_have_no_weight(judge: Judge) -> None:
    verdict, _ = judge(SAME, leak(0, 9, IMAGES + 1), metric="balanced")
    # Of 402 test images the first and the last but one could not be read: positions are those of all of them.
    verdict.about["test"]["positions"] = [*range(1, IMAGES), IMAGES + 1]
    labels = verdict.about["test"]["labels"]
    weights = [100 / 10 / labels.count(labels[i]) for i in (8, IMAGES - 1)]
    assert most(verdict) == pytest.approx(sum(weights))


@pytest.mark.parametrize(
    ("kind", "metric"), [("class", "auroc"), ("class", "macro_f1"), ("regression", "mean_absolute_error")]
)
def test_without_a_bound_one_image_is_enough(judge: Judge, kind: str, metric: str) -> None:
    verdict, found = judge(SAME, leak(7), kind=kind, metric=metric)
    assert most(verdict) is None and found.refused == (REFUSED,)


@given(st.data(), st.sampled_from(["top1", "balanced"]))
def test_no_answers_change_a_metric_by_more_than_the_bound(data: st.DataObject, metric: str) -> None:
    labels = [0, 1, 2, *data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=20))]
    some = data.draw(st.sets(st.integers(0, len(labels) - 1), min_size=1))
    before = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels))))
    after = before.copy()
    for position in some:
        after[position] = data.draw(st.integers(0, 2))
    about = {"kind": "class", "metric": metric, "test": {"labels": labels}}
    verdict = Verdict(Path(), about, (), no_leaks(findings=[leak(*some)]))

    def score(answers: np.ndarray) -> float:
        return judged_by("class", np.eye(3, dtype=np.float32)[answers], np.array(labels), ("a", "b", "c"), only=metric)[
            metric
        ]

    bound, right = most(verdict), np.array(labels)
    assert bound is not None and abs(score(before) - score(after)) <= bound + 1e-4
    worst = right.copy()
    worst[list(some)] = (right[list(some)] + 1) % 3
    assert score(right) - score(worst) == pytest.approx(bound, abs=1e-4)  # it is reached
