"""Looks at every image of some sets once: which are shared, which have equal pixels, what they look like."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from ssl_vit.core.dist import gather_lists, gather_rows, rank_and_world
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Format, Unreadable
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.loading.processes import in_processes
from ssl_vit.data.loading.workers import loader_processes
from ssl_vit.leaks.duplicates import thumbnail
from ssl_vit.leaks.registering import SIDE

_AT_ONCE = 32  # images that a loader process looks at before it reports
_LARGE = 512  # pixels of the median short side above which images are decoded to a canvas
_CANVAS = (256, 256)
_CODE = 16  # bytes of a hash


class Rows(NamedTuple):
    """The images of all sets by number, those that several sets share once."""

    number: dict[str, Int[np.ndarray, " n"]]
    """Of every image of a set."""
    position: dict[str, Int[np.ndarray, " r"]]
    """Where a set has the image of a number; -1 where it has not."""

    def has(self, name: str) -> Bool[np.ndarray, " r"]:
        """Which images a set has."""
        return self.position[name] >= 0


class Seen(NamedTuple):
    """What was seen of every image."""

    code: Int[np.ndarray, " r"]
    """Number of its pixels: exact copies share it. Unreadable images have one of their own, and images of one level
    only, which are all alike."""
    file: Int[np.ndarray, " r"]
    """Number of its bytes; -1 where it is no file."""
    thumbnails: UInt8[np.ndarray, "c 32 32"]
    """Of the first codes; zeros where one shows nothing. Later codes are of images that cannot be read."""
    unreadable: tuple[str, ...]

    def shown(self, which: Bool[np.ndarray, " r"]) -> Int[np.ndarray, " s"]:
        """Codes of some images, those of them that show something."""
        codes = np.unique(self.code[which])
        codes = codes[codes < len(self.thumbnails)]
        return codes[self.thumbnails[codes].any(axis=(1, 2))]


def number_rows(sets: dict[str, ImageSet]) -> Rows:
    """Numbers the images of some sets, which have names."""
    pieces: dict[tuple[str, str], int] = {}
    names = {name: _names(images, pieces) for name, images in sets.items()}
    unique, number = np.unique(np.concatenate(list(names.values())), return_inverse=True)
    ends = np.cumsum([len(found) for found in names.values()])
    numbers = dict(zip(names, np.split(number, ends[:-1]), strict=True))
    position = {name: np.full(len(unique), -1) for name in sets}
    for name, of in numbers.items():
        position[name][of] = np.arange(len(of))
    return Rows(numbers, position)


def _names(images: ImageSet, pieces: dict[tuple[str, str], int]) -> Int[np.ndarray, " n"]:
    """A number for the split and row of every image.

    Splits are the same where their hashes agree and they call their first image alike: hashes are of file names and
    sizes, which two folders of uncompressed images may share.
    """
    found, first = np.empty(len(images), dtype=np.int64), 0
    for piece, length in images.pieces or ((images.source, len(images.rows)),):
        inside = (images.ids >= first) & (images.ids < first + length)
        if inside.any():
            number = pieces.setdefault((piece, images.rows.where(first)), len(pieces))
            found[inside] = number * 2**40 + images.ids[inside] - first
        first += length
    return found


def _comparable(sets: dict[str, ImageSet]) -> dict[str, ImageSet]:
    """The sets whole and in one format where they have one, on a canvas only where images are large."""
    channels = {images.form.channels for images in sets.values()}
    form = Format(max(channels), max(images.form.bits for images in sets.values()))
    short = max(images.sizes.short_side for images in sets.values())
    return {
        name: replace(
            images, form=form if channels <= {1, 3} or len(channels) == 1 else images.form, window=None,
            canvas=_CANVAS if short > _LARGE else None, sizes=Sizes(None, images.sizes.short_side),
        )
        for name, images in sets.items()
    }  # fmt: skip


class _Report(NamedTuple):
    """What a loader process saw of some images."""

    number: Int[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "n 32"]
    """Hash of the pixels, hash of the file (zeros where there is none)."""
    thumbnails: UInt8[np.ndarray, "n 32 32"]
    """Zeros where an image shows nothing."""
    unreadable: list[str]


class _Looking:
    """Looks at images of one set, by number, in a loader process."""

    def __init__(self, sets: dict[str, ImageSet], rows: Rows) -> None:
        self.sets, self.rows = sets, rows

    def __getitem__(self, wanted: tuple[str, np.ndarray]) -> _Report:
        images, position = self.sets[wanted[0]], self.rows.position[wanted[0]]
        good, codes, thumbnails, bad = [], [], [], []
        for number in wanted[1].tolist():
            i = int(position[number])
            try:
                raw = images.raw(i)
                pixels, size = decode(raw, images.form, images.canvas, images.most)
            except Unreadable as error:
                bad.append(f"{images.where(i)} cannot be read ({error})")
                continue
            good.append(number)
            file = bytes(_CODE) if isinstance(raw, np.ndarray) else _hash(*((raw,) if isinstance(raw, bytes) else raw))
            empty = bool((pixels == pixels[:, :1, :1]).all())
            own = f"{wanted[0]} {number}" if empty else str((size, pixels.shape))
            codes.append(np.frombuffer(_hash(own.encode(), pixels) + file, np.uint8))
            small = thumbnail(pixels)
            thumbnails.append(np.zeros((SIDE, SIDE), np.uint8) if small is None else small)
        return _Report(
            np.array(good, dtype=np.int64), np.array(codes, dtype=np.uint8).reshape(-1, 2 * _CODE),
            np.array(thumbnails, dtype=np.uint8).reshape(-1, SIDE, SIDE), bad,
        )  # fmt: skip


def _hash(*parts: bytes | np.ndarray) -> bytes:
    found = hashlib.blake2b(digest_size=_CODE)
    for part in parts:
        found.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else part)
    return found.digest()


def look(sets: dict[str, ImageSet], rows: Rows, workers: int | None, device: torch.device) -> Seen:
    """Decodes every image once, each process its share, and compares all of them."""
    comparable = _comparable(sets)
    rank, world = rank_and_world()
    wanted: list[tuple[str, np.ndarray]] = []
    new = np.ones(len(next(iter(rows.position.values()))), dtype=bool)
    for name in sets:
        own = np.flatnonzero(new & rows.has(name))
        new[own] = False
        own = own[np.argsort(rows.position[name][own])]  # as they lie in files
        wanted += [(name, own[start : start + _AT_ONCE]) for start in range(0, len(own), _AT_ONCE)]
    count = max(loader_processes(images, workers, busy=False) for images in sets.values())
    share = wanted[len(wanted) * rank // world : len(wanted) * (rank + 1) // world]
    nothing = _Looking(comparable, rows)[next(iter(sets)), np.empty(0, dtype=np.int64)]
    reports = [nothing, *in_processes(_Looking(comparable, rows), share, count)]
    number, codes, thumbnails = (
        gather_rows(torch.from_numpy(np.concatenate(column)).to(device)).cpu().numpy()
        for column in list(zip(*reports, strict=True))[:3]
    )
    unreadable = gather_lists([line for report in reports for line in report.unreadable])
    pixels, files = (np.ascontiguousarray(part).view(f"V{_CODE}")[:, 0] for part in np.hsplit(codes, 2))
    _, first, of = np.unique(pixels, return_index=True, return_inverse=True)
    code = len(first) + np.arange(len(new))
    code[number] = of
    file = np.full(len(new), -1)
    file[number] = np.where(codes[:, _CODE:].any(axis=1), np.unique(files, return_inverse=True)[1], -1)
    return Seen(code, file, thumbnails[first], tuple(unreadable))
