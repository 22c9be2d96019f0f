"""What a report is made of, whether it becomes a page or Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ssl_vit.report.cells import Table
from ssl_vit.report.charts.canvas import Chart
from ssl_vit.report.findings.contract import Item
from ssl_vit.report.look import Look


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str
    warning: bool = False
    note: bool = False
    """Whether it is about what stands above it."""
    kind: ClassVar[str] = "words"


@dataclass(frozen=True)
class Bullets:
    """Sentences, each for itself."""

    lines: tuple[str, ...]
    kind: ClassVar[str] = "bullets"


@dataclass(frozen=True)
class Grid:
    """A table."""

    table: Table
    head: str = ""
    kind: ClassVar[str] = "grid"


@dataclass(frozen=True)
class Plot:
    """Charts under a legend."""

    chart: Chart
    legend: tuple[tuple[str, Look], ...] = ()
    kind: ClassVar[str] = "plot"


@dataclass(frozen=True)
class Checks:
    """The contract."""

    items: tuple[Item, ...]
    kind: ClassVar[str] = "checks"


@dataclass(frozen=True)
class Picture:
    """A PNG, or what is known of one that is missing."""

    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Gallery:
    """Pictures below or beside each other."""

    pictures: tuple[Picture, ...]
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Pairs:
    """Two pictures beside each other that are too much alike."""

    pairs: tuple[tuple[str, Picture, Picture], ...]
    """With what they have in common."""
    kind: ClassVar[str] = "pairs"


@dataclass(frozen=True)
class Code:
    """Text as it is."""

    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True)
class Fold:
    """What only some want to see; Markdown leaves it out."""

    title: str
    blocks: tuple[Block, ...]
    printed: bool = False
    """Whether it also stands on paper."""
    kind: ClassVar[str] = "fold"


Block = Words | Bullets | Grid | Plot | Checks | Gallery | Pairs | Code | Fold


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    sentence: str
    """The verdict."""
    beside: tuple[str, ...]
    """The verdict on other starts, and what it stands on."""
    refused: bool
    """Whether there is no verdict on anything."""
    notes: tuple[Words, ...]
    numbers: tuple[tuple[str, str], ...]
    """Values and what they are."""
    sections: tuple[Section, ...]
    looks: dict[str, Look] = field(default_factory=dict)
    question: str = "Does pre-training pay?"
    """What it is about, whatever the images."""
