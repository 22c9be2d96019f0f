"""DINO's weighted k-NN: scores and predictions of the official implementation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.evaluation import knn, nearest
from ssl_vit.evaluation.metrics import classification_metrics

FIXTURES = Path(__file__).parent / "fixtures"
TENSORS = load_file(FIXTURES / "knn.safetensors")
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())["knn"]
TRAIN, LABELS = TENSORS["train_features"], TENSORS["train_labels"]
QUERIES, TRUTH = TENSORS["test_features"], TENSORS["test_labels"]


@pytest.mark.parametrize("elements", [16_000_000, 600 * 7, 1])
def test_scores_and_predictions(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "_ELEMENTS", elements)  # chunks of all, seven and one query
    scores = knn.knn_scores(TRAIN, LABELS, QUERIES, ks=(10, 20, 100), classes=7, temperature=0.07)
    for k in (10, 20, 100):
        # The official code divides nothing: votes are sums of exp(similarity / T).
        assert torch.allclose(scores[k], TENSORS[f"k{k}.scores"], rtol=1e-9, atol=1e-9)
        order = scores[k].argsort(dim=1, descending=True)[:, :3]
        assert torch.equal(order, TENSORS[f"k{k}.top3"])
        metrics = classification_metrics(scores[k].numpy(), TRUTH.numpy(), tuple("abcdefg"))
        assert metrics["top1"] == pytest.approx(GOLDEN["results"][f"k{k}"]["top1"])
        assert metrics["top5"] == pytest.approx(GOLDEN["results"][f"k{k}"]["top5"])


def test_agrees_with_scikit_learn() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    def weight(distance: np.ndarray) -> np.ndarray:
        return np.exp((1.0 - distance) / 0.07)

    model = KNeighborsClassifier(20, weights=weight, metric="cosine", algorithm="brute")
    model.fit(TRAIN.numpy(), LABELS.numpy())
    ours = knn.knn_scores(TRAIN, LABELS, QUERIES, ks=(20,), classes=7)[20]
    theirs = model.predict_proba(QUERIES.numpy())
    assert np.abs((ours / ours.sum(1, keepdim=True)).numpy() - theirs).max() <= 1e-12


@pytest.mark.parametrize("queries", [1, 3, 99])
def test_any_number_of_queries_and_neighbours(queries: int) -> None:
    few = knn.knn_scores(TRAIN[:5], LABELS[:5], QUERIES[:queries], ks=(1, 20), classes=7)
    assert few[20].shape == (queries, 7)
    nearest = (torch.nn.functional.normalize(QUERIES[:queries]) @ torch.nn.functional.normalize(TRAIN[:5]).T).argmax(1)
    assert torch.equal(few[1].argmax(1), LABELS[:5][nearest])
