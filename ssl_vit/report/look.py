"""The look of every start, on the page and in pictures: colour, marker and dash, so that it also reads in print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

from ssl_vit.methods.method import Look
from ssl_vit.methods.starts import starts as all_starts
from ssl_vit.methods.starts import untrained

LONGER = Look("#b5835a", "#c3a48c", "h", (7.0, 2.0))
"""The baseline at the cost of pre-training."""
_OTHERS = {
    "other-0": Look("#2f2aa0", "#8683f5", "p"),
    "other-1": Look("#a33b5c", "#ffb3c4", "<", (4.0, 2.0)),
    "other-2": Look("#4a8a8f", "#57c3c9", ">", (2.0, 2.0)),
    "other-3": Look("#7d2a10", "#d4694a", "*", (6.0, 2.0, 2.0, 2.0)),
    "other-4": Look("#8a33e6", "#9a44ff", "d", (4.0, 1.4, 1.2, 1.4)),
    "other-5": Look("#6aa51e", "#a5e187", "8", (3.0, 3.0)),
}


class Kind(NamedTuple):
    """What weights begin with, in few words, with the colour of its ground by day and by night."""

    name: str
    light: str
    dark: str


KINDS = {
    "none": Kind("untrained features", "#fdf0bd", "#453c12"),
    "scratch": Kind("labels only", "#e6e6ea", "#37373d"),
    "made": Kind("pre-trained here", "#d5e8fb", "#12395a"),
    "public": Kind("public weights", "#d2f1e1", "#0f4231"),
}
PRETRAINED = ("made", "public")
"""Of them those that know images before any label."""
INK, MUTED, RULE, PAPER = "#1b1b1c", "#66666b", "#d9d9de", "#fefefe"
"""Of text, lesser text, lines and ground in pictures; every colour occurs for one meaning only, so that a page can
replace it (``charts.for_page``)."""
DARK = "#e9e9ec", "#161618"
"""Ink and paper of the page at night."""


def looks(starts: Iterable[str]) -> dict[str, Look]:
    """One look each; a method on another network has its colour with another marker and dash.

    Starts with names of their own (ordinary runs) share six.
    """
    known, others, found = palette(), cycle(_OTHERS.values()), dict[str, Look]()
    for start in starts:
        own, spare = known.get(start.partition("@")[0]), known.get(start) or next(others)
        found[start] = own._replace(marker=spare.marker, dash=spare.dash) if own else spare
    return found


def kind_of(start: str) -> str:
    """Of ``KINDS``: what a start's weights begin with, whatever its network."""
    known = all_starts().get(re.split(r"@| \(", start)[0])
    if known is not None and known.pretrained:
        return "made" if known.made else "public"
    return "none" if known is not None and known.name in untrained() else "scratch"


def palette() -> dict[str, Look]:
    """Every look by the name that its colour has on the page."""
    own = {name: start.look for name, start in all_starts().items() if start.look is not None}
    return own | _OTHERS | {"longer": LONGER}
