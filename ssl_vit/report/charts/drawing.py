"""What stands on the axes of a report's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from ssl_vit.report.charts.canvas import look_of
from ssl_vit.report.look import INK, MUTED, PAPER, RULE, Look

COUNTED, NUMBERED = 12, 20
"""Classes up to which a confusion matrix has room for counts and percentages, and for percentages."""
_ROOM = 0.085
"""Of an axis, per number that is written along it."""
_DASHES = ("-", (0, (4.0, 1.5)), (0, (1.5, 1.5)), (0, (6.0, 1.5, 1.5, 1.5)))


class Mark(NamedTuple):
    """A value with its interval; NaN for an end that there is none of."""

    look: Look
    value: float
    low: float
    high: float
    filled: bool = True
    """Whether it is significant."""


class Line(NamedTuple):
    """One method over the number of labels."""

    look: Look
    points: Mapping[int, Mark]


def label_axis(axis: Axes, counts: Sequence[int]) -> None:
    """Numbers of labels along a logarithmic axis; names that would touch are left out, never the last."""
    axis.set_xscale("log")
    low, high = min(counts), max(counts)
    margin = 1.35 if low == high else (high / low) ** 0.04
    axis.set_xlim(low / margin, high * margin)
    span = np.log(high * margin / (low / margin))
    names, right = [""] * len(counts), 2.0
    for i in reversed(range(len(counts))):
        place = float(np.log(counts[i] * margin / low) / span)
        if right - place >= _ROOM:
            names[i], right = f"{counts[i]:,}", place
    axis.set_xticks(list(counts), names)
    axis.minorticks_off()
    axis.set_xlabel("labelled training images")


def curves(axis: Axes, lines: Sequence[Line], counts: Sequence[int], limits: tuple[float, float], heading: str) -> None:
    """Label-efficiency curves with bands, the last line on top; each is broken where it lacks a number of labels."""
    label_axis(axis, counts)
    axis.set_ylim(*limits)
    axis.grid(axis="y")
    axis.set_ylabel(heading)
    for line in lines:
        gaps = [-1, *(i for i, n in enumerate(counts) if n not in line.points), len(counts)]
        for start, end in pairwise(gaps):
            where = list(counts[start + 1 : end])
            if not where:
                continue
            _, values, low, high, _ = zip(*(line.points[n] for n in where), strict=True)
            colour, look, known = line.look.light, look_of(line.look), np.isfinite(low).tolist()
            if len(where) > 1:
                axis.fill_between(where, low, high, where=known, color=colour, alpha=0.15, linewidth=0)
            else:
                look["markersize"] *= 1.6  # among lines a single point is easily missed
                if known[0]:
                    axis.vlines(where, low, high, color=colour, linewidth=1.2)
            axis.plot(where, values, clip_on=False, **look)


def forest(axis: Axes, rows: Mapping[str, Sequence[Mark]], limits: tuple[float, float], heading: str) -> None:
    """Differences with intervals by row, those of one row beside each other, and the line of none."""
    axis.axvline(0.0, color=INK, linewidth=1.0)
    for r, group in enumerate(rows.values()):
        step = min(0.24, 0.7 / len(group))
        for i, mark in enumerate(group):
            y, colour = r + step * (i - (len(group) - 1) / 2), mark.look.light
            if np.isfinite(mark.low):
                axis.plot([mark.low, mark.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="round")
            axis.plot(
                [mark.value], [y], linestyle="none", marker=mark.look.marker, markersize=5.5, markeredgewidth=1.2,
                markerfacecolor=colour if mark.filled else PAPER, markeredgecolor=colour,
            )  # fmt: skip
        if r:
            axis.axhline(r - 0.5, color=RULE, linewidth=0.6)
    _rows(axis, list(rows))
    axis.set(xlim=limits, xlabel=heading)


def shares(axis: Axes, bars: Sequence[tuple[str, Mark]], heading: str) -> None:
    """Bars from nothing to 100 % with intervals by row; an end beyond what was tried is an arrow."""
    for y, (_, bar) in enumerate(bars):
        colour = bar.look.light
        axis.barh(y, bar.value, height=0.52, color=colour, alpha=0.3, linewidth=0)
        low, high = (end if np.isfinite(end) else edge for end, edge in ((bar.low, 0.0), (bar.high, 100.0)))
        axis.plot([low, high], [y, y], color=colour, linewidth=1.6)
        for end, edge, marker in ((bar.low, 0.0, "<"), (bar.high, 100.0, ">")):
            if not np.isfinite(end):
                axis.plot([edge], [y], marker=marker, color=colour, markersize=5, clip_on=False)
        axis.plot([bar.value], [y], **{**look_of(bar.look), "linestyle": "none"})
    _rows(axis, [name for name, _ in bars])
    axis.set(xlim=(0, 100), xlabel=heading)


def _rows(axis: Axes, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x")


def losses(axis: Axes, runs: Sequence[tuple[np.ndarray, np.ndarray]], look: Look) -> None:
    """Loss over steps: a line per run, which differ in their dashes."""
    for i, (steps, values) in enumerate(runs):
        dash, alpha = _DASHES[i % len(_DASHES)], 1 - 0.18 * min(i, 3)
        axis.plot(steps, values, color=look.light, linewidth=1.3, alpha=alpha, linestyle=dash)
    axis.grid(axis="y")
    axis.set(xlabel="step", ylabel="loss")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def confusion(axis: Axes, counts: np.ndarray, names: Sequence[str], look: Look) -> None:
    """Share of counts [true, predicted] in each true class: as colour, and in numbers where there is room."""
    size = len(names)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    letters = float(np.clip(80 / size, 3.6, 9.5))
    for row, column in np.argwhere(counts).tolist():
        share = float(shares[row, column])
        place, alpha = (column - 0.5, row - 0.5), max(0.06, share)
        axis.add_patch(Rectangle(place, 1, 1, facecolor=look.light, alpha=alpha, linewidth=0))
        words = [(-0.14, f"{100 * share:.0f}", letters), (0.27, f"{counts[row, column]:,.0f}", 0.75 * letters)]
        if size > COUNTED:
            words = [(0.0, f"{100 * share:.0f}", letters)] if size <= NUMBERED else []
        for below, text, high in words:
            axis.text(
                column, row + below, text, ha="center", va="center", fontsize=high, color=PAPER if share > 0.55 else INK
            )
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal", xlabel="predicted", ylabel="true")
    upright = max(len(name) for name in names) * size > 45
    fit = float(np.clip(160 / size, 5.0, 8.0))
    axis.set_xticks(range(size), names, rotation=90 if upright else 0, fontsize=fit)
    axis.set_yticks(range(size), names, fontsize=fit)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(True)


def balance(axis: Axes, names: Sequence[str], train: Sequence[int], test: Sequence[int]) -> None:
    """Training and test images per class; without names where there are too many."""
    size = len(names)
    places = np.arange(size)
    axis.barh(places - 0.19, train, height=0.36, color=MUTED, label="training")
    axis.barh(places + 0.19, test, height=0.36, color=RULE, edgecolor=MUTED, linewidth=0.6, label="test")
    if size <= 40:
        axis.set_yticks(places, names, fontsize=float(np.clip(300 / size, 5.0, 8.5)))
    else:
        axis.set_yticks([])
        axis.set_ylabel(f"{size} classes, largest first")
    axis.set_ylim(size - 0.4, -0.6)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("images")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_title(axis.get_title(loc="left"), pad=22)  # above the legend: long names leave no room beside it
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.1, borderpad=0.1)
