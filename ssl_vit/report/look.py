"""The look of every start, on the page and in pictures: colour, marker and dash, so that it also reads in print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ssl_vit.methods.starts import starts as all_starts


class Look(NamedTuple):
    """How one start is drawn everywhere."""

    css: str
    """Name of its colour on the page: ``var(--c-NAME)``."""
    light: str
    dark: str
    marker: str
    dash: tuple[float, ...]
    """Lengths of strokes and gaps; empty for a full line."""


_OTHERS = (
    Look("other-0", "#4b4fb0", "#a3a7ff", "p", ()),
    Look("other-1", "#7a5230", "#d6a57c", "<", (4.0, 2.0)),
    Look("other-2", "#00737a", "#4fd0d8", ">", (2.0, 2.0)),
    Look("other-3", "#a32036", "#ff8fa0", "*", (6.0, 2.0, 2.0, 2.0)),
)

LONGER = Look("longer", "#6b4a2f", "#cdb49d", "h", (7.0, 2.0))
"""The baseline at the cost of pre-training."""

INK, MUTED, RULE, PAPER = "#1b1b1c", "#66666b", "#d9d9de", "#fefefe"
"""Of text, lesser text, lines and ground in pictures; every colour occurs for one meaning only, so that a page can
replace it (``charts.for_page``)."""


def looks(starts: Iterable[str]) -> dict[str, Look]:
    """One look each; starts with names of their own (ordinary runs) share four."""
    found: dict[str, Look] = {}
    known = _known()
    others = 0
    for start in starts:
        if start in known:
            found[start] = known[start]
        else:
            found[start] = _OTHERS[others % len(_OTHERS)]
            others += 1
    return found


def _known() -> dict[str, Look]:
    """Of starts that have a look of their own."""
    return {name: Look(name, *start.look) for name, start in all_starts().items() if start.look is not None}


def palette() -> dict[str, tuple[str, str]]:
    """Every colour of a start by its name on the page: light and dark."""
    return {look.css: (look.light, look.dark) for look in (*_known().values(), *_OTHERS, LONGER)}


SHAPES = {
    "o": "M5 1a4 4 0 1 0 0 8a4 4 0 1 0 0-8z",
    "s": "M1.5 1.5h7v7h-7z",
    "D": "M5 .5L9.5 5L5 9.5L.5 5z",
    "X": "M2 .5L5 3.5L8 .5L9.5 2L6.5 5L9.5 8L8 9.5L5 6.5L2 9.5L.5 8L3.5 5L.5 2z",
    "^": "M5 1L9.5 9H.5z",
    "v": "M5 9L.5 1H9.5z",
    "P": "M3.5 .5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "p": "M5 .5L9.5 3.9L7.8 9.3H2.2L.5 3.9z",
    "h": "M5 .5L9 2.75V7.25L5 9.5L1 7.25V2.75z",
    "<": "M1 5L9 .5V9.5z",
    ">": "M9 5L1 .5V9.5z",
    "*": "M5 .5L6.3 3.8L9.6 4L7 6.2L7.9 9.5L5 7.6L2.1 9.5L3 6.2L.4 4L3.7 3.8z",
}
"""matplotlib's markers as SVG paths in a square of 10."""
