"""Method against method in a verdict's folder: which comparisons are made, fixed before any test result is seen.

Where the baseline was also trained at the FLOPs of pre-training and fine-tuning together, the better of the two (by its
mean on the test images) is the baseline at that number of labels: this favours the baseline, never pre-training. A
curve stands on the draws that both sides have at every number of labels. p-values are adjusted
(``ssl_vit.statistics.families``) within each family; intervals are those of one comparison alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.configs.metrics import METRICS
from ssl_vit.methods.starts import BASELINE, pretrained, untrained
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.statistics.families import adjusted
from ssl_vit.statistics.paired import Interval, conditional, interval, labels_needed

USES = {"train": "all weights trained", "linear": "linear probe", "knn": "k-NN"}
"""In words, in the order of the report: the first that was run is a start's primary use."""


@dataclass(frozen=True)
class Difference:
    """One method less another; positive is better, whatever the metric."""

    start: str
    use: str
    against_start: str
    against_use: str
    labels: int | None
    """None for an average over several."""
    over: tuple[int, ...]
    """Numbers of labels that it is an average over."""
    value: float
    """The leading metric of the one, the mean over the draws that both have."""
    against_value: float
    interval: Interval
    p_holm: float | None
    draws: int
    """That were used: those which both have at all numbers of labels compared."""
    seeds: int
    """Pre-training seeds of these draws; 0 where nothing was pre-trained."""
    conditional: bool
    """Whether there are too few pre-training seeds to speak of others."""
    matched: tuple[int, ...] = ()
    """Numbers of labels at which the other one is the baseline at the FLOPs of pre-training and fine-tuning."""

    @property
    def sign(self) -> int:
        """1 for a gain and -1 for a loss that are clear after Holm's adjustment; 0 where there is neither."""
        if self.p_holm is None or self.p_holm >= 0.05:
            return 0
        return 1 if self.interval.estimate > 0 else -1

    @property
    def unclear(self) -> bool:
        """Whether its own interval does not hold 0, but Holm's adjustment takes that for chance."""
        return not self.sign and self.interval.p is not None and self.interval.p < 0.05


@dataclass(frozen=True)
class Saving:
    """How many labels a method needs for the baseline's level."""

    start: str
    use: str
    labels: int
    """The number of labels at which the baseline's level is taken."""
    level: float
    needed: float | None
    """None where the level is not reached."""
    at_once: bool
    """Whether it is reached with the fewest labels that were tried: fewer might do."""
    low: float | None
    """Of the 95 % confidence set; None where it reaches below the fewest labels that were tried."""
    high: float | None
    """None where it reaches beyond all labels."""
    note: str
    """Why there is no confidence set; empty where there is one."""
    whole: int
    """All labels there are."""

    @property
    def shares(self) -> tuple[float | None, float | None, float | None]:
        """Needed and its bounds in percent of all labels."""
        share, low, high = (None if n is None else 100 * n / self.whole for n in (self.needed, self.low, self.high))
        return share, low, high


@dataclass(frozen=True)
class Comparisons:
    """All of them."""

    primary: tuple[Difference, ...]
    """Every pre-trained start with all weights trained (else its linear probe, else its k-NN) against the labelled
    baseline, on average over the numbers of labels at which that had the FLOPs of pre-training, too, if anywhere."""
    observed: tuple[Difference, ...]
    """The same over the other numbers of labels: no verdict stands on it."""
    table: tuple[Difference, ...]
    """Every start and use against the labelled baseline, at every number of labels."""
    secondary: tuple[Difference, ...]
    """Probes of pre-trained features against untrained ones, and the CNN against the baseline, over all labels."""
    savings: tuple[Saving, ...]


class _Cell(NamedTuple):
    """A method at one number of labels: a score per draw."""

    scores: Mapping[int, Score]
    matched: bool = False


_Curve = dict[int, _Cell]


def compare(verdict: Verdict) -> Comparisons:
    """Every comparison that is made of a verdict."""
    baseline = baseline_curve(verdict)
    methods = list(dict.fromkeys((s.start, s.use) for s in verdict.scores if s.start != BASELINE))
    fair = fair_counts(verdict)
    given, rest = ({n: cell for n, cell in baseline.items() if (n in fair) == held} for held in (True, False))
    whole = [(start, primary_use(verdict, start)) for start in pretrained()]
    # Without any number of labels in common there, ``findings`` gives no verdict on what is left.
    primary = [_difference(verdict, *one, given) or _difference(verdict, *one, baseline) for one in whole]
    observed = [_difference(verdict, *one, rest) for one in whole]
    table = [
        _difference(verdict, *method, baseline, count) for method in methods for count in verdict.by_labels(*method)
    ]
    secondary = [
        _difference(verdict, start, use, _curve(verdict, other, use), None, other, use)
        for start in pretrained() for use in ("linear", "knn") for other in untrained()
    ]  # fmt: skip
    secondary.append(_difference(verdict, "cnn", "train", baseline))
    savings = (_saving(verdict, *method, count, baseline) for method in methods for count in baseline)
    known = tuple(s for s in savings if s is not None)
    return Comparisons(_adjusted(primary), _adjusted(observed), _adjusted(table), _adjusted(secondary), known)


def fair_counts(verdict: Verdict) -> tuple[int, ...]:
    """Numbers of labels at which the baseline also had the FLOPs of pre-training; all, where it never had them."""
    usual, longer = (verdict.by_labels(BASELINE, "train", matched=matched) for matched in (False, True))
    return tuple(count for count in usual if count in longer) or tuple(usual)


def primary_use(verdict: Verdict, start: str) -> str:
    """How a start's primary comparison uses labels."""
    return next((use for use in USES if verdict.of(start, use)), "train")


def baseline_curve(verdict: Verdict) -> _Curve:
    """The labelled baseline at every number of labels: the better of the two where it was also trained for longer."""
    usual, longer = _curve(verdict, BASELINE, "train"), _curve(verdict, BASELINE, "train", matched=True)
    for count in usual.keys() & longer.keys():
        both = (longer[count], usual[count])
        if draws := _shared(both):
            one, other = (METRICS[verdict.about["metric"]].sign * _mean([cell], draws) for cell in both)
            usual[count] = both[0] if one > other else both[1]
    return usual


def interval_of(scores: Sequence[Score], clusters: Int[np.ndarray, " U"] | None) -> Interval:
    """The mean of at least one number with its 95 % interval, over pre-training seeds, draws and (groups of) images."""
    matrix, seeds = _matrix(scores, _by_image(scores)), [score.pretraining for score in scores]
    return interval(matrix, None if None in seeds else np.array(seeds), _groups(clusters, matrix))


def difference_at(verdict: Verdict, one: tuple[str, str], other: tuple[str, str], labels: int) -> Difference | None:
    """One start and use less another at one number of labels, not adjusted for being one of several."""
    return _difference(verdict, *one, _curve(verdict, *other), labels, *other)


def _curve(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> _Curve:
    found = verdict.by_labels(start, use, matched=matched)
    return {count: _Cell({score.draw: score for score in scores}, matched) for count, scores in found.items()}


def _adjusted(family: Iterable[Difference | None]) -> tuple[Difference, ...]:
    known = [d for d in family if d is not None]
    p = adjusted([d.interval for d in known], [d.labels for d in known])
    return tuple(replace(d, p_holm=value) for d, value in zip(known, p, strict=True))


def _difference(
    verdict: Verdict, start: str, use: str, others: _Curve, labels: int | None = None,
    against_start: str = BASELINE, against_use: str = "train",
) -> Difference | None:  # fmt: skip
    """None where the two have no number of labels, or no draw, in common."""
    own = _curve(verdict, start, use)
    counts = [count for count in own if count in others and labels in (None, count)]
    cells = [cell for count in counts for cell in (own[count], others[count])]
    draws = _shared(cells)
    if not draws:
        return None
    ones, twos = ([_units(cell, draws, cells) for cell in half] for half in (cells[::2], cells[1::2]))
    values = (_mean(half, draws) for half in (cells[::2], cells[1::2]))
    seeds = _seeds(cells, draws)
    gap = METRICS[verdict.about["metric"]].sign * (np.mean(ones, axis=0) - np.mean(twos, axis=0))
    return Difference(
        start, use, against_start, against_use, labels, tuple(counts), *values,
        interval=interval(gap, seeds, _groups(verdict.clusters, gap)), p_holm=None, draws=len(draws),
        seeds=0 if seeds is None else len(np.unique(seeds)), conditional=conditional(seeds),
        matched=tuple(count for count in counts if others[count].matched),
    )  # fmt: skip


def _saving(verdict: Verdict, start: str, use: str, labels: int, baseline: _Curve) -> Saving | None:
    own = _curve(verdict, start, use)
    cells = [*own.values(), baseline[labels]]
    draws = _shared(cells)
    if not draws:
        return None
    better = METRICS[verdict.about["metric"]].sign
    curve = {count: better * _units(cell, draws, cells) for count, cell in own.items()}
    level = better * _units(baseline[labels], draws, cells)
    found = labels_needed(curve, level, _seeds(cells, draws), _groups(verdict.clusters, level))
    whole = max(verdict.about["labels"])
    return Saving(start, use, labels, _mean([baseline[labels]], draws), *found, whole=whole)


def _shared(cells: Sequence[_Cell]) -> list[int]:
    """The draws that all have."""
    return sorted(set.intersection(*(set(cell.scores) for cell in cells))) if cells else []


def _mean(cells: Sequence[_Cell], draws: Sequence[int]) -> float:
    return float(np.mean([cell.scores[draw].value for cell in cells for draw in draws]))


def _units(cell: _Cell, draws: Sequence[int], cells: Sequence[_Cell]) -> Float[np.ndarray, "R U"]:
    """Units where all cells have them for the same test images, else values."""
    return _matrix([cell.scores[d] for d in draws], _by_image([c.scores[d] for c in cells for d in draws]))


def _by_image(scores: Sequence[Score]) -> bool:
    """Whether all have units, of as many test images."""
    sizes = {None if score.units is None else len(score.units) for score in scores}
    return len(sizes) == 1 and None not in sizes


def _matrix(scores: Sequence[Score], by_image: bool) -> Float[np.ndarray, "R U"]:
    return np.array([score.units if by_image else [score.value] for score in scores], dtype=np.float64)


def _seeds(cells: Sequence[_Cell], draws: Sequence[int]) -> Int[np.ndarray, " R"] | None:
    """Which pre-trainings the replicates stand on; None where none. Public weights are one pre-training."""
    used = [
        tuple(0 if (score := cell.scores[draw]).start == "public" else score.pretraining for cell in cells)
        for draw in draws
    ]
    if all(number is None for numbers in used for number in numbers):
        return None
    names = list(dict.fromkeys(used))
    return np.array([names.index(numbers) for numbers in used], dtype=np.int64)


def _groups(clusters: Int[np.ndarray, " U"] | None, matrix: Float[np.ndarray, "R U"]) -> Int[np.ndarray, " U"] | None:
    """Groups of the units; units that are blocks of images keep groups together already."""
    return clusters if clusters is not None and len(clusters) == matrix.shape[1] else None
