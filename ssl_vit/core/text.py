"""Plain text in columns."""

from __future__ import annotations

import textwrap


def duration(seconds: float) -> str:
    """A time as people say it: 55 s, 50 min, 2.5 h, 14 h, 3 days."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if seconds < most * length - length / 2:
            value = seconds / length
            return f"{value:.0f} {unit}" if unit == "s" or value >= 9.95 else f"{_shortest(value)} {unit}"
    days = seconds / 86400
    return f"{days:,.0f} days" if days >= 9.95 else f"{_shortest(days)} days"


def _shortest(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def short(rate: float) -> str:
    """A learning rate as people write it: 1.5e-4."""
    return f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")


def shortened(text: str, most: int) -> str:
    """At most so many letters: names of files and classes often differ at their end, so the middle goes."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end].rstrip()}…{text[len(text) - end :].lstrip()}"


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Rows with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def note(name: str, text: str) -> str:
    """A paragraph of 119 columns behind a name."""
    return textwrap.fill(text, 119, initial_indent=f"{name:10}", subsequent_indent=" " * 10)
