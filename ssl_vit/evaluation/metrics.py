"""How good predictions are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import balanced_accuracy_score

from ssl_vit.data.targets import Kind


def judge(kind: Kind, scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> dict[str, Any]:
    """Every metric that fits the kind of labels.

    Args:
        kind: How to read the labels.
        scores: Float[q K]: larger is more likely (class: logits or log-probabilities; multi-label: logits);
            Float[q R] for regression: the predicted numbers.
        labels: As ``ImageSet.labels``.
        names: As ``ImageSet.classes``.
    """
    if kind != "class":
        raise NotImplementedError(kind)
    return classification_metrics(scores, labels, names)


def headline(kind: Kind, labels: np.ndarray) -> str:
    """The key in ``judge``'s result that a table leads with and that options are chosen by."""
    if kind != "class":
        raise NotImplementedError(kind)
    return "top1"


def signed(metric: str) -> float:
    """1 where a larger value of a metric is better, -1 where a smaller one is."""
    return -1.0 if metric == "mae" else 1.0


def classification_metrics(
    scores: Float[np.ndarray, "q K"], labels: Int[np.ndarray, " q"], classes: tuple[str, ...]
) -> dict[str, Any]:
    """Top-1, top-5, balanced accuracy and accuracy per class, in percent.

    Args:
        scores: Larger is more likely; ties go to the lower class number.
        labels: True classes.
        classes: Names of all K classes.

    Returns:
        ``top1``, ``top5`` (None with five classes or fewer), ``balanced`` (mean recall over the classes that occur),
        ``per_class`` (recall by name; None for a class without test image) and ``images``.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = order == labels[:, None]
    counts = np.bincount(labels, minlength=len(classes))
    recall = np.bincount(labels, weights=hits[:, 0], minlength=len(classes)) / np.maximum(counts, 1)
    return {
        "top1": 100.0 * float(hits[:, 0].mean()),
        "top5": 100.0 * float(hits[:, :5].any(axis=1).mean()) if len(classes) > 5 else None,
        "balanced": 100.0 * _balanced(labels, order[:, 0]),
        "per_class": {
            name: 100.0 * float(r) if n else None for name, r, n in zip(classes, recall, counts, strict=True)
        },
        "images": len(labels),
    }


def _balanced(labels: np.ndarray, predicted: np.ndarray) -> float:
    with warnings.catch_warnings():  # predicting a class that does not occur in the test images is no mistake of ours
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return float(balanced_accuracy_score(labels, predicted))
