"""Class by class: how often each is recognised, and what is taken for what."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple, cast

import numpy as np
from statsmodels.stats import proportion as _untyped_proportion  # pyright: ignore[reportMissingTypeStubs]

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.methods.starts import BASELINE
from ssl_vit.report.cells import NOTHING, Cell, Row, Table, count, span, table
from ssl_vit.report.findings.records import PER_CLASS, Score, Verdict
from ssl_vit.report.findings.tables import USES, method_name
from ssl_vit.report.look import PRETRAINED, kind_of
from ssl_vit.statistics.advice import Way

_proportion = cast("Any", _untyped_proportion)


class Shown(NamedTuple):
    """A method with all labels."""

    start: str
    name: str
    scores: list[Score]


def compared(verdict: Verdict) -> list[Shown]:
    """What is looked at class by class, with all labels: the best pre-trained method by its mean, and the baseline."""
    labels, better = max(verdict.about["labels"]), METRICS[verdict.about["metric"]].sign
    learned = [Way(start, use) for start in verdict.starts if kind_of(start) in PRETRAINED for use in USES]
    found = [
        [Shown(start, method_name(verdict, way), scores) for way in side
         for start in [way.start.removesuffix("+")]
         if (scores := verdict.of(start, way.use, labels, matched=start != way.start))]
        for side in (learned, [Way(BASELINE, "train"), Way(f"{BASELINE}+", "train")])
    ]  # fmt: skip
    return [max(side, key=lambda one: better * mean(s.value for s in one.scores)) for side in found if side]


def class_rows(verdict: Verdict, shown_at_most: int = 12) -> Table:
    """Every class, the best first: the best pre-trained method with all labels, and the baseline."""
    kind, labels, methods = verdict.about["kind"], max(verdict.about["labels"]), compared(verdict)
    told = verdict.told("data").get("per_class") or {}
    metric = "mean_absolute_error" if kind == "regression" else "top1"
    found: dict[str, list[float | None]] = {}
    for name in verdict.about["classes"] if methods else []:
        values = [_of_class(one.scores, name) for one in methods]
        found |= {} if values[0] is None else {name: values}
    ordered = sorted(found, key=lambda name: -METRICS[metric].sign * float(found[name][0] or 0))
    rows: list[Row] = []
    for name in ordered:
        size = _tests_of(verdict, name) if kind == "class" else 0
        cells = [NOTHING if v is None else Cell(shown(metric, v), _wilson(v, size)) for v in found[name]]
        images = told.get(name) or {}
        rows.append([name, *cells, count(images.get("train")), count(images.get("test"))])
    if len(rows) > shown_at_most:
        half = shown_at_most // 2
        rows[half:-half] = [["...", *[""] * (len(methods) + 2)]]
    what = {"class": "recall %", "multilabel": "average precision %"}.get(kind, METRICS[metric].heading)
    heads = ("class", *(f"{one.name}, {what}" for one in methods), "training images", "test images")
    groups = "groups of test images" if verdict.clusters is not None else "test images"
    note = f"With {labels:,} labels, mean over draws."
    if kind == "class":
        note += f" 95 % intervals (Wilson) are about other {groups} of the class, not about other draws."
    return table(heads, rows, 1, note)


def _of_class(scores: Sequence[Score], name: str) -> float | None:
    """The mean over draws; None where no test image tells."""
    values: list[float] = []
    for row in (score.row for score in scores):
        told = next((row[key] for key in PER_CLASS if row.get(key)), {})
        value = told.get(name)
        value = value.get("mean_absolute_error") if isinstance(value, dict) else value
        if value is None:
            return None
        values.append(value)
    return mean(values)


def _tests_of(verdict: Verdict, name: str) -> int:
    """Test images of a class, or groups of them."""
    truth, clusters = verdict.told("test").get("labels"), verdict.clusters
    if truth is None:
        return int(((verdict.told("data").get("per_class") or {}).get(name) or {}).get("test") or 0)
    mine = np.asarray(truth) == verdict.about["classes"].index(name)
    return int(mine.sum()) if clusters is None else len(np.unique(clusters[mine]))


def _wilson(value: float, size: int) -> tuple[str, ...]:
    """Interval of a percentage of so many."""
    if not size:
        return ()
    low, high = _proportion.proportion_confint(value / 100 * size, size, method="wilson")
    return (span("top1", 100 * float(low), 100 * float(high)),)


def confusions(verdict: Verdict) -> list[tuple[Shown, np.ndarray]]:
    """Counts [true, predicted] with all labels, summed over draws, of what is compared."""
    truth = verdict.told("test").get("labels")
    if verdict.about["kind"] != "class" or truth is None:
        return []
    size, found = len(verdict.about["classes"]), list[tuple[Shown, np.ndarray]]()
    for one in compared(verdict):
        predictions = [score.predicted for score in one.scores if score.predicted is not None]
        if predictions:
            cells = np.concatenate([np.asarray(truth) * size + predicted for predicted in predictions])
            found.append((one, np.bincount(cells, minlength=size * size).reshape(size, size)))
    return found


def most_confused(verdict: Verdict, pairs: int = 20) -> list[tuple[str, str, int, float]]:
    """True class, predicted class, count and share of the true class, of the method that is shown first."""
    found, names = confusions(verdict), verdict.about["classes"]
    if not found:
        return []
    counts = found[0][1]
    off = counts * ~np.eye(len(names), dtype=bool)
    order = np.argsort(-off, axis=None, kind="stable")[:pairs]
    totals = np.maximum(counts.sum(axis=1), 1)
    places = (divmod(int(place), len(names)) for place in order)
    return [(names[r], names[c], int(off[r, c]), float(off[r, c] / totals[r])) for r, c in places if off[r, c]]
