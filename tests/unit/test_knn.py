"""Neighbours of images with several labels or with numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from ssl_vit.evaluation import knn
from ssl_vit.evaluation.metrics import judge

TRAIN, QUERIES = (torch.from_numpy(np.random.default_rng(s).normal(size=(40, 6))) for s in (0, 1))
TARGETS = torch.from_numpy(np.random.default_rng(2).normal(size=(40, 2))) * torch.tensor([1.0, 1e6]).double()


@pytest.mark.parametrize("elements", [16_000_000, 100, 1])
def test_means_are_those_of_scikit_learn(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "_ELEMENTS", elements)
    found = knn.knn_means(TRAIN, TARGETS, QUERIES, ks=(1, 7, 100), temperature=0.1)
    for k in (1, 7, 100):
        model = KNeighborsRegressor(
            min(k, 40), weights=lambda d: np.exp((1 - d) / 0.1), metric="cosine", algorithm="brute"
        )
        assert np.allclose(found[k].numpy(), model.fit(TRAIN, TARGETS).predict(QUERIES), rtol=1e-9, atol=1e-9)


def test_large_numbers_keep_their_precision_beside_float32_features() -> None:
    """Seconds since 1970 differ by one: float32 would round them to 128."""
    targets = (1.6e9 + torch.arange(40).double())[:, None]
    found = knn.knn_means(TRAIN.float(), targets, TRAIN[:5].float(), ks=(1,))
    assert torch.allclose(found[1][:, 0], targets[:5, 0], rtol=0, atol=1e-3)


def test_shares_of_labels_become_logits_that_metrics_read() -> None:
    labels = (TARGETS > 0).double()
    shares = knn.knn_means(TRAIN, labels, TRAIN, ks=(1, 5))
    logits = knn.share_logits(shares[1])
    assert torch.isfinite(logits).all()
    assert torch.equal(logits > 0, labels > 0)
    assert torch.allclose(knn.share_logits(shares[5]).sigmoid(), shares[5].clamp(1e-6, 1 - 1e-6))
    assert judge("multilabel", logits.numpy(), labels.numpy(), ("a", "b"))["macro_f1"] == 100.0


def test_votes_become_probabilities() -> None:
    """The softmax of raw votes would be 0 or 1; AUROC needs their shares."""
    votes = knn.knn_scores(TRAIN, (TARGETS[:, 0] > 0).long(), QUERIES, ks=(9,), classes=3)[9]
    scores = knn.log_shares(votes)
    assert torch.isneginf(scores[:, 2]).all()
    assert torch.allclose(scores.softmax(dim=1), votes / votes.sum(dim=1, keepdim=True))
    assert torch.equal(scores.argmax(dim=1), votes.argmax(dim=1))
    judged = judge("class", scores.numpy(), (QUERIES[:, 0] > 0).long().numpy(), ("a", "b", "c"))
    assert 0 < judged["auroc"] < 100
