"""Labels saved and the baseline's curve stand on what a verdict's folder holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssl_vit.report.cells import NOTHING
from ssl_vit.report.findings.facts import _score
from ssl_vit.report.findings.records import Verdict, read_verdict
from ssl_vit.report.findings.saved import Saving, savings, savings_rows

from made_verdict import Curves, make_verdict

LABELS = (10, 40, 160)
SCRATCH = (50.0, 70.0, 85.0)
GAIN = (70.0, 93.0, 97.0)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Verdict]:
    def make(
        mae: tuple[float, ...], more: Curves | None = None, remove: tuple[str, ...] = (), **options: Any
    ) -> Verdict:
        curves = {("scratch", "train"): SCRATCH, ("mae", "train"): mae, **(more or {})}
        given = {"labels": LABELS, "images": 200, "draws": (5, 5), "longer": None} | options
        folder = make_verdict(tmp_path / "verdict", curves, **given)
        for pattern in remove:
            for path in (folder / "results").glob(pattern):
                path.unlink()
        return read_verdict(folder)

    return make


def saved(verdict: Verdict, labels: int) -> Saving:
    (found,) = [s for s in savings(verdict) if s.labels == labels]
    return found


def cells(verdict: Verdict) -> list[list[str]]:
    return [[cell.text for cell in row] for row in savings_rows(verdict, savings(verdict)).rows]


def test_fewer_labels_reach_the_level_of_all(made: Callable[..., Verdict]) -> None:
    verdict = made(GAIN)
    found = saved(verdict, 160)
    assert found.level == pytest.approx(np.mean([s.value for s in verdict.of("scratch", "train", 160)]))
    needed = found.found
    assert needed.labels and needed.low and needed.high and 10 < needed.low < needed.labels < needed.high < 160
    minor = savings_rows(verdict, [found]).rows[0][1].minor
    assert minor == (f"{needed.low:,.0f} to {needed.high:,.0f}",)


def test_a_level_that_is_not_reached_says_so(made: Callable[..., Verdict]) -> None:
    verdict = made((35.0, 50.0, 70.0))
    found = saved(verdict, 160).found
    assert found.labels is None and found.low == 160 and found.high is None
    assert cells(verdict)[0][-1] == "not reached"


def test_a_level_below_the_fewest_labels_is_reached_at_once(made: Callable[..., Verdict]) -> None:
    verdict = made(GAIN)
    assert saved(verdict, 10).found.at_once and cells(verdict)[0][1] == "10 or fewer"


def test_only_what_was_pre_trained_saves_labels(made: Callable[..., Verdict]) -> None:
    verdict = made(GAIN, more={("pixels", "knn"): GAIN, ("mae", "knn"): GAIN, ("public", "linear"): GAIN})
    assert {s.way for s in savings(verdict)} == {("mae", "train"), ("mae", "knn"), ("public", "linear")}


def test_the_baseline_is_the_better_of_the_two_at_every_number_of_labels(made: Callable[..., Verdict]) -> None:
    verdict = made(GAIN, longer=(30.0, 85.0, 60.0))
    means = [np.mean([s.value for s in verdict.of("scratch", "train", n, matched=n == 40)]) for n in LABELS]
    assert [one.level for one in savings(verdict)] == [pytest.approx(mean) for mean in means]


def test_a_level_is_that_of_the_draws_which_both_have(made: Callable[..., Verdict]) -> None:
    verdict = made(GAIN, remove=("scratch-train-40-[34].*", "mae-train-10-0.*"))
    values = [s.value for s in verdict.of("scratch", "train", 40) if s.draw in (1, 2)]
    assert saved(verdict, 40).level == pytest.approx(np.mean(values))
    assert not [s for s in savings(made(GAIN, remove=("scratch-train-40-[01].*", "mae-train-10-[234].*")))
                if s.labels == 40]  # fmt: skip


def test_without_a_baseline_nothing_is_saved(tmp_path: Path) -> None:
    verdict = read_verdict(make_verdict(tmp_path / "v", {("mae", "knn"): SCRATCH}, labels=LABELS, longer=None))
    assert savings(verdict) == [] and not savings_rows(verdict, ())


def test_a_smaller_error_needs_fewer_labels(made: Callable[..., Verdict]) -> None:
    found = saved(made((35.0, 50.0, 70.0), metric="mean_absolute_error"), 10).found
    assert found.labels is not None and found.at_once


def test_a_probe_that_was_not_chosen_among_others_did_not_diverge() -> None:
    assert [_score(score, use) for score, use in ((None, "linear"), (None, "train"), (60.0, "linear"))] == [
        NOTHING, "diverged", "60"
    ]  # fmt: skip
