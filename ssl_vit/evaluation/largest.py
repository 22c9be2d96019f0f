"""The largest of many values, row by row, that come block by block."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_KEPT = 2
"""Times as many values above a bound as are wanted are kept before they are sorted out."""
_GROUP = 16
"""Values of a block whose largest is looked at for all of them on a CPU."""


class Largest:
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
        value = value.float() if value.dtype == torch.bfloat16 else value
        place = largest(value, min(self._most, value.shape[1]))
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
        row, column, found = above(value, bound)
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
        self._value[row, slot], self._place[row, slot] = found, column + first
        self._filled = filled + count
        return True

    def _sort_out(self) -> None:
        """Keeps the largest alone of what was put behind them."""
        if self._filled is not None:
            used, self._filled = int(self._filled.amax()), None
            self._keep(used)

    def _keep(self, used: int) -> None:
        """Of the first so many columns the largest."""
        kept = largest(self._value[:, :used], self._most) if used > self._most else None
        self._value, self._place = (
            both[:, :used] if kept is None else both.gather(1, kept) for both in (self._value, self._place)
        )


def largest(values: Float[Tensor, "q n"], k: int) -> Int[Tensor, "q k"]:
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


def above(
    values: Float[Tensor, "q n"], bound: Float[Tensor, "q 1"]
) -> tuple[Int[Tensor, " c"], Int[Tensor, " c"], Float[Tensor, " c"]]:
    """All values above their row's bound: rows, in their order, columns, and the values, in the bound's precision.

    Columns j, j + m, j + 2m... are a group, as in ``largest``: few groups hold something that is, and only those are
    looked through (and the last columns, where groups do not come out even).
    """
    kind = values.dtype
    # Numbers in 16 bits above a positive one are in the order of their bits, which are compared several times faster.
    as_bits = kind == torch.bfloat16 and bool((bound >= 0).all())
    if as_bits:
        values, limit = values.view(torch.int16), bound.to(kind).view(torch.int16)
    else:
        values, limit = values.to(bound.dtype), bound
    groups = min(_GROUP, values.shape[1])
    m = values.shape[1] // groups
    grouped, rest = values[:, : groups * m].unflatten(1, (groups, m)), values[:, groups * m :]
    row, group = (grouped.amax(dim=1) > limit).nonzero(as_tuple=True)
    inside = grouped[row, :, group]
    one, member = (inside > limit[row]).nonzero(as_tuple=True)
    row, column, value = row[one], member * m + group[one], inside[one, member]
    if rest.shape[1]:
        more, last = (rest > limit).nonzero(as_tuple=True)
        row, order = torch.cat([row, more]).sort(stable=True)
        column, value = (torch.cat(pair)[order] for pair in ((column, last + groups * m), (value, rest[more, last])))
    return row, column, value.view(kind).to(bound.dtype) if as_bits else value


def _select(values: Float[Tensor, "q n"], k: int) -> Int[Tensor, "q k"]:
    if values.device.type != "cpu":
        return values.topk(k, dim=1, sorted=False).indices
    # numpy partitions with vector instructions, and several times faster than torch.
    first = values.shape[1] - k
    return torch.from_numpy(np.argpartition(values.numpy(), first, axis=1)[:, first:])
