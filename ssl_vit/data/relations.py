"""Which images of some sets are the same, copies of one another, or of one group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch.utils.data import Dataset

from ssl_vit.data.decode import decode
from ssl_vit.data.duplicates import CHANGES, SIDE, Pairs, near_duplicates, thumbnail
from ssl_vit.data.formats import Format, Pixels, Raw, Unreadable
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.workers import in_processes, loader_processes
from ssl_vit.dist import gather_lists, gather_rows, rank_and_world

SetName = Literal["pool", "train", "test"]
Kind = Literal["same", "exact", "near", "group"]
Between = Literal["test-train", "test-pool", "within test", "within train", "within pool"]

_AT_ONCE = 32  # images that a loader process looks at before it reports
_LARGE = 512  # pixels of the median short side above which images are decoded to a canvas
_CANVAS = (256, 256)
_TWINS = 12  # examples of a relation
_CODE = 16  # bytes of a hash


class Twin(NamedTuple):
    """Two images that a relation is about."""

    first: tuple[SetName, int]
    """Set and position."""
    second: tuple[SetName, int]
    distance: float | None = None
    change: str = ""
    same_file: bool | None = None


@dataclass(frozen=True)
class Relation:
    """How often images are related in one way."""

    kind: Kind
    between: Between
    pairs: int
    """Pairs of images; groups on both sides."""
    images: int
    """Test images concerned; inside one set all images that have a twin there."""
    test: tuple[int, ...]
    """Positions of the test images concerned; empty inside one set."""
    twins: tuple[Twin, ...]
    """Some examples; of near duplicates from the nearest to the farthest."""


class Relations(NamedTuple):
    """All that was found."""

    relations: tuple[Relation, ...]
    unreadable: tuple[str, ...]
    different: int
    """Images of all sets together, those that sets share counted once."""


class _Rows(NamedTuple):
    """The images of all sets by number, one that several sets share having one number."""

    number: dict[SetName, Int[np.ndarray, " n"]]
    """Of every image of a set."""
    position: dict[SetName, Int[np.ndarray, " r"]]
    """Where a set has the image of a number; -1 where it has not."""

    def has(self, name: SetName) -> Bool[np.ndarray, " r"]:
        """Which images a set has."""
        return self.position[name] >= 0


class _Seen(NamedTuple):
    """What was seen of every image."""

    code: Int[np.ndarray, " r"]
    """Number of its pixels: exact copies share it; unreadable images have one of their own."""
    file: Int[np.ndarray, " r"]
    """Number of its bytes; -1 where it is no file."""
    near: Pairs
    """Codes that look alike."""
    unreadable: tuple[str, ...]


def relations(sets: dict[SetName, ImageSet], workers: int | None, device: torch.device) -> Relations:
    """Compares every image of some sets with every other (every process must call it).

    Args:
        sets: At least train and test.
        workers: Processes that decode; None chooses.
        device: Through which processes exchange what they saw.
    """
    rows = _rows(sets)
    seen = _look(sets, rows, workers, device)
    found = [r for other in ("train", "pool") if other in sets for r in _towards(other, sets, rows, seen)]
    found += [r for name in ("test", "train", "pool") if name in sets for r in _within(name, rows, seen)]
    return Relations(tuple(r for r in found if r.pairs), seen.unreadable, len(seen.code))


def _rows(sets: dict[SetName, ImageSet]) -> _Rows:
    pieces: dict[tuple[str, str], int] = {}
    names = {name: _names(images, pieces) for name, images in sets.items()}
    unique, number = np.unique(np.concatenate(list(names.values())), return_inverse=True)
    ends = np.cumsum([len(found) for found in names.values()])
    numbers = dict(zip(names, np.split(number, ends[:-1]), strict=True))
    position = {name: np.full(len(unique), -1) for name in sets}
    for name, of in numbers.items():
        position[name][of] = np.arange(len(of))
    return _Rows(numbers, position)


def _names(images: ImageSet, pieces: dict[tuple[str, str], int]) -> Int[np.ndarray, " n"]:
    """A number for the split and row of every image.

    Splits are the same where their hashes agree and they call their first image alike: hashes are of file names and
    sizes, which two folders of uncompressed images may share.
    """
    found = np.empty(len(images), dtype=np.int64)
    first = 0
    for piece, length in images.pieces or ((images.source, len(images.rows)),):
        inside = (images.ids >= first) & (images.ids < first + length)
        if inside.any():
            number = pieces.setdefault((piece, images.rows.where(first)), len(pieces))
            found[inside] = number * 2**40 + images.ids[inside] - first
        first += length
    return found


def _comparable(sets: dict[SetName, ImageSet]) -> dict[SetName, ImageSet]:
    """The sets whole and in one format where they have one, on a canvas only where images are large."""
    forms = [images.form for images in sets.values()]
    channels = {form.channels for form in forms}
    form = Format(max(channels), max(form.bits for form in forms))
    short = max(images.sizes.short_side for images in sets.values())
    return {
        name: replace(
            images, form=form if channels <= {1, 3} or len(channels) == 1 else images.form, window=None,
            canvas=_CANVAS if short > _LARGE else None, sizes=Sizes(None, images.sizes.short_side),
        )
        for name, images in sets.items()
    }  # fmt: skip


def readable(images: ImageSet, i: int) -> Pixels:
    """Pixels of an image that could be read before, whole and in its own size.

    Args:
        images: The set.
        i: Position in it.
    """
    return decode(images.raw(i), images.form, None)[0]


class _Report(NamedTuple):
    """What a loader process saw of some images."""

    number: Int[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "n 32"]
    """Hash of the pixels, hash of the file (zeros where there is none)."""
    thumbnails: UInt8[np.ndarray, "n 32 32"]
    """Zeros where an image shows nothing."""
    unreadable: list[str]


class _Looking(Dataset[_Report]):
    """Looks at images in a loader process."""

    def __init__(self, sets: dict[SetName, ImageSet], rows: _Rows) -> None:
        self.sets, self.rows = sets, rows

    def __getitem__(self, wanted: tuple[SetName, np.ndarray]) -> _Report:
        """Images of one set, by number."""
        name, numbers = wanted
        images = self.sets[name]
        good, codes, thumbnails, bad = [], [], [], []
        for number in numbers.tolist():
            i = int(self.rows.position[name][number])
            try:
                raw = images.raw(i)
                pixels, size = decode(raw, images.form, images.canvas)
            except Unreadable as error:
                bad.append(f"{images.where(i)} cannot be read ({error})")
                continue
            good.append(number)
            codes.append(np.frombuffer(_hash(str((size, pixels.shape)).encode(), pixels) + _of_file(raw), np.uint8))
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


def _of_file(raw: Raw) -> bytes:
    if isinstance(raw, np.ndarray):
        return bytes(_CODE)
    return _hash(*((raw,) if isinstance(raw, bytes) else raw))


def _look(sets: dict[SetName, ImageSet], rows: _Rows, workers: int | None, device: torch.device) -> _Seen:
    """Decodes every image once, each process its share, and compares all of them."""
    comparable = _comparable(sets)
    rank, world = rank_and_world()
    wanted: list[tuple[SetName, np.ndarray]] = []
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
    shows = np.flatnonzero(thumbnails[first].any(axis=(1, 2)))
    near = near_duplicates(thumbnails[first[shows]])
    near = near._replace(first=shows[near.first], second=shows[near.second])
    return _Seen(code, file, near, tuple(unreadable))


def _counts(rows: _Rows, seen: _Seen, name: SetName) -> Int[np.ndarray, " c"]:
    """How many images of a set have each code."""
    return np.bincount(seen.code[rows.has(name)], minlength=int(seen.code.max()) + 1)


def _towards(
    other: Literal["train", "pool"], sets: dict[SetName, ImageSet], rows: _Rows, seen: _Seen
) -> Iterator[Relation]:
    """How test images are related to those of another set."""
    between: Between = "test-train" if other == "train" else "test-pool"
    tested, others = rows.has("test"), rows.has(other)
    counts = _counts(rows, seen, other)

    def relation(kind: Kind, pairs: int, concerned: np.ndarray, twins: Iterator[Twin]) -> Relation:
        test = tuple(np.sort(rows.position["test"][concerned]).tolist())
        return Relation(kind, between, pairs, len(test), test, tuple(islice(twins, _TWINS)))

    same = np.flatnonzero(tested & others)
    yield relation("same", len(same), same, (_twin(rows, ("test", other), (r, r)) for r in same))
    copies = counts[seen.code] - others  # an image is no copy of itself
    exact = np.flatnonzero(tested & (copies > 0))
    yield relation("exact", int(copies[exact].sum()), exact, _exact_twins(rows, seen, ("test", other), exact))
    pairs, codes, twins = _near(rows, seen, ("test", other))
    yield relation("near", pairs, np.flatnonzero(tested & np.isin(seen.code, codes)), twins)
    groups = _groups(other, sets, rows)
    if groups is not None:
        shared = np.intersect1d(groups[tested], groups[others & ~tested])
        shared = shared[shared >= 0]
        concerned = np.flatnonzero(tested & np.isin(groups, shared))
        sides = (np.flatnonzero(tested), np.flatnonzero(others & ~tested))
        examples = (
            _twin(rows, ("test", other), (side[groups[side] == group][0] for side in sides)) for group in shared
        )
        yield relation("group", len(shared), concerned, examples)


def _within(name: SetName, rows: _Rows, seen: _Seen) -> Iterator[Relation]:
    """How the images of one set are related."""
    between: Between = f"within {name}"
    own, counts = rows.has(name), _counts(rows, seen, name)
    exact = np.flatnonzero(own & (counts[seen.code] > 1))
    pairs = int((counts * (counts - 1) // 2).sum())
    leading = exact[np.unique(seen.code[exact], return_index=True)[1]]
    twins = _exact_twins(rows, seen, (name, name), leading)
    yield Relation("exact", between, pairs, len(exact), (), tuple(islice(twins, _TWINS)))
    pairs, codes, twins = _near(rows, seen, (name, name))
    images = int((own & np.isin(seen.code, codes)).sum())
    yield Relation("near", between, pairs, images, (), tuple(islice(twins, _TWINS)))


def _groups(other: Literal["train", "pool"], sets: dict[SetName, ImageSet], rows: _Rows) -> np.ndarray | None:
    """The group of every image, -1 where it is not known: a pool's are, where it is made of labelled images."""
    train, test = sets["train"], sets["test"]
    if train.groups is None or test.groups is None:
        return None
    found = np.full(len(rows.position["test"]), -1, dtype=np.int64)
    found[rows.number["train"]] = train.groups
    found[rows.number["test"]] = test.groups
    pool = sets.get("pool")
    if other == "pool" and pool is not None and pool.groups is not None and pool.splits == train.splits:
        found[rows.number["pool"]] = pool.groups
    return found


def _near(rows: _Rows, seen: _Seen, names: tuple[SetName, SetName]) -> tuple[int, np.ndarray, Iterator[Twin]]:
    """Near duplicates between two sets: pairs of images, codes of the first set's images, examples."""
    one, two = (_counts(rows, seen, name) for name in names)
    near = seen.near
    there, back = one[near.first] * two[near.second], one[near.second] * two[near.first]
    codes = np.concatenate([near.first[there > 0], near.second[back > 0]])
    pairs = int(there.sum() + (0 if names[0] == names[1] else back.sum()))
    found = np.flatnonzero(there + back > 0)
    found = found[np.argsort(near.distance[found], kind="stable")]
    found = found[np.unique(np.linspace(0, len(found) - 1, min(_TWINS, len(found))).astype(int))]

    def twins() -> Iterator[Twin]:
        for p in found:
            ends = (near.first[p], near.second[p]) if there[p] else (near.second[p], near.first[p])
            members = (np.flatnonzero(rows.has(n) & (seen.code == c))[0] for n, c in zip(names, ends, strict=True))
            twin = _twin(rows, names, members)
            yield twin._replace(distance=round(float(near.distance[p]), 4), change=CHANGES[near.change[p]])

    return pairs, codes, twins()


def _exact_twins(rows: _Rows, seen: _Seen, names: tuple[SetName, SetName], firsts: np.ndarray) -> Iterator[Twin]:
    """Every one of these images beside a copy of it in the other set."""
    for row in firsts:
        copies = np.flatnonzero(rows.has(names[1]) & (seen.code == seen.code[row]))
        copy = copies[copies != row][0]
        both = seen.file[[row, copy]]
        same = None if (both < 0).any() else bool(both[0] == both[1])
        yield _twin(rows, names, (row, copy))._replace(distance=0.0, same_file=same)


def _twin(rows: _Rows, names: tuple[SetName, SetName], numbers: Iterable[int]) -> Twin:
    first, second = ((name, int(rows.position[name][r])) for name, r in zip(names, numbers, strict=True))
    return Twin(first, second)
