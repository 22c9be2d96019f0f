"""Curves over the number of labels: draws, and choices made inside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ssl_vit.core.randomness import permutation
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.splits import draw_labels
from ssl_vit.data.targets import Kind, strata
from ssl_vit.evaluation.folds import group_folds

HELD_OUT = 5
"""One label in five is held out to choose an option; too few labels for that allow no choice."""

C = TypeVar("C")


def labelled_draw(train: ImageSet, count: int | None, draw: int) -> ImageSet:
    """The images of one draw of ``count`` labels (None: all of them)."""
    return train if count is None else train.subset(draw_labels(train.truth, count, draw, train.kind))


def held_out_inside(
    labels: np.ndarray, draw: int, kind: Kind = "class", groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """A stratified split of given labels into four fifths and one fifth.

    Every class must be on both sides, or a choice would be blind to it; only classes with fewer than five labels, as
    long as they hold no more than a tenth of all, stay in training. Rare labels and tenths of a number's range with
    fewer than five images are held out from together, so that one of them does not forbid the choice for all.

    Args:
        labels: The labels of a draw: whatever is held out of them is part of the label budget.
        draw: Number of the draw.
        kind: How to read them.
        groups: The group of every image; groups are held out whole.

    Returns:
        Sorted positions to train on and to choose by; None where more than a tenth of the labels is of classes with
        fewer than five, or fewer than two images (which no metric of several labels or of numbers can compare) would
        be held out.
    """
    if groups is not None:
        folds = group_folds(labels, kind, groups, HELD_OUT, draw)
        return None if folds is None else (np.flatnonzero(folds), np.flatnonzero(folds == 0))
    even = strata(labels, kind)
    if kind != "class":
        numbers, inverse, sizes = np.unique(even, return_inverse=True, return_counts=True)
        even = np.where(sizes[inverse] < HELD_OUT, numbers.max() + 1, even)
    held: list[np.ndarray] = []
    rare = 0
    for stratum in np.unique(even):
        rows = np.flatnonzero(even == stratum)
        if kind == "class" and len(rows) < HELD_OUT:
            rare += len(rows)
        held.append(rows[permutation(draw, "held-out", int(stratum), n=len(rows)).numpy()[: len(rows) // HELD_OUT]])
    if 10 * rare > len(labels):
        return None
    chosen = np.sort(np.concatenate(held))
    if kind != "class" and len(chosen) < 2:
        return None
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def choose_inside(
    train: ImageSet, draw: int, candidates: Sequence[C], default: C, score: Callable[[C, ImageSet, ImageSet], float]
) -> tuple[C, str]:
    """Chooses an option by a held-out fifth of the given labels; ties go to the earlier candidate.

    Args:
        train: The images of a draw.
        draw: Number of the draw.
        candidates: Options to try.
        default: Taken where the labels are too few to choose.
        score: (option, images to train on, images to judge by) -> larger is better.

    Returns:
        The option, and how it was chosen in words.
    """
    split = held_out_inside(train.truth, draw, train.kind, train.groups)
    if split is None or len(candidates) < 2:
        return default, "fixed: too few labels to choose by"
    parts = [train.subset(part) for part in split]
    scores = [score(candidate, *parts) for candidate in candidates]
    return candidates[int(np.argmax(scores))], f"best of {len(candidates)} on a fifth of the given labels"
