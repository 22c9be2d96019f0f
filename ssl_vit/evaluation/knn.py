"""Weighted k-nearest neighbours, exactly as DINO evaluates (Caron et al. 2021, section 4.1; Wu et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.data.targets import Kind
from ssl_vit.evaluation.nearest import neighbours

_ELEMENTS = 2**22
"""Labels of neighbours held at once."""
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

    All k come from one search for the largest, and every neighbour is counted once: the votes of more neighbours are
    those of fewer and the rest. Features are compared block by block.

    Args:
        train: Training features, normalised here.
        labels: Their classes.
        queries: Features to classify, any number.
        ks: Numbers of neighbours; more than n counts as n.
        classes: K.
        temperature: Softness of the vote, above 0.

    Returns:
        Scores by k; the predicted class is the largest.
    """
    similarity, neighbour = neighbours(train, queries, max(ks))
    weight, vote = (similarity / temperature).exp(), labels[neighbour]
    votes, counted = weight.new_zeros(len(weight), classes), 0
    found: dict[int, Tensor] = {}
    for k in sorted(ks):
        votes = votes.scatter_add(1, vote[:, counted:k], weight[:, counted:k])
        found[k], counted = votes, k
    return {k: found[k] for k in ks}


def knn_means(
    train: Float[Tensor, "n D"],
    targets: Float[Tensor, "n R"],
    queries: Float[Tensor, "q D"],
    *,
    ks: tuple[int, ...],
    temperature: float = 0.07,
) -> dict[int, Float[Tensor, "q R"]]:
    """The mean of the neighbours' labels by k, weighted as the votes of ``knn_scores``.

    Args:
        train: Training features, normalised here.
        targets: Their labels: 0 and 1, or numbers in their own units. Means are taken in this precision, on the CPU.
        queries: Features to predict for, any number.
        ks: Numbers of neighbours; more than n counts as n.
        temperature: Softness of the weights, above 0.
    """
    targets = targets.cpu()
    similarity, neighbour = neighbours(train, queries, max(ks))
    weight = (similarity / temperature).exp().cpu().to(targets.dtype)
    at_once = max(1, _ELEMENTS // (weight.shape[1] * targets.shape[1]))
    means: dict[int, list[Tensor]] = {k: [] for k in ks}
    for shares, chosen in zip(weight.split(at_once), neighbour.cpu().split(at_once), strict=True):
        rows = targets[chosen]
        for k in ks:
            share = F.normalize(shares[:, :k], p=1, dim=1)
            means[k].append(torch.einsum("qk,qkr->qr", share, rows[:, :k]))
    return {k: torch.cat(parts) for k, parts in means.items()}


def by_neighbours(
    kind: Kind,
    train: Float[np.ndarray, "n D"],
    labels: np.ndarray,
    queries: Float[np.ndarray, "q D"],
    outputs: int,
    *,
    ks: tuple[int, ...],
    temperature: float = 0.07,
    device: torch.device,
) -> dict[int, Float[np.ndarray, "q K"]]:
    """What k neighbours say, by k and in the form that ``metrics.judge`` takes (float64).

    Log-probabilities of classes (minus infinity without a vote), logits of labels, or predicted numbers.
    """
    x, asked = (torch.from_numpy(features).to(device) for features in (train, queries))
    known = torch.from_numpy(labels)
    if kind == "class":
        votes = knn_scores(x, known.to(device), asked, ks=ks, classes=outputs, temperature=temperature)
        exact = {k: found.cpu().double() for k, found in votes.items()}
        return {k: (found / found.sum(dim=1, keepdim=True)).log().numpy() for k, found in exact.items()}
    means = knn_means(x, known, asked, ks=ks, temperature=temperature)
    if kind == "multilabel":
        means = {k: shares.cpu().double().logit(eps=_LEAST) for k, shares in means.items()}
    return {k: found.numpy() for k, found in means.items()}
