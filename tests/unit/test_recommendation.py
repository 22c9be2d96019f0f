"""What a verdict's folder advises, and what of it is pre-training, as numbers and in sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssl_vit.configs.metrics import METRICS
from ssl_vit.report.cells import Table
from ssl_vit.report.findings.recommendation import Recommendation, _pays, asked_of, recommend, without_failed
from ssl_vit.report.findings.records import Score, Verdict, read_verdict
from ssl_vit.report.findings.tables import interval_of
from ssl_vit.report.page.content import build
from ssl_vit.statistics.advice import Attribution, Way

from made_verdict import DIGITS, SMALL, Curves, make_verdict, no_leaks

TWO = (10, 100)
PROBED: Curves = {
    ("scratch", "train"): (30.0, 92.0), ("mae", "train"): (40.0, 82.0), ("mae", "linear"): (80.0, 84.0),
    ("pixels", "knn"): (50.0, 60.0),
}  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Verdict]:
    def make(curves: Curves = PROBED, **options: Any) -> Verdict:
        for name in ("results", "pictures"):
            (tmp_path / name).mkdir(exist_ok=True)
        given = {"labels": TWO, "images": 300, "leaks": no_leaks()}
        return read_verdict(make_verdict(tmp_path, curves, **(given | options)) and tmp_path)

    return make


@pytest.fixture
def found(read: Callable[..., Verdict]) -> Callable[..., Recommendation]:
    return lambda *args, **options: recommend(read(*args, **options))


def changed(verdict: Verdict, **about: Any) -> Verdict:
    return replace(verdict, about=verdict.about | about)


def test_every_number_of_labels_has_its_advice_in_a_sentence(found: Callable[..., Recommendation]) -> None:
    said = found()
    assert [one.advised for one in said.advice] == [Way("mae", "linear"), Way("scratch", "train")]
    assert [one.labels for one in said.advice] == [10, 100]
    first, second = said.sentences
    assert first.startswith("With 10 labels: MAE, linear probe (") and " to " in first and first.endswith(").")
    assert second.startswith("With 100 labels: training from scratch (")
    assert said.pays == "Pre-training pays only below about 100 labels; with 100 it costs accuracy."


def test_numbers_of_labels_with_one_advice_share_a_sentence(found: Callable[..., Recommendation]) -> None:
    labels = (10, 20, 50, 100)
    said = found({("scratch", "train"): (30, 40, 50, 96), ("mae", "linear"): (80, 82, 84, 86)}, labels=labels)
    assert [one.advised.start for one in said.advice] == ["mae", "mae", "mae", "scratch"]
    assert said.sentences[0].startswith("With 10 to 50 labels: MAE, linear probe (")
    assert " with 10, " in said.sentences[0] and " with 50, " in said.sentences[0]
    whole = found({("scratch", "train"): (30, 40, 50, 60), ("mae", "linear"): (80, 82, 84, 86)}, labels=labels)
    assert whole.sentences[0].startswith("With 10 to 100 labels: MAE") and len(whole.sentences) == 1
    assert whole.pays == "Pre-training pays with every number of labels."


def test_what_was_not_tuned_or_matched_is_not_attributed_but_still_recommended(read: Callable[..., Verdict]) -> None:
    whole = read()
    one = replace(whole, scores=tuple(s for s in whole.scores if not (s.matched and s.labels == 10)))
    said = recommend(one)
    assert [a.refused for a in said.attributions] == [
        "the baseline was not trained at the FLOPs of pre-training and fine-tuning", ""
    ]  # fmt: skip
    assert said.attributions[0].gain is None and said.attributions[1].gain is not None
    assert said.advice[0].advised == Way("mae", "linear")
    usual = {"labels": 100, "chosen": 0}  # where nothing is tuned, the first trial's options are taken
    studies = [
        study | (usual | {"trials": study["trials"][::-1]} if study["use"] == "train" else {})
        for study in whole.studies
    ]  # fmt: skip
    untuned = recommend(changed(whole, tuning=whole.told("tuning") | {"studies": studies}))
    assert [bool(a.refused) for a in untuned.attributions] == [True, False]
    assert untuned.attributions[0].refused == "the baseline was not tuned"
    assert any("with 10 labels is not said: the baseline was not tuned." in line for line in untuned.refused)


def test_a_broken_contract_refuses_attribution_only(found: Callable[..., Recommendation]) -> None:
    said = found(longer=None)
    assert all("FLOPs" in one.refused for one in said.attributions) and said.pays == ""
    assert len(said.sentences) == 2
    other = found(protocols={"mae": "another"})
    assert all("protocols of MAE" in one.refused for one in other.attributions)


def test_a_leak_refuses_attribution_where_it_could_change_it(found: Callable[..., Recommendation]) -> None:
    leak = {"between": "test-pool", "kind": "exact", "leak": True, "test": list(range(60)), "sentence": "60 leak."}
    said = found(leaks=no_leaks() | {"findings": [leak]})
    assert all("test images are among" in one.refused and one.gain is None for one in said.attributions)


def test_too_few_draws_say_so_and_advise_all_the_same(found: Callable[..., Recommendation]) -> None:
    said = found(draws=(2, 2))
    assert all(one.reason == "too few to tell: 2 draws and 2 pre-training seeds" for one in said.advice[:1])
    assert said.sentences[0].startswith("With 10 labels: MAE, linear probe (")
    assert said.pays == "" and all(one.refused for one in said.attributions)


def test_failed_trainings_are_named(read: Callable[..., Verdict]) -> None:
    whole = read()
    scores = tuple(
        replace(s, value=9.0, units=(s.units if s.units is None else s.units * 0))
        if (s.start, s.use, s.labels, s.draw) == ("mae", "train", 100, 1)
        else s
        for s in whole.scores
    )
    said = recommend(replace(whole, scores=scores))
    assert said.advice[1].failed == ((Way("mae", "train"), 1, 5),)
    assert any(
        line.startswith("With 100 labels, 1 of 5 trainings failed (MAE, fine-tuned): it learned")
        for line in said.failed
    )


def test_a_smaller_error_is_better_and_shown_as_an_error(found: Callable[..., Recommendation]) -> None:
    said = found(kind="regression", metric="mean_absolute_error")
    assert all(one.expected > 0 and (one.low or 0) <= one.expected for one in said.advice)
    assert said.advice[0].advised == Way("scratch", "train"), "the smallest number is the best"
    assert all(one.low is None or one.high is None or one.low <= one.high for one in said.advice)


def test_values_alone_are_advice_too(found: Callable[..., Recommendation]) -> None:
    said = found(units=False)
    assert len(said.sentences) == 2 and said.advice[0].low is not None


def test_the_digits_of_the_examples_are_read_as_they_should_be(found: Callable[..., Recommendation]) -> None:
    said = found(DIGITS, labels=(10, 20, 50, 100, 1438), images=359)
    assert [one.advised.start for one in said.advice] == ["mae", "mae", "pixels", "pixels", "pixels"]
    assert said.attributions[0].gain is not None and said.attributions[0].gain > 5
    assert "below about 20 labels" in said.pays


def test_groups_and_costs_reach_the_statistics(read: Callable[..., Verdict]) -> None:
    asked = asked_of(read(SMALL, grouped=True, images=200))
    assert asked.groups is not None and len(asked.groups) == 200 and asked.guess == pytest.approx(10, abs=1)
    ways = {one.way: one for one in asked.table[10]}
    assert ways[Way("mae", "train")].cost > 0 == ways[Way("scratch", "train")].cost
    assert ways[Way("scratch", "train")].seeds is None and ways[Way("mae", "train")].seeds is not None


def test_a_recommendation_says_the_same_of_a_folder_that_was_written_again(read: Callable[..., Verdict]) -> None:
    first = read()
    assert recommend(first) == recommend(read_verdict(first.folder))
    assert json.loads((first.folder / "verdict.json").read_text())["labels"] == list(TWO)


def attributed(*gains: tuple[int, float | None, float | None]) -> list[Attribution]:
    """By number of labels: the gain and its p; where there is none, nothing is said."""
    return [Attribution(n, gain, -1.0, 1.0, p, refused="" if gain is not None else "not tuned") for n, gain, p in gains]


@pytest.mark.parametrize(
    ("metric", "gains", "words"),
    [
        ("top1", [(10, None, None), (100, 9.0, 0.01), (1000, 0.2, 0.8)],
         "Pre-training pays with 100 labels, and not clearly with 1,000."),  # of 10 nothing is known
        ("top1", [(10, 9.0, 0.01), (100, 0.2, 0.8)], "Pre-training pays only below about 100 labels."),
        ("top1", [(10, None, None), (100, 9.0, 0.01)],
         "Pre-training pays with 100 labels; of other numbers nothing can be said."),
        ("top1", [(10, 9.0, 0.01), (100, 4.0, 0.2)], "Pre-training pays clearly only below about 100 labels."),
        ("r2", [(10, 0.4, 0.01), (100, 0.3, 0.2)], "Pre-training pays clearly only below about 100 labels."),
        ("top1", [(10, 9.0, 0.01), (100, -3.0, 0.001), (1000, 2.0, 0.01)],
         "Pre-training pays with 10 and 1,000 labels; with 100 it costs accuracy."),
        ("mean_absolute_error", [(10, -2.0, 0.01)],
         "No gain from pre-training was found with any number of labels; with 10 it makes the mean absolute error "
         "larger."),
    ],
)  # fmt: skip
def test_where_pre_training_pays(metric: str, gains: list[tuple[int, float | None, float | None]], words: str) -> None:
    about = METRICS[metric]
    assert _pays(attributed(*gains), about, 1.0 if about.percent else 0.01) == words


def test_trainings_that_failed_are_in_no_table(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=TWO, images=100, leaks=no_leaks())
    for path in folder.glob("results/mae-train-100-4.json"):
        told = json.loads(path.read_text())
        with np.load(path.with_suffix(".npz")) as arrays:
            kept = dict(arrays)
        hits = np.arange(100) % 10 == 0  # as good as guessing
        kept |= {"units": (100.0 * hits).astype(np.float32)}
        told["rows"][0]["top1"] = 10.0
        path.write_text(json.dumps(told))
        np.savez(path.with_suffix(".npz"), **kept)
    verdict = read_verdict(folder)
    whole, learned = (each.of("mae", "train", 100) for each in (verdict, without_failed(verdict)))
    assert (len(whole), len(learned)) == (5, 4) and min(s.value for s in learned) > 50
    assert len(without_failed(verdict).scores) == len(verdict.scores) - 1
    assert "1 of 5 trainings failed" in recommend(verdict).failed[0]
    page = build(verdict)
    (curves,) = (section for section in page.sections if section.key == "curves")
    (table,) = (block for block in curves.blocks if isinstance(block, Table))
    (row,) = (row for row in table.rows if getattr(row[0], "text", row[0]) == "MAE, fine-tuned")
    assert float(getattr(row[2], "text", row[2])) == pytest.approx(np.mean([s.value for s in learned]), abs=0.06)


@pytest.mark.parametrize(("metric", "wanted"), [("r2", 0.01), ("mean_absolute_error", 0.02)])
def test_a_bad_way_does_not_say_what_a_point_is(metric: str, wanted: float, read: Callable[..., Verdict]) -> None:
    verdict = read({("scratch", "train"): (30.0, 60.0), ("mae", "knn"): (50.0, 70.0), ("pixels", "knn"): (40.0, 50.0)},
                   kind="regression", metric="top1")  # fmt: skip

    def valued(pixels: float) -> Verdict:
        scores = tuple(
            replace(s, units=None, value=pixels if s.start == "pixels" else {"mae": 2.0}.get(s.start, 3.0))
            for s in verdict.scores
        )
        return replace(changed(verdict, metric=metric), scores=scores)

    assert asked_of(valued(5.0)).indifferent == asked_of(valued(-500.0 if metric == "r2" else 500.0)).indifferent
    assert asked_of(valued(5.0)).indifferent == pytest.approx(wanted)


def test_an_interval_knows_of_images_although_another_way_has_no_answers(
    found: Callable[..., Recommendation], read: Callable[..., Verdict]
) -> None:
    whole = read(images=40)
    some = tuple(replace(s, units=None) if s.start == "pixels" else s for s in whole.scores)
    own = {one.labels: one for one in recommend(replace(whole, scores=some)).advice}
    for labels, one in own.items():
        width = interval_of(whole.of(one.advised.start, one.advised.use, labels), None)
        assert one.low is not None and one.high is not None and width.low is not None and width.high is not None
        assert one.high - one.low >= min(width.high, 100.0) - max(width.low, 0.0) - 1e-9


def test_a_training_that_failed_is_in_no_interval_and_hides_nothing(tmp_path: Path) -> None:
    """One of five fine-tunings at chance: the others tell as much as before, and that something was learned."""
    curves = {("scratch", "train"): (9.0, 9.0), ("mae", "train"): (92.0, 96.0), ("random", "knn"): (9.0, 9.0)}
    whole = read_verdict(make_verdict(tmp_path / "v", curves, labels=(100, 1000), longer=None))
    rng = np.random.default_rng(0)

    def failed(score: Score) -> Score:
        if (score.start, score.draw) != ("mae", 2) or score.units is None:
            return score
        units = 100.0 * (rng.random(len(score.units)) < 0.1)
        return replace(score, units=units, value=float(units.mean()))

    verdict = replace(whole, scores=tuple(map(failed, whole.scores)))
    first = recommend(verdict).advice[0]
    assert first.failed and first.low is not None and first.low > 85
    assert not any("nothing was learned" in words for words in build(verdict).beside)
