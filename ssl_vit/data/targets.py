"""What labels are: one class, several labels or numbers per image, and how to draw from them evenly."""

from __future__ import annotations

from typing import Literal

import numpy as np

Kind = Literal["class", "multilabel", "regression"]
"""``class``: Int[n], a class number each. ``multilabel``: Float[n K] of 0 and 1. ``regression``: Float[n R]."""

_BINS = 10


def strata(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """A number per image such that images of one number are alike: what splits and draws are balanced by.

    Args:
        labels: Int[n], or Float[n K] of 0 and 1, or Float[n R].
        kind: How to read them.

    Returns:
        Int[n]: the class; the rarest label an image has (K where it has none); the decile of the first target.
    """
    if kind == "class":
        return labels
    if kind == "multilabel":
        rarity = np.argsort(np.argsort(labels.sum(axis=0), kind="stable"), kind="stable")
        ranked = np.where(labels > 0, rarity, labels.shape[1])
        order = np.append(np.argsort(rarity, kind="stable"), labels.shape[1])
        return order[ranked.min(axis=1)].astype(np.int64)
    first = labels[:, 0]
    edges = np.unique(np.quantile(first, np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.searchsorted(edges, first, side="right").astype(np.int64)
