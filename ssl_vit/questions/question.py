"""What a question is to the rest of the room: one entry, read by plan, course, page, documentation and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssl_vit.questions.numbers import Finding, Numbers
from ssl_vit.questions.scope import Look, Scope, Training
from ssl_vit.report.charts.canvas import Panel


class Figure(NamedTuple):
    """Panels that belong together, and what they say."""

    name: str
    """Of its file."""
    panels: list[Panel]
    sentence: str
    """Made from the numbers."""
    columns: int = 3


def _no_looks(scope: Scope) -> list[Look]:
    return []


@dataclass(frozen=True)
class Question:
    """A question, from what has to be trained to the sentences that answer it; everything but trainings is plain."""

    name: str
    """Of ``options.NAMES``."""
    title: str
    """As people ask it."""
    short: str
    """What it is about, in one or two words."""
    literature: str
    """What is known, with where it stands."""
    judged: str
    """How it is judged here."""
    claims: Mapping[str, str]
    """What each claim of its comparisons is called in tables, by key."""
    trainings: Callable[[Scope], list[Training]]
    """All on which it stands; those of other questions among them are made once."""
    judge: Callable[[Scope, Numbers], Finding]
    """Numbers to what is drawn and said, as JSON."""
    stands_on: Callable[[Finding], list[dict[str, Any]]]
    """Of the comparisons those that decide whether it is as the literature says."""
    answer: Callable[[Finding], str]
    """One or two sentences about them."""
    figures: Callable[[Finding], list[Figure]]
    looks: Callable[[Scope], list[Look]] = _no_looks
    """What is read off its networks."""
