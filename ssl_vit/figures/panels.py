"""The common look of all pictures, and a sheet of square panels under a title and a note."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.figures.words import drawable

LINE, MUTED = "#1a1a1a", "#6b6b6b"
RIGHT, WRONG = "#1f6fb2", "#c2410c"  # blue and orange, which people of any colour vision tell apart
_TITLE, _NOTE = 11.5, 9.0  # points


@dataclass(frozen=True)
class Sheet:
    """Square panels in rows and columns."""

    figure: Figure
    axes: np.ndarray
    """[rows, columns] of ``Axes``."""
    side: float
    """Of a panel, in inches."""

    def draw(self, row: int, column: int, image: np.ndarray, **style: Any) -> None:
        """One panel; pixels stay squares where they are enlarged three times or more, else they are averaged."""
        axis = self.axes[row, column]
        axis.imshow(image, interpolation="antialiased", **style)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(color="#cccccc", linewidth=0.6)

    def name_row(self, row: int, words: str, column: int = 0) -> None:
        """To the left of it, or of another panel than its first."""
        self.axes[row, column].set_ylabel(
            words, rotation=0, ha="right", va="center", fontsize=9, color=LINE, labelpad=8, parse_math=False
        )

    def name_column(self, column: int, words: str) -> None:
        """Above it."""
        self.axes[0, column].set_title(words, fontsize=9, color=LINE, pad=5)

    def surround(self, row: int, column: int, colour: str, *, dashed: bool) -> None:
        """A line around a panel, outside it: solid and thin, or dashed and thick."""
        out = 2.5 / 72 / self.side
        style: dict[str, Any] = {"linewidth": 1.7, "linestyle": (0, (4.0, 1.6))} if dashed else {"linewidth": 1.1}
        axis = self.axes[row, column]
        around = Rectangle((-out, -out), 1 + 2 * out, 1 + 2 * out, transform=axis.transAxes, clip_on=False)
        around.set(fill=False, edgecolor=colour, **style)
        axis.add_patch(around)

    def describe(self, row: int, column: int, lines: list[tuple[str, str]]) -> None:
        """Lines of words under a panel, each with its colour; nothing in them is taken for a formula."""
        canvas = self.figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        for number, (words, colour) in enumerate(lines):
            text = self.axes[row, column].annotate(
                words, (0.5, 0.0), (0.0, -5.0 - 11.0 * number), "axes fraction", "offset points", ha="center", va="top",
                fontsize=8, color=colour, parse_math=False,
            )  # fmt: skip
            share = text.get_window_extent(canvas.get_renderer()).width / (self.side * self.figure.dpi)
            text.set_fontsize(8 / max(1.0, share))  # where many letters are wide

    def colour_bar(self, label: str, *, more: bool = True) -> None:
        """Of the last panel's colours, beside all panels and as high; a pointed end stands for all that is more."""
        first, last = self.axes[0, -1].get_position(), self.axes[-1, -1].get_position()
        width, height = self.figure.get_size_inches()
        beside = self.figure.add_axes((first.x1 + 0.2 / width, last.y0, 0.16 / width, first.y1 - last.y0))
        point = 0.08 / (height * (first.y1 - last.y0))
        end = "max" if more else "neither"
        bar = self.figure.colorbar(self.axes[-1, -1].images[0], cax=beside, extend=end, extendfrac=point)
        bar.set_label(label, fontsize=9.5, color=LINE, labelpad=8)
        beside.tick_params(length=0, labelsize=9, labelcolor=MUTED)
        beside.spines[:].set_visible(False)

    def save(self, path: Path) -> None:
        """Writes the PNG, whole or not at all."""
        file = io.BytesIO()
        self.figure.savefig(file, facecolor="white")
        plt.close(self.figure)
        write_bytes_atomically(path, file.getvalue())


def sheet(
    rows: int, columns: int, *, title: str, notes: Sequence[str], left: float = 0.2, right: float = 0.2,
    under: float = 0.0, head: float = 0.0, apart: float = 0.0, gap: float = 0.08,
) -> Sheet:  # fmt: skip
    """Empty panels, at least 1.15 inches and larger where there are few, below a title and a note.

    Args:
        rows: Panels from top to bottom.
        columns: Panels from left to right.
        title: Wrapped at the sheet's width, as the notes are.
        notes: What is shown, and how it is to be read; empty ones are left out.
        left: Inches beside the panels, for words.
        right: Inches beside the panels, for a colour bar.
        under: Inches under every row, for words.
        head: Inches above the first row, for words.
        apart: More inches between the first column and the others, for words.
        gap: Inches between panels.
    """
    side = float(np.clip(6.9 / max(rows, columns), 1.15, 2.3))
    across, down = columns * (side + gap) - gap + apart, rows * (side + gap + under) - gap
    letters = (across + right - 0.2) * 72 / 0.51  # of one point that fit beside each other
    texts = [
        (textwrap.wrap(re.sub(r"(?<=\d) x (?=\d)", "\xa0x\xa0", drawable(text)), int(letters / size)), size, colour)
        for text, size, colour in ((title, _TITLE, LINE), (" ".join(filter(None, notes)), _NOTE, MUTED))
    ]
    top = 0.3 + sum(len(lines) * size * 1.4 / 72 for lines, size, _ in texts)
    width, height = left + across + right, top + head + down + 0.2
    figure = plt.figure(figsize=(width, height), dpi=160)
    y = height - 0.15
    for lines, size, colour in texts:
        figure.text(
            left / width, y / height, "\n".join(lines), fontsize=size, color=colour, va="top", linespacing=1.25,
            parse_math=False,
        )  # fmt: skip
        y -= len(lines) * size * 1.4 / 72 + 0.03
    axes = np.empty((rows, columns), dtype=object)
    for row, column in np.ndindex(rows, columns):
        low = height - top - head - row * (side + gap + under) - side
        place = (left + column * (side + gap) + (apart if column else 0.0), low, side, side)
        axes[row, column] = figure.add_axes(tuple(np.array(place) / (width, height, width, height)))
    return Sheet(figure, axes, side)
