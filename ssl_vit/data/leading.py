"""Which metric a table about given test images leads with, and why."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ssl_vit.configs.metrics import KINDS, Kind, defined_on_any, leading
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet

UNEVEN = 3.0
"""Classes are uneven where the largest has this many times the images of the smallest; accuracy then says little."""


def headline(kind: Kind, labels: np.ndarray) -> str:
    """The key in ``judge``'s result that a table about these test labels leads with.

    Class: ``top1``, or ``balanced`` where classes are uneven. Multi-label: ``average_precision``. Regression: ``r2``,
    which compares numbers of different units; ``mean_absolute_error`` where none varies in the test images.
    """
    if kind == "class":
        return "balanced" if unevenness(labels) >= UNEVEN else "top1"
    if kind == "multilabel":
        return "average_precision"
    return "r2" if np.ptp(labels, axis=0).any() else defined_on_any(kind)


def chosen_metric(asked: str, kind: Kind, labels: np.ndarray) -> str:
    """``--eval.metric`` as a key in ``judge``'s result, from the labels of the test images.

    Raises:
        UserError: For a metric that does not fit the kind of labels.
    """
    if asked == "auto":
        return headline(kind, labels)
    if asked not in leading(kind):
        raise UserError(
            f"--eval.metric {asked} does not fit images with {KINDS[kind]} each; give one of {', '.join(leading(kind))}"
        )
    return asked


def unevenness(labels: Int[np.ndarray, " q"]) -> float:
    """Images of the largest class over those of the smallest that occurs."""
    _, counts = np.unique(labels, return_counts=True)
    return float(counts.max() / counts.min())


def led_by(metric: str, test: ImageSet) -> str:
    """Why a table leads with balanced accuracy, for the end of its title; empty where there is nothing to explain."""
    if test.kind != "class" or metric != "balanced" or headline(test.kind, test.truth) != "balanced":
        return ""
    return f" (the largest test class has {unevenness(test.truth):.1f} times the images of the smallest)"
