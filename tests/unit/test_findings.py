"""Sentences of a verdict say what the numbers say, with intervals, and nothing where nothing may be said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.report.findings.conclusions import Findings, find
from ssl_vit.report.findings.records import read_verdict

from made_verdict import Curves, make_verdict

LABELS = (10, 100, 1000)
SCRATCH = (0.50, 0.70, 0.85)
IMAGES = 200


def write_verdict(
    folder: Path, curves: Curves, *, draws: int = 5, longer: tuple[float, ...] = (), **options: Any
) -> Path:
    """A verdict's folder in which every method has about the given accuracy at every number of labels."""

    def percent(means: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(100 * mean for mean in means)

    given = {"labels": LABELS, "images": IMAGES, "longer": percent(longer) or None} | options
    return make_verdict(folder, {key: percent(means) for key, means in curves.items()}, draws=(draws, draws), **given)


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., Findings]:
    def make(
        mae: tuple[float, ...], broken: tuple[str, ...] = (), more: Curves | None = None, **options: Any
    ) -> Findings:
        curves = {("scratch", "train"): SCRATCH, ("mae", "train"): mae, **(more or {})}
        return find(read_verdict(write_verdict(tmp_path / "verdict", curves, **options)), broken)

    return make


GAIN = (0.70, 0.93, 0.97)


def test_a_gain_is_said_in_labels_saved_with_its_interval(found: Callable[..., Findings]) -> None:
    said = found(GAIN)
    assert re.fullmatch(
        r"MAE pre-training reaches the labelled baseline's accuracy \(\d\d\.\d % with all 1,000 labels\) with "
        r"[\d.]+ % of the labels \(95 % interval [\d.]+-[\d.]+ %\)\.",
        said.headline,
    )
    assert said.primary[0].sign == 1 and said.primary[0].interval.estimate > 10 and not said.refused
    (saved,) = [s for s in said.savings if s.labels == 1000]
    assert saved.needed and saved.low and saved.high and 10 < saved.low < saved.needed < saved.high < 1000
    assert any("a gain with 10, 100 and 1,000 labels" in line for line in said.more)


def test_no_gain_is_said_as_plainly(found: Callable[..., Findings]) -> None:
    said = found(SCRATCH)
    assert said.primary[0].sign == 0
    assert re.fullmatch(
        r"No gain from MAE pre-training was found: difference in accuracy [+-]?[\d.]+ points "
        r"\(95 % interval -[\d.]+ to \+[\d.]+\) "
        r"against the labelled baseline on average over 10 to 1,000 labels\.",
        said.headline,
    )


def test_a_loss_is_called_a_loss(found: Callable[..., Findings]) -> None:
    said = found((0.35, 0.50, 0.70))
    assert said.headline.startswith("MAE pre-training loses: difference in accuracy -")
    assert "a loss with all 1,000 labels" in said.headline
    assert any("does not reach the labelled baseline's accuracy" in line for line in said.more)
    (saved,) = [s for s in said.savings if s.labels == 1000]
    assert saved.needed is None and saved.shares[0] is None and saved.low == 1000 and saved.high is None
    assert any(
        line.endswith("even all 1,000 labels are not enough (95 % interval: more than that).") for line in said.more
    )


def test_more_labels_than_the_baseline_has_are_needed_and_not_a_success(found: Callable[..., Findings]) -> None:
    said = found((0.35, 0.60, 0.80))
    lines = [line for line in said.more if "the labelled baseline reaches with 10 " in line]
    assert len(lines) == 1 and re.fullmatch(
        r"MAE pre-training needs \d\d labels \(95 % interval \d\d-\d+\) for the accuracy that the labelled baseline "
        r"reaches with 10 \(\d\d\.\d %\)\.",
        lines[0],
    )
    assert not any("reaches the labelled baseline's" in line for line in said.more)


def test_a_loss_that_holm_takes_for_chance_is_not_called_no_difference(found: Callable[..., Findings]) -> None:
    others = {(start, use): SCRATCH for start in ("pixels", "random", "dino") for use in ("knn", "linear")}
    said = found((0.35, 0.60, 0.80), more=others)
    (last,) = [d for d in said.table if (d.start, d.use, d.labels) == ("mae", "train", 1000)]
    assert last.unclear and last.sign == 0 and last.p_holm and last.p_holm >= 0.05
    assert last.interval.high is not None and last.interval.high < 0
    assert "a loss with all 1,000 labels, not clear after Holm's adjustment for 21 comparisons: -" in said.headline
    assert any("a loss that is not clear with 1,000 labels" in line for line in said.more)


def without(folder: Path, pattern: str) -> None:
    for path in (folder / "results").glob(pattern):
        path.unlink()


def test_a_curve_stands_on_the_draws_that_the_longer_baseline_has_too(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): GAIN}
    folder = write_verdict(tmp_path / "v", curves, longer=(0.30, 0.85, 0.60), seeds=5)
    without(folder, "scratch-train-100-[34]-longer*")
    said = find(read_verdict(folder))
    (one,) = said.primary
    assert (one.draws, one.seeds, one.matched) == (3, 3, (100,))
    assert [(d.labels, d.draws, d.seeds) for d in said.table] == [(10, 5, 5), (100, 3, 3), (1000, 5, 5)]
    verdict = read_verdict(folder)
    own = [s.value for s in verdict.of("mae", "train") if s.draw < 3]
    assert one.value == pytest.approx(sum(own) / 9)


def test_a_longer_baseline_without_a_draw_in_common_is_not_the_baseline(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): GAIN}
    folder = write_verdict(tmp_path / "v", curves, longer=(0.30, 0.85, 0.60))
    without(folder, "scratch-train-100-[01].*")
    without(folder, "scratch-train-100-[234]-longer*")
    (one,) = find(read_verdict(folder)).primary
    assert (one.draws, one.matched) == (3, ())


def test_gain_with_few_labels_and_none_with_all_is_said_as_both(found: Callable[..., Findings]) -> None:
    said = found((0.80, 0.83, 0.85))
    assert said.headline.startswith("MAE pre-training gains: difference in accuracy +")
    assert "no clear difference with all 1,000 labels" in said.headline
    assert any("a gain with 10 and 100 labels; no clear difference with 1,000 labels" in line for line in said.more)


@pytest.mark.parametrize("mae", [GAIN, SCRATCH])
def test_a_broken_contract_refuses_the_verdict(found: Callable[..., Findings], mae: tuple[float, ...]) -> None:
    said = found(mae, broken=("MAE had 5 trials, the baseline 2.",))
    assert said.headline.startswith("No verdict is given: MAE had 5 trials, the baseline 2. Observed only: MAE pre-")
    assert said.refused == ("MAE had 5 trials, the baseline 2.",)
    assert "reaches" not in said.headline and "95 % interval" in said.headline


def test_other_protocols_refuse_the_verdict_on_those_that_follow_them(found: Callable[..., Findings]) -> None:
    said = found(GAIN, more={("dino", "train"): GAIN}, protocols={"dino": "two"})
    assert said.headline.startswith("MAE pre-training reaches")
    reason = "the protocols of DINO fine-tuning and of the labelled baseline differ (rules two -> one)"
    assert said.refused == (reason,)
    assert f"No verdict is given on DINO pre-training: {reason}. Observed only: DINO pre-training," in said.headline


def test_one_backbone_is_a_condition_of_the_sentence(found: Callable[..., Findings]) -> None:
    said = found(GAIN, seeds=1)
    assert said.headline.endswith("%), conditional on this one backbone.")
    assert said.primary[0].conditional and said.primary[0].seeds == 1


def test_public_weights_are_one_backbone(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("public", "train"): GAIN}
    said = find(read_verdict(write_verdict(tmp_path / "v", curves)))
    assert said.headline.startswith("Starting from public weights reaches") and said.primary[0].seeds == 1
    assert said.headline.endswith("conditional on this one backbone.")


def test_a_gain_with_a_loss_somewhere_says_both(found: Callable[..., Findings]) -> None:
    said = found((0.35, 0.97, 0.97))
    assert "; but a loss with 10 labels: -" in said.headline


def test_two_backbones_are_still_a_condition(found: Callable[..., Findings]) -> None:
    assert "conditional on these 2 backbones" in found(SCRATCH, seeds=2).headline


def test_one_draw_gives_numbers_and_no_verdict(found: Callable[..., Findings]) -> None:
    said = found(GAIN, draws=1)
    assert said.headline.startswith("No verdict on MAE pre-training: observed difference in accuracy +")
    assert "One draw" in said.headline and said.primary[0].sign == 0


def test_transductive_is_part_of_the_headline(found: Callable[..., Findings]) -> None:
    assert "Pre-training saw the test images" in found(GAIN, transductive=True).headline


def test_the_baseline_is_the_better_of_the_two_at_every_number_of_labels(found: Callable[..., Findings]) -> None:
    said = found(GAIN, longer=(0.30, 0.85, 0.60))
    assert said.primary[0].matched == (100,)
    assert any("With 100 labels the baseline is the one trained at the FLOPs" in line for line in said.more)


def test_pixels_that_win_are_not_kept_quiet(found: Callable[..., Findings]) -> None:
    said = found(GAIN, more={("pixels", "knn"): (0.2, 0.98, 0.9), ("mae", "knn"): SCRATCH})
    lines = [line for line in said.more if "raw pixels (k-NN) are on average above every use" in line]
    assert len(lines) == 1 and lines[0].startswith("With 100 labels") and "95 % interval" in lines[0]


def test_values_alone_give_an_interval_that_says_what_it_lacks(found: Callable[..., Findings]) -> None:
    said = found(SCRATCH, units=False)
    assert "95 % interval without chance in the choice of test images" in said.headline


def test_a_smaller_error_is_a_gain(found: Callable[..., Findings]) -> None:
    said = found((0.35, 0.50, 0.70), metric="mean_absolute_error")
    assert said.primary[0].sign == 1 and "points" not in said.headline
    assert "advantage in mean absolute error +" in said.more[0]


def test_without_a_baseline_there_is_no_verdict(tmp_path: Path) -> None:
    said = find(read_verdict(write_verdict(tmp_path / "v", {("mae", "knn"): SCRATCH})))
    assert said.headline.startswith("No verdict is given: there is no")


def test_probes_are_the_comparison_where_nothing_was_fine_tuned(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "linear"): GAIN, ("mae", "knn"): SCRATCH}
    said = find(read_verdict(write_verdict(tmp_path / "v", curves, protocols={"mae": "two"})))
    assert said.primary[0].use == "linear" and not said.refused
    assert said.headline.startswith("MAE pre-training (linear probe) reaches")
    assert {(d.use, d.labels) for d in said.table} == {(use, n) for use in ("linear", "knn") for n in LABELS}


def test_one_number_of_labels_is_no_curve(tmp_path: Path) -> None:
    curves = {("scratch", "train"): (0.6,), ("mae", "train"): (0.9,)}
    said = find(read_verdict(write_verdict(tmp_path / "v", curves, labels=(50,))))
    assert "with 50 labels" in said.headline and "average" not in said.headline


def shorter(folder: Path, *counts: int) -> Path:
    """Without the longer baseline at some numbers of labels."""
    for count in counts:
        for path in folder.glob(f"results/scratch-train-{count}-?-longer.*"):
            path.unlink()
    return folder


def test_a_verdict_stands_where_the_baseline_was_trained_as_long(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): (0.80, 0.90, 0.85)}
    folder = write_verdict(tmp_path / "v", curves, longer=SCRATCH)
    whole = find(read_verdict(folder))
    assert whole.primary[0].over == LABELS and whole.primary[0].sign == 1 and whole.observed == ()
    said = find(read_verdict(shorter(folder, 10, 100)))
    (one,), (rest,) = said.primary, said.observed
    assert (one.over, one.sign, rest.over, rest.sign) == ((1000,), 0, (10, 100), 1)
    assert said.headline.startswith("No gain from MAE pre-training was found: difference in accuracy ")
    first, second = said.headline.split(". With") if ". With" in said.headline else said.headline.split(". On")
    assert "with all 1,000 labels" in first and "gain" not in second
    assert "average over 10 to 100 labels, where the baseline was not trained at the FLOPs" in second
    assert re.search(
        r"no verdict is given on MAE pre-training; observed: difference in accuracy \+2\d\.\d points", second
    )
    assert any("observed only: a positive difference with 10 and 100 labels" in line for line in said.more)
    assert not any("a gain" in line for line in said.more if line.startswith("MAE"))


def test_labels_saved_need_the_longer_baseline_with_all_labels_only(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): GAIN}
    said = find(read_verdict(shorter(write_verdict(tmp_path / "v", curves, longer=SCRATCH), 10, 100)))
    assert re.match(r"MAE pre-training reaches the labelled baseline's accuracy .* % of the labels", said.headline)


def test_labels_saved_where_the_baseline_was_not_trained_as_long_are_observed_only(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): (0.55, 0.85, 0.93)}
    folder = write_verdict(tmp_path / "v", curves, longer=SCRATCH)
    whole = [line for line in find(read_verdict(folder)).more if " reaches " in line]
    said = [line for line in find(read_verdict(shorter(folder, 10, 100))).more if " reaches " in line]
    assert len(whole) == len(said) == 2
    assert all(line.startswith("MAE pre-training reaches") for line in [*whole, said[0]])
    assert "with all 1,000 labels)" in said[0]
    assert said[1].startswith("Observed only: MAE pre-training reaches") and "with 100 labels)" in said[1]


def test_a_start_without_numbers_where_the_baseline_was_trained_as_long_is_not_judged(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): GAIN}
    folder = shorter(write_verdict(tmp_path / "v", curves, longer=SCRATCH), 10, 100)
    for path in folder.glob("results/mae-train-1000-*"):
        path.unlink()
    said = find(read_verdict(folder))
    assert said.judged == () and "MAE has no result where the baseline had the FLOPs" in said.headline


def test_what_does_better_without_training_is_said_at_the_top(tmp_path: Path) -> None:
    curves = {("scratch", "train"): SCRATCH, ("mae", "train"): SCRATCH, ("pixels", "linear"): (0.3, 0.6, 0.97)}
    folder = write_verdict(tmp_path / "v", curves, longer=SCRATCH)
    said = find(read_verdict(folder))
    assert re.search(
        r"Without any training raw pixels \(linear probe\) do better than both: difference in accuracy \+\d+\.\d "
        r"points \(95 % interval \+[\d.]+ to \+[\d.]+\) against the labelled baseline with all 1,000 labels\.",
        said.headline,
    )
    worse = {**curves, ("pixels", "linear"): (0.9, 0.9, 0.80)}  # with fewer labels only
    assert "Without any" not in find(read_verdict(write_verdict(tmp_path / "w", worse, longer=SCRATCH))).headline
