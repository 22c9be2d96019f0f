"""Neighbours of images with several labels or with numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from ssl_vit.configs.metrics import Kind
from ssl_vit.evaluation import knn, nearest
from ssl_vit.evaluation.largest import above as what_is_above
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


def said(
    kind: Kind, labels: torch.Tensor, queries: torch.Tensor, ks: tuple[int, ...], outputs: int
) -> dict[int, torch.Tensor]:
    found = knn.by_neighbours(
        kind, TRAIN.numpy(), labels.numpy(), queries.numpy(), outputs, ks=ks, device=torch.device("cpu")
    )
    return {k: torch.from_numpy(scores) for k, scores in found.items()}


def test_shares_of_labels_become_logits_that_metrics_read() -> None:
    labels = (TARGETS > 0).double()
    shares = knn.knn_means(TRAIN, labels, TRAIN, ks=(1, 5))
    logits = said("multilabel", labels, TRAIN, (1, 5), 2)
    assert torch.isfinite(logits[1]).all()
    assert torch.equal(logits[1] > 0, labels > 0)
    assert torch.allclose(logits[5].sigmoid(), shares[5].clamp(1e-6, 1 - 1e-6))
    assert judge("multilabel", logits[1].numpy(), labels.numpy(), ("a", "b"))["macro_f1"] == 100.0


def test_votes_become_probabilities() -> None:
    """The softmax of raw votes would be 0 or 1; AUROC needs their shares."""
    labels = (TARGETS[:, 0] > 0).long()
    votes = knn.knn_scores(TRAIN, labels, QUERIES, ks=(9,), classes=3)[9]
    scores = said("class", labels, QUERIES, (9,), 3)[9]
    assert torch.isneginf(scores[:, 2]).all()
    assert torch.allclose(scores.softmax(dim=1), votes / votes.sum(dim=1, keepdim=True))
    assert torch.equal(scores.argmax(dim=1), votes.argmax(dim=1))
    judged = judge("class", scores.numpy(), (QUERIES[:, 0] > 0).long().numpy(), ("a", "b", "c"))
    assert 0 < judged["auroc"] < 100


def plain(train: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor, k: int, classes: int) -> torch.Tensor:
    similarity = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(train).T
    nearest = similarity.argsort(dim=1, descending=True)[:, :k]
    votes = (
        torch.nn.functional.one_hot(labels[nearest], classes) * (similarity.gather(1, nearest) / 0.07).exp()[..., None]
    )
    return votes.sum(dim=1)


@pytest.mark.parametrize("block", [3, 16, 90, 1000, 4096])
@pytest.mark.parametrize("elements", [1, 5000, 2**22])
def test_blocks_and_groups_change_nothing(block: int, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks smaller than k, that do not come out even, and whose long rows are searched by groups."""
    monkeypatch.setattr(nearest, "_BLOCK", block)
    monkeypatch.setattr(nearest, "_ELEMENTS", elements)
    g = torch.Generator().manual_seed(0)
    train, queries = (torch.randn(n, 8, generator=g).double() for n in (1003, 17))
    labels = torch.randint(0, 5, (1003,), generator=g)
    found = knn.knn_scores(train, labels, queries, ks=(20, 1, 7, 5000), classes=5)
    assert list(found) == [20, 1, 7, 5000]
    for k, scores in found.items():
        assert torch.allclose(scores, plain(train, labels, queries, k, 5), rtol=1e-9)
        assert torch.equal(scores, knn.knn_scores(train, labels, queries, ks=(k,), classes=5)[k])


@pytest.mark.parametrize("columns", [1, 7, 16, 40, 100])
@pytest.mark.parametrize("bound", [-9.0, 0.0, 1.5, 9.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_is_above_a_bound(columns: int, bound: float, kind: torch.dtype) -> None:
    values = torch.randn(6, columns, generator=torch.Generator().manual_seed(columns)).to(kind)
    row, column, above = what_is_above(values, torch.full((6, 1), bound))
    assert row.tolist() == sorted(row.tolist()) and torch.equal(above, values[row, column])
    assert sorted(zip(row.tolist(), column.tolist(), strict=True)) == [
        tuple(pair) for pair in (values > bound).nonzero().tolist()
    ]


@pytest.mark.parametrize("block", [5, 1000])
def test_equal_neighbours_vote_once_each(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every image is there thirty times, with one label: whichever of the equals are taken, votes are the same."""
    monkeypatch.setattr(nearest, "_BLOCK", block)
    labels = torch.arange(40).repeat(30) % 4
    found = knn.knn_scores(TRAIN.repeat(30, 1), labels, TRAIN, ks=(10, 30, 1200), classes=4)
    for k in (10, 30):
        own = torch.nn.functional.one_hot(torch.arange(40) % 4, 4).double() * k * np.exp(1 / 0.07)
        assert torch.allclose(found[k], own, rtol=1e-9)
    assert torch.allclose(found[1200], plain(TRAIN.repeat(30, 1), labels, TRAIN, 1200, 4), rtol=1e-9)


@pytest.mark.parametrize("upwards", [True, False])
def test_images_in_the_order_of_their_similarity(upwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block is nearer than all before it, or none is."""
    monkeypatch.setattr(nearest, "_BLOCK", 32)
    angle = torch.linspace(3, 0, 1000).double()
    train = torch.stack([angle.cos(), angle.sin()], 1)
    train = train if upwards else train.flip(0)
    value, place = nearest.neighbours(train, torch.tensor([[2.0, 0.0]]).double(), 5)
    assert torch.equal(place, torch.arange(999, 994, -1)[None] if upwards else torch.arange(5)[None])
    assert torch.allclose(value[0], angle[-5:].flip(0).cos(), rtol=0, atol=1e-12)


SPREAD = {
    "random": lambda g: torch.randn(900, 12, generator=g),
    "alike": lambda g: torch.randn(900, 12, generator=g) + 3,
    "in heaps": lambda g: (9 * torch.randn(30, 12, generator=g)).repeat(30, 1) + torch.randn(900, 12, generator=g),
    "nearly equal": lambda g: 100 + torch.randn(900, 12, generator=g),
    "many times": lambda g: torch.randn(3, 12, generator=g).repeat(300, 1),
    "and nothing": lambda g: torch.cat([torch.zeros(450, 12), torch.randn(450, 12, generator=g)]),
}


@pytest.mark.parametrize("spread", SPREAD)
@pytest.mark.parametrize("most", [1, 7])
@pytest.mark.parametrize("block", [128, 4096])
def test_by_way_of_bf16_the_same_are_found(spread: str, most: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as in double precision, but among those that single precision does not tell apart."""
    for name, value in {"_MANY": 1, "_FAR": 1, "_PILOT": 4, "_BLOCK": block, "_PIECE": 50}.items():
        monkeypatch.setattr(nearest, name, value)
    monkeypatch.setattr(nearest, "bf16_is_faster", lambda: True)
    train = SPREAD[spread](torch.Generator().manual_seed(most))
    queries = SPREAD[spread](torch.Generator().manual_seed(8))[::9]
    value, place = nearest.neighbours(train, queries, most)
    exact = (torch.nn.functional.normalize(x.double(), dim=1) for x in (queries, train))
    similarity = torch.mm(next(exact), next(exact).T)
    assert torch.allclose(value.double(), similarity.topk(most, dim=1).values, rtol=0, atol=1e-6)
    assert torch.allclose(value.double(), similarity.gather(1, place), rtol=0, atol=1e-6)
    assert all(len(set(row)) == most for row in place.tolist())


def test_what_rounding_hides_is_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random vectors every query is certain, of nearly equal ones none: of both, those alone are searched anew."""
    for name, value in {"_MANY": 1, "_FAR": 1, "_PILOT": 40}.items():
        monkeypatch.setattr(nearest, name, value)
    monkeypatch.setattr(nearest, "bf16_is_faster", lambda: True)
    asked: list[int] = []
    searched = nearest._searched

    def counted(train: torch.Tensor, queries: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(len(queries))
        return searched(train, queries, most)

    monkeypatch.setattr(nearest, "_searched", counted)
    g = torch.Generator().manual_seed(0)
    random, alike = torch.randn(3000, 64, generator=g), 500 * torch.eye(64)[0] + torch.randn(300, 64, generator=g)
    for train, queries in ((random, random[:60]), (alike, alike[:60])):
        nearest.neighbours(train, queries, 3)
    assert asked == [60]
    train = torch.cat([random, alike])
    nearest.neighbours(train, torch.cat([random[:55], alike[:5]]), 3)
    assert asked[0] == 60 and 5 <= asked[1] < 10


def test_features_that_are_no_numbers_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of bf16 as without it: other queries have their neighbours."""
    for name, value in {"_MANY": 1, "_FAR": 1, "_PILOT": 4}.items():
        monkeypatch.setattr(nearest, name, value)
    monkeypatch.setattr(nearest, "bf16_is_faster", lambda: True)
    train = torch.randn(900, 12, generator=torch.Generator().manual_seed(0))
    queries = train[:40].clone()
    queries[20:] = math.nan
    assert torch.equal(nearest.neighbours(train, queries, 3)[1][:20, 0], torch.arange(20))
    assert nearest.neighbours(train, torch.full_like(queries, math.nan), 3)[1].shape == (40, 3)
