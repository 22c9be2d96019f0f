"""What a verdict says in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int

from ssl_vit.configs.metrics import shown
from ssl_vit.report.cells import (
    NOTHING,
    Cell,
    Row,
    Table,
    count,
    heading,
    memory,
    operations,
    p_value,
    seconds,
    signed_value,
    span,
    table,
    unit_of,
)
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.report.look import kind_of
from ssl_vit.statistics.advice import Advice, Attribution, Way
from ssl_vit.statistics.paired import Interval, interval

_T = TypeVar("_T")
USES = {"train": "all weights trained", "linear": "linear probe", "knn": "k-NN"}
"""In words, in the order of the report."""


def way_of(score: Score) -> Way:
    """What was done for a number."""
    return Way(score.start + "+" * score.matched, score.use)


def method_name(verdict: Verdict, way: Way) -> str:
    """A start and a use in words."""
    return ", ".join(part for part in name_and_use(verdict, way) if part)


def name_and_use(verdict: Verdict, way: Way) -> tuple[str, str]:
    """The name of a start, and how it uses labels."""
    name = verdict.name(way.start.removesuffix("+"))
    if way.start.endswith("+"):
        return name, "at the cost of pre-training"
    trained = "" if kind_of(way.start) == "scratch" else "fine-tuned"
    return name, trained if way.use == "train" else USES[way.use]


def method_cell(verdict: Verdict, way: Way | None) -> Cell:
    """A start and a use, with the mark that they have in charts."""
    return Cell(NOTHING) if way is None else Cell(method_name(verdict, way), start=way.start)


def by_labels(
    verdict: Verdict, found: Mapping[tuple[Way, int], _T], counts: Sequence[int], cell: Callable[[_T], Cell]
) -> list[Row]:
    """A row per method of which anything was found, a column per number of labels."""
    ways = (Way(start + more, use) for use in USES for start in verdict.starts for more in ("", "+"))
    rows = ((way, [found.get((way, labels)) for labels in counts]) for way in ways)
    return [
        [method_cell(verdict, way), *(NOTHING if one is None else cell(one) for one in own)]
        for way, own in rows if any(one is not None for one in own)
    ]  # fmt: skip


def interval_of(scores: Sequence[Score], clusters: Int[np.ndarray, " U"] | None) -> Interval:
    """The mean of at least one number with its 95 % interval, over pre-training seeds, draws and (groups of) images."""
    sizes = {None if score.units is None else len(score.units) for score in scores}
    by_image = len(sizes) == 1 and None not in sizes
    matrix = np.array([score.units if by_image else [score.value] for score in scores], dtype=np.float64)
    seeds = [score.pretraining for score in scores]
    # Units that are blocks of images keep groups together already.
    groups = clusters if clusters is not None and len(clusters) == matrix.shape[1] else None
    return interval(matrix, None if None in seeds else np.array(seeds), groups)


def all_numbers(verdict: Verdict, advice: Sequence[Advice]) -> Table:
    """Every method over the number of labels: mean and interval, and what is advised of those that are as good."""
    counts, metric = verdict.about["labels"], verdict.about["metric"]
    said = {one.labels: one for one in advice}
    found: dict[tuple[Way, int], list[Score]] = {}
    for s in sorted(verdict.scores, key=lambda s: s.draw):
        found.setdefault((way_of(s), s.labels), []).append(s)

    def cell(scores: Sequence[Score]) -> Cell:
        i, way, own = interval_of(scores, verdict.clusters), way_of(scores[0]), said.get(scores[0].labels)
        minor = _minor(span(metric, i.low, i.high), "advised" if own is not None and way == own.advised else "")
        return Cell(shown(metric, i.estimate), minor, strong=own is not None and way in own.among)

    heads = ("method", *(f"{labels:,} labels" for labels in counts))
    note = f"{heading(metric)}: mean over draws, and its 95 % interval."
    if advice:
        note += (
            " Bold: cannot be told from the best with as many labels; advised is the cheapest that did nearly as well."
        )
    return table(heads, by_labels(verdict, found, counts, cell), 1, note)


def _minor(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def attribution_rows(verdict: Verdict, found: Sequence[Attribution]) -> Table:
    """The best with pre-training less the best without, at every number of labels; positive is better."""
    metric, rows = verdict.about["metric"], list[Row]()
    for one in (one for one in found if one.gain is not None):
        clear = not one.refused and one.p is not None and one.p < 0.05
        claim = "no clear difference" if not clear else "a gain" if (one.gain or 0) > 0 else "a loss"
        rows.append([
            f"{one.labels:,}", method_cell(verdict, one.way), method_cell(verdict, one.against),
            Cell(one.refused or claim, strong=clear),
            Cell(signed_value(metric, one.gain or 0), _minor(span(metric, one.low, one.high, sign=True)), strong=clear),
            p_value(one.p),
        ])  # fmt: skip
    heads = ("labels", "with pre-training", "without", "what is found", f"difference, {unit_of(metric)}", "p (Holm)")
    return table(heads, rows, 4)


def cost_rows(verdict: Verdict) -> Table:
    """What every method costs."""
    rows: list[Row] = []
    for start, more in ((start, more) for start in verdict.starts for more in ("", "+")):
        way = Way(start + more, next(use for use in USES if verdict.of(start, use)))
        runs = verdict.runs(start)
        costs = [score.cost for score in verdict.of(start, way.use, matched=bool(more)) if score.cost]
        if not costs:
            continue
        busy = _busy(runs) + _busy(costs)
        images, flops = (_mean(runs, key) + _mean(costs, key) for key in ("images", "flops"))
        rows.append([
            method_cell(verdict, way),
            seconds(busy),
            count(images or None),
            operations(flops),
            memory(max(told.get("peak_memory") or 0 for told in (*runs, *costs))),
        ])  # fmt: skip
    heads = ("method", "time of one device", "images seen", "FLOPs", "peak memory")
    note = (
        "Pre-training of one backbone (mean of its seeds) and one training on labels (mean over numbers of labels); "
        "tuning and the making of public weights are not in it."
    )
    return table(heads, rows, 1, note)


def _busy(told: Sequence[dict[str, Any]]) -> float:
    """Mean seconds of all devices together."""
    known = [one["seconds"] * (one.get("devices") or 1) for one in told if one.get("seconds") is not None]
    return mean(known) if known else 0.0


def _mean(told: Sequence[dict[str, Any]], key: str) -> float:
    known = [float(one[key]) for one in told if one.get(key) is not None]
    return mean(known) if known else 0.0
