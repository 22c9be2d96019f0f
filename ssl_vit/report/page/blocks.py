"""What a report is made of, page or Markdown: these blocks, charts and tables; empty ones are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ssl_vit.core.glossary import Word
from ssl_vit.methods.method import Look
from ssl_vit.report.cells import Table
from ssl_vit.report.charts.canvas import Chart
from ssl_vit.report.findings.contract import Item


class Words(NamedTuple):
    """A paragraph."""

    text: str
    warning: bool = False
    note: bool = False
    """Whether it is about what stands above it."""


class Choice(NamedTuple):
    """What to use with a number of labels."""

    labels: int
    start: str
    """Whose marker stands in front."""
    name: str
    """Of the start."""
    use: str
    """How its labels are used."""
    kind: str
    """Of ``look.KINDS``: the colour of the cell, and words in it."""
    value: str
    span: str
    """What to expect, and its interval; empty for none."""
    beside: str
    """How many others may be as good, in words."""
    doubt: str
    """Why it is weak; empty where it is not."""


class Strip(tuple[Choice, ...]):
    """What to use with any number of labels, the fewest first."""


class Bullets(tuple[str, ...]):
    """Sentences, each for itself."""


class Checks(tuple[Item, ...]):
    """The contract."""


class Picture(NamedTuple):
    """A PNG, or what is known of one that is missing."""

    title: str
    caption: str
    png: bytes


class Gallery(tuple[Picture, ...]):
    """Pictures below or beside each other."""


class Pairs(tuple[tuple[str, Picture, Picture], ...]):
    """Two pictures beside each other that are too much alike, with what they have in common."""


class Thumbnail(NamedTuple):
    """A small picture, with shares of a whole as bars below it."""

    picture: Picture
    shares: Sequence[tuple[str, float]]
    """What they are of, and how large, in [0, 1]."""


class Thumbnails(tuple[Thumbnail, ...]):
    """Small pictures beside and below each other."""


class Code(str):
    """Text as it is."""


class Fold(NamedTuple):
    """What only some want to see; Markdown and paper leave it out."""

    title: str
    blocks: Sequence[Block]


class Glossary(tuple[Word, ...]):
    """House words, each with its meaning."""


Block = Words | Strip | Bullets | Table | Chart | Checks | Gallery | Pairs | Thumbnails | Code | Fold | Glossary


class Section(NamedTuple):
    """Blocks under a heading."""

    key: str
    title: str
    blocks: Sequence[Block]


class Page(NamedTuple):
    """A whole report."""

    title: str
    sentence: str
    """What it says, first."""
    beside: tuple[str, ...]
    """What it says further, and what that stands on."""
    refused: bool
    """Whether something was stopped."""
    sections: Sequence[Section]
    strip: Strip = Strip()
    """Below the sentence."""
    notes: Sequence[Words] = ()
    numbers: Sequence[tuple[str, str]] = ()
    """Values and what they are."""
    looks: Mapping[str, Look] = MappingProxyType({})
    question: str = "What should I do with these images?"
    """What it is about, whatever the images."""
