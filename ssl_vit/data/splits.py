"""Stratified choices: a test split where a source has none, and draws of a few labels."""

from __future__ import annotations

import numpy as np

from ssl_vit.data.targets import Kind, strata
from ssl_vit.errors import UserError
from ssl_vit.randomness import permutation

TEST_SHARE = 0.2


def made_split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits labelled rows into 80 % training and 20 % test, class by class.

    The split depends on the labels' order alone, never on a run's seed, so every run on a source is judged on the same
    images. A class of one image stays in training.

    Args:
        labels: Int[n].

    Returns:
        Sorted training and test positions.
    """
    test: list[np.ndarray] = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = max(round(TEST_SHARE * len(rows)), int(len(rows) > 1))
        test.append(rows[permutation(0, "test-split", int(label), n=len(rows)).numpy()[:count]])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def draw_labels(labels: np.ndarray, count: int, draw: int, kind: Kind = "class") -> np.ndarray:
    """Chooses labels as evenly over the classes (or other strata) as they allow; draws of one number are nested.

    Strata (``targets.strata``) take turns (in an order that the draw decides), each giving its next image in the
    draw's order, so the images for 10 labels are among those for 20.

    Args:
        labels: The training labels, as ``ImageSet.labels``.
        count: How many to choose.
        draw: Number of the draw.
        kind: How to read the labels.

    Returns:
        Sorted positions.

    Raises:
        UserError: When there are fewer labels than that.
    """
    if not 0 < count <= len(labels):
        raise UserError(f"--eval.labels {count} of {len(labels)} training labels; give 1 to {len(labels)}")
    groups = strata(labels, kind)
    present = np.unique(groups)
    turn = np.empty(len(labels), dtype=np.int64)  # which round of turns an image is in
    seat = np.empty(len(labels), dtype=np.int64)  # its stratum's place within a round
    order = permutation(draw, "class-order", n=len(present)).numpy()
    for place, group in zip(order, present, strict=True):
        rows = np.flatnonzero(groups == group)
        turn[rows[permutation(draw, "label-draw", int(group), n=len(rows)).numpy()]] = np.arange(len(rows))
        seat[rows] = place
    return np.sort(np.lexsort((seat, turn))[:count])
