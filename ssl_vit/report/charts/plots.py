"""Which charts a verdict has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.core.text import shortened
from ssl_vit.methods.starts import BASELINE
from ssl_vit.report.cells import heading, signed_value, unit_of
from ssl_vit.report.charts import drawing
from ssl_vit.report.charts.canvas import HEIGHT, LOW, WIDTH, Chart, Panel, make_chart
from ssl_vit.report.charts.drawing import Line, Mark
from ssl_vit.report.charts.placing import room
from ssl_vit.report.charts.training import curve, read_lines
from ssl_vit.report.findings.classes import confusions
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import interval_of, method_name
from ssl_vit.report.look import LONGER, Look, looks
from ssl_vit.statistics.advice import Advice, Attribution, Way
from ssl_vit.statistics.paired import Interval

_HEADS = {"train": "All weights trained", "linear": "Linear probe", "knn": "k-NN"}
_LEAST_R2 = -1.0
"""What curves of R2 show at least; lines below are cut off there."""
_MOST_CLASSES = 30
"""Classes that a confusion matrix can show."""


def curves(verdict: Verdict, advice: Sequence[Advice] = ()) -> Chart | None:
    """Means over the number of labels, a panel per use, with rings where it is advised; the baseline is in all."""
    metric, counts, look = verdict.about["metric"], verdict.about["labels"], looks(verdict.starts)
    advised, drawn = {(one.advised, one.labels) for one in advice}, dict[str, dict[str, Line]]()
    for use in (use for use in _HEADS if any(verdict.of(start, use) for start in verdict.starts)):
        own = [Way(start, use) for start in verdict.starts if (start, use) != (BASELINE, "train")]
        longer = [Way(f"{start}+", "train") for start in verdict.starts if start != BASELINE]
        own += [way for way in longer if use == way.use]
        for way in (*own, Way(f"{BASELINE}+", "train"), Way(BASELINE, "train")):
            start = way.start.removesuffix("+")
            if groups := verdict.by_labels(start, way.use, matched=start != way.start):
                colours = LONGER if start != way.start else look[start]
                intervals = {n: interval_of(scores, verdict.clusters) for n, scores in groups.items()}
                points = {n: _mark(colours, found, metric, (way, n) in advised) for n, found in intervals.items()}
                name = verdict.name(start) if start == way.start else method_name(verdict, way)
                drawn.setdefault(use, {})[method_name(verdict, way)] = Line(name, colours, points)
    if not drawn:
        return None
    marks = [mark for panel in drawn.values() for line in panel.values() for mark in line.points.values()]
    what, ends = heading(metric), _limits([v for mark in marks for v in mark[1:4]], metric)
    height = max(HEIGHT, *(0.8 + room(line.name for line in panel.values()) for panel in drawn.values()))
    panels: list[Panel] = []
    for use, lines in drawn.items():
        told = "; ".join(f"{name} {_course(metric, one)}" for name, one in lines.items())
        draw = partial(drawing.curves, lines=[*lines.values()], counts=counts, limits=ends, heading=what)
        several = f"over {counts[0]:,} to {counts[-1]:,} labels"
        alt = f"{what} {several if len(counts) > 1 else f'with {counts[0]:,} labels'}: {told}."
        panels.append(Panel(_HEADS[use], draw, alt, height))
    return make_chart("curves", panels)


def _course(metric: str, line: Line) -> str:
    """A line's first and last value, or its only one."""
    first, last = (shown(metric, line.points[end(line.points)].value) for end in (min, max))
    return f"from {first} to {last}" if len(line.points) > 1 else first


def _mark(look: Look, found: Interval, metric: str, advised: bool) -> Mark:
    if found.low is None or found.high is None:
        return Mark(look, found.estimate, float("nan"), float("nan"), advised)
    least, most = METRICS[metric].bounds
    return Mark(look, found.estimate, max(found.low, least), min(found.high, most), advised)


def _limits(values: Sequence[float], metric: str) -> tuple[float, float]:
    known = [value for value in values if np.isfinite(value)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low) or 1.0
    least, most = METRICS[metric].bounds
    low, high = max(low - margin, least), min(high + margin, most)
    if metric == "r2":  # a probe on few labels may be far below, and would press all others into one line
        low = max(low, min(_LEAST_R2, high - 1.0))
    return (0.0 if 0 <= low < 0.25 * high else low), high


def attribution(verdict: Verdict, found: Sequence[Attribution]) -> Chart | None:
    """The best with pre-training less the best without, with intervals, by the number of labels."""
    known = [one for one in found if one.gain is not None]
    if not known:
        return None
    look = looks(verdict.starts)
    rows = {
        f"{one.labels:,}": Mark(
            look[one.way.start] if one.way else LONGER, one.gain or 0.0, _end(one.low), _end(one.high),
            not one.refused and one.p is not None and one.p < 0.05,
        )
        for one in known
    }  # fmt: skip
    metric = verdict.about["metric"]
    words = "; ".join(f"{signed_value(metric, one.gain or 0)} with {one.labels:,} labels" for one in known)
    heading = f"{unit_of(metric)}, right of the line: better with pre-training"
    draw = partial(drawing.forest, rows=rows, heading=heading)
    panel = Panel("With less without pre-training", draw, f"{words}.", 0.95 + 0.28 * len(rows))
    return make_chart("attribution", [panel])


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
            height = max(LOW, 0.8 + room(name for name, _ in runs))
            panels.append(Panel(f"{verdict.name(start)} pre-training", draw, words, height))
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
    return make_chart("confusion", panels, columns=2)


def confusion_words(classes: int) -> str:
    """What stands in the cells of a confusion matrix of so many classes, in a sentence."""
    if classes <= drawing.COUNTED:
        return "Upper number: percentage of the true class; lower number: test images, over all draws."
    what = "Numbers are percentages" if classes <= drawing.NUMBERED else "Colour is the share"
    return f"{what} of the true class."
