"""Answers kept beside results: their mean is the metric, whatever the metric."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from ssl_vit.configs.metrics import Kind, leading
from ssl_vit.evaluation.answers import answers_of, save_answers
from ssl_vit.evaluation.metrics import judge

NAMES = ("a", "b", "c")


def made(kind: Kind, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    if kind == "class":
        labels = rng.choice(3, n, p=[0.7, 0.2, 0.1])
        return rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[labels], labels
    if kind == "multilabel":
        labels = (rng.random((n, 3)) < 0.4).astype(np.float64)
        return rng.normal(size=(n, 3)) + labels, labels
    labels = rng.normal(size=(n, 3))
    return labels + 0.5 * rng.normal(size=(n, 3)), labels


CASES: list[tuple[Kind, str]] = [(kind, metric) for kind in get_args(Kind) for metric in leading(kind)]


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("grouped", [False, True])
def test_units_have_the_metrics_mean(kind: Kind, metric: str, grouped: bool) -> None:
    scores, labels = made(kind)
    groups = np.arange(120) // 4 if grouped else None
    found = answers_of(kind, metric, scores, labels, NAMES, groups, positions=np.arange(120))
    value = judge(kind, scores, labels, NAMES)[metric]
    assert found["units"].mean() == pytest.approx(value, rel=1e-5)
    if metric in ("top1", "balanced"):
        assert len(found["units"]) == 120
        assert ("clusters" in found) == grouped
    else:  # blocks of images: no more than fifty, whole groups
        assert len(found["units"]) == (30 if grouped else 50)
        assert found["units"].std() > 0


def test_what_was_said_and_how_surely() -> None:
    scores = np.array([[0.0, 3.0, 1.0], [-np.inf, 0.0, -np.inf], [1.0, 1.0, 0.0]])
    found = answers_of("class", "top1", scores, np.array([1, 0, 0]), NAMES, positions=np.array([0, 2, 3]))
    assert found["predicted"].tolist() == [1, 1, 0]
    assert found["positions"].tolist() == [0, 2, 3]  # the second image could not be read
    assert found["confidence"][1] == 1.0
    assert found["confidence"][0] == pytest.approx(np.exp(3) / np.exp([0, 3, 1]).sum())
    assert found["units"].tolist() == [100.0, 0.0, 100.0]


@pytest.mark.parametrize("kind", ["multilabel", "class"])
def test_the_only_image_of_a_rare_label_does_not_take_the_label_with_it(kind: Kind) -> None:
    """Rare: ranked second, so only what ranks above it matters. Common: ranked without a mistake."""
    common = np.arange(30) >= 15
    scores = np.stack([np.where(common, 1.0, -1.0), np.where(np.arange(30) == 7, 2.0, -4.0)], axis=1)
    scores[20, 1], labels = 3.0, np.stack([common, np.arange(30) == 7], axis=1).astype(np.float64)
    if kind == "class":
        scores, labels = np.pad(scores, ((0, 0), (1, 0))), np.where(np.arange(30) == 7, 2, common.astype(np.int64))
    names = ("other", "common", "rare")[3 - scores.shape[1] :]
    units = answers_of(kind, "average_precision", scores, labels, names, positions=np.arange(30))["units"]
    assert units.mean() == pytest.approx(judge(kind, scores, labels, names)["average_precision"], abs=1e-4)
    assert (np.abs(units - np.median(units)) > 50).sum() == 1, "of the image above the rare one, not of the rare one"


def test_a_metric_that_is_undefined_has_no_units() -> None:
    found = answers_of("class", "auroc", np.eye(3), np.array([0, 0, 0]), NAMES, positions=np.arange(3))
    assert set(found) == {"positions", "predicted", "confidence"}


def test_they_lie_beside_the_result(tmp_path: Path) -> None:
    scores, labels = made("class")
    found = answers_of("class", "balanced", scores, labels, NAMES, positions=np.arange(120))
    save_answers(tmp_path / "knn.json", found)
    with np.load(tmp_path / "knn.npz") as kept:
        assert {name: kept[name].dtype for name in kept.files} == {
            "positions": np.int32, "units": np.float32, "predicted": np.int32, "confidence": np.float32,
        }  # fmt: skip
        assert np.array_equal(kept["predicted"], found["predicted"])
