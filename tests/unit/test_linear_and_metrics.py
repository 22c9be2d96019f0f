"""Logistic regression and the numbers that describe predictions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from ssl_vit.configs import LinearConfig
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.linear import linear_probe
from ssl_vit.evaluation.metrics import classification_metrics


def blobs(per_class: int, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    centres = np.random.default_rng(42).normal(size=(classes, 6)) * 2
    return (centres[labels] + rng.normal(size=(len(labels), 6))).astype(np.float32), labels


def test_strength_is_chosen_inside_the_labels() -> None:
    x, y = blobs(20)
    queries, truth = blobs(50, seed=1)
    fit = linear_probe(x, y, queries, classes=3, cfg=LinearConfig(), seed=0)
    assert "cross-validation" in fit.selection
    assert fit.strength in LinearConfig().grid
    assert (fit.scores.argmax(1) == truth).mean() > 0.9
    assert np.allclose(np.exp(fit.scores).sum(1), 1.0)


def test_few_labels_use_the_fixed_default() -> None:
    x, y = blobs(4)
    fit = linear_probe(x, y, x, classes=3, cfg=LinearConfig(default=0.5), seed=0)
    assert fit.strength == 0.5
    assert "fixed" in fit.selection


def test_a_single_candidate_is_used() -> None:
    x, y = blobs(20)
    fit = linear_probe(x, y, x, classes=3, cfg=LinearConfig(grid=(3.0,)), seed=0)
    assert (fit.strength, fit.selection) == (3.0, "fixed: the only candidate")


def test_labels_of_one_class_are_refused() -> None:
    x, _ = blobs(2)
    with pytest.raises(UserError, match="two classes"):
        linear_probe(x, np.zeros(len(x), dtype=np.int64), x, classes=3, cfg=LinearConfig(), seed=0)


def test_scale_and_shift_of_features_do_not_matter() -> None:
    x, y = blobs(10)
    queries, _ = blobs(10, seed=3)
    plain = linear_probe(x, y, queries, classes=3, cfg=LinearConfig(), seed=0)
    moved = linear_probe(x * 100 - 7, y, queries * 100 - 7, classes=3, cfg=LinearConfig(), seed=0)
    assert (plain.scores.argmax(1) == moved.scores.argmax(1)).all()


def test_a_class_without_training_label_is_never_predicted() -> None:
    x, y = blobs(10)
    keep = y != 1
    fit = linear_probe(x[keep], y[keep], x, classes=3, cfg=LinearConfig(), seed=0)
    assert np.isneginf(fit.scores[:, 1]).all()
    assert set(fit.scores.argmax(1)) == {0, 2}


def test_a_solver_that_does_not_finish_is_reported() -> None:
    x, y = blobs(10)
    assert not linear_probe(x, y, x, classes=3, cfg=LinearConfig(max_iter=1), seed=0).converged


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_scikit_learns_log_probabilities(classes: int) -> None:
    x, y = blobs(30, classes)
    cfg = LinearConfig(grid=(0.01,))
    found = linear_probe(x, y, x, classes=classes, cfg=cfg, seed=0).scores
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=cfg.max_iter)).fit(x, y)
    assert np.allclose(found, model.predict_log_proba(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_certain_answers_stay_finite_and_in_order(classes: int) -> None:
    """Probabilities of features far outside are 0 in single precision; their logarithms still tell which is larger."""
    x, y = blobs(30, classes)
    far = x.mean(0) + np.linspace(1e3, 1e5, 20)[:, None].astype(np.float32) * (x[y == 0].mean(0) - x[y == 1].mean(0))
    found = linear_probe(x, y, far, classes=classes, cfg=LinearConfig(grid=(1.0,)), seed=0).scores
    assert np.isfinite(found).all()
    assert (np.diff(found[:, 1]) < 0).all()


def test_metrics_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 200)
    scores = rng.normal(size=(200, 8))
    scores[np.arange(200), labels] += 1.0
    found = classification_metrics(scores, labels, tuple("abcdefgh"))
    predicted = scores.argmax(1)
    assert found["top1"] == pytest.approx(100 * (predicted == labels).mean())
    assert found["top5"] == pytest.approx(100 * top_k_accuracy_score(labels, scores, k=5))
    assert found["balanced"] == pytest.approx(100 * balanced_accuracy_score(labels, predicted))
    assert found["per_class"]["c"] == pytest.approx(100 * (predicted[labels == 2] == 2).mean())
    assert found["images"] == 200


def test_absent_classes_and_few_classes() -> None:
    scores = np.eye(4)[[0, 1, 1, 3]]
    found = classification_metrics(scores, np.array([0, 0, 1, 1]), ("a", "b", "c", "d"))
    assert found["per_class"] == {"a": 50.0, "b": 50.0, "c": None, "d": None}
    assert found["balanced"] == 50.0
    assert found["top5"] is None
