"""What a verdict says in tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from ssl_vit.configs.metrics import shown
from ssl_vit.report.cells import (
    NOTHING,
    Cell,
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
    two_digits,
    unit_of,
)
from ssl_vit.report.findings.comparisons import Difference, Saving
from ssl_vit.report.findings.records import Score, Verdict
from ssl_vit.report.look import LONGER
from ssl_vit.statistics.paired import Interval, interval

USES = {"train": "all weights trained", "linear": "linear probe", "knn": "k-NN"}
"""In the order of the report."""


def method_name(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> str:
    """A start and a use in words."""
    name = verdict.name(start)
    if matched:
        return f"{name}, at the cost of pre-training"
    return {"train": name if start in ("scratch", "cnn") else f"{name}, fine-tuned"}.get(use, f"{name}, {USES[use]}")


def method_cell(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> Cell:
    """A start and a use, with the mark that they have in charts."""
    return Cell(method_name(verdict, start, use, matched=matched), start=LONGER.css if matched else start)


def interval_of(scores: Sequence[Score], clusters: np.ndarray | None) -> Interval:
    """The mean of one method's numbers with its 95 % interval, over pre-training seeds, draws and test images."""
    units = [score.units for score in scores if score.units is not None]
    known = len(units) == len(scores) and len({len(one) for one in units}) == 1
    matrix = np.stack([np.asarray(one) for one in units]) if known else np.array([[s.value] for s in scores])
    groups = (
        clusters if clusters is not None and len(clusters) == matrix.shape[1] else None
    )  # blocks keep them together
    seeds = [score.pretraining for score in scores]
    given = None if None in seeds else np.array(seeds)
    return interval(matrix.astype(np.float64), given, groups)


def all_numbers(verdict: Verdict) -> Table:
    """Every method over the number of labels: mean and interval."""
    counts, metric = verdict.about["labels"], verdict.about["metric"]
    rows: list[list[Cell | str]] = []
    for use in USES:
        for start in verdict.starts:
            for matched in (False, True):
                scores = verdict.of(start, use, matched=matched)
                if not scores:
                    continue
                row: list[Cell | str] = [method_cell(verdict, start, use, matched=matched)]
                for labels in counts:
                    row.append(_mean_cell([s for s in scores if s.labels == labels], metric, verdict.clusters))
                rows.append(row)
    heads = ("method", *(f"{labels:,} labels" for labels in counts))
    return table(heads, rows, 1, f"{heading(metric)}: mean over draws, and its 95 % interval")


def _mean_cell(scores: Sequence[Score], metric: str, clusters: np.ndarray | None) -> Cell:
    if not scores:
        return Cell(NOTHING)
    found = interval_of(scores, clusters)
    return Cell(shown(metric, found.estimate), _minor(span(metric, found.low, found.high)))


def _minor(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def difference_rows(verdict: Verdict, differences: Sequence[Difference]) -> Table:
    """One method less another, on average over some numbers of labels; positive is better."""
    metric = verdict.about["metric"]
    rows: list[list[Cell | str]] = []
    for d in differences:
        i = d.interval
        rows.append([
            Cell(method_name(verdict, d.start, d.use), start=d.start),
            method_name(verdict, d.against_start, d.against_use),
            ", ".join(count(n) for n in d.over),
            _difference_cell(metric, d),
            span(metric, i.low, i.high, sign=True) or NOTHING,
            p_value(d.p_holm),
            count(d.draws),
            count(d.seeds) if d.seeds else NOTHING,
        ])  # fmt: skip
    heads = ("method", "against", "labels", f"difference, {unit_of(metric)}", "95 % interval", "p (Holm)", "draws",
             "pre-training seeds")  # fmt: skip
    return table(heads, rows, 3, _SIGNIFICANT)


_SIGNIFICANT = (
    "* significant: p below 0.05, two-sided, paired by draw, after Holm's adjustment over this table. Intervals are "
    "those of one comparison alone."
)


def _difference_cell(metric: str, d: Difference, *minor: str) -> Cell:
    words = signed_value(metric, d.interval.estimate) + (" *" if d.sign else "")
    return Cell(words, _minor(*minor), strong=bool(d.sign))


def differences_by_labels(verdict: Verdict, differences: Sequence[Difference]) -> Table:
    """Every method less the baseline at every number of labels; positive is better."""
    metric, counts = verdict.about["metric"], verdict.about["labels"]
    found = {(d.start, d.use, d.labels): d for d in differences}
    rows: list[list[Cell | str]] = []
    for use in USES:
        for start in verdict.starts:
            own = [found.get((start, use, labels)) for labels in counts]
            if not any(own):
                continue
            row: list[Cell | str] = [Cell(method_name(verdict, start, use), start=start)]
            for d in own:
                if d is None:
                    row.append(NOTHING)
                else:
                    low, high = d.interval.low, d.interval.high
                    p = p_value(d.p_holm)
                    p = "" if p == NOTHING else f"p {p}" if p.startswith("<") else f"p = {p}"
                    row.append(_difference_cell(metric, d, span(metric, low, high, sign=True), p))
            rows.append(row)
    longer = sorted({labels for d in differences for labels in d.matched})
    note = f"{unit_of(metric).capitalize()}, 95 % intervals, p after Holm. {_SIGNIFICANT}"
    if longer:
        note += (
            f" With {', '.join(f'{labels:,}' for labels in longer)} labels the baseline is the one trained at the "
            "FLOPs of pre-training and fine-tuning together: it was the better of the two."
        )
    return table(("method less baseline", *(f"{labels:,} labels" for labels in counts)), rows, 1, note)


def savings_rows(verdict: Verdict, savings: Sequence[Saving]) -> Table:
    """Labels needed for what the baseline reaches."""
    metric, found = verdict.about["metric"], {(s.start, s.use, s.labels): s for s in savings}
    levels = {s.labels: shown(metric, s.level) for s in savings}
    counts, rows = sorted(levels), list[list[Cell | str]]()
    for use in USES:
        for start in verdict.starts:
            own = [found.get((start, use, labels)) for labels in counts]
            if any(own):
                cells = [NOTHING if s is None else _saving_cell(s) for s in own]
                rows.append([Cell(method_name(verdict, start, use), start=start), *cells])
    heads = ("labels needed for", *(f"the baseline's {levels[labels]} with {labels:,}" for labels in counts))
    note = (
        "Labels, their share of all, and the 95 % interval of that share. Between numbers of labels, curves are "
        "straight over the logarithm of the labels."
    )
    return table(heads, rows, 1, note)


def _saving_cell(s: Saving) -> Cell:
    ends = "" if s.note else _ends(s)
    share = s.shares[0]
    if share is None or s.needed is None:
        return Cell("not reached", _minor(ends))
    return Cell(f"{s.needed:,.0f}{' or fewer' if s.at_once else ''}", _minor(f"{_share(share)} of all", ends))


def _share(value: float) -> str:
    return f"{value:.2g} %" if value < 9.5 else f"{value:.0f} %"


def _ends(saving: Saving) -> str:
    """A confidence set, of which an end may lie beyond what was tried."""
    if saving.needed is None and saving.low is not None and (saving.shares[1] or 0) >= 100:
        return "not even by all"
    low, high = (None if end is None else _share(end) for end in saving.shares[1:])
    if low is None or high is None:
        return f"{low} or more" if low else f"{high} or less" if high else "without ends"
    return f"{low} to {high}"


def cost_rows(verdict: Verdict, primary: Sequence[Difference]) -> Table:
    """What every method costs, and what a point gained costs."""
    metric, rows = verdict.about["metric"], list[list[Cell | str]]()
    gains = {d.start: d for d in primary}
    for start in verdict.starts:
        use = gains[start].use if start in gains else "train"
        for matched in (False, True):
            costs = [score.cost for score in verdict.of(start, use, matched=matched) if score.cost]
            if not costs:
                continue
            runs = verdict.methods[start].get("pretraining", [])
            days = (_busy(runs) + _busy(costs)) / 86400
            images, flops = (_mean(runs, key) + _mean(costs, key) for key in ("images", "flops"))
            gained = gains.get(start)
            # What public weights cost to make is not known.
            gain = gained.interval.estimate if gained is not None and gained.sign > 0 and start != "public" else None
            rows.append([
                method_cell(verdict, start, use, matched=matched),
                Cell(two_digits(days), (seconds(days * 86400),)),
                count(images or None),
                operations(flops),
                memory(max(told.get("peak_memory") or 0 for told in (*runs, *costs))),
                NOTHING if gained is None else signed_value(metric, gained.interval.estimate),
                NOTHING if gain is None else Cell(two_digits(days / gain), (
                    f"{count(round(images / gain))} images", f"{operations(flops / gain)}")),
            ])  # fmt: skip
    heads = ("method", "device-days", "images seen", "FLOPs", "peak memory", f"gain, {unit_of(metric)}",
             "device-days, images and FLOPs per point")  # fmt: skip
    note = (
        "Pre-training of one backbone (mean of its seeds) and one training on labels (mean over numbers of labels); "
        "tuning and the making of public weights are not in it. Gain: over the labelled baseline, with the numbers "
        "of labels that the verdict stands on. Nothing is divided by a gain that is not significant."
    )
    return table(heads, rows, 1, note if rows else "")


def _busy(told: Sequence[dict[str, Any]]) -> float:
    """Mean seconds of all devices together."""
    known = [one for one in told if one.get("seconds") is not None]
    return mean(one["seconds"] * (one.get("devices") or 1) for one in known) if known else 0.0


def _mean(told: Sequence[dict[str, Any]], key: str) -> float:
    known = [float(one[key]) for one in told if one.get(key) is not None]
    return mean(known) if known else 0.0
