"""What the doctor found, as text: lines under a name, warnings, and what only a page shows."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from ssl_vit.report.page.blocks import Block, Code, Fold

_NAMES = 16  # columns of a name, as in what a run prints
_WIDTH = 119
_ELSEWHERE = " (the page of --out lists all)"


@dataclass
class Findings:
    """One part of the examination."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Names and what is said of them."""
    warnings: list[str] = field(default_factory=list[str])
    """What a person should look at, each a sentence or two with what to type."""
    shown: list[Block] = field(default_factory=list["Block"])
    """Tables, pictures and whole lists that only the page has."""
    cut: set[str] = field(default_factory=set[str])
    """Names of lines that tell some of many, where the page has all."""

    def say(self, name: str, text: str) -> None:
        """Adds a line; nothing where there is no text."""
        if text:
            self.lines.append((name, text))

    def name_some(self, name: str, text: str, words: list[str], what: str, most: int = 3) -> None:
        """Adds a line that ends with some of many, and for the page a list of all.

        Args:
            name: Of the line.
            text: What stands before them.
            words: All.
            what: What they are, as in "All 6 unreadable images".
            most: How many are named in the line.
        """
        self.say(name, f"{text}: {listed(words, most)}" if words else text)
        if len(words) > most:
            self.cut.add(name)
            self.shown.append(Fold(f"All {len(words):,} {what}", (Code("\n".join(words)),)))

    def warn(self, text: str) -> None:
        """Adds a warning."""
        self.warnings.append(text)

    @property
    def text(self) -> str:
        """As a terminal has it."""
        told = [_filled(f"{name:<{_NAMES}}", text + _ELSEWHERE * (name in self.cut)) for name, text in self.lines]
        told += [_filled(f"{'warning':<{_NAMES}}", text) for text in self.warnings]
        return "\n".join([self.title.upper(), *told])


def _filled(name: str, text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=name, subsequent_indent=" " * _NAMES, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def listed(words: list[str], most: int = 5) -> str:
    """Some of many, and how many more there are.

    Args:
        words: All.
        most: How many are named.
    """
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def share(part: float, whole: float) -> str:
    """A part in percent, never 0 where there is some."""
    value = 100 * part / max(1e-9, whole)
    return "none" if not part else "less than 1 %" if value < 1 else f"{value:.0f} %"
