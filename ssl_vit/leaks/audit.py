"""The leak guard: test images that training or pre-training sees, as they are, as copies, or through their relatives.

What a verdict shows of them. Test images in pool and training set are found as ``matching`` finds them; inside each set
exact and near duplicates are, and groups where they are known.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ssl_vit.configs import PoolConfig
from ssl_vit.configs.data import OnLeak
from ssl_vit.core.dist import meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Pixels
from ssl_vit.data.decoding.visible import visible
from ssl_vit.data.images import ImageSet
from ssl_vit.leaks.guard import Omission
from ssl_vit.leaks.relations import SETS, Finding, Kind, Twin, counted, relations

_CPU = torch.device("cpu")
_EXAMPLES = 12  # pairs to show
_LEAKS = 9  # of leaks, where there are others
_LONGEST = 96  # pixels of a picture's longer side
_TINY = 32  # images up to this side are enlarged by repeating pixels
_ALIKE = {"same": "as they are", "exact": "as exact copies", "near": "as near duplicates", "group": "by their group"}


@dataclass(frozen=True)
class Shown:
    """One image of an example."""

    set: str
    position: int
    where: str
    """A name a person can find it by."""
    png: str
    """Base64, 96 pixels."""


@dataclass(frozen=True)
class Example:
    """A pair of images that belongs to a finding; as in ``Twin``."""

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
    """Images of every set, and as ``different`` of all together without those that sets share."""
    unreadable: tuple[str, ...]
    """Images that were not compared, with the reason."""
    findings: tuple[Finding, ...]
    examples: tuple[Example, ...]
    """At most 12 pairs, those of leaks first."""
    affected: tuple[int, ...]
    """Positions of all test images that any leak concerns."""
    affected_images: tuple[str, ...]
    """Where these are."""
    on_leak: OnLeak
    transductive: bool
    left_out: tuple[str, ...] = ()
    """What was left out before, in sentences."""

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """The findings that count as leaks."""
        return tuple(f for f in self.findings if f.leak)

    def cures(self) -> list[str]:
        """What can be done about the leaks; empty without any."""
        told = self._told()
        found = {
            "have copies left out with --data.on_leak drop": any(f.kind != "group" for f in told),
            "name no test split, so that one is made which keeps groups together": any(f.kind == "group" for f in told),
            "declare pre-training on test images with --data.transductive true": any(f.of == "pool" for f in told),
        }
        return [cure for cure, helps in found.items() if helps]

    def complaint(self, where: Path | None) -> str:
        """All leaks in one line, the first names, a file that shows them (``where``), and what can be done."""
        what = ", ".join(f"{f.images:,} {_ALIKE[f.kind]} among the {SETS[f.of]}" for f in self._told())
        pairs = [f"{e.first.where} = {e.second.where}" for e in self.examples if e.between.startswith("test-")]
        shown = "" if where is None else f" (all in {where})"
        return (
            f"{len(self.affected):,} of {self.images['test']:,} test images leak: {what}, "
            f"e.g. {'; '.join([*dict.fromkeys(pairs)][:2])}{shown}; {', '.join(self.cures())}"
        )

    def _told(self) -> list[Finding]:
        """The leaks without those into the pool that are the same into the training images, which the pool holds."""
        in_training = {(f.kind, f.test) for f in self.leaks if f.of == "train"}
        return [f for f in self.leaks if f.of == "train" or (f.kind, f.test) not in in_training]

    def sentences(self) -> list[str]:
        """Every finding in words, and what was not compared."""
        found = [f"{sentence}." for sentence in self.left_out] + [f.sentence() for f in self.findings]
        found = found or [f"No copies or near copies were found among {self.images['different']:,} images."]
        if self.unreadable:
            found.append(f"{counted(len(self.unreadable), 'image')} could not be read and compared.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """As a verdict writes it to leaks.json."""
        kept = ("kind", "between", "pairs", "images", "leak", "test")
        findings = [{name: getattr(f, name) for name in kept} | {"sentence": f.sentence()} for f in self.findings]
        words = {"findings": findings, "cures": self.cures(), "sentences": self.sentences()}
        return {"format": 1, **vars(self), **words, "examples": [asdict(example) for example in self.examples]}


def guard(
    pool: ImageSet | None,
    train: ImageSet,
    test: ImageSet,
    cfg: PoolConfig,
    device: torch.device = _CPU,
    keep: Callable[[Audit], Path | None] | None = None,
    omissions: Sequence[Omission] = (),
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
        omissions: What was left out of pool and training images before.

    Raises:
        UserError: For a leak, unless ``--data.on_leak warn``: ``drop`` cannot leave relatives out.
    """
    found = audit(pool, train, test, cfg, device, omissions)
    if rank_and_world()[0] == 0:
        for sentence in found.sentences()[len(found.left_out) :]:
            print(f"leak guard      {sentence}", flush=True)
    where = keep(found) if keep else None
    meet()  # the first process that fails ends the others, perhaps while they write
    if found.leaks:
        message = found.complaint(where)
        if cfg.on_leak != "warn":
            raise UserError(message + ", or go on with --data.on_leak warn")
        say_once(f"warning: {message}")
    return found


def audit(
    pool: ImageSet | None,
    train: ImageSet,
    test: ImageSet,
    cfg: PoolConfig,
    device: torch.device = _CPU,
    omissions: Sequence[Omission] = (),
) -> Audit:
    """Compares every image with every other (every process must call it); what is given is as for ``guard``."""
    sets = {name: images for name, images in (("pool", pool), ("train", train), ("test", test)) if images is not None}
    apart = () if cfg.on_leak != "drop" else ("train",) if cfg.transductive else ("train", "pool")
    findings, seen = relations(sets, cfg.workers, device, transductive=cfg.transductive, kept_apart=apart)
    leaks, others = (_examples(sets, [f for f in findings if f.leak is leak]) for leak in (True, False))
    examples = (leaks[:_LEAKS] + others + leaks[_LEAKS:])[:_EXAMPLES]
    affected = sorted({i for f in findings if f.leak for i in f.test})
    return Audit(
        {**{name: len(images) for name, images in sets.items()}, "different": len(seen.code)}, seen.unreadable,
        tuple(findings), tuple(_example(sets, *pair) for pair in examples), tuple(affected),
        tuple(test.where(i) for i in affected), cfg.on_leak, cfg.transductive, tuple(o.sentence() for o in omissions),
    )  # fmt: skip


def _examples(sets: dict[str, ImageSet], found: list[Finding]) -> list[tuple[Finding, Twin]]:
    """Some pairs of every finding in turn, none twice: a pool often holds the training images."""
    shown: dict[tuple[str, ...], tuple[Finding, Twin]] = {}
    for n in range(_EXAMPLES):
        for finding in (f for f in found if n < len(f.twins)):
            twin = finding.twins[n]
            names = sorted(sets[name].where(i) for name, i in (twin.first, twin.second))
            shown.setdefault((finding.kind, *names), (finding, twin))
    return list(shown.values())


def _example(sets: dict[str, ImageSet], finding: Finding, twin: Twin) -> Example:
    shown: list[Shown] = []
    for name, i in (twin.first, twin.second):
        images = sets[name]
        whole = decode(images.raw(i), images.form, None, images.most)[
            0
        ]  # in its own size, whatever the set is decoded to
        shown.append(Shown(name, i, images.where(i), base64.b64encode(picture(whole)).decode()))
    return Example(finding.kind, finding.between, twin.distance, twin.change, twin.same_file, *shown)


def picture(pixels: Pixels) -> bytes:
    """A PNG with a longer side of 96 pixels, for people: what ``visible`` makes of pixels [C, H, W]."""
    image = visible(pixels)
    scale = _LONGEST / max(image.size)
    kernel = Image.Resampling.NEAREST if max(image.size) <= _TINY else Image.Resampling.BICUBIC
    file = io.BytesIO()
    image.resize([max(1, round(side * scale)) for side in image.size], kernel).save(file, "PNG")
    return file.getvalue()
