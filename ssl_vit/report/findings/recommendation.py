"""The two claims of a verdict in plain sentences: what to use with how many labels, and whether it is pre-training."""

from __future__ import annotations

from typing import NamedTuple

from ssl_vit.report.findings.records import Verdict
from ssl_vit.statistics.advice import Advice, Attribution, Way


class Recommendation(NamedTuple):
    """Both claims, as numbers and in words."""

    advice: tuple[Advice, ...]
    """By number of labels, ascending."""
    attributions: tuple[Attribution, ...]
    """The same numbers of labels."""
    sentences: tuple[str, ...]
    """The first line of report and terminal: "With 10 labels: MAE, linear probe (65 %, 61 to 70)." and so on."""
    pays: str
    """The sentence after them: "Pre-training pays only below about 20 labels."; empty where nothing is known."""
    more: tuple[str, ...]
    """What else is to be said: who cannot be told apart, failed trainings, refused attributions."""


def recommend(verdict: Verdict) -> Recommendation:
    """What the numbers of a verdict advise, and what of it is due to pre-training."""
    raise NotImplementedError


def way_name(verdict: Verdict, way: Way) -> str:
    """A way in words: "MAE, linear probe"."""
    raise NotImplementedError
