"""Tables as plain data, and numbers in words; the page and Markdown print the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, isfinite, log10
from typing import NamedTuple

from ssl_vit.configs.metrics import METRICS, shown

NOTHING = "-"
"""What stands where there is no number."""


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    minor: tuple[str, ...] = ()
    """Below it, smaller: an interval, a p-value."""
    strong: bool = False
    start: str | None = None
    """The start whose colour and marker stand in front."""
    code: bool = False


class Table(NamedTuple):
    """Headings and rows; columns from ``numbers`` on are numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: int
    note: str = ""
    head: str = ""
    """What stands above it."""

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.rows)


Row = Sequence[Cell | str]


def table(headings: tuple[str, ...], rows: Iterable[Row], numbers: int, note: str = "", head: str = "") -> Table:
    """A table whose plain words are cells too."""
    made = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(headings, made, numbers, note, head)


def heading(metric: str) -> str:
    """What a table calls a metric."""
    return METRICS[metric].heading


def unit_of(metric: str) -> str:
    """What differences of a metric are counted in."""
    return "points" if METRICS[metric].percent else heading(metric)


def signed_value(metric: str, value: float) -> str:
    """A difference, always with its sign."""
    words = shown(metric, abs(value))
    zero = not words.strip("0.")
    return f"{'+' if value > 0 or zero else '-'}{words}"


def span(metric: str, low: float | None, high: float | None, *, sign: bool = False) -> str:
    """An interval; empty where there is none."""
    if low is None or high is None or not (isfinite(low) and isfinite(high)):
        return ""
    words = signed_value if sign else shown
    if not sign:  # symmetric intervals reach beyond what a metric can be
        least, most = METRICS[metric].bounds
        low, high = max(low, least), min(high, most)
    return f"{words(metric, low)} to {words(metric, high)}"


def percent(share: float | int | None) -> str:
    """A share, 0 to 1, with two digits where it is small."""
    if share is None:
        return NOTHING
    value = 100 * share
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def p_value(value: float | int | None) -> str:
    """As journals print it."""
    if value is None:
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def two_digits(value: float | int) -> str:
    """A number with two significant digits, never in powers of ten."""
    if not value:
        return "0"
    places = max(0, 1 - floor(log10(abs(value))))
    return f"{value:,.{places}f}"


def seconds(value: float | int | None) -> str:
    """A time in the unit that people would use."""
    if value is None:
        return NOTHING
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if value >= 1.5 * size:
            return f"{f'{value / size:.1f}'.removesuffix('.0')} {unit}"
    return f"{value:.0f} s" if value >= 9.5 else f"{value:.1f} s"


def operations(value: float | int | None) -> str:
    """Floating-point operations."""
    if not value:
        return NOTHING
    known = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"))
    size, unit = next((one for one in known if value >= one[0]), (1.0, ""))
    return f"{_three_digits(value / size)} {unit}FLOP" if unit else f"{value:,.0f} FLOP"


def memory(value: float | int | None) -> str:
    """Bytes."""
    if not value:
        return NOTHING
    return f"{_three_digits(value / 1e9)} GB" if value >= 1e8 else f"{value / 1e6:.0f} MB"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count(value: float | int | None) -> str:
    """A whole number, with its thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}"


def several(counts: Iterable[int]) -> str:
    """Some whole numbers."""
    return ", ".join(map(count, counts))


def enumerated(words: Sequence[str]) -> str:
    """Some words with commas, and an "and" before the last."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def upper(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]
