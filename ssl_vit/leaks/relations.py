"""How images of pool, training and test set are related: the same, copies of one another, or of one group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool

from ssl_vit.data.images import ImageSet
from ssl_vit.leaks.duplicates import near_duplicates
from ssl_vit.leaks.looking import Seen, look, number_rows
from ssl_vit.leaks.matching import How, Match, matches

T = TypeVar("T")

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
    """What else was done to one of the two, in words."""
    same_file: bool | None = None
    """Whether exact copies of files agree byte by byte."""


@dataclass(frozen=True)
class Finding:
    """One kind of relation between two of the sets, or inside one."""

    kind: Kind
    between: str
    """``test-train``, ``test-pool``, ``within test``, ``within train`` or ``within pool``."""
    pairs: int
    """Pairs of images, of two sets as ``matching.matches`` gives them; of kind ``group`` the groups on both sides."""
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
    sets: dict[str, ImageSet],
    workers: int | None,
    device: torch.device,
    *,
    transductive: bool,
    kept_apart: Collection[str],
) -> tuple[list[Finding], Seen]:
    """Compares every image of some sets with every other (every process must call it).

    Args:
        sets: At least train and test.
        workers: Processes that decode; None chooses.
        device: Through which processes exchange what they saw.
        transductive: Whether test images in the pool are declared, and so no leak.
        kept_apart: Sets without images that show test images, because these were left out.
    """
    compared, found = _Compared(sets, workers, device), list[Finding]()
    for name in (name for name in ("train", "pool") if name in sets):
        leak = not (transductive and name == "pool")
        known = [] if name in kept_apart else matches(sets[name], sets["test"], workers, device)
        for kind, hows in _KINDS.items():
            own = sorted((one for one in known if one.how in hows), key=lambda one: (one.distance, one.test))
            if own:
                test, twins = tuple(sorted({one.test for one in own})), [_crossed(name, one) for one in _ends(own)]
                found.append(
                    Finding(kind, f"test-{name}", len(own), len(test), len(sets["test"]), leak, test, tuple(twins))
                )
        found += compared.groups(name, leak=leak)
    for name in (name for name in ("test", "train", "pool") if name in sets):
        found += compared.within(name)
    return found, compared.seen


_KINDS: dict[Kind, tuple[How, ...]] = {"same": ("row", "file"), "exact": ("bytes", "pixels"), "near": ("near",)}


def _crossed(name: str, one: Match) -> Twin:
    """A test image, and the one of another set that shows it."""
    same = {"bytes": True, "pixels": False}.get(one.how)
    distance = None if one.how in _KINDS["same"] else one.distance
    return Twin(("test", one.test), (name, one.image), distance, one.change, same)


def _ends(found: Sequence[T]) -> list[T]:
    """Some of what is sorted: from both ends on towards the middle."""
    places = np.unique(np.linspace(0, len(found) - 1, min(_TWINS, len(found))).astype(int))
    return [found[p] for p in np.stack([places, places[::-1]], axis=1).reshape(-1)[: len(places)]]


class _Compared:
    """What was seen of some sets."""

    def __init__(self, sets: dict[str, ImageSet], workers: int | None, device: torch.device) -> None:
        self.sets, self.rows = sets, number_rows(sets)
        self.seen = look(sets, self.rows, workers, device)

    def within(self, name: str) -> Iterator[Finding]:
        """Exact copies and near duplicates inside one set."""
        total, between, code = len(self.sets[name]), f"within {name}", self.seen.code[self.rows.number[name]]
        groups = [np.flatnonzero(code == c) for c in np.flatnonzero(np.bincount(code) > 1)]
        if groups:
            pairs, images = sum(len(g) * (len(g) - 1) // 2 for g in groups), sum(map(len, groups))
            twins = tuple(self._exact(name, int(g[0]), int(g[1])) for g in groups[:_TWINS])
            yield Finding("exact", between, pairs, images, total, leak=False, test=(), twins=twins)
        shown = self.seen.shown(self.rows.has(name))
        near = near_duplicates(self.seen.thumbnails[shown])
        if len(near.first):
            one, two = shown[near.first], shown[near.second]
            many = np.bincount(code, minlength=int(self.seen.code.max()) + 1)
            images = int(many[np.union1d(one, two)].sum())
            twins = [
                Twin((name, _first(code == one[p])), (name, _first(code == two[p])), round(float(near.distance[p]), 4),
                     near.change[p])
                for p in _ends(np.argsort(near.distance, kind="stable").tolist())
            ]  # fmt: skip
            yield Finding("near", between, int((many[one] * many[two]).sum()), images, total, False, (), tuple(twins))

    def _exact(self, name: str, *places: int) -> Twin:
        one, two = self.seen.file[self.rows.number[name][list(places)]]
        first, second = ((name, place) for place in places)
        return Twin(first, second, 0.0, same_file=None if min(one, two) < 0 else bool(one == two))

    def groups(self, name: str, *, leak: bool) -> Iterator[Finding]:
        """Groups of which some images are among the test images and others in a set."""
        groups = self._groups(name)
        if groups is None:
            return
        tested, others = self.rows.has("test"), self.rows.has(name)
        others &= ~tested
        shared = np.intersect1d(groups[tested], groups[others])
        shared = shared[shared >= 0]
        if len(shared):
            rows = np.flatnonzero(tested & np.isin(groups, shared))
            test = tuple(np.sort(self.rows.position["test"][rows]).tolist())
            sides = [[_first(side & (groups == g)) for side in (tested, others)] for g in shared[:_TWINS]]
            twins = [
                Twin(("test", int(self.rows.position["test"][a])), (name, int(self.rows.position[name][b])))
                for a, b in sides
            ]
            total = len(self.sets["test"])
            yield Finding("group", f"test-{name}", len(shared), len(rows), total, leak, test, tuple(twins))

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


def _first(which: Bool[np.ndarray, " r"]) -> int:
    return int(np.flatnonzero(which)[0])
