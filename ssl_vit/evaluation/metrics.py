"""How good predictions are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_softmax
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    recall_score,
    roc_auc_score,
)

from ssl_vit.configs.metrics import METRICS, Kind


def judge(
    kind: Kind, scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...], *, only: str | None = None
) -> dict[str, Any]:
    """Every metric that fits the kind of labels; None where the test images leave one undefined.

    Args:
        kind: How to read the labels.
        scores: Float[q K]: larger is more likely (class: logits or log-probabilities, minus infinity for a class that
            is never predicted; multi-label: logits); Float[q R] for regression: the predicted numbers.
        labels: As ``ImageSet.labels``.
        names: As ``ImageSet.classes``.
        only: A metric that suffices: what ranks images (a sort per class, minutes for a thousand of them) is left out
            where it can be.

    Returns:
        Class: ``top1``, ``top5``, ``balanced``, ``auroc`` (one class against the rest), ``average_precision``,
        ``macro_f1`` (means over the classes that occur), in percent, ``per_class``.
        Multi-label: ``average_precision``, ``auroc``, ``macro_f1`` at probability 0.5 (means over the labels that some
        test images have and some have not; the others are listed as ``undefined``), in percent, ``per_label``.
        Regression: ``mean_absolute_error`` in units, ``r2`` (means over the numbers; those that do not vary in the test
        images are ``undefined`` and not in r2), ``per_target``. All: ``images``.
    """
    if kind == "class":
        found = classification_metrics(scores, labels, names)
        return found if only in found else found | _ranking(scores, labels)
    if kind == "multilabel":
        return _several_labels(scores, labels, names)
    return _numbers(scores, labels, names)


def columns(kind: Kind, metric: str) -> dict[str, str]:
    """Keys and headings of a table about this kind of labels, the leading metric first."""
    usual = (name for name, one in METRICS.items() if kind in one.shown)
    return {name: METRICS[name].heading for name in dict.fromkeys((metric, *usual))}


def classification_metrics(
    scores: Float[np.ndarray, "q K"], labels: Int[np.ndarray, " q"], classes: tuple[str, ...]
) -> dict[str, Any]:
    """``top1``, ``top5``, ``balanced`` (mean recall of classes that occur) and ``per_class`` in percent, ``images``.

    ``top5`` is None with five classes or fewer, as a class without test image is.

    Args:
        scores: Larger is more likely; ties go to the lower class number.
        labels: True classes.
        classes: Names of all K classes.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = order == labels[:, None]
    counts = np.bincount(labels, minlength=len(classes))
    recall = np.bincount(labels, weights=hits[:, 0], minlength=len(classes)) / np.maximum(counts, 1)
    balanced = float(recall_score(labels, order[:, 0], labels=np.unique(labels), average="macro"))
    return {
        "top1": 100.0 * float(hits[:, 0].mean()),
        "top5": 100.0 * float(hits[:, :5].any(axis=1).mean()) if len(classes) > 5 else None,
        "balanced": 100.0 * balanced,
        "per_class": {
            name: 100.0 * float(r) if n else None for name, r, n in zip(classes, recall, counts, strict=True)
        },
        "images": len(labels),
    }


def _ranking(scores: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """What classification is worth beyond accuracy, over the classes that occur; one class leaves nothing to rank."""
    occurring = np.unique(labels)
    predicted = np.argmax(scores, axis=1)
    f1 = f1_score(labels, predicted, labels=occurring, average="macro")
    # The logarithm of the softmax ranks images as its probabilities do, and does not saturate.
    auroc, precision = _against_the_rest(labels[:, None] == occurring, log_softmax(scores, axis=1)[:, occurring])
    return {"auroc": _mean(auroc), "average_precision": _mean(precision), "macro_f1": 100.0 * float(f1)}


def _several_labels(scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> dict[str, Any]:
    truth = labels > 0
    auroc, precision = _against_the_rest(truth, scores)
    judged = np.array([value is not None for value in precision])
    f1 = [float(f1_score(has, score > 0)) for has, score in zip(truth.T[judged], scores.T[judged], strict=True)]
    return {
        "average_precision": _mean(precision),
        "auroc": _mean(auroc),
        "macro_f1": _mean(f1),
        "per_label": {
            name: None if value is None else 100.0 * value for name, value in zip(names, precision, strict=True)
        },
        "undefined": [name for name, ok in zip(names, judged, strict=True) if not ok],
        "images": len(labels),
    }


def _against_the_rest(
    truth: Bool[np.ndarray, "q K"], scores: np.ndarray
) -> tuple[list[float | None], list[float | None]]:
    """AUROC and average precision of every column; None where all images have it or none."""
    largest = np.finfo(np.float64).max  # scikit-learn wants finite scores
    scores = np.clip(scores.astype(np.float64), -largest, largest)
    columns = [(has, score, has.any() and not has.all()) for has, score in zip(truth.T, scores.T, strict=True)]
    auroc = [float(roc_auc_score(has, score)) if defined else None for has, score, defined in columns]
    precision = [float(average_precision_score(has, score)) if defined else None for has, score, defined in columns]
    return auroc, precision


def _mean(values: Sequence[float | None]) -> float | None:
    """In percent, over those that are defined."""
    known = [value for value in values if value is not None]
    return 100.0 * float(np.mean(known)) if known else None


def _numbers(scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> dict[str, Any]:
    errors = [float(mean_absolute_error(t, p)) for t, p in zip(labels.T, scores.T, strict=True)]
    varies = np.ptp(labels, axis=0) > 0
    explained = [float(r2_score(t, p)) if ok else None for t, p, ok in zip(labels.T, scores.T, varies, strict=True)]
    known = [value for value in explained if value is not None]
    return {
        "mean_absolute_error": float(np.mean(errors)),
        "r2": float(np.mean(known)) if known else None,
        "per_target": {
            name: {"mean_absolute_error": error, "r2": value}
            for name, error, value in zip(names, errors, explained, strict=True)
        },
        "undefined": [name for name, ok in zip(names, varies, strict=True) if not ok],
        "images": len(labels),
    }
