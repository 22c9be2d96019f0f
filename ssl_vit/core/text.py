"""Plain text in columns."""

from __future__ import annotations

import re
import textwrap

from ssl_vit.core.errors import UserError

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str, option: str = "--max_time") -> float:
    """A length of time such as 3h50m, 90s, 1.5h or 2d12h in seconds.

    Args:
        text: As typed: days, hours, minutes and seconds, in this order.
        option: What named it.

    Raises:
        UserError: For anything else, and for no time at all.
    """
    found = re.fullmatch("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _UNITS), text.replace(" ", ""))
    total = 0.0
    if found:
        total = sum(float(part or 0) * each for part, each in zip(found.groups(), _UNITS.values(), strict=True))
    if not 0 < total < 1e9:
        raise UserError(f"{option} {text} is no length of time; write 3h50m, 90m or 2d12h")
    return total


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


def hanging(name: str, text: str) -> str:
    """A paragraph behind a name, as ``--help`` has options: 79 columns."""
    return textwrap.fill(text, 79, initial_indent=f"  {name:<20}  ", subsequent_indent=" " * 24)


def note(name: str, text: str) -> str:
    """A paragraph of 119 columns behind a name."""
    return textwrap.fill(text, 119, initial_indent=f"{name:10}", subsequent_indent=" " * 10)
