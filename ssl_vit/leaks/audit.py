"""The leak guard: test images that training or pre-training sees, as they are, as copies, or through their relatives.

Every image of pool, training and test set is decoded once. Compared are the rows they come from (the same image), their
decoded pixels (exact copies), what they look like (``duplicates``: near copies, also mirrored, resized, encoded again,
brighter or darker; cut, turned or recoloured ones are not looked for), and groups where they are known. Sets of images
above 512 pixels are compared as they are decoded for a canvas of 256.

``Audit.to_dict`` is what the verdict writes as leaks.json (with ``of``: what the sets were)::

    {"format": 1,
     "images": {"pool": 1438, "train": 1438, "test": 359,
                "different": 1797},        what several sets have counted once; "pool" is missing where there is none
     "unreadable": ["photos/a.png cannot be read (empty file)"],                       they were not compared
     "on_leak": "stop" | "warn", "transductive": false,
     "findings": [{"kind": "same" | "exact" | "near" | "group",
                   "between": "test-train" | "test-pool" | "within test" | "within train" | "within pool",
                   "pairs": 3,             pairs of images; of kind group: groups on both sides
                   "images": 2,            test images concerned; within one set all images that have a twin there
                   "leak": true,           stops unless --data.on_leak warn
                   "test": [5, 17],        positions of the test images concerned; [] within one set
                   "sentence": "..."}],
     "affected": [5, 17],                  positions of all test images that any leak concerns
     "affected_images": ["photos/test/a.png", ...],                                   where they are
     "cures": ["remove them from one side", ...],                                     what can be done
     "sentences": ["..."],                 all findings in words, plain text; never empty
     "examples": [{"kind", "between",      at most 12, those of leaks first
                   "distance": 0.07,       exact: 0; near: share of the contrast in which thumbnails differ; else null
                   "change": "",           or "mirrored": what else was done to one of the two
                   "same_file": null,      exact copies of files: whether they agree byte by byte
                   "first": {"set": "test", "position": 5, "where": "plain text", "png": "base64, 96 pixels"},
                   "second": {...}}]}
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ssl_vit.configs import PoolConfig
from ssl_vit.core.dist import meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.images import ImageSet
from ssl_vit.leaks.relations import Kind, Relation, Twin, relations
from ssl_vit.leaks.thumbnails import picture

_CPU = torch.device("cpu")
_EXAMPLES = 12  # pairs to show
_LEAKS = 9  # of leaks, where there are others
_WORDS = {"train": "training images", "pool": "images of the pool", "test": "test images"}


@dataclass(frozen=True)
class Finding:
    """One kind of relation between two of the sets, or inside one."""

    kind: Kind
    between: str
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
        many, has = f"{self.images:,} of {self.total:,}", "has" if self.images == 1 else "have"
        twin = {"exact": "an exact copy", "near": "a near duplicate"}.get(self.kind)
        if self.between.startswith("within"):
            return f"{many} {_WORDS[self.of]} {has} {twin} among themselves ({_counted(self.pairs, 'pair')})."
        declared = "" if self.leak else ", as declared (transductive)"
        if self.kind == "same":
            itself = "is itself" if self.images == 1 else "are themselves"
            return f"{many} test images {itself} among the {_WORDS[self.of]}{declared}."
        if self.kind == "group":
            groups = _counted(self.pairs, "group")
            return f"{many} test images {has} relatives among the {_WORDS[self.of]} ({groups}){declared}."
        return f"{many} test images {has} {twin} among the {_WORDS[self.of]}{declared}."

    @property
    def of(self) -> str:
        """The set that test images are compared with, or that is compared with itself."""
        return self.between.removeprefix("within ").removeprefix("test-")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


@dataclass(frozen=True)
class Shown:
    """One image of an example."""

    set: str
    position: int
    where: str
    png: bytes


@dataclass(frozen=True)
class Example:
    """A pair of images that belongs to a finding."""

    kind: Kind
    between: str
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
    names: tuple[str, ...]
    """Where the test images are that any leak concerns, in the order of ``affected``."""
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

    def cures(self) -> list[str]:
        """What can be done about the leaks; empty without any."""
        if not self.leaks:
            return []
        found = ["remove them from one side"]
        if any(f.kind == "group" for f in self._told()):
            found.append("name no test split, so that one is made which keeps groups together")
        if any(f.of == "pool" for f in self._told()):
            found.append("declare pre-training on test images with --data.transductive true")
        return found

    def complaint(self, where: Path | None) -> str:
        """All leaks in one line, the first names, and what can be done.

        Args:
            where: A file that shows them.
        """
        kinds = {
            "same": "as they are",
            "exact": "as exact copies",
            "near": "as near duplicates",
            "group": "by their group",
        }
        what = ", ".join(f"{f.images:,} {kinds[f.kind]} among the {_WORDS[f.of]}" for f in self._told())
        pairs = dict.fromkeys(
            f"{e.first.where} = {e.second.where}" for e in self.examples if e.between.startswith("test-")
        )
        shown = "" if where is None else f" (all in {where})"
        return (
            f"{len(self.affected):,} of {self.images['test']:,} test images leak: {what}, "
            f"e.g. {'; '.join(list(pairs)[:2])}{shown}; {', '.join(self.cures())}"
        )

    def _told(self) -> list[Finding]:
        """The leaks without those into the pool that are the same into the training images, which the pool holds."""
        in_training = {(f.kind, f.test) for f in self.leaks if f.of == "train"}
        return [f for f in self.leaks if f.of == "train" or (f.kind, f.test) not in in_training]

    def sentences(self) -> list[str]:
        """Every finding in words, and what was not compared."""
        found = [f.sentence() for f in self.findings]
        found = found or [f"No copies or near copies were found among {self.images['different']:,} images."]
        if self.unreadable:
            found.append(f"{_counted(len(self.unreadable), 'image')} could not be read and compared.")
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
            "affected_images": list(self.names),
            "cures": self.cures(),
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
    pool: ImageSet | None,
    train: ImageSet,
    test: ImageSet,
    cfg: PoolConfig,
    device: torch.device = _CPU,
    keep: Callable[[Audit], Path | None] | None = None,
) -> Audit:
    """Looks for leaks before anything is trained, prints what it found, and stops where test images leak.

    Every process must call it.

    Args:
        pool: What is pre-trained on; None where nothing is.
        train: All labelled training images, before any are drawn.
        test: The images to judge on.
        cfg: What to do about leaks, and how many processes decode.
        device: Through which processes exchange what they saw.
        keep: Writes down what was found, before anything stops, and returns a file that shows the leaks, if any does.

    Raises:
        UserError: For a leak, with ``--data.on_leak stop``.
    """
    found = audit(pool, train, test, cfg, device)
    if rank_and_world()[0] == 0:
        for sentence in found.sentences():
            print(f"leak guard      {sentence}", flush=True)
    where = keep(found) if keep else None
    meet()  # the first process that fails ends the others, perhaps while they write
    if found.leaks:
        message = found.complaint(where)
        if cfg.on_leak == "stop":
            raise UserError(message + ", or go on with --data.on_leak warn")
        say_once(f"warning: {message}")
    return found


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
            r.kind, r.between, r.pairs, r.images, len(sets[r.of_set]),
            r.between == "test-train" or (r.between == "test-pool" and not cfg.transductive), r.test,
        )
        for r in found.relations
    ]  # fmt: skip
    counts = {**{name: len(images) for name, images in sets.items()}, "different": found.different}
    leaks, others = (
        _examples(sets, [r for f, r in zip(findings, found.relations, strict=True) if f.leak is leak])
        for leak in (True, False)
    )
    shown = (leaks[:_LEAKS] + others + leaks[_LEAKS:])[:_EXAMPLES]
    examples = tuple(_example(sets, *pair) for pair in shown)
    made = Audit(counts, found.unreadable, tuple(findings), examples, (), cfg.on_leak, cfg.transductive)
    return replace(made, names=tuple(test.where(i) for i in made.affected))


def _examples(sets: dict[str, ImageSet], found: list[Relation]) -> list[tuple[Relation, Twin]]:
    """Some pairs of every relation in turn, none twice: a pool often holds the training images."""
    shown: dict[tuple[str, ...], tuple[Relation, Twin]] = {}
    for n in range(_EXAMPLES):
        for relation in (r for r in found if n < len(r.twins)):
            twin = relation.twins[n]
            names = sorted(sets[name].where(i) for name, i in (twin.first, twin.second))
            shown.setdefault((relation.kind, *names), (relation, twin))
    return list(shown.values())


def _picture(images: ImageSet, i: int) -> bytes:
    """Of the whole image in its own size, whatever the set is decoded to."""
    return picture(decode(images.raw(i), images.form, None)[0])


def _example(sets: dict[str, ImageSet], relation: Relation, twin: Twin) -> Example:
    first, second = (
        Shown(name, i, sets[name].where(i), _picture(sets[name], i)) for name, i in (twin.first, twin.second)
    )
    return Example(relation.kind, relation.between, twin.distance, twin.change, twin.same_file, first, second)
