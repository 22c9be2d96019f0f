"""Labels saved: how many labels pre-trained weights need for what the labelled baseline reaches.

Where the baseline was also trained at the FLOPs of pre-training and fine-tuning together, the better of the two (by its
mean on the test images) is the baseline at that number of labels: this favours the baseline, never pre-training. A
curve stands on the draws that both sides have at every number of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.methods.starts import BASELINE
from ssl_vit.report.cells import Cell, Table, table
from ssl_vit.report.findings.recommendation import asked_of
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import by_labels
from ssl_vit.report.look import PRETRAINED, kind_of
from ssl_vit.statistics.advice import Tried, Way
from ssl_vit.statistics.paired import Needed, labels_needed


class Saving(NamedTuple):
    """How many labels a way needs for the baseline's level."""

    way: Way
    labels: int
    """The number of labels at which the baseline's level is taken."""
    level: float
    found: Needed


def savings(verdict: Verdict) -> list[Saving]:
    """How many labels every use of pre-trained weights needs for every level of the baseline."""
    sign, asked = METRICS[verdict.about["metric"]].sign, asked_of(verdict)
    curves: dict[Way, dict[int, Tried]] = {}
    levels: dict[int, Tried] = {}
    for labels, tried in asked.table.items():
        for one in tried:
            if kind_of(one.way.start) in PRETRAINED:
                curves.setdefault(one.way, {})[labels] = one
            elif one.way.start in (BASELINE, f"{BASELINE}+"):
                levels[labels] = max((*([levels[labels]] if labels in levels else []), one), key=lambda t: t.mean)
    found: list[Saving] = []
    for way, curve in curves.items():
        for labels, level in levels.items():
            sides = [*curve.values(), level]
            draws = reduce(np.intersect1d, (side.draws for side in sides))
            if not len(draws):
                continue
            *own, other = (side.at(np.isin(side.draws, draws)) for side in sides)
            seeds = np.array([side.seeds for side in own if side.seeds is not None])
            codes = np.unique(seeds, axis=1, return_inverse=True)[1].ravel() if len(seeds) else None
            units = dict(zip(curve, (side.units for side in own), strict=True))
            found.append(Saving(way, labels, sign * other.mean, labels_needed(units, other.units, codes, asked.groups)))
    return found


def savings_rows(verdict: Verdict, saved: Sequence[Saving]) -> Table:
    """Labels needed for what the baseline reaches."""
    levels = {s.labels: shown(verdict.about["metric"], s.level) for s in saved}
    counts = sorted(levels)
    heads = ("labels needed for", *(f"the baseline's {levels[labels]} with {labels:,}" for labels in counts))
    note = (
        "Labels, and their 95 % interval. Between numbers of labels at most a factor of 4 apart, curves are straight "
        "over the logarithm of the labels."
    )
    rows = by_labels(verdict, {(s.way, s.labels): s.found for s in saved}, counts, _cell)
    return table(heads, rows, 1, note, "Labels saved")


def _cell(s: Needed) -> Cell:
    """A confidence set has an end that may lie beyond what was tried."""
    low, high = (None if end is None else f"{end:,.0f}" for end in (s.low, s.high))
    needed = "not reached" if s.labels is None else f"{s.labels:,.0f}{' or fewer' if s.at_once else ''}"
    ends = (
        f"{low} to {high}" if low and high else f"{low} or more" if low else f"{high} or fewer" if high else "no ends"
    )
    return Cell(needed, () if s.note or ends == needed else (ends,))
