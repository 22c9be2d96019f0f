"""Weighted k-nearest neighbours, exactly as DINO evaluates (Caron et al. 2021, section 4.1; Wu et al. 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_ELEMENTS = 16_000_000  # similarities held at once


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
    bank, asked = F.normalize(train, dim=1), F.normalize(queries, dim=1)
    most = min(max(ks), len(bank))
    chunk = max(1, _ELEMENTS // len(bank))
    scores: dict[int, list[Tensor]] = {k: [] for k in ks}
    for part in asked.split(chunk):
        similarity, neighbour = (part @ bank.T).topk(most, dim=1)
        weight, vote = (similarity / temperature).exp(), labels[neighbour]
        for k in ks:
            empty = weight.new_zeros(len(part), classes)
            scores[k].append(empty.scatter_add_(1, vote[:, :k], weight[:, :k]))
    return {k: torch.cat(parts) for k, parts in scores.items()}
