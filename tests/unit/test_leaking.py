"""Test images among the images to pre-train on refuse a claim, unless they are too few to matter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.evaluation.metrics import judge as judged_by
from ssl_vit.report.findings.contract import check
from ssl_vit.report.findings.leaking import bound_sentence, most, reason
from ssl_vit.report.findings.records import Verdict, read_verdict

from made_verdict import make_verdict, no_leaks

IMAGES = 400
REFUSED = "test images are among the images to pre-train on"
Judge = Callable[..., Verdict]


def leak(*positions: int, between: str = "test-pool", kind: str = "near") -> dict[str, Any]:
    many = len(positions)
    return {"kind": kind, "between": between, "pairs": many, "images": many, "leak": True, "test": list(positions),
            "sentence": f"{many} of {IMAGES} test images leak."}  # fmt: skip


@pytest.fixture
def leaking(tmp_path: Path) -> Judge:
    def made(*findings: dict[str, Any], **options: Any) -> Verdict:
        curves = {("scratch", "train"): (50.0,), ("mae", "train"): (75.0,), ("public", "train"): (75.0,)}
        folder = make_verdict(
            tmp_path / "verdict", curves, labels=(100,), images=IMAGES, draws=(1, 1), longer=None,
            leaks=no_leaks(findings=list(findings)), **options,
        )  # fmt: skip
        return read_verdict(folder)

    return made


def test_one_image_of_many_does_not_silence_a_claim(leaking: Judge) -> None:
    verdict = leaking(leak(7))
    assert reason(verdict, "mae", 20.0, 30.0) == reason(verdict, "mae", -6.0, 5.0) == ""
    assert bound_sentence(verdict) == (
        "Those among the images to pre-train on can change what is said of pre-training by at most 0.3 points."
    )
    told = [item for item in check(verdict) if "among the images to pre-train on" in item.claim]
    assert [item.kept for item in told] == [False]  # told all the same


def test_many_do(leaking: Judge) -> None:
    verdict = leaking(leak(*range(100)), leak(*range(50, 120), kind="same"))
    assert most(verdict) == 30.0  # every image once
    assert reason(verdict, "mae", 20.0, 30.0) == reason(verdict, "mae@cnn", 40.0, 50.0) == REFUSED


def test_a_gain_that_one_image_may_have_made_is_none(leaking: Judge) -> None:
    verdict = leaking(leak(7))
    said = {ends: reason(verdict, "mae", *ends) for ends in (
        (0.2, 10.0), (0.3, 10.0),  # 0.25 points may be the leak's
        (4.0, 6.0), (4.0, 6.6),  # a large part of what is known
        (-10.0, -0.2), (-10.0, -0.3), (None, None),
    )}  # fmt: skip
    assert [*said.values()] == [REFUSED, "", REFUSED, "", REFUSED, "", REFUSED]


def test_public_weights_have_not_seen_the_pool(leaking: Judge) -> None:
    assert reason(leaking(leak(*range(200))), "public", 20.0, 30.0) == ""


def test_what_was_declared_or_is_no_image_of_the_pool_refuses_nothing(leaking: Judge) -> None:
    every = range(IMAGES)
    declared = leaking(leak(*every), transductive=True)
    assert reason(declared, "mae", 20.0, 30.0) == "" and bound_sentence(declared) == ""
    for harmless in (leak(*every, between="test-train"), leak(*every, kind="group"), leak(*every) | {"leak": False}):
        verdict = leaking(harmless)
        assert reason(verdict, "mae", 20.0, 30.0) == "" and bound_sentence(verdict) == ""


def test_relatives_in_the_pool_have_no_bound(leaking: Judge) -> None:
    assert bound_sentence(leaking(leak(7), leak(*range(IMAGES), kind="group"))) == ""


def test_images_that_were_not_judged_have_no_weight(leaking: Judge) -> None:
    verdict = leaking(leak(0, 9, IMAGES + 1), metric="balanced")
    # Of 402 test images the first and the last but one could not be read: positions are those of all of them.
    verdict.about["test"]["positions"] = [*range(1, IMAGES), IMAGES + 1]
    labels = verdict.about["test"]["labels"]
    weights = [100 / 10 / labels.count(labels[i]) for i in (8, IMAGES - 1)]
    assert most(verdict) == pytest.approx(sum(weights))


@pytest.mark.parametrize(
    ("kind", "metric"), [("class", "auroc"), ("class", "macro_f1"), ("regression", "mean_absolute_error")]
)
def test_without_a_bound_one_image_is_enough(leaking: Judge, kind: str, metric: str) -> None:
    verdict = leaking(leak(7), kind=kind, metric=metric)
    assert most(verdict) is None and reason(verdict, "mae", 20.0, 30.0) == REFUSED


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
