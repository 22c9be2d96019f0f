"""Advice in hindsight: regret, coverage, and what counts against the advice."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_verdict import cell, summary

FOUND = {("cnn", "train"): 90.0, ("mae", "linear"): 89.5, ("pixels", "knn"): 60.0}


def advice(start: str, use: str, low: float | None = 85.0, high: float | None = 95.0) -> Any:
    return SimpleNamespace(advised=SimpleNamespace(start=start, use=use), expected=88.0, low=low, high=high)


@pytest.mark.parametrize(
    ("said", "came", "regret", "covered"),
    [
        (advice("mae", "linear"), 89.2, 0.8, True),
        (advice("mae", "linear"), 97.0, -7.0, False),
        (advice("mae", "linear", None, None), 89.2, 0.8, None),
        (advice("mae", "linear"), None, None, None),
        (None, 89.2, None, None),
    ],
)
def test_one_cell(said: Any, came: float | None, regret: float | None, covered: bool | None) -> None:
    found = cell("digits", 10, said, {} if came is None else {("mae", "linear"): came}, FOUND)
    assert (found.best, found.best_way, found.covered) == (90.0, "cnn, train", covered)
    assert found.regret == (None if regret is None else pytest.approx(regret))


def test_nothing_advised_or_tried_again_is_no_success() -> None:
    came = {("mae", "linear"): 89.2, ("pixels", "knn"): 60.0}
    cells = [cell("d", n, said, came, FOUND) for n, said in enumerate(
        (advice("mae", "linear"), advice("pixels", "knn", 59.0, 61.0), advice("cnn", "train"), None)
    )]  # fmt: skip
    assert summary(cells) == {"cells": 4, "good": 0.25, "covered": 1.0, "intervals": 2}
