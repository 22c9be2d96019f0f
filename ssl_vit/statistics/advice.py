"""What to use with a number of labels, and whether a gain is pre-training's (docs/statistics.md)."""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """What one could do with labels."""

    start: str
    """What weights begin with, as results name it: ``scratch``, ``mae``, ``pixels``; of several networks with its
    network, ``mae@cnn``."""
    use: str
    """``knn``, ``linear`` or ``train`` (fine-tuning, or training from scratch)."""


class Advice(NamedTuple):
    """What to use with one number of labels."""

    labels: int
    advised: Way
    """The cheapest of ``among`` that costs at most a point."""
    expected: float
    """The metric to expect of it, on images that did not choose it."""
    low: float | None
    """95 %; None where nothing measures chance (one draw)."""
    high: float | None
    among: tuple[Way, ...]
    """All that cannot be told from the best, the best first."""
    worse: tuple[Way, ...]
    """Told to be worse, the best first."""
    settled: bool
    """Whether more draws could no longer change the advice."""
    reason: str = ""
    """Why it is weak: ``too few to tell: 2 draws``; empty where it is not."""
    failed: tuple[tuple[Way, int, int], ...] = ()
    """Ways of which trainings failed: how many, of how many. They are in no mean."""


class Attribution(NamedTuple):
    """Best with pre-training less best without, with one number of labels: is it pre-training, not compute?"""

    labels: int
    gain: float | None
    """Positive is better with pre-training, whatever the metric; None where nothing is claimed."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Adjusted for being several (Holm)."""
    refused: str = ""
    """Why nothing is claimed at this number of labels; empty where something is."""
    way: Way | None = None
    """The best with pre-training."""
    against: Way | None = None
    """The best without; ``scratch`` at the FLOPs of pre-training is ``scratch+``."""
