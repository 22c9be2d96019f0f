"""Stratified choices: a test split where a source has none, and draws of a few labels."""

from __future__ import annotations

import numpy as np

from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import permutation
from ssl_vit.data.targets import Kind, strata

TEST_SHARE = 0.2


def made_split(
    labels: np.ndarray, kind: Kind = "class", groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Splits labelled rows into 80 % training and 20 % test, class by class, and group by group where there are groups.

    The split depends on the labels' order alone, never on a run's seed, so every run on a source is judged on the same
    images. A class of one image stays in training. Labels of other kinds are balanced by ``targets.strata``. Returns
    sorted training and test positions; a UserError says where all images are of one group.
    """
    even = strata(labels, kind)
    if groups is not None:
        return _split_groups(even, groups, every_class=kind == "class")
    test: list[np.ndarray] = []
    for label in np.unique(even):
        rows = np.flatnonzero(even == label)
        count = max(round(TEST_SHARE * len(rows)), int(len(rows) > 1))
        test.append(rows[permutation(0, "test-split", int(label), n=len(rows)).numpy()[:count]])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def _split_groups(even: np.ndarray, groups: np.ndarray, every_class: bool) -> tuple[np.ndarray, np.ndarray]:
    """Whole groups to the test side until every class has its share there, as well as groups allow.

    Groups come in hashed order, those of rare classes first; each changes sides if that brings the test side's class
    counts nearer to a fifth of all (squared distance, classes weighed by their size).
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise UserError("all images are of one --data.group, so none can be kept out for testing; name a test split")
    _, stratum = np.unique(even, return_inverse=True)
    counts = np.zeros((len(names), int(stratum.max()) + 1))
    np.add.at(counts, (group.reshape(-1), stratum.reshape(-1)), 1.0)
    total = counts.sum(axis=0)
    wanted = TEST_SHARE * total
    turn = permutation(0, "test-groups", n=len(names)).numpy()
    rarity = np.array([total[row > 0].min() for row in counts])
    turn = turn[np.argsort(rarity[turn], kind="stable")]
    held, chosen = np.zeros_like(total), np.zeros(len(names), dtype=bool)
    for g in (*turn, *turn):  # once more: what was taken for a rare class may be one too many for the others
        moved = held - counts[g] if chosen[g] else held + counts[g]
        left = (total - moved > 0) | (total == 0)  # a class whose last group this is stays in training
        nearer = (((moved - wanted) ** 2) / total).sum() < (((held - wanted) ** 2) / total).sum()
        if nearer and left.all():
            held, chosen[g] = moved, not chosen[g]
    if not chosen.any():  # groups are large: the smallest one that leaves every class in training
        spare = turn[((total - counts[turn] > 0) | (total == 0)).all(axis=1)]
        if every_class and not len(spare):
            raise UserError(
                "every --data.group is the only one of some class, so none can be kept out for testing without losing "
                "that class in training; name a test split"
            )
        among = spare if len(spare) else turn
        chosen[among[np.argmin(counts[among].sum(axis=1))]] = True
    test = np.flatnonzero(chosen[group.reshape(-1)])
    return np.setdiff1d(np.arange(len(groups)), test), test


def draw_labels(labels: np.ndarray, count: int, draw: int, kind: Kind = "class") -> np.ndarray:
    """Chooses labels as evenly over the classes (or other strata) as they allow; draws of one number are nested.

    Strata (``targets.strata``) take turns (in an order that the draw decides), each giving its next image in the
    draw's order, so the images for 10 labels are among those for 20. Returns sorted positions.
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
