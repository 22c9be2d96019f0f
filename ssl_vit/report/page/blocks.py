"""What a report is made of, page or Markdown: these blocks, charts and tables; empty ones are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

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


Block = Words | Bullets | Table | Chart | Checks | Gallery | Pairs | Thumbnails | Code | Fold


class Section(NamedTuple):
    """Blocks under a heading."""

    key: str
    title: str
    blocks: Sequence[Block]


class Page(NamedTuple):
    """A whole report."""

    title: str
    sentence: str
    """The verdict."""
    beside: tuple[str, ...]
    """The verdict on other starts, and what it stands on."""
    refused: bool
    """Whether there is no verdict on anything."""
    sections: Sequence[Section]
    notes: Sequence[Words] = ()
    numbers: Sequence[tuple[str, str]] = ()
    """Values and what they are."""
    looks: Mapping[str, Look] = MappingProxyType({})
    question: str = "Does pre-training pay?"
    """What it is about, whatever the images."""
