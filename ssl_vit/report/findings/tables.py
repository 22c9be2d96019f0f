"""What a verdict says in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, TypeVar

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
    several,
    signed_value,
    span,
    table,
    two_digits,
    unit_of,
)
from ssl_vit.report.findings.comparisons import USES, Difference, Saving, interval_of
from ssl_vit.report.findings.records import Score, Verdict

_T = TypeVar("_T")
_SIGNIFICANT = (
    "* significant: p below 0.05, two-sided, paired by draw, after Holm's adjustment over this table. Intervals are "
    "those of one comparison alone."
)


def method_name(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> str:
    """A start and a use in words."""
    name = verdict.name(start)
    if matched:
        return f"{name}, at the cost of pre-training"
    return {"train": name if start in ("scratch", "cnn") else f"{name}, fine-tuned"}.get(use, f"{name}, {USES[use]}")


def method_cell(verdict: Verdict, start: str, use: str, *, matched: bool = False) -> Cell:
    """A start and a use, with the mark that they have in charts."""
    return Cell(method_name(verdict, start, use, matched=matched), start="longer" if matched else start)


def _by_labels(
    verdict: Verdict, found: Mapping[tuple[str, str, bool, int], _T], counts: Sequence[int], cell: Callable[[_T], Cell]
) -> list[Row]:
    """A row per method of which anything was found, a column per number of labels."""
    rows: list[Row] = []
    for use, start, matched in ((u, s, m) for u in USES for s in verdict.starts for m in (False, True)):
        own = [found.get((start, use, matched, labels)) for labels in counts]
        if any(one is not None for one in own):
            cells = (NOTHING if one is None else cell(one) for one in own)
            rows.append([method_cell(verdict, start, use, matched=matched), *cells])
    return rows


def all_numbers(verdict: Verdict) -> Table:
    """Every method over the number of labels: mean and interval."""
    counts, metric = verdict.about["labels"], verdict.about["metric"]
    found: dict[tuple[str, str, bool, int], list[Score]] = {}
    for s in verdict.scores:
        found.setdefault((s.start, s.use, s.matched, s.labels), []).append(s)

    def cell(scores: Sequence[Score]) -> Cell:
        i = interval_of(sorted(scores, key=lambda s: s.draw), verdict.clusters)
        return Cell(shown(metric, i.estimate), _minor(span(metric, i.low, i.high)))

    heads = ("method", *(f"{labels:,} labels" for labels in counts))
    note = f"{heading(metric)}: mean over draws, and its 95 % interval"
    return table(heads, _by_labels(verdict, found, counts, cell), 1, note)


def _minor(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def difference_rows(verdict: Verdict, differences: Sequence[Difference], head: str) -> Table:
    """One method less another, on average over some numbers of labels; positive is better."""
    metric = verdict.about["metric"]
    rows = (
        [
            method_cell(verdict, d.start, d.use),
            method_name(verdict, d.against_start, d.against_use),
            several(d.over),
            _difference_cell(metric, d),
            span(metric, d.interval.low, d.interval.high, sign=True) or NOTHING,
            p_value(d.p_holm),
            count(d.draws),
            count(d.seeds or None),
        ]
        for d in differences
    )
    heads = ("method", "against", "labels", f"difference, {unit_of(metric)}", "95 % interval", "p (Holm)", "draws",
             "pre-training seeds")  # fmt: skip
    return table(heads, rows, 3, _SIGNIFICANT, head)


def _difference_cell(metric: str, d: Difference, *minor: str) -> Cell:
    words = signed_value(metric, d.interval.estimate) + (" *" if d.sign else "")
    return Cell(words, _minor(*minor), strong=bool(d.sign))


def differences_by_labels(verdict: Verdict, differences: Sequence[Difference], head: str) -> Table:
    """Every method less the baseline at every number of labels; positive is better."""
    metric, counts = verdict.about["metric"], verdict.about["labels"]
    found = {(d.start, d.use, False, d.labels or 0): d for d in differences}

    def cell(d: Difference) -> Cell:
        p = "" if d.p_holm is None else f"p {'' if d.p_holm < 0.001 else '= '}{p_value(d.p_holm)}"
        return _difference_cell(metric, d, span(metric, d.interval.low, d.interval.high, sign=True), p)

    longer = sorted({labels for d in differences for labels in d.matched})
    note = f"{unit_of(metric).capitalize()}, 95 % intervals, p after Holm. {_SIGNIFICANT}"
    if longer:
        note += (
            f" With {several(longer)} labels the baseline is the one trained at the FLOPs of pre-training and "
            "fine-tuning together: it was the better of the two."
        )
    heads = ("method less baseline", *(f"{labels:,} labels" for labels in counts))
    return table(heads, _by_labels(verdict, found, counts, cell), 1, note, head)


def savings_rows(verdict: Verdict, savings: Sequence[Saving]) -> Table:
    """Labels needed for what the baseline reaches."""
    levels = {s.labels: shown(verdict.about["metric"], s.level) for s in savings}
    counts = sorted(levels)
    found = {(s.start, s.use, False, s.labels): s for s in savings}
    heads = ("labels needed for", *(f"the baseline's {levels[labels]} with {labels:,}" for labels in counts))
    note = (
        "Labels, their share of all, and the 95 % interval of that share. Between numbers of labels, curves are "
        "straight over the logarithm of the labels."
    )
    return table(heads, _by_labels(verdict, found, counts, _saving_cell), 1, note)


def _saving_cell(s: Saving) -> Cell:
    """A confidence set has an end that may lie beyond what was tried."""
    share, low, high = (None if v is None else f"{v:.2g} %" if v < 9.5 else f"{v:.0f} %" for v in s.shares)
    if s.note:
        ends = ""
    elif s.needed is None and s.low is not None and (s.shares[1] or 0) >= 100:
        ends = "not even by all"
    elif low and high:
        ends = f"{low} to {high}"
    else:
        ends = f"{low} or more" if low else f"{high} or less" if high else "without ends"
    if s.needed is None:
        return Cell("not reached", _minor(ends))
    return Cell(f"{s.needed:,.0f}{' or fewer' if s.at_once else ''}", _minor(f"{share} of all", ends))


def cost_rows(verdict: Verdict, primary: Sequence[Difference]) -> Table:
    """What every method costs, and what a point gained costs."""
    metric, rows, gains = verdict.about["metric"], list[Row](), {d.start: d for d in primary}
    for start, matched in ((start, matched) for start in verdict.starts for matched in (False, True)):
        gained, runs = gains.get(start), verdict.runs(start)
        use = gained.use if gained else "train"
        costs = [score.cost for score in verdict.of(start, use, matched=matched) if score.cost]
        if not costs:
            continue
        days = (_busy(runs) + _busy(costs)) / 86400
        images, flops = (_mean(runs, key) + _mean(costs, key) for key in ("images", "flops"))
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
    return table(heads, rows, 1, note)


def _busy(told: Sequence[dict[str, Any]]) -> float:
    """Mean seconds of all devices together."""
    known = [one["seconds"] * (one.get("devices") or 1) for one in told if one.get("seconds") is not None]
    return mean(known) if known else 0.0


def _mean(told: Sequence[dict[str, Any]], key: str) -> float:
    known = [float(one[key]) for one in told if one.get(key) is not None]
    return mean(known) if known else 0.0
