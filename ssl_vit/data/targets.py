"""What labels are: one class, several labels or numbers per image, and how to draw from them evenly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssl_vit.configs.metrics import Kind

_BINS = 10
_BIN = 5
"""Images that a bin has at least, so that a fifth of it is one."""


class TargetScale(NamedTuple):
    """What numbers to predict are standardised by; stored with the classifier."""

    mean: tuple[float, ...]
    """Of every target over the training labels."""
    std: tuple[float, ...]
    """Of every target over the training labels; 1 where they are all alike."""

    def standardise(self, labels: np.ndarray) -> np.ndarray:
        """Targets in deviations from their mean."""
        return (labels - np.array(self.mean)) / np.array(self.std)

    def restore(self, outputs: np.ndarray) -> np.ndarray:
        """Standardised predictions in the targets' own units."""
        return outputs * np.array(self.std) + np.array(self.mean)


def measure_targets(labels: np.ndarray) -> TargetScale:
    """Mean and deviation of every target of the training labels, Float[n R]."""
    mean, std = labels.mean(axis=0, dtype=np.float64), labels.std(axis=0, dtype=np.float64)
    std = np.where(std > 1e-12 * np.abs(labels).max(axis=0), std, 1.0)  # whatever the unit; rounding leaves 1e-16
    return TargetScale(tuple(mean.tolist()), tuple(std.tolist()))


def strata(labels: np.ndarray, kind: Kind) -> np.ndarray:
    """A number per image such that images of one number are alike: what splits and draws are balanced by.

    Returns:
        Int[n]: the class; the rarest label an image has (K where it has none); the decile of the first target, of
        fewer than 50 images a wider part.
    """
    if kind == "class":
        return labels
    if kind == "multilabel":
        rarity = np.argsort(np.argsort(labels.sum(axis=0), kind="stable"), kind="stable")
        ranked = np.where(labels > 0, rarity, labels.shape[1])
        order = np.append(np.argsort(rarity, kind="stable"), labels.shape[1])
        return order[ranked.min(axis=1)].astype(np.int64)
    first = labels[:, 0]
    bins = min(_BINS, max(1, len(first) // _BIN))
    edges = np.unique(np.quantile(first, np.linspace(0, 1, bins + 1)[1:-1]))
    return np.searchsorted(edges, first, side="right").astype(np.int64)
