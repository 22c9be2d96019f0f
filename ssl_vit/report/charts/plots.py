"""Which charts a verdict has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ssl_vit.configs.metrics import shown
from ssl_vit.report.cells import heading, unit_of
from ssl_vit.report.charts import drawing
from ssl_vit.report.charts.canvas import WIDTH, Chart, Panel, make_chart
from ssl_vit.report.charts.drawing import Line, Mark
from ssl_vit.report.findings.classes import confusions
from ssl_vit.report.findings.conclusions import Findings
from ssl_vit.report.findings.records import Verdict
from ssl_vit.report.findings.tables import interval_of, method_name
from ssl_vit.report.look import LONGER, Look, looks

_HEADS = {"train": "All weights trained", "linear": "Linear probe", "knn": "k-NN"}
_MOST_CLASSES = 30
"""Classes that a confusion matrix can show."""


def curves(verdict: Verdict) -> Chart | None:
    """Label-efficiency curves, a panel per use; the baseline is in all of them."""
    metric, counts = verdict.about["metric"], verdict.about["labels"]
    drawn: dict[str, list[Line]] = {}
    told: dict[str, list[str]] = {}
    look = looks(verdict.starts)
    for use in _HEADS:
        own = [start for start in verdict.starts if verdict.of(start, use)]
        if not own:
            continue
        # The baseline is what frozen features are compared with, too.
        pairs = [(start, use, False) for start in own if (start, use) != ("scratch", "train")]
        pairs += [("scratch", "train", matched) for matched in (True, False)]
        for start, way, matched in pairs:
            scores = verdict.of(start, way, matched=matched)
            if not scores:
                continue
            groups = [[s for s in scores if s.labels == labels] for labels in counts]
            found = {labels: interval_of(g, verdict.clusters) for labels, g in zip(counts, groups, strict=True) if g}
            ends = [_ends(f.low, f.high, metric) for f in found.values()]
            line = Line(
                LONGER if matched else look[start],
                list(found),
                [f.estimate for f in found.values()],
                *map(list, zip(*ends, strict=True)),
            )
            drawn.setdefault(use, []).append(line)
            first, last = line.values[0], line.values[-1]
            name = method_name(verdict, start, way, matched=matched)
            told.setdefault(use, []).append(f"{name} from {shown(metric, first)} to {shown(metric, last)}")
    if not drawn:
        return None
    limits = _limits(
        [v for lines in drawn.values() for line in lines for v in (*line.values, *line.low, *line.high)], metric
    )
    panels = [
        Panel(_HEADS[use], partial(drawing.curves, lines=lines, counts=counts, limits=limits, heading=heading(metric)),
              f"{heading(metric)} over {counts[0]:,} to {counts[-1]:,} labels: {'; '.join(told[use])}.")
        for use, lines in drawn.items()
    ]  # fmt: skip
    return make_chart("curves", panels, legend=legend(verdict))


def legend(verdict: Verdict) -> list[tuple[str, Look]]:
    """Every start that has numbers, with its look, and the baseline at the cost of pre-training."""
    look, found = looks(verdict.starts), list[tuple[str, Look]]()
    for start in verdict.starts:
        found.append((verdict.name(start), look[start]))
        if verdict.of(start, "train", matched=True):
            found.append((method_name(verdict, start, "train", matched=True), LONGER))
    return found


def _ends(low: float | None, high: float | None, metric: str) -> tuple[float, float]:
    if low is None or high is None:
        return (float("nan"), float("nan"))
    return (max(low, 0.0), min(high, 100.0)) if "%" in heading(metric) else (low, high)


def _limits(values: Sequence[float], metric: str) -> tuple[float, float]:
    known = [value for value in values if np.isfinite(value)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low) or 1.0
    low, high = low - margin, high + margin
    if "%" in heading(metric):
        low, high = max(0.0, low), min(100.0, high)
    return (0.0 if 0 <= low < 0.25 * high else low), high


def differences(verdict: Verdict, findings: Findings) -> Chart | None:
    """Differences to the baseline with their intervals, a panel per use."""
    found, metric, look = findings.table, verdict.about["metric"], looks(verdict.starts)
    if not found:
        return None
    ends = [v for d in found for v in (d.interval.estimate, d.interval.low, d.interval.high) if v is not None]
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    margin = 0.05 * (high - low) or 1.0
    across = f"difference, {unit_of(metric)} (right of the line: better)"
    panels: list[Panel] = []
    for use, head in _HEADS.items():
        own = [d for d in found if d.use == use]
        own.sort(key=lambda d: (d.labels or 0, verdict.starts.index(d.start)))
        if not own:
            continue
        marks = [
            Mark(
                f"{d.labels:,}",
                look[d.start],
                d.interval.estimate,
                _end(d.interval.low),
                _end(d.interval.high),
                bool(d.sign),
            )
            for d in own
        ]
        draw = partial(drawing.forest, marks=marks, limits=(low - margin, high + margin), heading=across)
        ends = [d.interval.estimate for d in own]
        words = f"{len(own)} differences to the labelled baseline, from {min(ends):+.3g} to {max(ends):+.3g}."
        groups = Counter(mark.row for mark in marks)
        panels.append(Panel(head, draw, words, 0.95 + len(groups) * (0.14 + 0.15 * max(groups.values()))))
    height = max(panel.height for panel in panels)
    panels = [replace(panel, height=height) for panel in panels]
    return make_chart("differences", panels, legend=differing(verdict, findings))


def differing(verdict: Verdict, findings: Findings) -> list[tuple[str, Look]]:
    """The legend of what is compared with the baseline."""
    compared = {looks(verdict.starts)[d.start] for d in findings.table}
    return [item for item in legend(verdict) if item[1] in compared]


def saved(verdict: Verdict, findings: Findings) -> Chart | None:
    """Share of the labels that every method needs for what the baseline reaches with all of them."""
    whole, look = max(verdict.about["labels"]), looks(verdict.starts)
    known = [s for s in findings.savings if s.labels == whole and s.needed is not None]
    if not known:
        return None
    known.sort(key=lambda s: (list(_HEADS).index(s.use), verdict.starts.index(s.start)))
    bars = [_bar(_short(method_name(verdict, s.start, s.use), 30), look[s.start], s.shares) for s in known]
    words = "; ".join(f"{bar.row} {bar.value:.0f} %" for bar in bars) + "."
    across = f"labels needed, % of all {whole:,}"
    panel = Panel(
        "To reach the baseline",
        partial(drawing.shares, bars=bars, heading=across),
        words,
        0.95 + 0.3 * len(bars),
    )
    return make_chart("saved", [panel])


def _short(name: str, most: int = 20) -> str:
    """As much of a name as an axis can take."""
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _bar(name: str, look: Look, shares: tuple[float | None, ...]) -> Mark:
    needed, low, high = (_end(share) for share in shares)
    return Mark(name, look, needed, low, high)


def _end(value: float | None) -> float:
    return float("nan") if value is None else value


def loss_curves(verdict: Verdict) -> Chart | None:
    """Loss of the pre-training runs, a panel per objective."""
    look = looks(verdict.starts)
    panels: list[Panel] = []
    for start in verdict.starts:
        method = verdict.methods.get(start, {})
        runs = [_losses(verdict, str(run["run"])) for run in method.get("pretraining", []) if run.get("run")]
        known = [run for run in runs if run is not None]
        if known:
            words = (
                f"{len(known)} runs; the loss ends at " + ", ".join(f"{values[-1]:.3g}" for _, values in known) + "."
            )
            draw = partial(drawing.losses, runs=known, look=look[start])
            panels.append(Panel(f"{verdict.name(start)} pre-training", draw, words, 2.6))
    return make_chart("losses", panels) if panels else None


def _losses(verdict: Verdict, run: str) -> tuple[np.ndarray, np.ndarray] | None:
    folder = verdict.folder
    moved = () if verdict.from_runs else (folder / run, folder / "runs" / Path(run).name)  # with the verdict's folder
    places = (*moved, Path(run))
    path = next((place / "metrics.jsonl" for place in places if (place / "metrics.jsonl").exists()), None)
    if path is None:
        return None
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = [(float(line["step"]), float(line["loss"])) for line in lines if "loss" in line]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    steps, values = np.array([f for f in found if np.isfinite(f[1])]).reshape(-1, 2).T
    if not len(steps):
        return None
    every = max(1, len(steps) // 300)  # a line of 300 points is as good as one of a million
    kept = np.arange(len(steps) - 1, -1, -every)[::-1]
    return steps[kept], values[kept]


def confusion_chart(verdict: Verdict) -> Chart | None:
    """Confusion matrices beside each other; None where there are none, or too many classes."""
    found, names = confusions(verdict), verdict.about["classes"]
    if not found or len(names) > _MOST_CLASSES:
        return None
    look = looks(verdict.starts)
    panels: list[Panel] = []
    for one, counts in found:
        right = counts.trace() / max(counts.sum(), 1)
        off = np.where(np.eye(len(names), dtype=bool), 0, counts)
        row, column = np.unravel_index(int(off.argmax()), off.shape)
        words = f"{100 * right:.1f} % on the diagonal" + (
            f"; most often {names[row]} is taken for {names[column]} ({off.max():,} times)." if off.max() else "."
        )
        short = [_short(name) for name in names]
        draw = partial(drawing.confusion, counts=counts, names=short, look=look[one.start])
        panels.append(Panel(one.name, draw, words, WIDTH))
    return make_chart("confusion", panels, columns=2)


def confusion_words(classes: int) -> str:
    """What a confusion matrix of so many classes has room for."""
    if classes <= drawing.COUNTED:
        return "the upper number is the percentage of the row, the lower one counts test images over all draws."
    return "numbers are percentages of the row." if classes <= drawing.NUMBERED else "colour is the share of the row."


def class_balance(verdict: Verdict) -> Chart | None:
    """Training and test images of every class."""
    told = verdict.told("data").get("per_class")
    if not told:
        return None
    ordered = sorted(told, key=lambda name: -(told[name].get("train") or 0))
    train, test = ([int(told[name].get(part) or 0) for name in ordered] for part in ("train", "test"))
    words = f"{ordered[0]} has most training images ({train[0]:,}), {ordered[-1]} fewest ({train[-1]:,})."
    draw = partial(drawing.balance, names=[_short(name) for name in ordered], train=train, test=test)
    height = float(np.clip(0.8 + 0.24 * len(ordered), 1.6, 6.0))
    return make_chart("classes", [Panel("Images per class", draw, words, height)])
