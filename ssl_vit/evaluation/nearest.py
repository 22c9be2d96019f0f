"""The nearest of many vectors by cosine similarity: an exact search, block by block."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ssl_vit.evaluation.largest import Largest
from ssl_vit.training.products import bf16_is_faster

_ELEMENTS = 2**22
"""Similarities held at once on a CPU: few enough that most are selected from before they leave its cache."""
_BLOCK = 2**14
"""Training images compared with at once on a CPU."""
_SHORTEST = 1e-12
_PIECE = 2**9
"""Training images that are rounded at once: few enough to stay in a core's cache."""
_MANY = 2**27
"""Similarities from which a search with rounded vectors is worth its way."""
_FAR = 2000
"""Times as many images as neighbours from which it is: to compute candidates' similarities anew has a price, too."""
_PILOT = 64
"""Queries that show beforehand, on one block of images, whether rounded similarities tell enough apart."""
_AT_ONCE = 2**19
"""Numbers of candidates' vectors held at once."""
_ULP = 2.0**-8
"""How far rounding to bf16 moves a number, in units of it, at most."""


def neighbours(
    train: Float[Tensor, "n D"], queries: Float[Tensor, "q D"], most: int
) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
    """Cosine similarities and positions of the most similar training images, the nearest first.

    On a CPU that multiplies faster in bf16, many similarities are first told in it; the candidates' are computed anew,
    and wherever the error of rounding might have hidden a neighbour, the query is searched for again.

    Args:
        train: Features to search in, normalised here, block by block.
        queries: Features to search for.
        most: How many of them; no more than there are.
    """
    asked = F.normalize(queries, dim=1)
    if not _rounding_pays(train, len(asked), most):
        return _searched(train, asked, most)
    kept, every = 2 * most + _PILOT, -(-len(train) // _BLOCK)
    *_, sure = _by_candidates(train[::every], asked[:_PILOT], -(-most // every), -(-kept // every))
    if 2 * int(sure.sum()) < len(sure):
        return _searched(train, asked, most)
    value, place, sure = _by_candidates(train, asked, most, kept)
    again = (~sure).nonzero().squeeze(1)
    if len(again):
        value[again], place[again] = _searched(train, asked[again], most)
    return value, place


def _rounding_pays(train: Float[Tensor, "n D"], queries: int, most: int) -> bool:
    """Whether the search takes long enough, in single precision, where bf16 is faster."""
    return (
        train.device.type == "cpu"
        and train.dtype == torch.float32
        and queries * len(train) >= _MANY
        and queries > _PILOT
        and len(train) >= _FAR * most
        and bf16_is_faster()
    )


def _searched(
    train: Float[Tensor, "n D"], asked: Float[Tensor, "q D"], most: int
) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
    """As ``neighbours``, of normalised queries, in their own precision."""
    cpu = train.device.type == "cpu"
    wide = 1 if cpu else 8  # a GPU has no cache to stay in, but many cores to fill
    block = min(len(train), _BLOCK * wide)
    parts = asked.split(max(1, _ELEMENTS * wide**2 // block))
    best = [Largest(most, bounded=cpu) for _ in parts]
    held, unit = asked.new_empty(len(parts[0]), block), torch.empty_like(train[:block])
    for first in range(0, len(train), block):
        rows = train[first : first + block]
        bank = torch.div(rows, _lengths(rows), out=unit[: len(rows)]).T  # F.normalize, in memory that is there already
        for part, found in zip(parts, best, strict=True):
            found.take(torch.mm(part, bank, out=held[: len(part), : len(rows)]), first)
    return _in_order(best)


def _by_candidates(
    train: Float[Tensor, "n D"], asked: Float[Tensor, "q D"], most: int, kept: int
) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"], Bool[Tensor, " q"]]:
    """As ``_searched``, by way of so many similarities of vectors in bf16; and of which queries that is certain.

    What all training images share is taken away from them first: it changes no order, and what is rounded is smaller.
    Of a similarity that is left out it is known how large it may be at most, and of those kept how small at least.
    """
    shared = F.normalize(train[: min(len(train), _PIECE)], dim=1).mean(dim=0)
    parts = asked.split(max(1, _ELEMENTS // _BLOCK))
    best, coarse = [Largest(kept, bounded=True) for _ in parts], [part.bfloat16() for part in parts]
    rounded = torch.empty(_BLOCK, train.shape[1], dtype=torch.bfloat16)
    held = torch.empty(len(parts[0]), _BLOCK, dtype=torch.bfloat16)
    lengths = torch.empty(len(train), 1)
    longest = lost = torch.zeros(())
    for first in range(0, len(train), _BLOCK):
        rows = train[first : first + _BLOCK]
        pieces = (whole[: len(rows)].split(_PIECE) for whole in (rows, rounded, lengths[first:]))
        for piece, out, length in zip(*pieces, strict=True):
            length.copy_(_lengths(piece))
            unit = (piece / length).sub_(shared)
            out.copy_(unit)
            longest = torch.maximum(longest, out.norm(dim=1, dtype=torch.float32).amax())
            lost = torch.maximum(lost, unit.sub_(out).norm(dim=1).amax())
        for part, found in zip(coarse, best, strict=True):
            found.take(torch.mm(part, rounded[: len(rows)].T, out=held[: len(part), : len(rows)]), first)
    told, place = _in_order(best)
    # Of q'k' for qk: q loses at most |q - q'| |k'|, k at most |q| |k - k'|, and sums of products in single precision.
    error = (asked - torch.cat(coarse).float()).norm(dim=1) * longest + lost + train.shape[1] * 2.0**-22 * longest
    edge = told - _ULP * told.abs() - error[:, None]
    least = edge[:, most - 1]
    sure = told[:, -1] + _ULP * told[:, -1].abs() + error < least
    possible = told + _ULP * told.abs() + error[:, None] >= least[:, None]
    possible[:, :most] = True  # also of a query that is no number
    value, place = _compared(train, lengths, asked, place, possible)
    value, order = value.topk(most, dim=1)
    return value, place.gather(1, order), sure


def _compared(
    train: Float[Tensor, "n D"],
    lengths: Float[Tensor, "n 1"],
    asked: Float[Tensor, "q D"],
    place: Int[Tensor, "q c"],
    possible: Bool[Tensor, "q c"],
) -> tuple[Float[Tensor, "q C"], Int[Tensor, "q C"]]:
    """Similarities to candidates, the possible of which come first, in single precision."""
    count = int(possible.sum(dim=1).amax())
    place = place[:, :count]
    found: list[Tensor] = []
    step = max(1, _AT_ONCE // (count * train.shape[1]))
    for chosen, part in zip(place.split(step), asked.split(step), strict=True):
        found.append((train[chosen] @ part[:, :, None] / lengths[chosen]).squeeze(2))
    return torch.cat(found), place


def _in_order(best: list[Largest]) -> tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]:
    value, place = (torch.cat(parts) for parts in zip(*(found.all() for found in best), strict=True))
    value, order = value.sort(dim=1, descending=True)
    return value, place.gather(1, order)


def _lengths(rows: Float[Tensor, "*n D"]) -> Float[Tensor, "*n 1"]:
    return rows.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST)
