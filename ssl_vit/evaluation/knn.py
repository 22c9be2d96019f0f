"""Weighted k-nearest neighbours, exactly as DINO evaluates (Caron et al. 2021, section 4.1; Wu et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_ELEMENTS = 16_000_000  # similarities held at once
_LEAST = 1e-6  # share of neighbours that stands for none of them, so that its logit is finite


def knn_scores(
    train: Float[Tensor, "n D"],
    labels: Int[Tensor, " n"],
    queries: Float[Tensor, "q D"],
    *,
    ks: tuple[int, ...],
    classes: int,
    temperature: float = 0.07,
) -> dict[int, Float[Tensor, "q K"]]:
    """Votes per class: the k most similar training images vote with exp(cosine similarity / temperature).

    All k come from one search for the largest. Memory is bounded: queries go through in chunks.

    Args:
        train: Training features, normalised here.
        labels: Their classes.
        queries: Features to classify, any number.
        ks: Numbers of neighbours; more than n counts as n.
        classes: Number of classes.
        temperature: Softness of the vote.

    Returns:
        Scores by k; the predicted class is the largest.
    """
    scores: dict[int, list[Tensor]] = {k: [] for k in ks}
    for weight, neighbour in _neighbours(train, queries, max(ks), temperature, len(train)):
        vote = labels[neighbour]
        for k in ks:
            empty = weight.new_zeros(len(weight), classes)
            scores[k].append(empty.scatter_add_(1, vote[:, :k], weight[:, :k]))
    return {k: torch.cat(parts) for k, parts in scores.items()}


def knn_means(
    train: Float[Tensor, "n D"],
    targets: Float[Tensor, "n R"],
    queries: Float[Tensor, "q D"],
    *,
    ks: tuple[int, ...],
    temperature: float = 0.07,
) -> dict[int, Float[Tensor, "q R"]]:
    """The mean of the neighbours' rows of labels, weighted as the votes of ``knn_scores``.

    Args:
        train: Training features, normalised here.
        targets: Their labels: 0 and 1, or numbers in their own units. Means are taken in this precision, on the CPU.
        queries: Features to predict for, any number.
        ks: Numbers of neighbours; more than n counts as n.
        temperature: Softness of the weights.

    Returns:
        Predictions by k, on the CPU.
    """
    targets = targets.cpu()
    means: dict[int, list[Tensor]] = {k: [] for k in ks}
    gathered = min(max(ks), len(train)) * targets.shape[1]
    for weight, neighbour in _neighbours(train, queries, max(ks), temperature, max(len(train), gathered)):
        shares, rows = weight.cpu().to(targets.dtype), targets[neighbour.cpu()]
        for k in ks:
            share = F.normalize(shares[:, :k], p=1, dim=1)
            means[k].append(torch.einsum("qk,qkr->qr", share, rows[:, :k]))
    return {k: torch.cat(parts) for k, parts in means.items()}


def _neighbours(
    train: Tensor, queries: Tensor, most: int, temperature: float, per_query: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights and positions of the most similar training images, the nearest first, chunk by chunk of queries."""
    bank, asked = F.normalize(train, dim=1), F.normalize(queries, dim=1)
    for part in asked.split(max(1, _ELEMENTS // per_query)):
        similarity, neighbour = (part @ bank.T).topk(min(most, len(bank)), dim=1)
        yield (similarity / temperature).exp(), neighbour


def log_shares(votes: Float[Tensor, "q K"]) -> Float[Tensor, "q K"]:
    """Votes as log-probabilities (float64): what metrics read; a class without a vote has minus infinity."""
    votes = votes.cpu().double()
    return (votes / votes.sum(dim=1, keepdim=True)).log()


def share_logits(means: Float[Tensor, "q K"]) -> Float[Tensor, "q K"]:
    """Shares of neighbours that have a label as logits (float64): what metrics read."""
    return means.cpu().double().logit(eps=_LEAST)
