"""Images that are copies of one another, found by what they look like: thumbnails, perceptual hashes, a search.

A perceptual hash is the signs of an image's 63 lowest cosine frequencies (Zauner 2010, "Implementation and benchmarking
of perceptual image hash functions"). Images whose hashes differ in few bits are candidates; their thumbnails decide,
together with the collection. How many pairs as near as one chance would give follows from the distances of images to
their neighbours: handwritten digits are alike without being copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8, UInt64
from PIL import Image
from scipy.fft import dctn

from ssl_vit.data.decoding.formats import Pixels

SIDE = 32
"""Side of a thumbnail in pixels."""
CHANGES = ("", "mirrored")
"""What a copy may have gone through beside small changes: nothing, or left and right exchanged."""
RADIUS = 9
"""Hashes of candidates differ in at most this many of 63 bits."""
FARTHEST = 0.4
"""Thumbnails of near duplicates differ by at most this share of an image's own contrast."""
BY_CHANCE = 0.5
"""Near duplicates are so near that chance would give fewer such pairs than this in the whole collection."""

_LEVELS = 28.0  # grey levels of a stored thumbnail per standard deviation of its own
_FLAT = 0.5  # standard deviation in levels of the file below which an image shows nothing
_BITS = (13, 13, 13, 12, 12)  # parts of a hash; of five parts one differs in at most a bit where all do in nine
_CROWD = 2000  # images that stand for all others
_NEIGHBOURS = 40  # of the crowd that show how near others are anyway
_COPIES = 10  # of them that may be copies as well
_FEWEST = 12  # images of which it can be told how near they are anyway
_SAMPLE = 256  # images whose surroundings stand for all
_PRIOR = 10  # neighbours that the whole collection's dimension counts as much as
_BLOCK = 2**21  # candidates in work at a time
_MOST = 200  # candidates of an image
_PAIRS = 2**13  # thumbnails compared at a time


class Pairs(NamedTuple):
    """Near duplicates, every pair once."""

    first: Int[np.ndarray, " p"]
    """Places of the images; always before ``second``."""
    second: Int[np.ndarray, " p"]
    change: Int[np.ndarray, " p"]
    """Which of ``CHANGES`` makes one of the other."""
    distance: Float[np.ndarray, " p"]
    """Root mean square difference of the thumbnails as a share of their contrast: 0 is the same picture, and two that
    have nothing in common are at 1.41."""


def thumbnail(pixels: Pixels) -> UInt8[np.ndarray, "32 32"] | None:
    """An image in grey, at 32 x 32, its brightness and contrast made equal to all others'.

    Args:
        pixels: uint8 or uint16, [C, H, W]. 8-bit RGB weighs colours alike; of other images every channel counts as
            much as its contrast beside the strongest one's would after standardising.

    Returns:
        Levels around 128; None for images that show nothing at all.
    """
    planes = pixels.astype(np.float32)
    if len(planes) == 3 and pixels.dtype == np.uint8:
        planes = planes.mean(axis=0, keepdims=True)
    small = np.stack([_reduced(plane) for plane in planes])
    spread = small.std(axis=(1, 2))
    if spread.max() < _FLAT:
        return None
    small = small[spread >= _FLAT] - small[spread >= _FLAT].mean(axis=(1, 2), keepdims=True)
    grey = (small / spread[spread >= _FLAT, None, None]).mean(axis=0)
    if grey.std() < 1e-3:  # channels that cancel each other: the strongest one speaks for all
        grey = small[int(small.std(axis=(1, 2)).argmax())]
    return np.clip(np.rint(grey / grey.std() * _LEVELS + 128), 0, 255).astype(np.uint8)


def _reduced(plane: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "32 32"]:
    return np.asarray(Image.fromarray(plane).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def hashes(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> UInt64[np.ndarray, " n"]:
    """The signs of every thumbnail's 63 lowest frequencies."""
    found, weights = np.empty(len(thumbnails), dtype=np.uint64), np.uint64(1) << np.arange(63, dtype=np.uint64)
    for start in range(0, len(thumbnails), _PAIRS):
        part = thumbnails[start : start + _PAIRS].astype(np.float32) - 128
        low = np.asarray(dctn(part, axes=(1, 2)))[:, :8, :8].reshape(-1, 64)[:, 1:]
        found[start : start + _PAIRS] = ((low > 0) * weights).sum(axis=1, dtype=np.uint64)
    return found


def mirrored(found: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """The hashes of the same images with left and right exchanged: odd frequencies across change their sign."""
    odd = sum(1 << (8 * y + x - 1) for y in range(8) for x in (1, 3, 5, 7))
    return found ^ np.uint64(odd)


def candidates(
    stored: UInt64[np.ndarray, " n"], asked: UInt64[np.ndarray, " n"], radius: int = RADIUS, most: int = 2**40
) -> Iterator[tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]]:
    """Places i < j, every pair once, where ``stored[i]`` and ``asked[j]`` differ in few bits.

    Nine differing bits in five parts leave one part with at most one of them, so only images are compared that agree in
    a part but for one bit (multi-index hashing, Norouzi et al. 2012).

    Args:
        stored: 63-bit hashes.
        asked: As many.
        radius: Bits that may differ, at most 9.
        most: So many i are looked for of every j, so that an endless film of one scene takes no endless time.
    """
    assert radius < 2 * len(_BITS)
    found = np.zeros(len(asked), dtype=np.int64)
    shifts = [np.uint64(sum(_BITS[:part])) for part in range(len(_BITS))]
    masks = [np.uint64(2**bits - 1) << shift for bits, shift in zip(_BITS, shifts, strict=True)]
    for part, bits in enumerate(_BITS):
        keys, wanted = (((h & masks[part]) >> shifts[part]).astype(np.int64) for h in (stored, asked))
        order = np.argsort(keys, kind="stable")
        length = np.bincount(keys, minlength=2**bits)
        start = np.cumsum(length) - length
        for flip in (0, *(1 << b for b in range(bits))):
            bucket = wanted ^ flip
            for second, place in _places(start[bucket], np.where(found < most, length[bucket], 0)):
                first = order[place]
                near = (np.bitwise_count(stored[first] ^ asked[second]) <= radius) & (first < second)
                first, second = first[near], second[near]
                for mask in masks[:part]:  # what agrees in an earlier part has been found there
                    new = np.bitwise_count((stored[first] ^ asked[second]) & mask) > 1
                    first, second = first[new], second[new]
                rank = np.arange(len(second)) - np.searchsorted(second, second)  # second is ascending
                few = rank < most - found[second]
                found += np.bincount(second[few], minlength=len(found))
                yield first[few], second[few]


def _places(
    start: Int[np.ndarray, " n"], length: Int[np.ndarray, " n"]
) -> Iterator[tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]]:
    """Every j beside each of ``start[j]`` to ``start[j] + length[j] - 1``, ascending, some millions at a time."""
    total, done = np.cumsum(length), 0
    while done < len(length):
        upto = max(done + 1, int(np.searchsorted(total, total[done] - length[done] + _BLOCK, side="right")))
        many = length[done:upto]
        offset = np.repeat(start[done:upto] - (np.cumsum(many) - many), many)
        yield np.repeat(np.arange(done, upto), many), offset + np.arange(len(offset))
        done = upto


def near_duplicates(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Pairs:
    """All pairs of images that look alike, and much more so than images of this collection do anyway.

    ``thumbnails`` are of all that show anything, of exact duplicates only one.
    """
    found = hashes(thumbnails)
    none = np.empty(0, dtype=np.int64)
    parts = [Pairs(none, none, none, none.astype(np.float32))]
    for change, asked in enumerate((found, mirrored(found))):
        for first, second in candidates(found, asked, most=_MOST):
            distance = distances(thumbnails, first, second, change)
            near = distance <= FARTHEST
            parts.append(Pairs(first[near], second[near], np.full(int(near.sum()), change), distance[near]))
    pairs = Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    nearest = np.argsort(pairs.distance, kind="stable")  # of what was found of a pair
    once = np.unique(pairs.first[nearest] * len(found) + pairs.second[nearest], return_index=True)[1]
    pairs = Pairs(*(column[nearest[once]] for column in pairs))
    involved, place = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    scale, dimension = surroundings(thumbnails, involved)
    share = (pairs.distance / scale[place].reshape(2, -1)) ** dimension[place].reshape(2, -1)
    chance = share.max(axis=0, initial=0) * len(thumbnails) ** 2 / 2
    return Pairs(*(column[chance < BY_CHANCE] for column in pairs))


def _standard(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Float[np.ndarray, "n 1024"]:
    """Rows of mean 0 and length 1."""
    rows = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def distances(
    thumbnails: UInt8[np.ndarray, "n 32 32"], first: Int[np.ndarray, " p"], second: Int[np.ndarray, " p"], change: int
) -> Float[np.ndarray, " p"]:
    """How far apart the thumbnails of some pairs are, as ``Pairs.distance``."""
    found = np.empty(len(first), dtype=np.float32)
    for start in range(0, len(first), _PAIRS):
        part = slice(start, start + _PAIRS)
        other = thumbnails[second[part]]
        one = _standard(thumbnails[first[part]])
        alike = np.einsum("pd,pd->p", one, _standard(other[:, :, ::-1] if change else other))
        found[part] = np.sqrt(np.maximum(0, 2 - 2 * alike))
    return found


def surroundings(
    thumbnails: UInt8[np.ndarray, "n 32 32"], involved: Int[np.ndarray, " m"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """How densely other images lie around some: the share of all within a distance r is (r / scale) ** dimension.

    The dimension is Levina and Bickel's (2004), from the distances to the nearest of a crowd that stands for all. The
    very nearest may be copies, so of them it is only taken that they are nearer than the others; and because neighbours
    are few, each image's own is drawn towards that of the whole collection.

    Args:
        thumbnails: Of all images.
        involved: Places of the images to ask about.

    Returns:
        Scale and dimension; an infinite scale where there are too few images to tell.
    """
    crowd = _spread(len(thumbnails), _CROWD)
    if len(crowd) < _FEWEST:
        return np.full(len(involved), math.inf, dtype=np.float32), np.ones(len(involved), dtype=np.float32)
    neighbours = min(_NEIGHBOURS, len(crowd) - 1)
    copies = min(_COPIES, neighbours // 2)
    free = neighbours - copies - 1
    _, logs = _spacing(thumbnails, _spread(len(thumbnails), _SAMPLE), crowd, neighbours, copies)
    reach, own = _spacing(thumbnails, involved, crowd, neighbours, copies)
    dimension = (free + _PRIOR) / np.maximum(own + _PRIOR * logs.mean() / free, 1e-6)
    return reach * (neighbours / len(crowd)) ** (-1 / dimension), dimension


def _spread(count: int, most: int) -> Int[np.ndarray, " m"]:
    """Up to so many of the numbers below ``count``, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _spacing(
    thumbnails: np.ndarray, which: np.ndarray, crowd: np.ndarray, neighbours: int, copies: int
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """The distance of each image's last neighbour in the crowd, and the sum of log(this / the others' distances).

    The nearest ``copies`` count as being where the first after them is.
    """
    others = _standard(thumbnails[crowd])
    reach, logs = np.empty((2, len(which)), dtype=np.float32)
    for start in range(0, len(which), _PAIRS):
        part = slice(start, start + _PAIRS)
        alike = _standard(thumbnails[which[part]]) @ others.T
        alike[which[part, None] == crowd] = -1  # itself
        away = np.sqrt(np.maximum(2 - 2 * np.partition(alike, -neighbours, axis=1)[:, -neighbours:], 1e-6))
        away.sort(axis=1)
        log = np.log(away[:, -1:] / away[:, copies:-1])
        reach[part], logs[part] = away[:, -1], log.sum(axis=1) + copies * log[:, 0]
    return reach, logs
