"""What was answered for every test image, kept beside a result: RUN/results/NAME.npz."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.data.images import ImageSet
from ssl_vit.data.targets import Kind
from ssl_vit.evaluation.features import Features
from ssl_vit.evaluation.metrics import judge
from ssl_vit.statistics.contributions import accuracy_units, balanced_units, blocks_of, pseudo_values

Answers = dict[str, np.ndarray]
"""``positions``: Int[n], which of the test images were judged, in order: unreadable ones are not among them; ``units``:
Float[U], contributions to the leading metric whose mean is its value, and ``clusters``: Int[U], the group of each,
where images have groups and units are images; for classes also ``predicted``: Int[n] and ``confidence``: Float[n], the
probability of what was predicted."""


def answers_of(
    kind: Kind,
    metric: str,
    scores: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    groups: np.ndarray | None = None,
    *,
    positions: np.ndarray,
) -> Answers:
    """Answers in the order of the test images that were judged, at these positions; scores are those of ``judge``.

    Accuracies are means over images. Other metrics are split by a jackknife that leaves out blocks of images (of whole
    groups), so that one machinery gives intervals for all. Means over labels are split label by label: a block with the
    only image of a rare label would else take that label from the mean, and count for far more than it says.
    """
    found: Answers = {"positions": positions.astype(np.int32)}
    if kind == "class":
        predicted = np.argsort(-scores, axis=1, kind="stable")[:, 0]
        found["predicted"] = predicted.astype(np.int32)
        found["confidence"] = softmax(scores, axis=1).max(axis=1).astype(np.float32)
        if METRICS[metric].per_image:
            hits = predicted == labels
            units = accuracy_units(hits) if metric == "top1" else balanced_units(hits, labels)
            found["units"] = units.astype(np.float32)
            return found if groups is None else found | {"clusters": groups.astype(np.int64)}
    split = kind in METRICS[metric].mean_over_labels
    if split and kind == "class":  # each class against the rest
        occurring = np.unique(labels)
        kind, names = "multilabel", tuple(names[c] for c in occurring)
        scores, labels = log_softmax(scores, axis=1)[:, occurring], (labels[:, None] == occurring).astype(np.float64)
    columns = [slice(c, c + 1) for c in range(len(names))] if split else [slice(None)]
    units = [_units(kind, metric, scores[..., c], labels[..., c], names[c], groups) for c in columns]
    if known := [each for each in units if each is not None]:
        found["units"] = np.mean(known, axis=0).astype(np.float32)
    return found


def _units(
    kind: Kind, metric: str, scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...], groups: np.ndarray | None
) -> np.ndarray | None:
    """Of any metric by its jackknife; None where it is undefined."""

    def of(kept: np.ndarray | slice) -> float | None:
        return judge(kind, scores[kept], labels[kept], names, only=metric)[metric]

    return None if of(slice(None)) is None else pseudo_values(of, blocks_of(len(labels), groups))


def answered(test: ImageSet, metric: str, scores: np.ndarray, asked: Features) -> Answers:
    """Answers to the test images that could be read: those whose features were asked for."""
    groups = None if test.groups is None else test.groups[asked.index]
    return answers_of(test.kind, metric, scores, asked.labels, test.classes, groups, positions=asked.index)


def save_answers(result: Path, answers: Answers) -> None:
    """Writes them beside a result's JSON file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(answers)
    np.savez_compressed(buffer, **arrays)
    write_bytes_atomically(result.with_suffix(".npz"), buffer.getvalue())
