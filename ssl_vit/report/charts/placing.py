"""Where words go once it is known where axes lie: names at the ends of lines, titles that fit, ticks apart."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from ssl_vit.report.look import INK, Look

Placing = Callable[[], None]
"""Moves what a panel has drawn to its place; called whenever the layout has changed."""
_LETTERS, _SIZE, _LINE = 17, 8.5, 11.0
"""Letters of a line of a name beside an axis, their size in points, and points from one line to the next."""
_LEAST = 8
"""Letters of a line below which no word is broken."""
_AWAY = 18.0
"""Points from an axis to the names beside it: a line leads there."""
_BREAKS = (r"(?<=[=,+/])|(?<=-)(?=seed)", r"(?<=-)(?!-)", r"(?<=_)(?!_)")
"""Where a word that is too long is broken: between options, names and seeds; else behind hyphens; else behind _."""
_APART = 4.0
"""Points between two ticks' names, at least."""
_NICE = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""Numbers of a decade that a logarithmic axis may name, from many to few."""


class End(NamedTuple):
    """The end of a line, in data, and what the line is called."""

    name: str
    x: float
    y: float
    look: Look
    aside: float = 0.0
    """Points that it is drawn to the right of its place."""


def wrapped(name: str, letters: int = _LETTERS) -> str:
    """A name in lines of at most so many letters; longer words are broken between their parts, or anywhere."""
    lines = [""]
    for word in name.split():
        for number, part in enumerate(_parts(word, letters, _BREAKS)):
            gap = " " if lines[-1] and not number else ""
            if len(lines[-1] + gap + part) > letters and lines[-1]:
                lines.append("")
                gap = ""
            lines[-1] += gap + part
            while len(lines[-1]) > letters:
                lines[-1:] = [lines[-1][:letters], lines[-1][letters:]]
    return "\n".join(lines)


def _parts(word: str, letters: int, breaks: Sequence[str]) -> list[str]:
    """Parts of a word of at most so many letters, where its breaks leave such."""
    if len(word) <= letters or not breaks:
        return [word]
    return [small for part in re.split(breaks[0], word) if part for small in _parts(part, letters, breaks[1:])]


def room(names: Iterable[str]) -> float:
    """Inches beside an axis for names one below the other, of which they take three quarters."""
    return _LINE * sum(wrapped(name).count("\n") + 1 for name in names) / (0.75 * 72)


def spread(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Middles of boxes, as near as possible to where they are wanted, of which none lies over another.

    The sum of squared distances is the least that keeps their order (isotonic regression), within ``low`` and ``high``
    where they fit there.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    below, total = np.zeros(len(wanted)), 0.0
    for i in order:
        below[i], total = total + heights[i] / 2, total + heights[i]
    blocks: list[tuple[float, int]] = []  # mean and number of boxes that touch
    for i in order:
        mean, count = float(wanted[i] - below[i]), 1
        while blocks and blocks[-1][0] >= mean:
            before, others = blocks.pop()
            mean, count = (mean * count + before * others) / (count + others), count + others
        blocks.append((mean, count))
    found = [mean for mean, count in blocks for _ in range(count)]
    moved = dict(zip(order, np.clip(found, low, max(low, high - total)).tolist(), strict=True))
    return [moved[i] + float(below[i]) for i in range(len(wanted))]


def name_ends(axis: Axes, ends: Sequence[End]) -> Placing:
    """Writes names to the right of an axis, each with its line's marker; a line leads from its end to it."""
    texts = [
        axis.annotate(wrapped(end.name), (1.0, end.y), (_AWAY, 0.0), ("axes fraction", "data"), "offset points",
                      va="center", fontsize=_SIZE, color=INK, linespacing=1.15, annotation_clip=False)
        for end in ends
    ]  # fmt: skip
    leads = LineCollection([], transform=axis.transAxes, clip_on=False, linewidths=0.8, linestyles="dotted", alpha=0.6)
    axis.add_collection(leads, autolim=False)
    marks = [
        axis.scatter([1.0], [0.5], s=20.0, marker=end.look.marker, color=end.look.light, transform=axis.transAxes,
                     clip_on=False, linewidth=0)
        for end in ends
    ]  # fmt: skip

    def place() -> None:
        box, point = axis.get_window_extent(), cast(Figure, axis.get_figure(root=True)).dpi / 72
        places = [np.add(axis.transData.transform((end.x, end.y)), (end.aside * point, 0.0)) for end in ends]
        heights = [_LINE * point * (text.get_text().count("\n") + 1) for text in texts]
        middles = spread([y for _, y in places], heights, box.y0, box.y1 + 0.5 * _LINE * point)
        lines: list[list[tuple[float, float]]] = []
        for text, mark, (x, y), middle in zip(texts, marks, places, middles, strict=True):
            text.xyann = (_AWAY, float(middle - y) / point)
            there = (1 + (_AWAY - 5.0) * point / box.width, (middle - box.y0) / box.height)
            mark.set_offsets([there])
            lines.append([((x - box.x0) / box.width, (y - box.y0) / box.height), there])
        leads.set_segments(lines)
        leads.set_color([end.look.light for end in ends])

    return place


def settle(figure: Figure, titles: Mapping[Axes, Text], columns: int, placings: Sequence[Placing]) -> None:
    """Lays a figure out, and puts in place what depends on where its axes lie; again, where words had to be broken.

    Args:
        figure: With everything drawn.
        titles: Of its axes, row by row.
        columns: Of axes in a row.
        placings: Of what is drawn in them.
    """
    width, moved = figure.bbox.width / columns, True
    while moved:
        figure.draw_without_rendering()
        moved = False
        for number, (axis, title) in enumerate(titles.items()):
            box, left = axis.get_window_extent(), width * (number % columns)
            middle = (box.x0 + box.x1) / 2
            moved |= _break(title, left + width - box.x0)
            moved |= _break(axis.xaxis.label, 2 * min(middle - left, left + width - middle))
            if isinstance(axis.xaxis.get_major_locator(), ticker.FixedLocator):
                _thin(axis, figure.dpi / 72)
        for place in placings:
            place()


def _break(text: Text, room: float) -> bool:
    """Breaks words that are wider than their room in pixels; whether they were."""
    words, wide = text.get_text(), text.get_window_extent().width
    letters = max(map(len, words.split("\n")))
    if wide <= room or letters <= _LEAST:
        return False
    text.set_text(wrapped(words, max(_LEAST, min(letters - 1, int(letters * room / wide)))))
    return text.get_text() != words


def _thin(axis: Axes, point: float) -> None:
    """Leaves out names of ticks that would touch the next one, never the last; a point is so many pixels."""
    labels, edge, kept = axis.get_xticklabels(), math.inf, list[str]()
    for label in reversed(labels):
        box, words = label.get_window_extent(), label.get_text()
        touches = box.x1 + _APART * point > edge
        kept.insert(0, "" if touches else words)
        edge = edge if touches or not words else box.x0
    if kept != [label.get_text() for label in labels]:
        axis.set_xticks(axis.get_xticks(), kept, rotation=labels[0].get_rotation(), fontsize=labels[0].get_fontsize())


def is_wide(values: Sequence[float] | np.ndarray) -> bool:
    """Whether positive numbers span so much (a factor of two) that a linear axis hides most of them."""
    known = np.asarray(values, dtype=np.float64)
    return bool(len(known) and known.min() > 0 and known.max() >= 2 * known.min())


def falls_early(steps: np.ndarray, values: np.ndarray) -> bool:
    """Whether half of what changes over positive steps does so in their first tenth."""
    if len(steps) < 10 or steps[0] <= 0 or steps[-1] < 10 * steps[0]:
        return False
    changed = np.abs(values - values[0])
    early = changed[steps <= steps[0] + 0.1 * (steps[-1] - steps[0])]
    return bool(early.max() >= 0.5 * changed.max() > 0)


def logarithmic(axis: Axes, which: str, *, most: int = 6) -> None:
    """Makes an axis logarithmic, with ticks at round numbers and plain numbers beside them.

    Args:
        axis: With its data drawn.
        which: ``x`` or ``y``.
        most: Ticks at most.
    """
    getattr(axis, f"set_{which}scale")("log")
    low, high = getattr(axis, f"get_{which}lim")()
    getattr(axis, f"set_{which}ticks")(ticks := round_numbers(low, high, most), [f"{tick:,.6g}" for tick in ticks])
    axis.minorticks_off()


def round_numbers(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two positive ones: as many as there may be, for an axis that is logarithmic."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [[digit * 10.0**e for e in decades for digit in digits] for digits in _NICE]
    choices += [[10.0**e for e in decades[::stride]] for stride in (2, 3, 5, 10)]
    found = next(f for choice in choices if len(f := [v for v in choice if low <= v <= high]) <= most)
    if len(found) > 1:
        return found
    return [float(v) for v in ticker.MaxNLocator(4).tick_values(low, high) if low <= v <= high]
