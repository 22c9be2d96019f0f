"""What every test image adds to a metric, so that the mean of the units is the metric's value. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

BLOCKS = 50
"""Most blocks of a jackknife: each costs one evaluation of the metric."""


def accuracy_units(hits: Bool[np.ndarray, " I"]) -> Float[np.ndarray, " I"]:
    """What every test image adds to top-1 accuracy, in percent."""
    return 100.0 * hits


def balanced_units(hits: Bool[np.ndarray, " I"], labels: Int[np.ndarray, " I"]) -> Float[np.ndarray, " I"]:
    """What every test image adds to balanced accuracy (mean recall of the classes that occur), in percent.

    An image moves the recall of its own class away from what that is; how many images a class has in the test set is
    not a question of chance here.
    """
    occurring, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    recall = np.bincount(place, weights=hits) / sizes
    # A recall is known less well than the spread around itself says: n/(n-1), as in every variance.
    wider = np.sqrt(sizes / np.maximum(sizes - 1, 1))
    moved = (hits - recall[place]) * (wider * len(labels) / (sizes * len(occurring)))[place]
    return 100.0 * (recall.mean() + moved)


def blocks_of(images: int, clusters: Int[np.ndarray, " I"] | None = None) -> Int[np.ndarray, " I"]:
    """Test images in at most 50 blocks of about one size; images of one group stay together."""
    names, place = np.unique(np.arange(images) if clusters is None else clusters, return_inverse=True)
    # Files are often sorted by class: neighbours must not end up together.
    shuffled = np.random.default_rng(0).permutation(len(names))
    return (shuffled % min(BLOCKS, len(names)))[place].astype(np.int64)


def pseudo_values(
    metric: Callable[[Int[np.ndarray, " kept"]], float | None], blocks: Int[np.ndarray, " I"]
) -> Float[np.ndarray, " B"]:
    """Units of any metric: delete-a-block jackknife (Tukey; Busing and others 1999 for unequal blocks).

    Their mean is the metric's value, not the jackknife's bias-corrected one: a table must show one number. The bias,
    of the order of one over the number of images, is common to both sides of a difference. For a mean over images they
    are the means of blocks. Blocks are clusters already: give ``interval`` no others.

    Args:
        metric: Its value for these test images (positions in the whole test set, ascending); None or NaN where it is
            undefined without a block, which then counts as a block without influence.
        blocks: The block of every image, as ``blocks_of`` makes them.
    """
    names, sizes = np.unique(blocks, return_counts=True)
    images, count = len(blocks), len(names)
    whole = metric(np.arange(images))
    if whole is None:
        raise ValueError("a metric that is undefined has no units")
    if count < 2:
        return np.array([float(whole)])
    without = [metric(np.flatnonzero(blocks != name)) for name in names]
    rest = np.array([whole if value is None or np.isnan(value) else value for value in without], dtype=np.float64)
    units = whole + count / images * (images - sizes) * (whole - rest)
    return units - units.mean() + whole
