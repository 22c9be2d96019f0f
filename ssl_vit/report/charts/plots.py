"""Which charts a verdict has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.core.text import shortened
from ssl_vit.report.cells import heading, unit_of
from ssl_vit.report.charts import drawing
from ssl_vit.report.charts.canvas import HEIGHT, LOW, WIDTH, Chart, Key, Panel, make_chart
from ssl_vit.report.charts.drawing import Line, Mark
from ssl_vit.report.charts.placing import has_room
from ssl_vit.report.charts.training import curve, read_lines
from ssl_vit.report.findings.classes import confusions
from ssl_vit.report.findings.comparisons import interval_of
from ssl_vit.report.findings.conclusions import Findings
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import method_name
from ssl_vit.report.look import LONGER, Look, looks
from ssl_vit.statistics.paired import Interval

_HEADS = {"train": "All weights trained", "linear": "Linear probe", "knn": "k-NN"}
HOLLOW = "Hollow marks: differences that chance can explain."
_MOST_CLASSES = 30
"""Classes that a confusion matrix can show."""


def curves(verdict: Verdict) -> Chart | None:
    """Label-efficiency curves, a panel per use; the baseline is in all of them."""
    metric, counts, look = verdict.about["metric"], verdict.about["labels"], looks(verdict.starts)
    drawn: dict[str, list[tuple[str, Line]]] = {}
    for use in _HEADS:
        # The baseline is what frozen features are compared with, too.
        own = [(start, use, False) for start in verdict.starts if (start, use) != ("scratch", "train")]
        both = [("scratch", "train", matched) for matched in (True, False)]
        if not any(verdict.of(start, use) for start in verdict.starts):
            continue
        for start, way, matched in own + both:
            groups = verdict.by_labels(start, way, matched=matched)
            if groups:
                colours = LONGER if matched else look[start]
                points = {n: _mark(colours, interval_of(g, verdict.clusters), metric) for n, g in groups.items()}
                name = method_name(verdict, start, way, matched=matched)
                first, last = (shown(metric, points[n].value) for n in (min(points), max(points)))
                short = name if matched else verdict.name(start)
                drawn.setdefault(use, []).append((f"{name} from {first} to {last}", Line(short, colours, points)))
    if not drawn:
        return None
    marks = [mark for panel in drawn.values() for _, line in panel for mark in line.points.values()]
    what, ends = heading(metric), _limits([v for mark in marks for v in mark[1:4]], metric)
    lines = {use: [line for _, line in found] for use, found in drawn.items()}
    named = all(has_room((line.name for line in found), HEIGHT - 0.8) for found in lines.values())
    draw = partial(drawing.curves, counts=counts, limits=ends, heading=what, named=named)
    panels = [
        Panel(_HEADS[use], partial(draw, lines=lines[use]),
              f"{what} over {counts[0]:,} to {counts[-1]:,} labels: {'; '.join(told for told, _ in found)}.")
        for use, found in drawn.items()
    ]  # fmt: skip
    every = {line.name: line for found in lines.values() for line in found}.values()
    keys = [Key(line.name, line.look, any(len(part) > 1 for part in line.stretches(counts))) for line in every]
    return make_chart("curves", panels, legend=() if named else keys)


def _mark(look: Look, found: Interval, metric: str) -> Mark:
    if found.low is None or found.high is None:
        return Mark(look, found.estimate, float("nan"), float("nan"))
    least, most = METRICS[metric].bounds
    return Mark(look, found.estimate, max(found.low, least), min(found.high, most))


def _limits(values: Sequence[float], metric: str) -> tuple[float, float]:
    known = [value for value in values if np.isfinite(value)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low) or 1.0
    least, most = METRICS[metric].bounds
    low, high = max(low - margin, least), min(high + margin, most)
    return (0.0 if 0 <= low < 0.25 * high else low), high


def differences(verdict: Verdict, findings: Findings) -> Chart | None:
    """Differences to the baseline with their intervals, a panel per use."""
    found, look = findings.table, looks(verdict.starts)
    if not found:
        return None
    ends = [v for d in found for v in (d.interval.estimate, d.interval.low, d.interval.high) if v is not None]
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    across = f"difference, {unit_of(verdict.about['metric'])} (right of the line: better)"
    rows: dict[str, dict[str, list[Mark]]] = {use: {} for use in _HEADS}
    for d in sorted(found, key=lambda d: (d.labels or 0, verdict.starts.index(d.start))):
        mark = Mark(look[d.start], d.interval.estimate, _end(d.interval.low), _end(d.interval.high), bool(d.sign))
        rows[d.use].setdefault(f"{d.labels:,}", []).append(mark)
    rows = {use: groups for use, groups in rows.items() if groups}
    height = max(0.95 + len(groups) * (0.16 + 0.12 * max(map(len, groups.values()))) for groups in rows.values())
    panels: list[Panel] = []
    for use, groups in rows.items():
        values = [mark.value for group in groups.values() for mark in group]
        words = f"{len(values)} differences to the labelled baseline, from {min(values):+.3g} to {max(values):+.3g}."
        draw = partial(drawing.forest, rows=groups, limits=limits, heading=across)
        panels.append(Panel(_HEADS[use], draw, words, height))
    compared = {d.start for d in found}
    keys = [Key(verdict.name(start), look[start], line=False) for start in verdict.starts if start in compared]
    return make_chart("differences", panels, legend=keys, note=HOLLOW)


def saved(verdict: Verdict, findings: Findings) -> Chart | None:
    """Share of the labels that every method needs for what the baseline reaches with all of them."""
    whole, look = max(verdict.about["labels"]), looks(verdict.starts)
    known = [s for s in findings.savings if s.labels == whole]
    if not any(s.needed is not None for s in known):
        return None
    known.sort(key=lambda s: (list(_HEADS).index(s.use), verdict.starts.index(s.start)))
    bars: list[tuple[str, Mark]] = []
    for s in known:
        value, low, high = map(_end, s.shares)
        bars.append((shortened(method_name(verdict, s.start, s.use), 36), Mark(look[s.start], value, low, high)))
    words = "; ".join(f"{n} {f'{bar.value:.0f} %' if np.isfinite(bar.value) else 'not reached'}" for n, bar in bars)
    draw = partial(drawing.shares, bars=bars, heading=f"labels needed, % of all {whole:,}")
    return make_chart("saved", [Panel("To reach the baseline", draw, f"{words}.", 0.95 + 0.36 * len(bars))])


def _short(name: str) -> str:
    """As much of a class's name as an axis can take."""
    return shortened(" ".join(name.split()), 20)


def _end(value: float | None) -> float:
    return float("nan") if value is None else value


def loss_curves(verdict: Verdict) -> Chart | None:
    """Loss of the pre-training runs, a panel per objective."""
    look = looks(verdict.starts)
    panels: list[Panel] = []
    for start in verdict.starts:
        runs = [(f"seed {run.get('seed', n)}", _losses(verdict, str(run["run"])))
                for n, run in enumerate(verdict.runs(start)) if run.get("run")]  # fmt: skip
        known = [(name, *found) for name, found in runs if found is not None]
        if known:
            ends = ", ".join(f"{values[-1]:.3g}" for *_, values in known)
            words = f"{len(known)} {'run' if len(known) == 1 else 'runs'}; the loss ends at {ends}."
            draw = partial(drawing.losses, runs=known, look=look[start])
            panels.append(Panel(f"{verdict.name(start)} pre-training", draw, words, LOW))
    return make_chart("losses", panels) if panels else None


def _losses(verdict: Verdict, run: str) -> tuple[np.ndarray, np.ndarray] | None:
    folder = verdict.folder
    moved = () if verdict.from_runs else (folder / run, folder / "runs" / Path(run).name)  # with the verdict's folder
    found = (curve(read_lines(place / "metrics.jsonl"), "loss") for place in (*moved, Path(run)))
    return next(((steps, values) for steps, values in found if len(steps)), None)


def confusion_chart(verdict: Verdict) -> Chart | None:
    """Confusion matrices beside each other; None where there are none, or too many classes."""
    found, names, look = confusions(verdict), verdict.about["classes"], looks(verdict.starts)
    if not found or len(names) > _MOST_CLASSES:
        return None
    panels: list[Panel] = []
    for one, counts in found:
        off = counts * ~np.eye(len(names), dtype=bool)
        row, column = np.unravel_index(int(off.argmax()), off.shape)
        often = f"; most often {names[row]} is taken for {names[column]} ({off.max():,} times)"
        words = f"{100 * (counts.trace() / max(counts.sum(), 1)):.1f} % on the diagonal{often if off.max() else ''}."
        draw = partial(drawing.confusion, counts=counts, names=[*map(_short, names)], look=look[one.start])
        panels.append(Panel(one.name, draw, words, WIDTH))
    return make_chart("confusion", panels, columns=2, note=confusion_words(len(names)))


def confusion_words(classes: int) -> str:
    """What stands in the cells of a confusion matrix of so many classes, in a sentence."""
    if classes <= drawing.COUNTED:
        return "Upper number: percentage of the true class; lower number: test images, over all draws."
    what = "Numbers are percentages" if classes <= drawing.NUMBERED else "Colour is the share"
    return f"{what} of the true class."


def class_balance(verdict: Verdict) -> Chart | None:
    """Training and test images of every class."""
    told = verdict.told("data").get("per_class")
    if not told:
        return None
    ordered = sorted(told, key=lambda name: -(told[name].get("train") or 0))
    train, test = ([int(told[name].get(part) or 0) for name in ordered] for part in ("train", "test"))
    words = f"{ordered[0]} has most training images ({train[0]:,}), {ordered[-1]} fewest ({train[-1]:,})."
    draw = partial(drawing.balance, names=[*map(_short, ordered)], train=train, test=test)
    height = float(np.clip(0.8 + 0.24 * len(ordered), 1.6, 6.0))
    return make_chart("classes", [Panel("Images per class", draw, words, height)])
