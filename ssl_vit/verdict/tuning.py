"""The search for options of training on labels: as many trials for every method, each around its own usual values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc

LAYER_DECAYS = (1.0, 0.85, 0.65, 0.75)
LENGTHS = (2.0, 0.5, 1.0)
LEAST_HELD_OUT = 16
"""Labels that a choice is made by, at least."""
SPACE = (
    "learning rate within a factor of 4 of the usual one, weight decay 0.005 to 0.5 (both logarithmic), layer decay "
    "1, 0.85, 0.75 or 0.65, length 0.5, 1 or 2 times the usual; first the usual options, then points of a Latin "
    "hypercube for rate and decay, layer decays and lengths in turn"
)


class Candidate(NamedTuple):
    """Options of training all weights."""

    lr: float
    weight_decay: float
    layer_decay: float
    length: float
    """Factor of the usual number of steps."""


def candidates(usual: Candidate, trials: int, seed: int) -> list[Candidate]:
    """The usual options first, then ``trials - 1`` points of a Latin hypercube.

    From two on, every option has several values, and layer decay 1 is among them.
    """
    found = [usual]
    if trials > 1:
        points = qmc.LatinHypercube(d=2, rng=np.random.default_rng(seed)).random(trials - 1)
        others = [d for d in LAYER_DECAYS if d != usual.layer_decay]
        for j, (rate, decay) in enumerate(points):
            lr = float(f"{usual.lr * 4 ** (2 * rate - 1):.3g}")
            weight_decay = float(f"{0.005 * 100**decay:.2g}")
            layer_decay = usual.layer_decay if j % 2 else others[j // 2 % len(others)]
            found.append(Candidate(lr, weight_decay, layer_decay, LENGTHS[j % len(LENGTHS)]))
    return found


def best(scores: Sequence[float | None]) -> int:
    """The trial with the largest score; ties go to the earlier one, trials that diverged lose."""
    return int(np.argmax([-np.inf if score is None else score for score in scores]))


def tuned_counts(labels: Sequence[int], possible: dict[int, int]) -> tuple[int, ...]:
    """Where options are tuned: at all labels, and at the fewest that leave enough to choose by.

    ``labels`` are the numbers to judge at, ascending; ``possible`` says how many labels a held-out fifth of each is, 0
    where every class cannot give one.
    """
    able = [n for n in labels if possible[n] >= LEAST_HELD_OUT]
    return tuple(sorted({able[0], able[-1]})) if able else ()


def nearest(labels: int, tuned: Sequence[int]) -> int | None:
    """The largest tuned number of labels that is no larger: a choice never rests on more labels than are counted.

    Returns:
        None below all of them, where the usual options are taken.
    """
    return max((n for n in tuned if n <= labels), default=None)
