"""What stands on the axes of a report's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ssl_vit.report.charts.canvas import look_of
from ssl_vit.report.charts.placing import End, Placing, falls_early, is_wide, logarithmic, name_ends
from ssl_vit.report.look import DARK, INK, PAPER, Look

COUNTED, NUMBERED = 12, 15
"""Classes up to which a confusion matrix has room for counts and percentages, and for percentages."""
_ASIDE = 7.0
"""Points that a single mark stands right of its place: there it would lie on a line's."""
_RING: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markersize": 11.0, "markerfacecolor": "none", "markeredgecolor": INK,
    "markeredgewidth": 1.0,
}  # fmt: skip


class Mark(NamedTuple):
    """A value with its interval; NaN for an end that there is none of."""

    look: Look
    value: float
    low: float
    high: float
    stressed: bool = False
    """Whether it is advised, or significant: ringed on a line, filled in a row."""


class Line(NamedTuple):
    """One method over the number of labels."""

    name: str
    look: Look
    points: Mapping[int, Mark]

    def stretches(self, counts: Sequence[int]) -> list[list[int]]:
        """Numbers of labels that follow each other without a gap."""
        gaps = [-1, *(i for i, n in enumerate(counts) if n not in self.points), len(counts)]
        return [list(counts[start + 1 : end]) for start, end in pairwise(gaps) if end > start + 1]


def label_axis(axis: Axes, counts: Sequence[int]) -> None:
    """Numbers of labels along a logarithmic axis."""
    axis.set_xscale("log")
    low, high = min(counts), max(counts)
    margin = 1.35 if low == high else (high / low) ** 0.04
    axis.set_xlim(low / margin, high * margin)
    axis.set_xticks(list(counts), [f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.set_xlabel("labelled training images")


def curves(
    axis: Axes, lines: Sequence[Line], counts: Sequence[int], limits: tuple[float, float], heading: str
) -> Placing:
    """Curves over the number of labels with bands and names, the last on top; broken where one lacks a number."""
    label_axis(axis, counts)
    axis.set_ylim(*limits)
    axis.grid(axis="y")
    axis.set_ylabel(heading)
    axis.yaxis.set_major_locator(MaxNLocator(6))
    aside = axis.transData + ScaledTranslation(
        _ASIDE / 72, 0.0, cast(Figure, axis.get_figure(root=True)).dpi_scale_trans
    )
    for line in lines:
        for where in line.stretches(counts):
            _, values, low, high, ringed = zip(*(line.points[n] for n in where), strict=True)
            colour, look, known = line.look.light, look_of(line.look), np.isfinite(low).tolist()
            if len(where) > 1:
                axis.fill_between(where, low, high, where=known, color=colour, alpha=0.15, linewidth=0)
            else:
                look |= {"markersize": 1.4 * look["markersize"], "transform": aside}  # easily missed among lines
                if known[0]:
                    axis.vlines(where, low, high, color=colour, linewidth=1.2, transform=aside, clip_on=False)
            axis.plot(where, values, clip_on=False, **look)
            if any(ringed):
                axis.plot(where, values, markevery=np.flatnonzero(ringed).tolist(), clip_on=False, **(look | _RING))
    return name_ends(axis, [_end(line, counts) for line in lines])


def _end(line: Line, counts: Sequence[int]) -> End:
    *_, last = line.stretches(counts)
    aside = _ASIDE if len(last) == 1 else 0.0
    return End(line.name, float(last[-1]), line.points[last[-1]].value, line.look, aside)


def forest(axis: Axes, rows: Mapping[str, Mark], heading: str) -> None:
    """Differences with intervals by row, and the line of none."""
    axis.axvline(0.0, color=INK, linewidth=1.0)
    for y, mark in enumerate(rows.values()):
        colour = mark.look.light
        if np.isfinite(mark.low):
            axis.plot([mark.low, mark.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="round")
        axis.plot(
            [mark.value], [y], linestyle="none", marker=mark.look.marker, markersize=6.5, markeredgewidth=1.2,
            markerfacecolor=colour if mark.stressed else PAPER, markeredgecolor=colour,
        )  # fmt: skip
    axis.set_yticks(range(len(rows)), [*rows])
    axis.set(ylim=(len(rows) - 0.5, -0.5), xlabel=heading, ylabel="labels")
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x")
    axis.margins(x=0.08)
    axis.xaxis.set_major_locator(MaxNLocator(5))


def losses(axis: Axes, runs: Sequence[tuple[str, np.ndarray, np.ndarray]], look: Look) -> Placing | None:
    """Losses over steps: a line per run (its name, steps, values), each lighter than the one before."""
    for i, (_, steps, values) in enumerate(runs):
        axis.plot(steps, values, color=look.light, linewidth=1.2, alpha=max(0.25, 1 - 0.3 * i))
    scaled(axis, [run[1:] for run in runs])
    axis.set(xlabel="step", ylabel="loss")
    if len(runs) == 1:
        return None
    return name_ends(axis, [End(name, float(steps[-1]), float(values[-1]), look) for name, steps, values in runs])


def scaled(
    axis: Axes, lines: Sequence[tuple[np.ndarray, np.ndarray]], *, early: bool = True, wide: bool = True
) -> None:
    """Axes on which most of what lines do is seen: logarithmic where values span much, or change early.

    Either may be ruled out: steps that begin with 0, values of which differences count.
    """
    wide = wide and is_wide(np.concatenate([values for _, values in lines]))
    axis.grid(axis="y")
    if wide:
        logarithmic(axis, "y")
    else:
        axis.yaxis.set_major_locator(MaxNLocator(6))
    if early and all(falls_early(steps, np.log(own) if wide else own) for steps, own in lines):
        logarithmic(axis, "x", most=5)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))


def confusion(axis: Axes, counts: np.ndarray, names: Sequence[str], look: Look) -> None:
    """Share of counts [true, predicted] in each true class: as colour, and in numbers where there is room."""
    size = len(names)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    letters = float(np.clip(80 / size, 3.6, 9.5))
    for row, column in np.argwhere(counts).tolist():
        share = float(shares[row, column])
        place, alpha = (column - 0.5, row - 0.5), max(0.06, share)
        axis.add_patch(Rectangle(place, 1, 1, facecolor=look.light, alpha=alpha, linewidth=0))
        per_cent = f"{100 * share:.0f}" if share >= 0.005 else "<1"
        words = [(-0.14, per_cent, letters), (0.27, f"{counts[row, column]:,.0f}", 0.75 * letters)]
        if size > COUNTED:
            words = [(0.0, per_cent, letters)] if size <= NUMBERED else []
        for below, text, high in words:
            axis.text(column, row + below, text, ha="center", va="center", fontsize=high, color=legible(look, alpha))
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal", xlabel="predicted", ylabel="true")
    upright = max(len(name) for name in names) * size > 45
    fit = float(np.clip(160 / size, 5.0, 8.0))
    axis.set_xticks(range(size), names, rotation=90 if upright else 0, fontsize=fit)
    axis.set_yticks(range(size), names, fontsize=fit)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(True)


def legible(look: Look, alpha: float) -> str:
    """The colour of letters, ink's or paper's, that is read best on so much of a colour, by day and by night."""

    def least(letters: int) -> float:
        grounds = ((look.light, (INK, PAPER)), (look.dark, DARK))
        mixed = ((alpha * to_rgb(colour) + (1 - alpha) * to_rgb(two[1]), two) for colour, two in grounds)
        return min(contrast(ground, to_rgb(two[letters])) for ground, two in mixed)

    return INK if least(0) >= least(1) else PAPER


def to_rgb(colour: str) -> np.ndarray:
    """``#rrggbb`` as three numbers in [0, 1]."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """Of two colours as numbers in [0, 1], by WCAG: 1 for equal ones, 21 for black on white."""
    both = np.array([one, other])
    linear = np.where(both <= 0.04045, both / 12.92, ((both + 0.055) / 1.055) ** 2.4)
    dark, light = np.sort(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return float((light + 0.05) / (dark + 0.05))
