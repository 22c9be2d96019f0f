"""Sentences made from numbers: what is seen, what is not seen here, and where the opposite is seen. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

from ssl_vit.questions.numbers import ALIKE
from ssl_vit.report.cells import NOTHING, Cell, Table, enumerated, p_value, table, upper

_LABELS = "units of the labels"
OUTCOMES = {
    "seen": "seen", "likely": "likely but not certain", "not seen": "not seen here",
    "opposite": "the opposite is seen", "unknown": "cannot be told",
}  # fmt: skip


def number(value: float, unit: str, *, sign: bool = True) -> str:
    """A difference with as many digits as its unit deserves.

    Args:
        value: What was measured.
        unit: Of it; points have one digit behind the point, everything else two that count.
        sign: Whether a positive one has its sign.
    """
    places = 1 if unit.startswith("points") else max(0, 1 - floor(log10(abs(value)))) if value else 0
    words = f"{abs(value):,.{min(places, 6)}f}"
    if places > 6 and unit == _LABELS:  # metres, or farads
        words = f"{abs(value):.1e}"
    zero = not words.strip("0.,")
    return f"{'-' if value < 0 and not zero else '+' if sign else ''}{words}"


def sized(one: Mapping[str, Any]) -> str:
    """A comparison's number: difference, and its interval in brackets; the unit is told before.

    Args:
        one: Of ``numbers.judged``.
    """
    if one["estimate"] is None:
        return "not measured"
    words = number(one["estimate"], one["unit"])
    if one["low"] is None or one["high"] is None:
        return f"{words} (no interval)"
    return f"{words} ({number(one['low'], one['unit'])} to {number(one['high'], one['unit'])})"


def _kind(one: Mapping[str, Any]) -> str:
    """The outcome; ``likely`` where the interval alone lies above 0, but not once all comparisons are counted."""
    likely = one["outcome"] == "not seen" and one["low"] is not None and one["low"] > 0
    return "likely" if likely else one["outcome"]


def _by_outcome(claim: str, comparisons: Sequence[Mapping[str, Any]], words: Mapping[str, str]) -> str:
    parts: list[str] = []
    for kind, said in words.items():
        own = [f"{one['name']} {sized(one)}" for one in comparisons if _kind(one) == kind]
        if own:
            parts.append(f"{said} for {enumerated(own)}")
    if not parts:
        return ""
    unit = comparisons[0]["unit"]
    return f"{upper(claim)}{f', in {unit}' if unit else ''}: {'; '.join(parts)}."


def told(claim: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """One claim in a sentence: of whom it is seen, of whom not, of whom the opposite; empty without comparisons.

    Args:
        claim: A whole clause about them all: "more accurate than the ViT with 20 labels".
        comparisons: Of ``numbers.judged``, all in one unit.
    """
    return _by_outcome(claim, comparisons, OUTCOMES)


def unchanged(claim: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The same where no difference is expected, or none of a size that matters.

    Args:
        claim: A whole clause: "no change of the ViT's accuracy".
        comparisons: Of ``numbers.judged``, all in one unit.
    """
    words = {
        "seen": f"none above {_most(comparisons)}", "opposite": "the opposite is seen",
        "unknown": "it cannot be told, the interval is too wide,",
    }  # fmt: skip
    if comparisons and comparisons[0]["unit"] not in ALIKE:
        words["unknown"] = "it cannot be told, no size that matters is known of such numbers,"
    return _by_outcome(claim, comparisons, words)


def _most(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The largest difference that counts as none."""
    unit = comparisons[0]["unit"] if comparisons else "points"
    return f"{ALIKE[unit]:g} {unit}" if unit in ALIKE else "what chance makes"


def reply(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """How an answer begins, from the comparisons that it stands on.

    Args:
        comparisons: Of ``numbers.judged``.
    """
    known = [_kind(one) for one in comparisons if one["outcome"] != "unknown"]
    if not known:
        return "This cannot be told from these trainings"
    whole = len(known) == len(comparisons)
    if whole and all(kind == "seen" for kind in known):
        return "As the literature says"
    if whole and all(kind == "opposite" for kind in known):
        return "The opposite of what the literature says"
    if "seen" in known:
        return "In part as the literature says"
    if "opposite" in known:
        return "Not seen here, and in part the opposite"
    return "Not certain here" if "likely" in known else "Not seen here"


def comparison_rows(comparisons: Sequence[Mapping[str, Any]], claims: Mapping[str, str]) -> Table:
    """Every comparison of a question as a table.

    Args:
        comparisons: Of ``numbers.judged``.
        claims: What a claim is called, by its key.
    """
    rows: list[list[Cell | str]] = []
    for one in comparisons:
        interval = NOTHING
        if one["low"] is not None and one["high"] is not None:
            interval = f"{number(one['low'], one['unit'])} to {number(one['high'], one['unit'])}"
        estimate = NOTHING if one["estimate"] is None else f"{number(one['estimate'], one['unit'])} {one['unit']}"
        said = OUTCOMES[_kind(one)]
        if one["expected"] == 0 and one["outcome"] == "seen":
            said = f"none above {_most([one])}"
        strong = one["outcome"] in ("seen", "opposite") and one["expected"] != 0
        rows.append([
            claims[one["claim"]], one["name"], Cell(said, strong=strong), estimate, interval, p_value(one["adjusted"]),
        ])  # fmt: skip
    heads = ("claim", "of", "outcome", "difference", "95 % interval", "p (Holm)")
    note = (
        "Differences are paired by draw and test image. All rows are one family of comparisons: p-values are adjusted "
        "for them (Holm), intervals are each for itself. Where no difference is expected, an interval within 3 points "
        "(of numbers that are points) shows that there is no larger one; these rows are a family of their own."
    )
    return table(heads, rows, 3, note)
