"""What to look at first: likely copies, outliers, labels that an image's neighbours contradict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.known import KnownLabels
from ssl_vit.leaks.duplicates import near_duplicates
from ssl_vit.leaks.looking import look, number_rows

NEAR = 10
"""Neighbours that an outlier is far from, and that contradict a label."""
_SAME = 1e-3  # distance up to which images are one: no image is far from its copies
_AGAINST = 0.7  # share of them with one other label


class Copies(NamedTuple):
    """Images that are likely the same picture."""

    images: tuple[int, ...]
    """Positions, ascending."""
    exact: bool
    """Whether all have the same pixels."""
    distance: float
    """Largest difference found inside, as a share of contrast; 0 of exact copies."""
    change: str
    """What makes one of another, in words; empty where nothing but small changes."""


class Outlier(NamedTuple):
    """An image that resembles no other."""

    image: int
    times: float
    """Its distance from its neighbours, in that of the median image."""


class Contradicted(NamedTuple):
    """An image whose neighbours have another label."""

    image: int
    label: int
    others: int
    """The class that most of its neighbours have."""
    votes: int
    """How many of them."""
    of: int
    """How many were asked."""


def copies(images: ImageSet, workers: int | None) -> list[Copies]:
    """All groups of likely copies, exact ones first, then the nearest.

    The leak guard's own search: equal pixels, or thumbnails nearer than images of this set are by chance.

    Args:
        images: Where to look; every one is decoded once.
        workers: Processes that decode; None chooses.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sets = {"all": images}
    rows = number_rows(sets)
    seen = look(sets, rows, workers, torch.device("cpu"))
    code = seen.code[rows.number["all"]]
    kinds = int(seen.code.max()) + 1
    shown = seen.shown(rows.has("all"))
    near = near_duplicates(seen.thumbnails[shown])
    first, second = shown[near.first], shown[near.second]
    links = coo_array((np.ones(len(first)), (first, second)), shape=(kinds, kinds))
    _, whole = connected_components(links, directed=False)
    farthest, changed = np.zeros(kinds), dict[int, str]()
    np.maximum.at(farthest, whole[first], near.distance)
    for group, change in zip(whole[first].tolist(), near.change, strict=True):
        changed[group] = changed.get(group) or change
    group = whole[code]
    order = np.argsort(group, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    found = [
        Copies(tuple(m.tolist()), len(set(code[m].tolist())) == 1, float(farthest[g]), changed.get(int(g), ""))
        for m in members
        if len(m) > 1
        for g in (group[m[0]],)
    ]
    return sorted(found, key=lambda each: (not each.exact, each.distance, each.images))


def outliers(similarity: Float[np.ndarray, "n k"], most: int) -> list[Outlier]:
    """The images farthest from their neighbours, the farthest first.

    Args:
        similarity: Cosines of every image's nearest others.
        most: How many.
    """
    if similarity.shape[1] == 0:
        return []
    away = np.sqrt(np.maximum(2 - 2 * similarity[:, :NEAR], 0)).mean(axis=1)
    apart = away > _SAME
    if not apart.any():
        return []
    usual = float(np.median(away[apart]))
    return [Outlier(int(i), float(away[i] / usual)) for i in np.argsort(-away, kind="stable")[:most] if apart[i]]


def contradicted(known: KnownLabels | None, near: Int[np.ndarray, "n k"], most: int) -> list[Contradicted]:
    """Images of a class most of whose neighbours are of one other class, the clearest first.

    Args:
        known: Labels; only classes can be contradicted.
        near: Positions of every image's nearest others.
        most: How many.
    """
    if known is None or known.kind != "class" or near.shape[1] == 0:
        return []
    own, theirs = known.values, known.values[near[:, :NEAR]]
    asked = (theirs >= 0).sum(axis=1)
    votes = np.stack([(theirs == c).sum(axis=1) for c in range(len(known.names))], axis=1)
    winner, count = votes.argmax(axis=1), votes.max(axis=1)
    against: Bool[np.ndarray, " n"] = (own >= 0) & (winner != own) & (asked >= NEAR / 2) & (count >= _AGAINST * asked)
    which = np.flatnonzero(against)
    which = which[np.argsort(-count[which] / asked[which], kind="stable")[:most]]
    return [Contradicted(int(i), int(own[i]), int(winner[i]), int(count[i]), int(asked[i])) for i in which]
