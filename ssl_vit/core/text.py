"""Plain text in columns."""

from __future__ import annotations

import textwrap


def short(rate: float) -> str:
    """A learning rate as people write it: 1.5e-4."""
    return f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Rows with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def note(name: str, text: str) -> str:
    """A paragraph of 119 columns behind a name."""
    return textwrap.fill(text, 119, initial_indent=f"{name:10}", subsequent_indent=" " * 10)
