"""The leak guard: test images that training or pre-training has seen, as they are, as copies, or as their relatives.

Every image of pool, training and test set is decoded once. Compared are the rows they come from (the same image), decoded
pixels (exact copies), what they look like (``duplicates``: near copies, also mirrored, resized, encoded again, brighter or
darker; cut, turned or recoloured ones are not looked for) and, where they are known, groups. Images larger than 512 pixels
are compared as they are decoded for a canvas of 256.

``Audit.to_dict`` is what the verdict writes as leaks.json::

    {"format": 1,
     "images": {"pool": 1438, "train": 1438, "test": 359, "different": 1797},      rows; the last counts shared ones once
     "unreadable": ["photos/a.png cannot be read (empty file)"],                    they were not compared
     "on_leak": "stop", "transductive": false,
     "findings": [{"kind": "same" | "exact" | "near" | "group",
                   "between": "test-train" | "test-pool" | "within test" | "within train" | "within pool",
                   "pairs": 3,         pairs of images; groups on both sides
                   "images": 2,        test images that are affected; within one set all images that have a twin there
                   "leak": true,       counts as a leak: stops unless --data.on_leak warn
                   "test": [5, 17],    positions of the affected test images in the test set
                   "sentence": "..."}],
     "affected": [5, 17],              positions of all test images that any leak concerns
     "sentences": ["..."],             all findings in words; never empty
     "examples": [{"kind", "between",
                   "distance": 0.07 | null,            near: share of the contrast in which thumbnails differ; exact: 0
                   "change": "" | "mirrored",          what else was done to one of them
                   "same_file": true | false | null,   exact: whether files agree byte by byte; null where there are none
                   "first": {"set": "test", "position": 5, "where": "plain text, not escaped", "png": "base64"},
                   "second": {...}}]}                   at most 12, leaks first; pictures have a longer side of 96 pixels
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ssl_vit.configs import PoolConfig
from ssl_vit.data.images import ImageSet
from ssl_vit.data.picture import picture
from ssl_vit.data.relations import Between, Kind, Relation, Twin, readable, relations
from ssl_vit.dist import rank_and_world
from ssl_vit.errors import UserError
from ssl_vit.notices import say_once

_CPU = torch.device("cpu")
_EXAMPLES = 12
_WORDS = {"train": "training images", "pool": "pre-training pool", "test": "test images"}


@dataclass(frozen=True)
class Finding:
    """One kind of relation between two of the sets, or inside one."""

    kind: Kind
    between: Between
    pairs: int
    """Pairs of images; of groups their number."""
    images: int
    """Test images concerned; inside one set all images that have a twin there."""
    total: int
    """Images of the set that ``images`` are some of."""
    leak: bool
    """Whether scores on the test images mean less because of it."""
    test: tuple[int, ...] = ()
    """Positions of the test images concerned; empty for what lies inside one set."""

    def sentence(self) -> str:
        """The finding in words."""
        of = f"{self.images:,} of {self.total:,}"
        twin = {"exact": "an exact copy", "near": "a near duplicate"}.get(self.kind)
        if self.between.startswith("within"):
            name = _WORDS[self.between.removeprefix("within ")]
            return f"{of} images of the {name} have {twin} among themselves ({self.pairs:,} pairs)."
        other = _WORDS[self.between.removeprefix("test-")]
        declared = "" if self.leak else " (declared: --data.transductive)"
        if self.kind == "same":
            return f"{of} test images are themselves in the {other}{declared}."
        if self.kind == "group":
            return (
                f"{of} test images belong to groups that the {other} belong to, too ({self.pairs:,} groups){declared}."
            )
        return f"{of} test images have {twin} in the {other}{declared}."


@dataclass(frozen=True)
class Shown:
    """One image of an example."""

    set: Literal["pool", "train", "test"]
    position: int
    where: str
    png: bytes


@dataclass(frozen=True)
class Example:
    """A pair of images that belongs to a finding."""

    kind: Kind
    between: Between
    distance: float | None
    change: str
    same_file: bool | None
    first: Shown
    second: Shown


@dataclass(frozen=True)
class Audit:
    """All that the leak guard found."""

    images: dict[str, int]
    """Images of every set, and of all together without those that sets share."""
    unreadable: tuple[str, ...]
    """Images that were not compared, with the reason."""
    findings: tuple[Finding, ...]
    examples: tuple[Example, ...]
    on_leak: Literal["stop", "warn"]
    transductive: bool

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """The findings that count as leaks."""
        return tuple(f for f in self.findings if f.leak)

    @property
    def affected(self) -> tuple[int, ...]:
        """Positions of all test images that any leak concerns."""
        return tuple(sorted({i for f in self.leaks for i in f.test}))

    def sentences(self) -> list[str]:
        """Every finding in words, and what was not compared."""
        found = [f.sentence() for f in self.findings]
        sets = ", ".join(_WORDS[name] for name in ("pool", "train", "test") if name in self.images)
        found = found or [f"No image occurs twice, as it is or nearly, within or between {sets}."]
        if self.unreadable:
            found.append(f"{len(self.unreadable):,} images cannot be read and were not compared.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """As the module describes it."""
        return {
            "format": 1,
            "images": self.images,
            "unreadable": list(self.unreadable),
            "on_leak": self.on_leak,
            "transductive": self.transductive,
            "findings": [
                {
                    "kind": f.kind, "between": f.between, "pairs": f.pairs, "images": f.images, "leak": f.leak,
                    "test": list(f.test), "sentence": f.sentence(),
                }
                for f in self.findings
            ],
            "affected": list(self.affected),
            "sentences": self.sentences(),
            "examples": [
                {
                    "kind": e.kind, "between": e.between, "distance": e.distance, "change": e.change,
                    "same_file": e.same_file, "first": _plain(e.first), "second": _plain(e.second),
                }
                for e in self.examples
            ],
        }  # fmt: skip


def _plain(shown: Shown) -> dict[str, Any]:
    return {**vars(shown), "png": base64.b64encode(shown.png).decode()}


def guard(
    pool: ImageSet | None, train: ImageSet, test: ImageSet, cfg: PoolConfig, device: torch.device = _CPU
) -> Audit:
    """Looks for leaks before anything is trained, prints what it found, and stops where test images leak.

    Every process must call it.

    Args:
        pool: What is pre-trained on; None where nothing is.
        train: All labelled training images, before any are drawn.
        test: The images to judge on.
        cfg: What to do about leaks, and how many processes decode.
        device: Through which processes exchange what they saw.

    Raises:
        UserError: For a leak, with ``--data.on_leak stop``.
    """
    found = audit(pool, train, test, cfg, device)
    if rank_and_world()[0] == 0:
        for sentence in found.sentences():
            print(f"leak guard      {sentence}", flush=True)
    if found.leaks:
        message = _complaint(found, len(test))
        if cfg.on_leak == "stop":
            raise UserError(message + "; remove them from one side, or go on with --data.on_leak warn")
        say_once(f"warning: {message}")
    return found


def _complaint(found: Audit, tests: int) -> str:
    kinds = {"same": "the same image", "exact": "exact copies", "near": "near duplicates", "group": "groups"}
    what = ", ".join(
        f"{f.images:,} by {kinds[f.kind]} in the {_WORDS[f.between.removeprefix('test-')]}" for f in found.leaks
    )
    names = [f"{e.first.where} and {e.second.where}" for e in found.examples if e.between.startswith("test-")][:2]
    hint = ""
    if any(f.between == "test-pool" and f.kind != "group" for f in found.leaks):
        hint += " (to pre-train on test images on purpose, declare it with --data.transductive true)"
    if any(f.kind == "group" for f in found.leaks):
        hint += " (a split made here keeps groups together: leave out --eval.data.test_split)"
    return f"{len(found.affected):,} of {tests:,} test images leak: {what}, e.g. {'; '.join(names)}{hint}"


def audit(
    pool: ImageSet | None, train: ImageSet, test: ImageSet, cfg: PoolConfig, device: torch.device = _CPU
) -> Audit:
    """Compares every image with every other (every process must call it).

    Args:
        pool: As for ``guard``.
        train: As for ``guard``.
        test: As for ``guard``.
        cfg: As for ``guard``.
        device: As for ``guard``.
    """
    sets = {name: images for name, images in (("pool", pool), ("train", train), ("test", test)) if images is not None}
    found = relations(sets, cfg.workers, device)
    findings = [
        Finding(
            r.kind, r.between, r.pairs, r.images, len(sets[r.between.removeprefix("within ").partition("-")[0]]),
            r.between == "test-train" or (r.between == "test-pool" and not cfg.transductive), r.test,
        )
        for r in found.relations
    ]  # fmt: skip
    counts = {**{name: len(images) for name, images in sets.items()}, "different": found.different}
    leaks_first = sorted(zip(findings, found.relations, strict=True), key=lambda pair: not pair[0].leak)
    shown = _examples(sets, [relation for _, relation in leaks_first])
    return Audit(counts, found.unreadable, tuple(findings), tuple(shown), cfg.on_leak, cfg.transductive)


def _examples(sets: dict[str, ImageSet], found: list[Relation]) -> list[Example]:
    """Some pairs of every relation in turn, until there are enough."""
    turns = [(r, r.twins[n]) for n in range(_EXAMPLES) for r in found if n < len(r.twins)]
    return [_example(sets, r, twin) for r, twin in turns[:_EXAMPLES]]


def _example(sets: dict[str, ImageSet], relation: Relation, twin: Twin) -> Example:
    first, second = (
        Shown(name, i, sets[name].where(i), picture(readable(sets[name], i))) for name, i in (twin.first, twin.second)
    )
    return Example(relation.kind, relation.between, twin.distance, twin.change, twin.same_file, first, second)
