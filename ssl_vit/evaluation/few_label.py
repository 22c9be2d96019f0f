"""Parts of given labels: draws of fewer, folds for choices inside them, and a fifth that is held out."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Int

from ssl_vit.core.randomness import permutation
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.splits import draw_labels
from ssl_vit.data.targets import Kind, strata

HELD_OUT = 5
"""One label in five is held out to choose an option; too few labels for that allow no choice."""


def labelled_draw(train: ImageSet, count: int | None, draw: int) -> ImageSet:
    """The images of one draw of ``count`` labels (None: all of them)."""
    return train if count is None else train.subset(draw_labels(train.truth, count, draw, train.kind))


def too_few(images: ImageSet) -> str:
    """Why there is no fifth of these labels to choose by, in words."""
    if images.groups is not None:
        return f"{len(images):,} labels of {len(np.unique(images.groups)):,} groups are too few to leave groups out"
    every = "every class needs" if images.kind == "class" else "that takes"
    return f"{len(images):,} labels are too few, {every} {HELD_OUT} to leave a fifth out"


def held_out_inside(
    labels: np.ndarray, draw: int, kind: Kind = "class", groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """A stratified split of the labels of a draw into four fifths and one fifth: sorted positions.

    Every class must be on both sides, or a choice would be blind to it; only classes with fewer than five labels, as
    long as they hold no more than a tenth of all, stay in training. Rare labels and tenths of a number's range with
    fewer than five images are held out from together, so that one of them does not forbid the choice for all.

    Args:
        labels: Those of the draw: whatever is held out of them is part of the label budget.
        draw: Its number.
        kind: How to read them.
        groups: The group of every image; groups are held out whole.

    Returns:
        Positions to train on and to choose by; None where more than a tenth of the labels is of classes with fewer
        than five, or fewer than two images (which no metric of several labels or of numbers can compare) would be
        held out.
    """
    if groups is not None:
        folds = group_folds(labels, kind, groups, HELD_OUT, draw)
        return None if folds is None else (np.flatnonzero(folds), np.flatnonzero(folds == 0))
    even = strata(labels, kind)
    if kind != "class":
        numbers, inverse, sizes = np.unique(even, return_inverse=True, return_counts=True)
        even = np.where(sizes[inverse] < HELD_OUT, numbers.max() + 1, even)
    numbers, sizes = np.unique(even, return_counts=True)
    if kind == "class" and 10 * sizes[sizes < HELD_OUT].sum() > len(labels):
        return None
    shuffled = _shuffled(even, numbers, draw, "held-out")
    chosen = np.sort(np.concatenate([rows[: len(rows) // HELD_OUT] for rows in shuffled]))
    if kind != "class" and len(chosen) < 2:
        return None
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def assign_folds(
    labels: np.ndarray, kind: Kind, folds: int, seed: int, groups: Int[np.ndarray, " n"] | None = None
) -> Int[np.ndarray, " n"] | None:
    """A fold for every label, as even over the classes (or labels, or deciles) as they allow; groups stay whole.

    Returns:
        Fold numbers; None where a class has fewer labels than folds, or there are fewer than ten per fold of another
        kind, or too few groups.
    """
    if groups is not None:
        return group_folds(labels, kind, groups, folds, seed)
    even = strata(labels, kind)
    numbers, counts = np.unique(even, return_counts=True)
    if counts.min() < folds if kind == "class" else len(labels) < 10 * folds:
        return None
    found = np.empty(len(labels), dtype=np.int64)
    found[np.concatenate(_shuffled(even, numbers, seed, "folds"))] = np.arange(len(labels)) % folds
    return found


def _shuffled(even: np.ndarray, numbers: np.ndarray, seed: int, purpose: str) -> list[np.ndarray]:
    """Positions of every stratum, in random order."""
    each = {int(g): np.flatnonzero(even == g) for g in numbers}
    return [rows[permutation(seed, purpose, g, n=len(rows)).numpy()] for g, rows in each.items()]


def group_folds(
    labels: np.ndarray, kind: Kind, groups: Int[np.ndarray, " n"], folds: int, seed: int
) -> Int[np.ndarray, " n"] | None:
    """A fold for every label: whole groups, classes (or labels, or deciles) as even as groups allow.

    Args:
        labels: As ``ImageSet.labels``.
        kind: How to read them.
        groups: The group of every image.
        folds: How many.
        seed: Of the shuffling.

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
