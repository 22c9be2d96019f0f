"""How images of pool, training and test set are related: the same, copies of one another, or of one group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int

from ssl_vit.data.images import ImageSet
from ssl_vit.leaks.duplicates import CHANGES
from ssl_vit.leaks.looking import Rows, Seen, look, number_rows

Kind = Literal["same", "exact", "near", "group"]

_TWINS = 12  # examples of a relation


class Twin(NamedTuple):
    """Two images that a relation is about."""

    first: tuple[str, int]
    """Set and position."""
    second: tuple[str, int]
    distance: float | None = None
    change: str = ""
    same_file: bool | None = None


@dataclass(frozen=True)
class Relation:
    """How often images are related in one way."""

    kind: Kind
    between: str
    pairs: int
    """Pairs of images; groups on both sides."""
    images: int
    """Test images concerned; inside one set all images that have a twin there."""
    test: tuple[int, ...]
    """Positions of the test images concerned; empty inside one set."""
    twins: tuple[Twin, ...]
    """Some examples; of near duplicates the nearest, the farthest, and on towards the middle."""

    @property
    def of_set(self) -> str:
        """The set whose images are counted."""
        return self.twins[0].first[0]


class Relations(NamedTuple):
    """All that was found."""

    relations: tuple[Relation, ...]
    unreadable: tuple[str, ...]
    different: int
    """Images of all sets together, those that sets share counted once."""


def relations(sets: dict[str, ImageSet], workers: int | None, device: torch.device) -> Relations:
    """Compares every image of some sets with every other (every process must call it).

    Args:
        sets: At least train and test.
        workers: Processes that decode; None chooses.
        device: Through which processes exchange what they saw.
    """
    rows = number_rows(sets)
    seen = look(sets, rows, workers, device)
    found = [r for other in ("train", "pool") if other in sets for r in _towards(other, sets, rows, seen)]
    found += [r for name in ("test", "train", "pool") if name in sets for r in _within(name, rows, seen)]
    return Relations(tuple(r for r in found if r.pairs), seen.unreadable, len(seen.code))


def _counts(rows: Rows, seen: Seen, name: str) -> Int[np.ndarray, " c"]:
    """How many images of a set have each code."""
    return np.bincount(seen.code[rows.has(name)], minlength=int(seen.code.max()) + 1)


def _towards(other: str, sets: dict[str, ImageSet], rows: Rows, seen: Seen) -> Iterator[Relation]:
    """How test images are related to those of another set."""
    between = "test-train" if other == "train" else "test-pool"
    tested, others = rows.has("test"), rows.has(other)
    counts = _counts(rows, seen, other)

    def relation(kind: Kind, pairs: int, concerned: np.ndarray, twins: Iterator[Twin]) -> Relation:
        test = tuple(np.sort(rows.position["test"][concerned]).tolist())
        return Relation(kind, between, pairs, len(test), test, tuple(islice(twins, _TWINS)))

    same = np.flatnonzero(tested & others)
    yield relation("same", len(same), same, (_twin(rows, ("test", other), r, r) for r in same.tolist()))
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
        examples = (
            _twin(rows, ("test", other), _first(tested & (groups == g)), _first(others & ~tested & (groups == g)))
            for g in shared
        )
        yield relation("group", len(shared), concerned, examples)


def _within(name: str, rows: Rows, seen: Seen) -> Iterator[Relation]:
    """How the images of one set are related."""
    between = f"within {name}"
    own, counts = rows.has(name), _counts(rows, seen, name)
    exact = np.flatnonzero(own & (counts[seen.code] > 1))
    pairs = int((counts * (counts - 1) // 2).sum())
    leading = exact[np.unique(seen.code[exact], return_index=True)[1]]
    twins = _exact_twins(rows, seen, (name, name), leading)
    yield Relation("exact", between, pairs, len(exact), (), tuple(islice(twins, _TWINS)))
    pairs, codes, twins = _near(rows, seen, (name, name))
    images = int((own & np.isin(seen.code, codes)).sum())
    yield Relation("near", between, pairs, images, (), tuple(islice(twins, _TWINS)))


def _groups(other: str, sets: dict[str, ImageSet], rows: Rows) -> np.ndarray | None:
    """The group of every image in the labelled images' numbers, -1 where it has none of them: a pool's go by name."""
    train, test = sets["train"], sets["test"]
    if train.groups is None or test.groups is None:
        return None
    found = np.full(len(rows.position["test"]), -1, dtype=np.int64)
    found[rows.number["train"]] = train.groups
    found[rows.number["test"]] = test.groups
    pool = sets.get("pool")
    if other == "pool" and pool is not None and pool.groups is not None:
        number = {name: i for i, name in enumerate(train.group_names)}
        own = np.array([number.get(name, -1) for name in pool.group_names], dtype=np.int64)
        shared = np.isin(rows.number["pool"], rows.number["train"]) | np.isin(rows.number["pool"], rows.number["test"])
        found[rows.number["pool"][~shared]] = own[pool.groups[~shared]]
    return found


def _near(rows: Rows, seen: Seen, names: tuple[str, str]) -> tuple[int, np.ndarray, Iterator[Twin]]:
    """Near duplicates between two sets: pairs of images, codes of the first set's images, examples."""
    first, second = (_counts(rows, seen, name) for name in names)
    near = seen.near
    there, back = first[near.first] * second[near.second], first[near.second] * second[near.first]
    codes = np.concatenate([near.first[there > 0], near.second[back > 0]])
    pairs = int(there.sum() + (0 if names[0] == names[1] else back.sum()))
    found = np.flatnonzero(there + back > 0)
    found = found[np.argsort(near.distance[found], kind="stable")]
    found = found[np.unique(np.linspace(0, len(found) - 1, min(_TWINS, len(found))).astype(int))]
    found = np.stack([found, found[::-1]], axis=1).reshape(-1)[: len(found)]  # both ends first

    def twins() -> Iterator[Twin]:
        for p in found:
            ends = (near.first[p], near.second[p]) if there[p] else (near.second[p], near.first[p])
            one, two = (_first(rows.has(n) & (seen.code == c)) for n, c in zip(names, ends, strict=True))
            twin = _twin(rows, names, one, two)
            yield twin._replace(distance=round(float(near.distance[p]), 4), change=CHANGES[near.change[p]])

    return pairs, codes, twins()


def _exact_twins(rows: Rows, seen: Seen, names: tuple[str, str], firsts: np.ndarray) -> Iterator[Twin]:
    """Every one of these images beside a copy of it in the other set."""
    for row in firsts.tolist():
        copies = np.flatnonzero(rows.has(names[1]) & (seen.code == seen.code[row]))
        copy = int(copies[copies != row][0])
        both = seen.file[[row, copy]]
        same = None if (both < 0).any() else bool(both[0] == both[1])
        yield _twin(rows, names, row, copy)._replace(distance=0.0, same_file=same)


def _first(which: Bool[np.ndarray, " r"]) -> int:
    return int(np.flatnonzero(which)[0])


def _twin(rows: Rows, names: tuple[str, str], first: int, second: int) -> Twin:
    one, two = ((name, int(rows.position[name][r])) for name, r in zip(names, (first, second), strict=True))
    return Twin(one, two)
