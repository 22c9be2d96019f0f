"""Some images decoded as training decodes them: what breaks only then, what shows nothing, which look alike."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from ssl_vit.data.decoding.formats import Pixels, Unreadable
from ssl_vit.data.images import ImageSet
from ssl_vit.doctor.findings import Findings, listed, share
from ssl_vit.leaks.audit import picture
from ssl_vit.leaks.duplicates import near_duplicates, thumbnail
from ssl_vit.leaks.registering import SIDE
from ssl_vit.leaks.relations import counted
from ssl_vit.report.page.blocks import Pairs, Picture

_PIXELS = 400_000_000
"""Of all decoded images together, in their files: large images are decoded fewer."""
_LEAST = 200
_SHOWN = 6
_GREY = 2.0  # levels of 255 that the channels of a grey image differ by at most
_FEW = 0.01


class _Seen(NamedTuple):
    """What one image shows."""

    thumbnail: np.ndarray | None
    mean: np.ndarray
    """Per channel, of the full range."""
    deviation: np.ndarray
    grey: bool
    """Whether three channels show the same."""
    top: float
    """Brightest value, of the full range."""


class Sample(NamedTuple):
    """Decoded images."""

    images: ImageSet
    """The set they are from, on its canvas."""
    places: Int[np.ndarray, " n"]
    """Positions in the set of what could be decoded."""
    thumbnails: UInt8[np.ndarray, "n 32 32"]
    """Zeros where an image shows nothing."""
    tones: Float[np.ndarray, "n T"]
    """Mean and deviation of every channel, of the full range."""
    grey: int
    """How many of three channels are grey."""
    top: float
    """Brightest value of all, of the full range."""
    broken: tuple[str, ...]
    """Names and reasons of what could not be decoded."""

    @property
    def shows(self) -> np.ndarray:
        """Which images show anything."""
        return np.asarray(self.thumbnails.any(axis=(1, 2)))


def decode_some(images: ImageSet, readable: Int[np.ndarray, " r"], most: int) -> Sample:
    """Decodes evenly spaced images, on all cores.

    Args:
        images: On their canvas.
        readable: Positions of images whose header can be read.
        most: How many at most.
    """
    height, width = images.sizes.common or images.sizes.usual or (images.sizes.short_side,) * 2
    count = min(most, len(readable), max(_LEAST, _PIXELS // max(1, height * width)))
    places = readable[np.unique(np.linspace(0, len(readable) - 1, count).astype(int))]

    def one(i: int) -> _Seen | str:
        try:
            return _seen(images.read(i)[0])
        except Unreadable as error:
            return f"{images.where(i)} ({error})"

    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as threads:
        warnings.simplefilter("ignore")
        found = list(threads.map(one, places.tolist(), chunksize=16))
    good = [(int(i), each) for i, each in zip(places, found, strict=True) if isinstance(each, _Seen)]
    nothing = np.zeros((SIDE, SIDE), np.uint8)
    return Sample(
        images, np.array([i for i, _ in good], dtype=np.int64),
        np.array([nothing if s.thumbnail is None else s.thumbnail for _, s in good], np.uint8).reshape(-1, SIDE, SIDE),
        np.array([np.concatenate([s.mean, s.deviation]) for _, s in good]).reshape(len(good), -1),
        sum(s.grey for _, s in good), max((s.top for _, s in good), default=0.0),
        tuple(each for each in found if isinstance(each, str)),
    )  # fmt: skip


def _seen(pixels: Pixels) -> _Seen:
    full = float(np.iinfo(pixels.dtype).max)
    values = pixels.reshape(len(pixels), -1)
    grey = len(pixels) == 3 and all(int(np.abs(values[0].astype(int) - v).max()) <= _GREY for v in values[1:])
    mean, deviation = values.mean(axis=1) / full, values.std(axis=1) / full
    return _Seen(thumbnail(pixels), mean, deviation, grey, float(values.max()) / full)


def examine_sample(sample: Sample, readable: int, total: int) -> Findings:
    """What is seen of decoded images: broken and empty ones, brightness, near copies.

    Args:
        sample: Decoded. Broken images are counted among those that were tried, all else among those that decoded.
        readable: Images whose header can be read.
        total: Images of the set.
    """
    found, images, decoded = Findings("pixels"), sample.images, len(sample.places)
    tried = decoded + len(sample.broken)
    some = f"{tried:,} evenly spaced ones of {total:,}"
    readable_ones = f"the {tried:,} of {total:,} whose header can be read"
    whole = "all" if tried == total else readable_ones if tried == readable else some
    found.name_some("decoded", f"{whole}; {len(sample.broken):,} broken", list(sample.broken), "broken images")
    if len(sample.broken) > _FEW * tried and (len(sample.broken) > 1 or tried < total):
        found.warn(
            f"{_among(len(sample.broken), tried)} break when they are decoded; training stops at more than 1 % and "
            "more than one: repair them or move them away"
        )
    if not decoded:
        return found
    channels, bits = images.form
    top = 2**bits - 1
    tones = sample.tones.mean(axis=0)
    told = [f"{m * top:,.0f} ± {d * top:,.0f}" for m, d in zip(tones[:channels], tones[channels:], strict=True)]
    found.say("brightness", f"mean and deviation of each channel, of 0 to {top:,}: {listed(told, 8)}")
    if bits == 16 and sample.top < 0.25:
        used = int(np.ceil(np.log2(max(2.0, sample.top * top + 1))))
        found.say("range", f"values end at {sample.top * top:,.0f}, {used} of 16 bits; every channel is standardised")
    if channels == 3 and sample.grey:
        every = "all are grey, in three equal channels"
        found.say("colour", every if sample.grey == decoded else f"{share(sample.grey, decoded)} are grey")
    empty = np.flatnonzero(~sample.shows)
    if len(empty):
        names = [images.where(int(sample.places[i])) for i in empty]
        found.name_some("empty", f"{counted(len(empty), 'image')} of one level only", names, "images of one level only")
    if len(empty) > _FEW * decoded:
        found.warn(f"{_among(len(empty), decoded, 'decoded ')} show nothing; pre-training learns nothing from them")
    _near(found, sample, decoded == total)
    return found


def _among(some: int, whole: int, kind: str = "") -> str:
    return f"{some:,} of {whole:,} {kind}images ({share(some, whole)})"


def _near(found: Findings, sample: Sample, all_of_them: bool) -> None:
    """Images that look alike without being equal."""
    shows = np.flatnonzero(sample.shows)
    pairs = near_duplicates(sample.thumbnails[shows])
    if not len(pairs.first):
        found.say("look alike", "no two of them" if all_of_them else "no two of those that were decoded")
        return
    involved = np.unique(np.concatenate([pairs.first, pairs.second]))
    amount = _among(len(involved), len(sample.places), "decoded ")
    found.say("look alike", f"{counted(len(pairs.first), 'pair')} among {amount}")
    if len(involved) > _FEW * len(sample.places):
        found.warn(
            f"{amount} look like another of them: copies, or parts of one picture. Images of one scene belong on one "
            "side of a test split (--data.group)"
        )
    shown: list[tuple[str, Picture, Picture]] = []
    for p in np.argsort(pairs.distance, kind="stable")[:_SHOWN]:
        first, second = (int(sample.places[shows[side[p]]]) for side in (pairs.first, pairs.second))
        mirror = f", {pairs.change[p]}" if pairs.change[p] else ""
        shown.append((f"Differ by {100 * pairs.distance[p]:.0f} % of their contrast{mirror}.",
                      _drawn(sample.images, first), _drawn(sample.images, second)))  # fmt: skip
    found.shown.append(Pairs(tuple(shown)))


def _drawn(images: ImageSet, place: int) -> Picture:
    return Picture(images.where(place), "", picture(images.read(place)[0]))
