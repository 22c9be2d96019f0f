"""Numbers of a verdict's folder beside each other: means with intervals, the baseline's curve, labels saved.

Where the baseline was also trained at the FLOPs of pre-training and fine-tuning together, the better of the two (by its
mean on the test images) is the baseline at that number of labels: this favours the baseline, never pre-training. A
curve stands on the draws that both sides have at every number of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.configs.metrics import METRICS
from ssl_vit.methods.starts import BASELINE
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.report.look import PRETRAINED, kind_of
from ssl_vit.statistics.paired import Interval, interval, labels_needed

USES = {"train": "all weights trained", "linear": "linear probe", "knn": "k-NN"}
"""In words, in the order of the report: the first that was run is a start's primary use."""


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


class _Cell(NamedTuple):
    """A method at one number of labels: a score per draw."""

    scores: Mapping[int, Score]
    matched: bool = False


_Curve = dict[int, _Cell]


def savings(verdict: Verdict) -> tuple[Saving, ...]:
    """How many labels every use of pre-trained weights needs for the baseline's levels."""
    baseline = baseline_curve(verdict)
    methods = list(dict.fromkeys((s.start, s.use) for s in verdict.scores if kind_of(s.start) in PRETRAINED))
    found = (_saving(verdict, *method, count, baseline) for method in methods for count in baseline)
    return tuple(saving for saving in found if saving is not None)


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


def _curve(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> _Curve:
    found = verdict.by_labels(start, use, matched=matched)
    return {count: _Cell({score.draw: score for score in scores}, matched) for count, scores in found.items()}


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
