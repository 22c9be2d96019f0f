"""Weighted k-nearest neighbours, exactly as DINO evaluates (Caron et al. 2021, section 4.1; Wu et al. 2018)."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.data.targets import Kind

_ELEMENTS = 2**22
"""Similarities held at once on a CPU: few enough that most are selected from before they leave its cache."""
_BLOCK = 2**14
"""Training images compared with at once on a CPU."""
_KEPT = 2
"""Times as many similarities above a bound as neighbours are wanted are kept before they are sorted out."""
_SHORTEST = 1e-12
_GROUP = 16
"""Similarities of a block whose largest is looked at for all of them on a CPU."""
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


def neighbours(
    train: Float[Tensor, "n D"], queries: Float[Tensor, "q D"], most: int
) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
    """Cosine similarities and positions of the most similar training images, the nearest first.

    Args:
        train: Features to search in, normalised here, block by block.
        queries: Features to search for.
        most: How many of them; no more than there are.
    """
    cpu = train.device.type == "cpu"
    wide = 1 if cpu else 8  # a GPU has no cache to stay in, but many cores to fill
    block = min(len(train), _BLOCK * wide)
    asked = F.normalize(queries, dim=1).split(max(1, _ELEMENTS * wide**2 // block))
    best = [_Best(most, bounded=cpu) for _ in asked]
    held, unit = queries.new_empty(len(asked[0]), block), torch.empty_like(train[:block])
    for first in range(0, len(train), block):
        rows = train[first : first + block]
        length = rows.norm(dim=1, keepdim=True).clamp_min(_SHORTEST)
        bank = torch.div(rows, length, out=unit[: len(rows)]).T  # as F.normalize, in memory that is there already
        for part, found in zip(asked, best, strict=True):
            found.take(torch.mm(part, bank, out=held[: len(part), : bank.shape[1]]), first)
    value, place = (torch.cat(parts) for parts in zip(*(found.all() for found in best), strict=True))
    value, order = value.sort(dim=1, descending=True)
    return value, place.gather(1, order)


class _Best:
    """The largest similarities of some queries so far, and where they are.

    After the first block little of another one is larger than what is there. That little is put behind it as it comes,
    and sorted out when there is no more room: that is cheaper than to select from every block.
    """

    def __init__(self, most: int, *, bounded: bool) -> None:
        """Nothing yet; ``bounded`` is whether similarities below the least of the largest are left out unseen."""
        self._most, self._bounded = most, bounded
        self._value, self._place = torch.empty(0, 0), torch.empty(0, 0, dtype=torch.int64)
        self._filled: Int[Tensor, " q"] | None = None
        """How much of every row is in use; None where all is."""

    def take(self, value: Float[Tensor, "q n"], first: int) -> None:
        """Takes the similarities to a block of images, the first of which is at ``first``."""
        if self._bounded and self._value.shape[1] >= self._most and self._put(value, first):
            return
        self._sort_out()
        place = _largest(value, min(self._most, value.shape[1]))
        found = value.gather(1, place), place + first
        if self._value.numel():
            found = tuple(torch.cat(pair, dim=1) for pair in zip((self._value, self._place), found, strict=True))
        self._value, self._place = found
        self._keep(self._value.shape[1])

    def all(self) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
        """The largest and where they are, in no order."""
        self._sort_out()
        return self._value, self._place

    def _put(self, value: Float[Tensor, "q n"], first: int) -> bool:
        """Puts what may be among the largest behind them; False where that is too much, and nothing was put."""
        bound = self._value[:, : self._most].amin(dim=1, keepdim=True)
        row, column, above = _above(value, bound)
        count = row.bincount(minlength=len(value))
        filled = count.new_full(count.shape, self._most) if self._filled is None else self._filled
        if int((filled + count).amax()) > (1 + _KEPT) * self._most:
            if self._filled is None:
                return False
            self._sort_out()  # which raises the bound
            return self._put(value, first)
        if self._filled is None:
            room = (len(value), _KEPT * self._most)
            self._value = torch.cat([self._value, self._value.new_full(room, -math.inf)], dim=1)
            self._place = torch.cat([self._place, self._place.new_zeros(room)], dim=1)
        slot = torch.arange(len(row)) + (filled - count.cumsum(0) + count)[row]
        self._value[row, slot], self._place[row, slot] = above, column + first
        self._filled = filled + count
        return True

    def _sort_out(self) -> None:
        """Keeps the largest alone of what was put behind them."""
        if self._filled is not None:
            used, self._filled = int(self._filled.amax()), None
            self._keep(used)

    def _keep(self, used: int) -> None:
        """Of the first so many columns the largest."""
        kept = _largest(self._value[:, :used], self._most) if used > self._most else None
        self._value, self._place = (
            both[:, :used] if kept is None else both.gather(1, kept) for both in (self._value, self._place)
        )


def _largest(values: Float[Tensor, "q n"], k: int) -> Int[Tensor, "q k"]:
    """Positions of the k largest values of every row, in no order.

    Columns j, j + m, j + 2m... are a group. The k largest values are in the k groups with the largest maxima, so only
    those are looked through (and the last columns, where groups do not come out even).
    """
    groups = math.isqrt(values.shape[1] // k)
    if groups < 3:
        return _select(values, k)
    m = values.shape[1] // groups
    grouped, rest = values[:, : groups * m].unflatten(1, (groups, m)), values[:, groups * m :]
    group = _select(grouped.amax(dim=1), k)
    inside = grouped.gather(2, group[:, None].expand(-1, groups, -1)).flatten(1)
    place = _select(torch.cat([inside, rest], dim=1), k)
    return torch.where(place < groups * k, group.gather(1, place % k) + place // k * m, place + groups * (m - k))


def _above(
    values: Float[Tensor, "q n"], bound: Float[Tensor, "q 1"]
) -> tuple[Int[Tensor, " c"], Int[Tensor, " c"], Float[Tensor, " c"]]:
    """All values above their row's bound: rows, in their order, columns, and the values.

    Columns j, j + m, j + 2m... are a group, as in ``_largest``: few groups hold something that is, and only those are
    looked through (and the last columns, where groups do not come out even).
    """
    groups = min(_GROUP, values.shape[1])
    m = values.shape[1] // groups
    grouped, rest = values[:, : groups * m].unflatten(1, (groups, m)), values[:, groups * m :]
    row, group = (grouped.amax(dim=1) > bound).nonzero(as_tuple=True)
    inside = grouped[row, :, group]
    one, member = (inside > bound[row]).nonzero(as_tuple=True)
    row, column, value = row[one], member * m + group[one], inside[one, member]
    if rest.shape[1]:
        more, last = (rest > bound).nonzero(as_tuple=True)
        row, order = torch.cat([row, more]).sort(stable=True)
        column, value = (torch.cat(pair)[order] for pair in ((column, last + groups * m), (value, rest[more, last])))
    return row, column, value


def _select(values: Float[Tensor, "q n"], k: int) -> Int[Tensor, "q k"]:
    if values.device.type != "cpu":
        return values.topk(k, dim=1, sorted=False).indices
    # numpy partitions with vector instructions, and several times faster than torch.
    first = values.shape[1] - k
    return torch.from_numpy(np.argpartition(values.numpy(), first, axis=1)[:, first:])


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
