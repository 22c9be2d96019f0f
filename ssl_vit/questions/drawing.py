"""What stands on the axes of the questions' figures, in the letters and colours of the report. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ssl_vit.questions.scope import METHODS, NETS
from ssl_vit.report.charts.canvas import HEIGHT, Panel, look_of
from ssl_vit.report.charts.drawing import Mark, forest, to_rgb
from ssl_vit.report.charts.placing import End, Placing, logarithmic, name_ends, room
from ssl_vit.report.look import Look, looks

LOOKS: Mapping[str, Look] = looks(
    ("scratch", *METHODS, "cnn", "hybrid", "cct", "swin", "relative", "random"),
)
"""Colour and marker of everything that takes part: a network from scratch has its own, a method that of all reports."""


class Line(NamedTuple):
    """Values over something; None where there is none, and for an end that there is none of."""

    name: str
    look: Look
    x: Sequence[float]
    rows: Sequence[Mapping[str, Any]]
    """``value``, ``low``, ``high`` at every x."""
    dashed: bool = False
    """Whether it is drawn lighter and dashed, as what is not the point."""


def net_look(net: str, start: str = "scratch") -> Look:
    """Of a network or of what it begins with.

    Args:
        net: Its name.
        start: ``scratch`` or a method.
    """
    return LOOKS[NETS[net].look if start == "scratch" else start]


def lines_panel(
    title: str, lines: Sequence[Line], *, x: str, y: str, ticks: Sequence[float] | None = None, log: bool = False,
    zero: bool = False,
) -> Panel:  # fmt: skip
    """A panel of lines with bands, and their names at their ends.

    Args:
        title: Above it.
        lines: At least one with a value.
        x: Along the axis.
        y: Beside it.
        ticks: Values of x that are named; default: chosen.
        log: Whether x is logarithmic.
        zero: Whether y begins with 0.
    """
    lines = [line for line in lines if any(row["value"] is not None for row in line.rows)]
    said = "; ".join(f"{line.name} from {_ends(line)}" for line in lines)
    height = max(HEIGHT, 0.8 + room(line.name for line in lines))
    draw = partial(_lines, lines=lines, x=x, y=y, ticks=ticks, log=log, zero=zero)
    return Panel(title, draw, f"{y} over {x}: {said}.", height)


def _ends(line: Line) -> str:
    known = [row["value"] for row in line.rows if row["value"] is not None]
    return f"{known[0]:.4g} to {known[-1]:.4g}"


def _lines(
    axis: Axes, lines: Sequence[Line], x: str, y: str, ticks: Sequence[float] | None, log: bool, zero: bool
) -> Placing:
    ends: list[End] = []
    for line in lines:
        known = [(place, row) for place, row in zip(line.x, line.rows, strict=True) if row["value"] is not None]
        places, values = [place for place, _ in known], [row["value"] for _, row in known]
        low, high = ([np.nan if row[end] is None else row[end] for _, row in known] for end in ("low", "high"))
        style = look_of(line.look)
        if line.dashed:
            style |= {"linestyle": (0, (2.0, 2.0)), "linewidth": 1.2, "alpha": 0.75}
        if len(places) > 1:
            axis.fill_between(
                places, low, high, color=line.look.light, alpha=0.08 if line.dashed else 0.15, linewidth=0
            )
        else:
            axis.vlines(places, low, high, color=line.look.light, linewidth=1.2)
        axis.plot(places, values, clip_on=False, **style)
        ends.append(End(line.name, float(places[-1]), float(values[-1]), line.look))
    axis.grid(axis="y")
    axis.set(xlabel=x, ylabel=y)
    if zero:
        axis.set_ylim(bottom=0.0)
    if y.endswith("%"):  # an interval may go beyond what there is
        axis.set_ylim(max(0.0, axis.get_ylim()[0]), min(100.0, axis.get_ylim()[1]))
    axis.yaxis.set_major_locator(MaxNLocator(6))
    if log:
        logarithmic(axis, "x", most=5)
    if ticks is not None:
        axis.set_xticks(list(ticks), [f"{tick:,.6g}" for tick in ticks])
        axis.minorticks_off()
    elif not log:
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return name_ends(axis, ends)


def forest_panel(title: str, comparisons: Sequence[Mapping[str, Any]], looks_of: Sequence[Look], heading: str) -> Panel:
    """A panel of differences with intervals; filled marks are clear after adjustment.

    Args:
        title: Above it.
        comparisons: Of ``numbers.judged``, each measured.
        looks_of: Of each.
        heading: Below the axis, with the unit.
    """
    rows: dict[str, Mark] = {}
    for one, look in zip(comparisons, looks_of, strict=True):
        if one["estimate"] is not None:
            ends = [np.nan if one[end] is None else one[end] for end in ("low", "high")]
            clear = one["adjusted"] is not None and one["adjusted"] < 0.05
            rows[one["name"]] = Mark(look, one["estimate"], ends[0], ends[1], clear)
    said = "; ".join(f"{name} {mark.value:+.3g}" for name, mark in rows.items())
    return Panel(title, partial(_forest, rows=rows, heading=heading), f"{heading}: {said}.", 0.95 + 0.3 * len(rows))


def _forest(axis: Axes, rows: Mapping[str, Mark], heading: str) -> None:
    forest(axis, rows, heading)
    axis.set_ylabel("")


def maps_panel(title: str, maps: Sequence[Sequence[Sequence[float]]], grid: int, look: Look, alt: str) -> Panel:
    """A panel of small maps, one for each of some patches: how alike its position is to that of every patch.

    Args:
        title: Above it.
        maps: [M][grid][grid], of M patches row by row; M is a square number. 1 is the fullest colour, 0 none.
        grid: Patches along a side.
        look: Their colour.
        alt: In words.
    """
    return Panel(title, partial(_maps, maps=np.asarray(maps, dtype=np.float64), grid=grid, look=look), alt)


def _maps(axis: Axes, maps: np.ndarray, grid: int, look: Look) -> None:
    side, gap = round(len(maps) ** 0.5), 1
    whole = side * grid + (side - 1) * gap
    picture = np.zeros((whole, whole, 4))
    picture[..., :3] = to_rgb(look.light)
    for place, one in enumerate(maps):
        top, left = (n * (grid + gap) for n in divmod(place, side))
        # A little colour everywhere shows where a map ends.
        picture[top : top + grid, left : left + grid, 3] = 0.06 + 0.94 * np.clip(one, 0.0, 1.0)
    axis.imshow(picture, interpolation="nearest")
    axis.set_axis_off()
