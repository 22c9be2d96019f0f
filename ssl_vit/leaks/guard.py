"""Test images are kept out of what is trained on: left out, refused or warned of.

Everything that trains or judges asks here: pre-training for its pool, training on labels, probes, k-NN and the verdict
for their training images.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ssl_vit.configs import OBJECT, DataConfig, LabelledDataConfig, PoolConfig
from ssl_vit.configs.data import OnLeak
from ssl_vit.core.dist import rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.notices import say_once
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.leaks.matching import HOW, Match, in_one_place, key_of, matches

_CPU = torch.device("cpu")
_SHOWN = 2  # pairs that a complaint names
_SETS = {"pool": "images of the pool", "train": "training images"}
_MANY = 200_000  # images of a pool that an evaluation looks through at most


class LeftOut(NamedTuple):
    """An image that is not trained on, because it shows a test image."""

    image: str
    """Names that people can find them by."""
    test_image: str
    how: str
    """One of ``matching.HOW``."""
    change: str
    distance: float
    """As in ``matching.Match``."""


@dataclass(frozen=True)
class Omission:
    """Images of a set that are left out, and the set's name."""

    of: Literal["pool", "train"]
    total: int
    """Images before any were left out."""
    images: tuple[LeftOut, ...]
    kept: bool = False
    """Whether they are trained on all the same, as was asked for; nothing is left out then."""

    def sentence(self) -> str:
        """How many, and why."""
        them = "image is left out, because it shows" if len(self.images) == 1 else "are left out, because they show"
        how = Counter(one.how for one in self.images)
        told = ", ".join(f"{how[words]:,} {words}" for words in HOW.values() if how[words])
        several = f"{len(self.images):,} of {self.total:,} {_SETS[self.of]}"
        return f"{several} {them.removeprefix('image ')} test images ({told})"

    def write(self, folder: Path, before: str = "") -> Path:
        """The list, as left_out_pool.csv or left_out_train.csv, with ``before`` at the beginning of its name."""
        text, path = io.StringIO(), folder / f"{before}{self.file}"
        csv.writer(text, lineterminator="\n").writerows([LeftOut._fields, *self.images])
        write_atomically(path, text.getvalue())
        return path

    @property
    def file(self) -> str:
        """The name of the list."""
        return f"left_out_{self.of}.csv"


class Guarded(NamedTuple):
    """A pool without what was left out."""

    images: ImageSet
    omission: Omission | None
    """None where nothing was left out."""
    about: dict[str, Any]
    """For the backbone's record: the test images that were looked for, and how many of them are in the pool all the
    same; empty where none are known."""


def guard_pool(
    pool: ImageSet,
    data: PoolConfig,
    judged_on: LabelledDataConfig,
    device: torch.device = _CPU,
    test: ImageSet | None = None,
) -> Guarded:
    """Keeps the images that will be judged on, and copies of them, out of a pool (every process must call it).

    Labelled images that cannot be opened are no reason to stop.

    Args:
        pool: What would be pre-trained on.
        data: Its options, and what to do about leaks.
        judged_on: Options of the labelled images.
        device: Through which processes exchange what they saw.
        test: The images that will be judged on, where they are open already; else those that ``judged_on`` names, if
            they are on this machine.

    Raises:
        UserError: For a leak with ``--data.on_leak stop``, and where nothing would be left.
    """
    test = test or _judged(data, judged_on)
    if test is None:
        if data.transductive:
            say_once(_NOTHING_DECLARED)
        return Guarded(pool, None, {})
    found = matches(pool, test, data.workers, device)
    seen = len({one.test for one in found})
    if data.transductive:
        declared = f"note: pre-training on {seen:,} of the {len(test):,} test images, as declared (transductive)"
        say_once(declared if seen else _NOTHING_DECLARED)
        return Guarded(pool, None, {"test": key_of(test), "seen": seen})
    cures = "leave the test split out (--data.split), or declare that this is meant with --data.transductive true"
    kept, omission = _decided("pool", pool, test, found, data.on_leak, cures)
    if omission is None or omission.kept:
        return Guarded(kept, None, {"test": key_of(test), "seen": seen})
    return Guarded(kept, omission, {"test": key_of(test), "seen": 0})


_NOTHING_DECLARED = "note: --data.transductive: no image that would be judged on is known to be in the pool"


def on_leak(data: DataConfig, judged_on: LabelledDataConfig) -> OnLeak:
    """What to do about test images among the training images."""
    return judged_on.on_leak or getattr(data, "on_leak", "drop")


def guard_labelled(
    found: Labelled, what: OnLeak, workers: int | None, device: torch.device = _CPU
) -> tuple[Labelled, Omission | None]:
    """Keeps test images, and copies of them, out of the training images (every process must call it).

    Args:
        found: Labelled images, before any are drawn.
        what: To do about leaks.
        workers: Processes that decode; None chooses.
        device: Through which processes exchange what they saw.

    Raises:
        UserError: For a leak with ``stop``, and where fewer than two classes would be left.
    """
    train, test = found.train, found.test
    alike = matches(train, test, workers, device)
    kept, omission = _decided("train", train, test, alike, what, "name other splits")
    if omission is None or omission.kept:
        return found, omission
    if kept.kind == "class" and len(np.unique(kept.truth)) < 2:
        raise UserError(
            f"{omission.sentence()}, and those that are left have one class only; give training images of their own, "
            "or go on with all of them with --eval.data.on_leak warn"
        )
    return found._replace(train=kept, whole=kept.fingerprint), omission


def left_of(found: Labelled, what: OnLeak, workers: int | None, device: torch.device = _CPU) -> int:
    """How many training images ``guard_labelled`` leaves, with the same arguments (every process must call it)."""
    if what != "drop":
        return len(found.train)
    return len(found.train) - len({one.image for one in matches(found.train, found.test, workers, device)})


def _decided(
    of: Literal["pool", "train"], images: ImageSet, test: ImageSet, found: list[Match], what: OnLeak, cures: str
) -> tuple[ImageSet, Omission | None]:
    """Says what was found and does what is to be done about it."""
    surest: dict[int, Match] = {}
    for one in sorted(found, key=lambda one: [*HOW].index(one.how)):
        surest.setdefault(one.image, one)
    listed = [
        LeftOut(images.where(one.image), test.where(one.test), HOW[one.how], one.change, one.distance)
        for one in sorted(surest.values())
    ]
    main, omission = rank_and_world()[0] == 0, Omission(of, len(images), tuple(listed))
    if not found:
        if main:
            print(f"leak guard      none of the {len(images):,} {_SETS[of]} shows a test image", flush=True)
        return images, None
    option = "--data.on_leak" if of == "pool" else "--eval.data.on_leak"
    if what == "drop" and len(listed) < len(images):
        if main:
            print(f"leak guard      {omission.sentence()}: {omission.file}", flush=True)
        return images.subset(np.setdiff1d(np.arange(len(images)), list(surest))), omission
    shown = "; ".join(f"{one.image} = {one.test_image}" for one in listed[:_SHOWN])
    message = (
        f"{len(listed):,} of the {len(images):,} {_SETS[of]} show {len({one.test for one in found}):,} of the "
        f"{len(test):,} test images of {test.name}, e.g. {shown}"
    )
    if what == "drop":
        raise UserError(f"{message}: nothing would be left to train on; {cures}")
    if what == "stop":
        raise UserError(f"{message}; have them left out ({option} drop), {cures}, or go on with {option} warn")
    say_once(f"warning: {message}")
    return images, replace(omission, kept=True)


def _judged(data: PoolConfig, judged_on: LabelledDataConfig) -> ImageSet | None:
    """The images that will be judged on; None where there are none, or they are not on this machine."""
    path = judged_on.path
    here = path in (None, "digits", data.path) or path.startswith(OBJECT) or Path(path).expanduser().exists()
    if not here:  # on the hub: pre-training needs no network for what comes later
        say_once(f"note: no test images are looked for in the pool: {path} is not on this machine")
        return None
    try:
        return open_labelled(data, judged_on).test
    except UserError as error:
        if path is not None:
            say_once(f"note: no test images are looked for in the pool: {error}")
        return None


def seen_in_pre_training(
    about: dict[str, Any], test: ImageSet, workers: int | None = None, device: torch.device = _CPU
) -> int | None:
    """How many test images were in the pool that a backbone, of which ``about`` is the record, was pre-trained on.

    Every process must call it. Rows, files and content are compared, as before pre-training.

    Returns:
        Their number; None where the pool was another source, is too large to look through for an evaluation, or has
        changed since.
    """
    guarded = about.get("guarded") or {}
    if guarded.get("test") == key_of(test):
        return int(guarded["seen"])
    try:
        data, judged_on = PoolConfig(**about["data"]), LabelledDataConfig(**about["eval_data"])
        pool = open_pool(data, judged_on)[0]
    except (KeyError, TypeError, UserError):
        return None
    shared = test.shared_with(pool) if pool.fingerprint == about.get("pool_fingerprint") else None
    if shared and (shared == len(test) or len(pool) > _MANY) and in_one_place(test, pool):
        return shared
    if len(pool) > _MANY:
        return None
    dropped = np.empty(0, dtype=np.int64)
    if (
        guarded
        and not data.transductive
        and data.on_leak == "drop"
        and (judged := _judged(data, judged_on)) is not None
    ):
        dropped = np.unique([one.image for one in matches(pool, judged, workers, device)]).astype(np.int64)
    kept = np.setdiff1d(np.arange(len(pool)), dropped)
    if pool.subset(kept).fingerprint != about.get("pool_fingerprint"):
        return None
    found = matches(pool, test, workers, device)
    gone = set(dropped.tolist())
    return len({one.test for one in found if one.image not in gone})
