"""Clusters of images, and those that stand for each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

_TRIED = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
_LOOKED_AT = 1500  # images that decide how well clusters separate
_FITTED = 5000  # images that centres are fitted to
_CLEAR = 0.5  # silhouette from which structure is more than weak (Kaufman and Rousseeuw 1990)
_NEARLY = 0.9  # of the best silhouette: more clusters say more
_EACH = 30  # images of a cluster and number of clusters grow together: about sqrt(images / this)
_FEWEST = 6  # images that can be told apart at all


class Clusters(NamedTuple):
    """A partition of images, the largest cluster first."""

    number: Int[np.ndarray, " n"]
    """Cluster of every image, from 0."""
    central: list[list[int]]
    """Of every cluster the images nearest to its centre, the nearest first."""
    words: str
    """How they came about."""


def clusters(parts: Float[np.ndarray, "n d"], asked: int | None, shown: int) -> Clusters:
    """K-means of vectors of length one.

    The number of clusters is the largest whose silhouette (Rousseeuw 1987) is at least 0.5 and hardly below the best;
    where there is none nothing separates clearly, and the number grows with the images.

    Args:
        parts: As ``arrange.components`` makes them.
        asked: ``--atlas.clusters``.
        shown: Images that stand for a cluster.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    count = len(parts)
    fitted = parts[_evenly(count, _FITTED)]
    different = len(np.unique(fitted, axis=0))
    few = f"{asked} were asked for: too few images differ"
    if count < _FEWEST or different < 3:
        words = "one cluster" if asked in (None, 1) else f"one cluster ({few})"
        return Clusters(np.zeros(count, dtype=np.int64), [_nearest(parts, np.arange(count), shown)], words)

    made: Any = KMeans  # its annotations know no whole numbers

    def fit(k: int) -> KMeans:
        with warnings.catch_warnings():  # where many images are equal fewer clusters are found, and said
            warnings.simplefilter("ignore", ConvergenceWarning)
            return made(min(k, different - 1), n_init=3, random_state=0).fit(fitted)

    if asked is not None:
        found, why = fit(asked), ""
    else:
        found, why = _best(parts, fit, int(np.clip(round(np.sqrt(count / _EACH)), 2, 20)))
    number = np.asarray(found.predict(parts), dtype=np.int64)
    present, number = np.unique(number, return_inverse=True)
    order = np.argsort(-np.bincount(number), kind="stable")
    rank = np.argsort(order)
    number = rank[number]
    central = [_nearest(parts, np.flatnonzero(number == c), shown) for c in range(len(present))]
    if asked is not None:
        why = "as many as asked for" if len(present) == asked else few
    return Clusters(number, central, f"{len(present)} clusters of k-means, {why}")


def _best(parts: Float[np.ndarray, "n d"], fit: Callable[[int], Any], usual: int) -> tuple[Any, str]:
    from sklearn.metrics import silhouette_score

    sample = parts[_evenly(len(parts), _LOOKED_AT)]
    scored = []
    for k in _TRIED:
        if k < len(sample) / 2:
            made = fit(k)
            number = made.predict(sample)
            if len(np.unique(number)) > 1:
                scored.append((float(silhouette_score(sample, number)), made))
    best = max((score for score, _ in scored), default=0.0)
    if best >= _CLEAR:
        score, made = next((s, m) for s, m in reversed(scored) if s >= max(_CLEAR, _NEARLY * best))
        return made, f"a number that separates them well (silhouette {score:.2f})"
    return fit(usual), "a number for looking through: none separates clearly"


def _nearest(parts: Float[np.ndarray, "n d"], members: np.ndarray, shown: int) -> list[int]:
    away = np.linalg.norm(parts[members] - parts[members].mean(axis=0), axis=1)
    return members[np.argsort(away, kind="stable")[:shown]].tolist()


def _evenly(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
