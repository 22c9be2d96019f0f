"""Finding a picture again after a flip or turn, inversion, a cut, a border or a shift.

A window of a thumbnail is described by its lowest cosine frequencies, weighted so that all count alike, because
pictures have most of their contrast in the lowest. Turning a picture over exchanges signs and axes of these numbers,
inverting it changes all signs: a few products of matrices compare pictures in all sixteen ways. Where one of two is cut
or has a border, the whole of one looks like a window of the other: some windows are tried on either side
(``resemblance``), and from the best one a search that halves its steps brings the two into register (``register``).
The frequencies above take no part in this, so that in register they are evidence of their own: the pictures' grain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor

SIDE = 32
"""Side of a thumbnail in pixels."""
TURNS = (
    *("", "mirrored", "mirrored top to bottom", "turned by 180 degrees"),
    *("mirrored and turned by 90 degrees", "turned by 90 degrees", "turned by 270 degrees",
      "mirrored and turned by 270 degrees"),
)  # fmt: skip
"""The eight ways to lay down a picture, as what is done to it: axes exchanged (4), rows (2), columns (1) reversed."""

_F = 8  # frequencies in either direction that describe a window
_FINE = 16  # with those above them, which are a picture's grain
_PART = 0.84  # length of windows
_COARSE = ((0.0, 1.0), *((n * (1 - _PART) / 4, _PART) for n in range(5)))  # start and length along an axis
_STEPS = (0.05, 0.025, 0.0125, 0.00625)  # of start and length, in the search for the register

CENTRE = len(_COARSE) * 3 + 3
"""The window in the middle along both axes."""
INSIDE = [len(_COARSE) * y + x for y in range(1, len(_COARSE)) for x in range(1, len(_COARSE))]
"""The windows that show a part along both axes."""

_MARGIN = 0.04  # of what both show: the edge of a border is blurred into the picture
_LEAST = 0.7  # length of a window in register
_ROWS, _COLUMNS = 128, 1024  # pictures on either side compared at a time
_PRIOR = 20  # pictures that photographs count as much as
_CONTRAST = 200.0  # sum of squares of a thumbnail's frequencies
_PAIRS = 256  # brought into register at a time


_U = torch.arange(_FINE, dtype=torch.float32)
NATURAL = (_U[:, None] ** 2 + _U**2).sqrt()
"""What frequencies are multiplied by to count alike in photographs, [16, 16]; nothing of the mean is left."""


def weights_of(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Tensor:
    """What frequencies are multiplied by to count alike in some pictures, [16, 16]; of few it is drawn to ``NATURAL``.

    Cells and blobs have much less contrast in what is fine than photographs have, and it is this that tells them apart.
    """
    known = projections(torch.tensor(0.0), torch.tensor(1.0), _FINE)
    total, usual = torch.zeros(_FINE, _FINE), 1 / NATURAL.square().clamp(min=0.5)
    usual[0, 0] = 0
    for start in range(0, len(thumbnails), 1024):
        total += (known @ _pictures(thumbnails[start : start + 1024]) @ known.T).square().sum(0)
    total[0, 0] = 0
    ring = NATURAL.round().long().flatten()
    many = torch.bincount(ring)
    of_ring = torch.bincount(ring, (total + usual * _PRIOR * _CONTRAST / usual.sum()).flatten()) / many
    found = of_ring[ring].view(_FINE, _FINE).clamp(min=1e-9).rsqrt()
    found[0, 0] = 0
    return found * NATURAL[0, 1] / found[0, 1]


def projections(start: Tensor, length: Tensor, count: int = _F) -> Tensor:
    """Matrices that take pixels along an axis to the cosine frequencies of windows.

    The integral of cos(pi u t) over the window, t from 0 to 1 in it, of pixels that are constant.

    Args:
        start: Of windows, [...], as shares of the axis.
        length: As many.
        count: Of frequencies.

    Returns:
        [..., F, 32].
    """
    edges = torch.arange(SIDE + 1, dtype=torch.float32) / SIDE
    t = ((edges - start[..., None]) / length[..., None]).clamp(0, 1)[..., None, :]
    u = torch.arange(count, dtype=torch.float32)[:, None]
    integral = torch.where(u > 0, torch.sin(torch.pi * u * t) / (torch.pi * u.clamp(min=1)), t)
    return integral[..., 1:] - integral[..., :-1]


def _unit(found: Tensor) -> Tensor:
    """Vectors [..., F, F] of length 1."""
    return found / found.square().sum(dim=(-1, -2), keepdim=True).sqrt().clamp(min=1e-6)


def _pictures(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Tensor:
    return torch.from_numpy(thumbnails).float() - 128


def described(thumbnails: UInt8[np.ndarray, "n 32 32"], weights: Tensor = NATURAL, *, windows: bool) -> Tensor:
    """Descriptors of every picture's windows, the whole first, or of the whole only: [n, W, F, F]."""
    known = torch.tensor(_COARSE if windows else _COARSE[:1])
    along = projections(known[:, 0], known[:, 1]).flatten(0, 1)
    count = len(known)
    parts = [torch.empty((0, count * count, _F, _F))]
    for start in range(0, len(thumbnails), 1024):
        found = along @ _pictures(thumbnails[start : start + 1024]) @ along.T
        found = found.unflatten(1, (count, _F)).unflatten(3, (count, _F)).permute(0, 1, 3, 2, 4)
        parts.append(_unit(found.flatten(1, 2) * weights[:_F, :_F]))
    return torch.cat(parts)


class _Sides(NamedTuple):
    """Frequencies sorted by what turning a picture over does to them: [2, .., 32] each."""

    even: Tensor
    """Even in both directions, odd in both; and the same with the sign of the latter changed."""
    odd: Tensor
    """Odd across, odd down; and the same with the sign of the latter changed."""


def _sorted(found: Tensor) -> _Sides:
    ee, eo, oe, oo = (found[..., y::2, x::2].flatten(-2) for y in (0, 1) for x in (0, 1))
    return _Sides(*(torch.stack([torch.cat([a, b], -1), torch.cat([a, -b], -1)]) for a, b in ((ee, oo), (eo, oe))))


def resemblance(windowed: Tensor, whole: Tensor) -> Tensor:
    """How much windows of some pictures look like others, the largest of all windows and all sixteen ways.

    Turned over, the parts of a product that are even and odd along the axes change sign: of ee + oo + eo + oe and
    ee - oo + eo - oe in all signs the largest is max(|ee + oo| + |eo + oe|, |ee - oo| + |eo - oe|).

    Args:
        windowed: Descriptors, [n, W, F, F].
        whole: Of the others, [m, F, F].

    Returns:
        Cosines [n, m].
    """
    best = torch.zeros((len(windowed), len(whole)))
    ways = [_sorted(other) for other in (whole, whole.transpose(-1, -2))]
    own = [_sorted(windowed[:, w]) for w in range(windowed.shape[1])]
    for row in range(0, len(windowed), _ROWS):
        for column in range(0, len(whole), _COLUMNS):
            part = best[row : row + _ROWS, column : column + _COLUMNS]
            even, odd = torch.empty(part.shape), torch.empty(part.shape)  # in the processor's cache
            for a in own:
                for b in ways:
                    for sign in (0, 1):
                        for out, x, y in ((even, a.even[sign], b.even[0]), (odd, a.odd[sign], b.odd[0])):
                            torch.mm(x[row : row + _ROWS], y[column : column + _COLUMNS].T, out=out).abs_()
                        torch.maximum(part, even.add_(odd), out=part)
    return best


class Ways(NamedTuple):
    """How the first picture of every pair looks most like the second, before register."""

    score: Float32[np.ndarray, " p"]
    """Cosine."""
    side: Int[np.ndarray, " p"]
    """Which of the two is looked at through a window: 0 the first, 1 the second; 2 the first, and the second is seen
    through the window in its middle."""
    window: Int[np.ndarray, " p"]
    turn: Int[np.ndarray, " p"]
    """What the other one has to go through (of ``TURNS``)."""
    inverted: Int[np.ndarray, " p"]
    """Whether it is to be inverted, too."""


def turned(found: Tensor, turn: int) -> Tensor:
    """Pictures [..., 32, 32] laid down in one of ``TURNS``."""
    found = found.transpose(-1, -2) if turn & 4 else found
    return found.flip([axis for axis, bit in ((-2, 2), (-1, 1)) if turn & bit])


def best_ways(
    first: UInt8[np.ndarray, "p 32 32"],
    second: UInt8[np.ndarray, "p 32 32"],
    weights: Tensor = NATURAL,
    *,
    windows: bool,
) -> Ways:
    """How every pair looks most alike, of the windows and turns that ``resemblance`` tries."""
    parts = []
    for start in range(0, len(first), _PAIRS * 4):
        one, two = (described(side[start : start + _PAIRS * 4], weights, windows=windows) for side in (first, second))
        products = []
        for through, whole in ((one, two[:, 0]), (two, one[:, 0]), (one, two[:, CENTRE if windows else 0])):
            every = torch.stack([_turned_frequencies(whole, turn) for turn in range(len(TURNS))], 1)
            products.append(torch.einsum("pwyx,ptyx->pwt", through, every))
        found = torch.stack(products, 1)
        place = found.abs().flatten(1).argmax(1)
        score = found.flatten(1).gather(1, place[:, None])[:, 0]
        side, window, turn = np.unravel_index(place.numpy(), found.shape[1:])
        parts.append(Ways(score.abs().numpy(), side, window, turn, (score < 0).long().numpy()))
    return Ways(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _turned_frequencies(found: Tensor, turn: int) -> Tensor:
    """What ``turned`` does to a picture, done to its frequencies [..., F, F]: axes change, odd ones change sign."""
    found = found.transpose(-1, -2) if turn & 4 else found
    odd = 1 - 2 * (torch.arange(_F) % 2).float()
    return found * (odd[:, None] if turn & 2 else 1) * (odd if turn & 1 else 1)


class Registered(NamedTuple):
    """Pairs of pictures in register."""

    score: Float32[np.ndarray, " p"]
    """Cosine of what both show."""
    start: Float[np.ndarray, "p 2"]
    """Where the whole one begins in the other, down and to the right, as shares of its sides."""
    length: Float[np.ndarray, "p 2"]
    """How much of the other it shows."""
    grain: Float32[np.ndarray, " p"]
    """Cosine of what is too fine to have been compared: frequencies from 8 up to 16."""


def register(
    first: UInt8[np.ndarray, "p 32 32"],
    second: UInt8[np.ndarray, "p 32 32"],
    ways: Ways,
    weights: Tensor = NATURAL,
) -> Registered:
    """Brings pairs into register, from the windows and turns that are known to fit."""
    parts: list[Registered] = []
    for start in range(0, len(first), _PAIRS):
        part = slice(start, start + _PAIRS)
        own = Ways(*(w[part] for w in ways))
        parts.append(_register(_pictures(first[part]), _pictures(second[part]), own, weights))
    return Registered(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _register(first: Tensor, second: Tensor, ways: Ways, weights: Tensor) -> Registered:
    side, turn = torch.from_numpy(ways.side), torch.from_numpy(ways.turn)
    swapped = (side == 1)[:, None, None]
    through, whole = torch.where(swapped, second, first), torch.where(swapped, first, second)
    for each in range(1, len(TURNS)):
        whole[turn == each] = turned(whole[turn == each], each)
    sign = torch.from_numpy(1 - 2 * ways.inverted).float()
    known = torch.tensor(_COARSE)
    # Start and length along both axes: [p, 2].
    axes = torch.from_numpy(np.stack(np.unravel_index(ways.window, (len(_COARSE),) * 2), 1))
    start, length = known[axes, 0], known[axes, 1]
    middle, extent = _COARSE[CENTRE % len(_COARSE)]
    shifted = (side == 2)[:, None]
    length = torch.where(shifted, length / extent, length)
    start = torch.where(shifted, start - middle * length, start)
    best = torch.full((len(first),), -1.0)
    tried = torch.cartesian_prod(torch.tensor([0.0, -1.0, 1.0]), torch.tensor([0.0, -1.0, 1.0]))
    for step in _STEPS:
        starts = start[..., None] + step * tried[:, 0]
        lengths = (length[..., None] + step * tried[:, 1]).clamp(min=_LEAST)
        score = sign[:, None, None] * _alike(*_shown_by_both(through, whole, starts, lengths, weights[:_F, :_F]))
        best, place = score.flatten(1).max(1)
        chosen = torch.stack([place // len(tried), place % len(tried)], 1)[..., None]
        start, length = starts.gather(2, chosen)[..., 0], lengths.gather(2, chosen)[..., 0]
    grain = weights.clone()
    grain[:_F, :_F] = 0
    fine = sign * _alike(*_shown_by_both(through, whole, start[..., None], length[..., None], grain))[:, 0, 0]
    return Registered(best.numpy(), start.numpy(), length.numpy(), fine.numpy())


def _shown_by_both(
    through: Tensor, whole: Tensor, start: Tensor, length: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Frequencies [p, k, F, k, F] of what pairs both show, the whole one laid on windows along both axes [p, 2, k].

    A window may reach over the edge: then either shows a part that the other lacks.
    """
    low, high = start.clamp(min=0), (start + length).clamp(max=1)
    low, high = low + _MARGIN * (high - low), high - _MARGIN * (high - low)
    found = []
    for picture, begin, extent in ((through, low, high - low), (whole, (low - start) / length, (high - low) / length)):
        down, across = projections(begin, extent, len(weights)).flatten(2, 3).unbind(1)
        both = down @ picture @ across.transpose(1, 2)
        found.append(both.unflatten(1, (-1, len(weights))).unflatten(3, (-1, len(weights))) * weights[:, None])
    return found[0], found[1]


def _alike(one: Tensor, two: Tensor) -> Tensor:
    """Cosines [p, k, k] of frequencies [p, k, F, k, F]."""
    lengths = (one.square().sum((2, 4)) * two.square().sum((2, 4))).sqrt()
    return (one * two).sum((2, 4)) / lengths.clamp(min=1e-6)
