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
from ssl_vit.leaks.looking import Seen, look, number_rows

Kind = Literal["same", "exact", "near", "group"]

SETS = {"train": "training images", "pool": "images of the pool", "test": "test images"}
_TWINS = 12  # examples of a finding


class Twin(NamedTuple):
    """Two images that a finding is about, each as its set and its position there."""

    first: tuple[str, int]
    second: tuple[str, int]
    distance: float | None = None
    """Of exact copies 0, of near ones the share of the contrast in which thumbnails differ."""
    change: str = ""
    """What else was done to one of the two, as ``duplicates.CHANGES`` names it."""
    same_file: bool | None = None
    """Whether exact copies of files agree byte by byte."""


@dataclass(frozen=True)
class Finding:
    """One kind of relation between two of the sets, or inside one."""

    kind: Kind
    between: str
    """``test-train``, ``test-pool``, ``within test``, ``within train`` or ``within pool``."""
    pairs: int
    """Pairs of images; of kind ``group`` the groups on both sides."""
    images: int
    """Test images concerned; inside one set all images that have a twin there."""
    total: int
    """Images of the set that ``images`` are some of."""
    leak: bool
    """Whether scores on the test images mean less because of it."""
    test: tuple[int, ...]
    """Positions of the test images concerned; empty for what lies inside one set."""
    twins: tuple[Twin, ...]
    """Some examples; of near duplicates the nearest, the farthest, and on towards the middle."""

    def sentence(self) -> str:
        """The finding in words."""
        many, has = f"{self.images:,} of {self.total:,}", "has" if self.images == 1 else "have"
        twin = {"exact": "an exact copy", "near": "a near duplicate"}.get(self.kind)
        if self.between.startswith("within"):
            return f"{many} {SETS[self.of]} {has} {twin} among themselves ({counted(self.pairs, 'pair')})."
        end = f"among the {SETS[self.of]}" + ("" if self.kind != "group" else f" ({counted(self.pairs, 'group')})")
        end += "." if self.leak else ", as declared (transductive)."
        if self.kind == "same":
            return f"{many} test images {'is itself' if self.images == 1 else 'are themselves'} {end}"
        return f"{many} test images {has} {twin or 'relatives'} {end}"

    @property
    def of(self) -> str:
        """The set that test images are compared with, or that is compared with itself."""
        return self.between.removeprefix("within ").removeprefix("test-")


def counted(count: int, what: str) -> str:
    """A number of things in words."""
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def relations(
    sets: dict[str, ImageSet], workers: int | None, device: torch.device, *, transductive: bool
) -> tuple[list[Finding], Seen]:
    """Compares every image of some sets with every other (every process must call it).

    The sets are at least train and test. Test images in a pool are no leak where they are declared (``transductive``).
    """
    compared, found = _Compared(sets, workers, device), list[Finding]()
    for names in [("test", n) for n in ("train", "pool")] + [(n, n) for n in ("test", "train", "pool")]:
        within = names[0] == names[1]
        between = f"within {names[0]}" if within else "-".join(names)
        leak = not within and not (transductive and names[1] == "pool")
        for kind, pairs, rows, twins in compared.related(names) if names[1] in sets else ():
            if pairs:
                test = () if within else tuple(np.sort(compared.rows.position["test"][rows]).tolist())
                shown, total = tuple(islice(twins, _TWINS)), len(sets[names[0]])
                found.append(Finding(kind, between, int(pairs), len(rows), total, leak, test, shown))
    return found, compared.seen


class _Compared:
    """What was seen of some sets, asked for one pair of sets after the other."""

    def __init__(self, sets: dict[str, ImageSet], workers: int | None, device: torch.device) -> None:
        self.sets, self.rows = sets, number_rows(sets)
        self.seen = look(sets, self.rows, workers, device)

    def related(self, names: tuple[str, str]) -> Iterator[tuple[Kind, int, Int[np.ndarray, " c"], Iterator[Twin]]]:
        """Every kind of relation: pairs, rows of the first set that are concerned, examples."""
        within, code = names[0] == names[1], self.seen.code
        tested, others = (self.rows.has(name) for name in names)
        if not within:
            same = np.flatnonzero(tested & others)
            yield "same", len(same), same, (self._twin(names, row, row) for row in same.tolist())
        copies = self._counts(names[1])[code] - others  # an image is no copy of itself
        exact = np.flatnonzero(tested & (copies > 0))
        shown = exact[np.unique(code[exact], return_index=True)[1]] if within else exact
        yield "exact", copies[exact].sum() // (1 + within), exact, self._exact_twins(names, shown)
        pairs, codes, twins = self._near(names)
        yield "near", pairs, np.flatnonzero(tested & np.isin(code, codes)), twins
        groups = None if within else self._groups(names[1])
        if groups is not None:
            others &= ~tested
            shared = np.intersect1d(groups[tested], groups[others])
            shared = shared[shared >= 0]
            sides = ([_first(side & (groups == g)) for side in (tested, others)] for g in shared)
            examples = (self._twin(names, *rows) for rows in sides)
            yield "group", len(shared), np.flatnonzero(tested & np.isin(groups, shared)), examples

    def _counts(self, name: str) -> Int[np.ndarray, " c"]:
        """How many images of a set have each code."""
        return np.bincount(self.seen.code[self.rows.has(name)], minlength=int(self.seen.code.max()) + 1)

    def _groups(self, other: str) -> np.ndarray | None:
        """The group of every image in the labelled images' numbers, -1 where it has none: a pool's go by name."""
        train, test, pool, number = self.sets["train"], self.sets["test"], self.sets.get("pool"), self.rows.number
        if train.groups is None or test.groups is None:
            return None
        found = np.full(len(self.rows.position["test"]), -1, dtype=np.int64)
        found[number["train"]], found[number["test"]] = train.groups, test.groups
        if other == "pool" and pool is not None and pool.groups is not None:
            known = {name: i for i, name in enumerate(train.group_names)}
            own = np.array([known.get(name, -1) for name in pool.group_names], dtype=np.int64)
            alone = ~np.isin(number["pool"], np.concatenate([number["train"], number["test"]]))
            found[number["pool"][alone]] = own[pool.groups[alone]]
        return found

    def _near(self, names: tuple[str, str]) -> tuple[int, np.ndarray, Iterator[Twin]]:
        """Near duplicates between two sets: pairs of images, codes of the first set's images, examples."""
        (first, second), near = (self._counts(name) for name in names), self.seen.near
        there, back = first[near.first] * second[near.second], first[near.second] * second[near.first]
        codes = np.concatenate([near.first[there > 0], near.second[back > 0]])
        found = np.flatnonzero(there + back > 0)
        found = found[np.argsort(near.distance[found], kind="stable")]
        found = found[np.unique(np.linspace(0, len(found) - 1, min(_TWINS, len(found))).astype(int))]
        found = np.stack([found, found[::-1]], axis=1).reshape(-1)[: len(found)]  # both ends first

        def twins() -> Iterator[Twin]:
            for p in found:
                ends = (near.first[p], near.second[p]) if there[p] else (near.second[p], near.first[p])
                rows = (_first(self.rows.has(n) & (self.seen.code == c)) for n, c in zip(names, ends, strict=True))
                distance, change = round(float(near.distance[p]), 4), CHANGES[near.change[p]]
                yield self._twin(names, *rows)._replace(distance=distance, change=change)

        return int(there.sum() + (0 if names[0] == names[1] else back.sum())), codes, twins()

    def _exact_twins(self, names: tuple[str, str], firsts: Int[np.ndarray, " n"]) -> Iterator[Twin]:
        """Every one of these images beside a copy of it in the other set."""
        for row in firsts.tolist():
            copies = np.flatnonzero(self.rows.has(names[1]) & (self.seen.code == self.seen.code[row]))
            copy = int(copies[copies != row][0])
            both = self.seen.file[[row, copy]]
            same = None if (both < 0).any() else bool(both[0] == both[1])
            yield self._twin(names, row, copy)._replace(distance=0.0, same_file=same)

    def _twin(self, names: tuple[str, str], *rows: int) -> Twin:
        one, two = ((name, int(self.rows.position[name][row])) for name, row in zip(names, rows, strict=True))
        return Twin(one, two)


def _first(which: Bool[np.ndarray, " r"]) -> int:
    return int(np.flatnonzero(which)[0])
