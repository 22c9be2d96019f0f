"""What stands on the axes of a report's charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from ssl_vit.report.charts.canvas import look_of
from ssl_vit.report.look import INK, MUTED, PAPER, RULE, Look

COUNTED, NUMBERED = 12, 20
"""Classes up to which a confusion matrix has room for counts and percentages, and for percentages."""


def label_axis(axis: Axes, counts: Sequence[int]) -> None:
    """Numbers of labels along a logarithmic axis; names that would touch are left out, never the last."""
    axis.set_xscale("log")
    low, high = min(counts), max(counts)
    margin = 1.35 if low == high else (high / low) ** 0.04
    axis.set_xlim(low / margin, high * margin)
    span = np.log(high * margin / (low / margin))
    room = 0.085  # of the axis, per name
    names = [""] * len(counts)
    right = 2.0
    for i in reversed(range(len(counts))):
        place = float(np.log(counts[i] * margin / low) / span)
        if right - place >= room:
            names[i], right = f"{counts[i]:,}", place
    axis.set_xticks(list(counts), names)
    axis.minorticks_off()
    axis.set_xlabel("labelled training images")


@dataclass(frozen=True)
class Line:
    """One method over the number of labels."""

    look: Look
    labels: Sequence[int]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def curves(axis: Axes, lines: Sequence[Line], counts: Sequence[int], limits: tuple[float, float], heading: str) -> None:
    """Label-efficiency curves with bands.

    Args:
        axis: Where to.
        lines: The baseline last, it is drawn on top.
        counts: All numbers of labels.
        limits: Of the vertical axis, which panels share.
        heading: What is measured.
    """
    label_axis(axis, counts)
    axis.set_ylim(*limits)
    axis.grid(axis="y")
    axis.set_ylabel(heading)
    for line in lines:
        for part in _unbroken(line, counts):
            where, values, low, high = (column[part] for column in (line.labels, line.values, line.low, line.high))
            known, alone, look = [bool(np.isfinite(v)) for v in low], len(where) == 1, look_of(line.look)
            if alone and known[0]:
                axis.vlines(where, low, high, color=line.look.light, linewidth=1.2)
            elif not alone:
                axis.fill_between(where, low, high, where=known, color=line.look.light, alpha=0.15, linewidth=0)
            if alone:  # among lines a single point is easily missed
                look["markersize"] *= 1.6
            axis.plot(where, values, clip_on=False, **look)


def _unbroken(line: Line, counts: Sequence[int]) -> list[slice]:
    """Stretches of a line without a number of labels left out: nothing is known of what lies between others."""
    places = [list(counts).index(n) for n in line.labels]
    starts = [i for i, place in enumerate(places) if not i or place != places[i - 1] + 1]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(places)], strict=True)]


@dataclass(frozen=True)
class Mark:
    """A value with its interval."""

    row: str
    look: Look
    value: float
    low: float
    high: float
    filled: bool = True
    """Whether it is significant."""


def forest(axis: Axes, marks: Sequence[Mark], limits: tuple[float, float], heading: str, *, zero: float = 0.0) -> None:
    """Values with intervals beside each other, and the line they are compared with.

    Args:
        axis: Where to.
        marks: From top to bottom; those of one row stand together.
        limits: Of the horizontal axis, which panels share.
        heading: What is measured.
        zero: Where the line stands.
    """
    rows = list(dict.fromkeys(mark.row for mark in marks))
    axis.axvline(zero, color=INK, linewidth=1.0)
    for r, row in enumerate(rows):
        group = [mark for mark in marks if mark.row == row]
        step = min(0.24, 0.7 / len(group))
        for i, mark in enumerate(group):
            y = r + step * (i - (len(group) - 1) / 2)
            if np.isfinite(mark.low):
                axis.plot([mark.low, mark.high], [y, y], color=mark.look.light, linewidth=1.6, solid_capstyle="round")
            axis.plot(
                [mark.value], [y], linestyle="none", marker=mark.look.marker, markersize=5.5, markeredgewidth=1.2,
                markerfacecolor=mark.look.light if mark.filled else PAPER, markeredgecolor=mark.look.light,
            )  # fmt: skip
        if r:
            axis.axhline(r - 0.5, color=RULE, linewidth=0.6)
    axis.set_yticks(range(len(rows)), rows)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(*limits)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x")
    axis.set_xlabel(heading)


def shares(axis: Axes, bars: Sequence[Mark], heading: str) -> None:
    """Bars from nothing to 100 % with intervals; an end beyond what was tried is an arrow.

    Args:
        axis: Where to.
        bars: From top to bottom.
        heading: What is measured.
    """
    for y, bar in enumerate(bars):
        axis.barh(y, bar.value, height=0.52, color=bar.look.light, alpha=0.3, linewidth=0)
        low, high = (end if np.isfinite(end) else edge for end, edge in ((bar.low, 0.0), (bar.high, 100.0)))
        axis.plot([low, high], [y, y], color=bar.look.light, linewidth=1.6)
        for end, edge, marker in ((bar.low, 0.0, "<"), (bar.high, 100.0, ">")):
            if not np.isfinite(end):
                axis.plot([edge], [y], marker=marker, color=bar.look.light, markersize=5, clip_on=False)
        axis.plot([bar.value], [y], **{**look_of(bar.look), "linestyle": "none"})
    axis.set_yticks(range(len(bars)), [bar.row for bar in bars])
    axis.set(xlim=(0, 100), ylim=(len(bars) - 0.5, -0.5), xlabel=heading)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)


def losses(axis: Axes, runs: Sequence[tuple[np.ndarray, np.ndarray]], look: Look) -> None:
    """Loss over steps, one line per run.

    Args:
        axis: Where to.
        runs: Steps and losses.
        look: Of the start; runs differ in their dashes.
    """
    dashes = ((), (4.0, 1.5), (1.5, 1.5), (6.0, 1.5, 1.5, 1.5))
    for i, (steps, values) in enumerate(runs):
        dash = dashes[i % len(dashes)]
        axis.plot(
            steps, values, color=look.light, linewidth=1.3, alpha=1 - 0.18 * min(i, 3),
            linestyle=(0, dash) if dash else "-", label=f"seed {i}",
        )  # fmt: skip
    axis.grid(axis="y")
    axis.set(xlabel="step", ylabel="loss")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def confusion(axis: Axes, counts: np.ndarray, names: Sequence[str], look: Look) -> None:
    """Share of every true class that was taken for each class: as colour, and in numbers where there is room.

    Args:
        axis: Where to.
        counts: [true, predicted].
        names: Of the classes.
        look: Whose predictions.
    """
    size = len(names)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    letters = float(np.clip(80 / size, 3.6, 9.5))
    for row in range(size):
        for column in range(size):
            share = float(shares[row, column])
            if not counts[row, column]:
                continue
            axis.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=look.light, alpha=max(0.06, share), linewidth=0)
            )
            colour = PAPER if share > 0.55 else INK
            if size <= COUNTED:
                axis.text(
                    column, row - 0.14, f"{100 * share:.0f}", ha="center", va="center", fontsize=letters, color=colour
                )
                axis.text(
                    column, row + 0.27, f"{counts[row, column]:,.0f}", ha="center", va="center",
                    fontsize=0.75 * letters, color=colour,
                )  # fmt: skip
            elif size <= NUMBERED:
                axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=letters, color=colour)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal", xlabel="predicted", ylabel="true")
    longest = max(len(name) for name in names)
    fit = float(np.clip(160 / size, 5.0, 8.0))
    axis.set_xticks(range(size), names, rotation=90 if longest * size > 45 else 0, fontsize=fit)
    axis.set_yticks(range(size), names, fontsize=fit)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(True)


def balance(axis: Axes, names: Sequence[str], train: Sequence[int], test: Sequence[int]) -> None:
    """Images per class; without names where there are too many.

    Args:
        axis: Where to.
        names: Of the classes.
        train: Their training images.
        test: Their test images.
    """
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
