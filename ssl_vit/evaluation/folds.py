"""Folds that keep groups together, for choices inside given labels."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Int

from ssl_vit.data.targets import Kind, strata


def group_folds(
    labels: np.ndarray, kind: Kind, groups: Int[np.ndarray, " n"], folds: int, seed: int
) -> Int[np.ndarray, " n"] | None:
    """A fold for every label: whole groups, classes (or labels, or deciles) as even as groups allow.

    Args:
        labels: As ``ImageSet.labels``.
        kind: How to read them.
        groups: The group of every image.
        folds: How many.
        seed: Seed of the shuffling.

    Returns:
        Fold numbers; None where there are fewer groups than folds, or a class would be missing from the training side
        of a fold.
    """
    from sklearn.model_selection import StratifiedGroupKFold  # takes seconds, and pre-training needs no folds

    even = strata(labels, kind)
    _, counts = np.unique(even, return_counts=True)
    if len(np.unique(groups)) < folds or counts.max() < folds:
        return None
    found = np.full(len(labels), -1, dtype=np.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # folds without a class are allowed
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        for fold, (_, held) in enumerate(splitter.split(even, even, groups)):
            found[held] = fold
    if len(np.unique(found)) < folds:
        return None
    if kind == "class" and any(len(np.unique(even[found != fold])) < len(counts) for fold in range(folds)):
        return None
    return found
