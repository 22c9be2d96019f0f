"""Charts, drawn twice: as SVG for the page, which colours them by its own variables, and as one PNG for Markdown."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import zip_longest
from math import ceil
from typing import Any, NamedTuple, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ssl_vit.report.charts.placing import Placing, settle
from ssl_vit.report.look import INK, MUTED, PAPER, RULE, Look, palette

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9.5, "svg.fonttype": "none",
    "svg.hashsalt": "ssl_vit", "text.parse_math": False,
    "text.color": INK, "axes.edgecolor": RULE, "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10.0,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 8.0, "axes.titlecolor": INK,
    "axes.axisbelow": True, "xtick.color": RULE, "ytick.color": RULE, "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED, "xtick.labelsize": 9.0, "ytick.labelsize": 9.0, "xtick.major.size": 3.0,
    "ytick.major.size": 0.0, "xtick.minor.size": 0.0, "ytick.minor.size": 0.0, "grid.color": RULE,
    "grid.linewidth": 0.6, "lines.linewidth": 1.8,
}  # fmt: skip
WIDTH, HEIGHT, LOW = 4.1, 3.1, 2.6
"""Of a panel, and the height of a low one, in inches: letters are legible where the page is as narrow as a phone."""


class Panel(NamedTuple):
    """One plot."""

    title: str
    draw: Callable[[Axes], Placing | None]
    """May leave what is to be put in place once the layout is known."""
    alt: str
    """What it shows, in words."""
    height: float = HEIGHT
    """In inches."""


class Chart(NamedTuple):
    """Panels that belong together."""

    name: str
    alt: str
    svgs: tuple[str, ...]
    png: bytes


def look_of(kind: Look) -> dict[str, Any]:
    """A line's style."""
    thin = kind.marker in "XP"  # an edge would eat them up
    return {
        "color": kind.light, "marker": kind.marker, "markeredgewidth": 0.4 if thin else 0.8, "markeredgecolor": PAPER,
        "markersize": 6.0 if thin or kind.marker in "^v<>*" else 4.8,
        "linestyle": (0, kind.dash) if kind.dash else "-",
    }  # fmt: skip


@contextmanager
def styled() -> Generator[None, None, None]:
    """The letters and lines of all charts."""
    with matplotlib.rc_context(cast("Any", _STYLE)), warnings.catch_warnings():
        # The page writes names of any script with the reader's letters; matplotlib's own lack some.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def make_chart(name: str, panels: Sequence[Panel], columns: int = 3) -> Chart:
    """Draws panels twice: each alone for the page, and all of them beside each other in one picture."""
    with styled():
        svgs = tuple(_svg(panel, f"{name}-{i}") for i, panel in enumerate(panels))
        png = _png(panels, columns)
    return Chart(name, " ".join(panel.alt for panel in panels), svgs, png)


def _svg(panel: Panel, name: str) -> str:
    file = io.StringIO()
    figure_of([panel], 1).savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return for_page(file.getvalue(), name, f"{panel.title}: {panel.alt}")


def _png(panels: Sequence[Panel], columns: int) -> bytes:
    figure, file = figure_of(panels, columns), io.BytesIO()
    figure.savefig(file, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return file.getvalue()


def figure_of(panels: Sequence[Panel], columns: int = 3) -> Figure:
    """Panels in rows of up to so many, laid out; within ``styled``."""
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Figure((WIDTH * columns, max(panel.height for panel in panels) * rows), layout="constrained")
    titles: dict[Axes, Text] = {}
    placings: list[Placing | None] = []
    for axis, panel in zip_longest(figure.subplots(rows, columns, squeeze=False).ravel(), panels):
        if panel is None:
            axis.set_visible(False)
        else:
            titles[axis] = axis.set_title(panel.title)
            placings.append(panel.draw(axis))
    settle(figure, titles, columns, [place for place in placings if place])
    return figure


def for_page(svg: str, name: str, alt: str) -> str:
    """An SVG document as part of a page: its colours and letters are the page's, its ids begin with its name."""
    box = re.findall(r'viewBox="([^"]+)"', svg)[0]
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", body, flags=re.S)
    colours = {look.light: f"var(--c-{name})" for name, look in palette().items()}
    colours |= {INK: "var(--ink)", MUTED: "var(--muted)", RULE: "var(--rule)", PAPER: "var(--paper)"}

    def of_the_page(tag: re.Match[str]) -> str:
        told = tag[0]
        for pattern, new in (
            (r'\bid="([^"]+)"', rf'id="{name}-\1"'),
            (r"url\(#([^)]+)\)", rf"url(#{name}-\1)"),
            (r'(?:xlink:)?href="#([^"]+)"', rf'href="#{name}-\1"'),
            (r"font-family: [^;\"]+", "font-family: var(--sans)"),
            (r"(font: [^;\"]*?\dpx) [^;\"]+", r"\1 var(--sans)"),
        ):
            told = re.sub(pattern, new, told)
        for colour, variable in colours.items():
            told = told.replace(f": {colour}", f": {variable}")
        return told

    # Inside tags alone: the words between them may look like anything.
    body = re.sub(r"\n\s*", "\n", re.sub(r"<[^>]*>", of_the_page, body))
    # The words last, and not through a pattern: nothing in a class's name may be taken for one.
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(alt)}">{body.strip()}'
