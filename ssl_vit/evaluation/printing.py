"""Tables and sentences on the screen."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ssl_vit.configs.metrics import METRICS, shown

_WIDTH = 120
"""Columns at least, where the screen does not say: a log file must not break names in two."""


def print_table(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Prints rows as a table; ``columns`` are keys and headings, of which those that no row has are left out."""
    columns = {key: heading for key, heading in columns.items() if any(row.get(key) is not None for row in rows)}
    table = Table(title=escape(title), title_justify="left")
    for i, heading in enumerate(columns.values()):
        table.add_column(escape(heading), justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(_cell(key, row.get(key))) for key in columns))
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    console.print(table)


def conclusion(rows: list[dict[str, Any]], metric: str = "top1") -> str:
    """One sentence: the first row's backbone against the best of the others, claiming no more than one number can.

    Empty where there is nothing to compare.
    """
    first, *others = rows
    others = [row for row in others if row[metric] is not None]
    if first[metric] is None or not others:
        return ""
    about = METRICS[metric]
    sign, name = about.sign, about.words
    best = max(others, key=lambda row: sign * row[metric])
    gap = float(sign * (first[metric] - best[metric]))
    doubt = f"{name}, one draw of labels, {first['images']:,} test images, no interval"
    one, other = (float(shown(metric, row[metric])) for row in (first, best))
    size = shown(metric, abs(one - other))  # of what the table shows, which a reader subtracts
    if one == other:
        unit = " %" if about.percent else ""
        return f"No difference: {first['method']} and {best['method']} both have {shown(metric, one)}{unit} ({doubt})."
    if about.percent:
        # Twice the standard error of the difference of two accuracies in percent, as if on images of their own.
        shares = (first[metric] / 100, best[metric] / 100)
        told_apart = 200 * (sum(p * (1 - p) for p in shares) / max(1, first["images"])) ** 0.5
        if about.per_image and abs(gap) < told_apart:
            return (
                f"No clear difference: {first['method']} {first[metric]:.1f}, {best['method']} {best[metric]:.1f} "
                f"({name}; {first['images']:,} test images cannot tell the two apart)."
            )
        if gap > 0:
            return f"{first['method']} scores {size} points above {best['method']} ({doubt})."
        return f"No gain: {best['method']} score {size} points above {first['method']} ({doubt})."
    by = f"{'higher' if sign > 0 else 'lower'} by {size}"
    better, worse = (first, best) if gap > 0 else (best, first)
    said = f"{name} is {by} with {better['method']} than with {worse['method']} ({doubt.partition(', ')[2]})."
    return said[0].upper() + said[1:] if gap > 0 else f"No gain: {said}"


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return shown(key, value) if isinstance(value, float) else str(value)
