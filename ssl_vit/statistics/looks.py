"""Which draws are worth making after those that there are. Needs no torch.

A look after every draw is a chance of a false word after every draw, so what all looks may say falsely together is
split among them (``advice.spent``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from ssl_vit.statistics.advice import ALPHA, INDIFFERENT, Advice, Tried, Way, advise


def worth_a_draw(
    table: Mapping[int, Sequence[Tried]],
    most: int,
    groups: Int[np.ndarray, " U"] | None = None,
    *,
    guess: float | None = None,
    indifferent: float = INDIFFERENT,
    span: float = 0.0,
) -> dict[int, frozenset[Way]]:
    """Ways of which one more draw could change what is advised, by number of labels; none where it is settled.

    Args:
        table: What was tried, by number of labels.
        most: Draws of the whole plan.
        groups: As in ``advise``.
        guess: As in ``advise``.
        indifferent: As in ``advise``.
        span: As in ``advise``.
    """
    found = [
        advise(labels, tried, groups, guess=guess, alpha=ALPHA / len(table), most=most, indifferent=indifferent,
               span=span)
        for labels, tried in table.items()
    ]  # fmt: skip
    return {one.labels: undecided(one) for one in found}


def undecided(advice: Advice) -> frozenset[Way]:
    """The ways of which one more draw could change this advice."""
    return frozenset(() if advice.settled else (advice.advised, *advice.rivals))
