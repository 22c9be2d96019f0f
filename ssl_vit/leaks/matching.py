"""Which images of a set show test images: by row, by file, by content; kept, so that nobody looks twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ssl_vit.core.dist import gather_lists, rank_and_world
from ssl_vit.core.files import own_cache, write_atomically
from ssl_vit.core.notices import say_once
from ssl_vit.core.reading import loads
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.images import ImageSet, evenly
from ssl_vit.data.sources.part import file_of
from ssl_vit.leaks.duplicates import near_copies
from ssl_vit.leaks.looking import Rows, Seen, look, number_rows

How = Literal["row", "file", "bytes", "pixels", "near"]

HOW: dict[How, str] = {
    "row": "the same row", "file": "the same file", "bytes": "the same bytes", "pixels": "the same pixels",
    "near": "nearly the same",
}  # fmt: skip
"""How two images are told to be the same picture, the surest first."""

_VERSION = 3  # of what is found; another one looks again
_SAMPLE = 16  # images of either set whose bytes tell whether they are still what was looked at
_LONG = 20_000  # images from which it is said that they are looked at
_MINUTES = 1e8  # pairs for which one thread needs minutes


class Match(NamedTuple):
    """An image, and the test image it shows."""

    image: int
    """Positions in their sets."""
    test: int
    how: How
    change: str = ""
    """What makes one of the other, in words; of near copies."""
    distance: float = 0.0
    """As in ``duplicates.Pairs``; of near copies."""


def matches(images: ImageSet, test: ImageSet, workers: int | None, device: torch.device) -> list[Match]:
    """All images of a set that show a test image, and all test images that are shown (every process must call it).

    Each image stands here with one test image, the one it is surest to show; a test image that is nobody's surest is
    there once more. The main process decides for all. What was found is kept by the sets' fingerprints, in the folder
    of the environment variable SSL_VIT_CACHE or the user's cache.

    Args:
        images: Of a pool, or to train on.
        test: Those to judge on.
        workers: Processes that decode; None chooses.
        device: Through which processes exchange what they saw.
    """
    main = rank_and_world()[0] == 0
    path = _folder() / f"{_key(images, test)}.json"
    kept = gather_lists([_read(path, images, test)] if main else [])[0]
    if not kept:
        if main and len(images) + len(test) >= _LONG:
            long = ", which takes minutes" if len(images) * len(test) >= _MINUTES else ""
            print(f"leak guard      looks at {len(images) + len(test):,} images, once{long}", flush=True)
        looked = _looked(images, test, workers, device)
        kept = gather_lists([json.dumps(looked)] if main else [])[0]
        if main:
            with suppress(OSError):  # a home that cannot be written to costs time and no result
                write_atomically(path, json.dumps(loads(kept) | {"sample": _sample(images, test)}))
    found = loads(kept)
    if lost := sum(len(places) for places in found["unreadable"]):
        say_once(f"note: {lost:,} image(s) cannot be read, so nobody looked whether they show a test image, or are one")
    return [Match(*one) for one in found["matches"]]


def _looked(images: ImageSet, test: ImageSet, workers: int | None, device: torch.device) -> dict[str, Any]:
    """What is found by looking, and which images of either set cannot be read; empty where not in the main process."""
    sets = {"images": images, "test": test}
    rows = number_rows(sets)
    seen = look(sets, rows, workers, device)
    if rank_and_world()[0]:
        return {}
    lost = [np.flatnonzero(seen.code[rows.number[name]] >= len(seen.thumbnails)).tolist() for name in sets]
    return {"matches": _matches(sets, rows, seen), "unreadable": lost}


def _matches(sets: dict[str, ImageSet], rows: Rows, seen: Seen) -> list[Match]:
    images, test = sets.values()
    code, file = ({name: of[rows.number[name]] for name in sets} for of in (seen.code, seen.file))
    found = [_pairs(rows.number["images"], rows.number["test"], "row")]
    found.append(_pairs(np.array(_files("images", images)), np.array(_files("test", test)), "file"))
    exact = _pairs(code["images"], code["test"], "pixels")
    same = [file["images"][one.image] == file["test"][one.test] >= 0 for one in exact]
    found.append([one._replace(how="bytes") if equal else one for one, equal in zip(exact, same, strict=True)])
    shown = {name: seen.shown(rows.has(name)) for name in sets}
    alone = np.setdiff1d(shown["images"], shown["test"])
    near = near_copies(seen.thumbnails[shown["test"]], seen.thumbnails[alone])
    first = {name: dict(zip(code[name][::-1].tolist(), range(len(code[name]))[::-1], strict=True)) for name in sets}
    members = {c: np.flatnonzero(code["images"] == c).tolist() for c in set(alone[near.second].tolist())}
    order = np.argsort(near.distance, kind="stable")
    tests, distance = (
        [first["test"][c] for c in shown["test"][near.first].tolist()],
        near.distance.astype(float).round(4),
    )
    found.append([
        Match(i, tests[p], "near", near.change[p], float(distance[p]))
        for p in order for i in members[int(alone[near.second[p]])]
    ])  # fmt: skip
    return _once([one for part in found for one in part])


def _pairs(images: np.ndarray, test: np.ndarray, how: How) -> list[Match]:
    """Images and tests that have one name: every image with the first such test, every other test with the first."""
    shared = np.intersect1d(images, test)
    firsts = [dict(zip(names[::-1].tolist(), range(len(names))[::-1], strict=True)) for names in (images, test)]
    found = [Match(i, firsts[1][images[i].item()], how) for i in np.flatnonzero(np.isin(images, shared)).tolist()]
    return found + [Match(firsts[0][test[j].item()], j, how) for j in np.flatnonzero(np.isin(test, shared)).tolist()]


def _files(name: str, images: ImageSet) -> list[str]:
    """The whole path of every image's file; something of its own where it has none."""
    paths = [file_of(images.rows, row) for row in images.ids.tolist()]
    return [f"{name} {i}" if path is None else os.path.realpath(path) for i, path in enumerate(paths)]


def in_one_place(some: ImageSet, others: ImageSet) -> bool:
    """Whether the first of some images lies among the files of others, or is no file of its own.

    Splits are told apart by names and sizes of files, which two folders of uncompressed images may share.
    """
    if (path := file_of(some.rows, int(some.ids[0]))) is None:
        return True
    name, place = Path(path).name, os.path.realpath(path)
    alike = (other for row in others.ids.tolist() if (other := file_of(others.rows, row)) and other.endswith(name))
    return any(os.path.realpath(other) == place for other in alike)


def _once(found: Sequence[Match]) -> list[Match]:
    """Of matches with the surest first, those that are the first of an image or of a test image; by image."""
    images, tests, kept = set[int](), set[int](), list[Match]()
    for one in found:
        if one.image not in images or one.test not in tests:
            kept.append(one)
        images.add(one.image)
        tests.add(one.test)
    return sorted(kept, key=lambda one: (one.image, one.test))


def _folder() -> Path:
    return own_cache() / "leaks"


def key_of(images: ImageSet) -> str:
    """A hash of a set's images, whatever their labels: names and sizes of their source, where it is, which rows."""
    digest = hashlib.sha256(images.source.encode() + images.ids.astype(np.int64).tobytes())
    digest.update(f"{images.rows.where(0)} {images.form} {images.sizes.short_side}".encode())
    return digest.hexdigest()[:16]


def _key(images: ImageSet, test: ImageSet) -> str:
    told = f"{_VERSION} {key_of(images)} {images.most} {key_of(test)} {test.most}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _read(path: Path, images: ImageSet, test: ImageSet) -> str:
    """What was found before, as JSON; empty where nothing was, or where files are not any more what they were."""
    try:
        about = loads(path.read_text())
        same = about.pop("sample") == _sample(images, test)
        return (
            json.dumps(about) if same and not _readable(zip((images, test), about["unreadable"], strict=True)) else ""
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""


def _readable(lost: Iterable[tuple[ImageSet, list[int]]]) -> bool:
    """Whether any of some images that could not be read can be read now."""
    for images, places in lost:
        for i in places[:_SAMPLE]:
            with suppress(Unreadable):
                decode(images.raw(i), images.form, None, images.most)
                return True
    return False


def _sample(*sets: ImageSet) -> list[str]:
    return [_hash_of(images, i) for images in sets for i in evenly(len(images), _SAMPLE).tolist()]


def _hash_of(images: ImageSet, i: int) -> str:
    try:
        raw = images.raw(i)
    except Unreadable:
        return ""
    parts = raw if isinstance(raw, tuple) else (raw,)
    return hashlib.sha256(b"".join(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts)).hexdigest()[:16]
