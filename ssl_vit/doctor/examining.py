"""The examination: everything that can be said before training, on the screen and as a page."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accelerate import Accelerator

from ssl_vit.configs import DataConfig, as_words
from ssl_vit.configs.doctor import DoctorRecipe
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.started import typed
from ssl_vit.data.images import Rows, Sizes
from ssl_vit.data.sources.known import KnownLabels, known_of, open_every
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import Part, join
from ssl_vit.doctor.findings import Findings
from ssl_vit.doctor.following import Followed, examine_following, examine_needs, follow
from ssl_vit.doctor.grid import grid
from ssl_vit.doctor.groups import examine_groups
from ssl_vit.doctor.headers import Headers, examine_headers, read_headers
from ssl_vit.doctor.labels import contradictions, examine_labels
from ssl_vit.doctor.page import page
from ssl_vit.doctor.risks import advised, examine_risks
from ssl_vit.doctor.sample import decode_some, examine_sample
from ssl_vit.methods import METHODS, method_named
from ssl_vit.training import launch

_ORDER = ("train", "val", "test")


class Opened(NamedTuple):
    """All splits of a source, in the order that their rows are numbered."""

    parts: list[tuple[str, Part]]
    rows: Rows
    why_not: str
    """Why there are no labels, where they cannot be read."""

    @property
    def known(self) -> KnownLabels | None:
        """The labels of all rows; None where there are none."""
        return known_of([part for _, part in self.parts])


def examine(cfg: DoctorRecipe) -> list[Findings]:
    """Looks at images, prints what it finds part by part, and writes the page where one was asked for.

    Args:
        cfg: As given.

    Raises:
        UserError: Where there are no images, or the page cannot be written.
    """
    method = method_named(cfg.doctor.method or next(iter(METHODS)))
    accelerator = launch.join("auto")
    opened = _open(cfg)
    headers = read_headers(opened.rows)
    found = [_told(examine_headers(headers, [(name, len(part.rows)) for name, part in opened.parts]))]
    labelled, known = examine_labels(opened.parts, opened.why_not), opened.known
    if known is not None:
        contradictions(labelled, headers, known)
    found.append(_told(labelled))
    labels = known.values if known is not None and known.kind == "class" else None
    found.append(_told(examine_groups(opened.rows, labels, cfg.data)))
    run: Followed | None = None
    try:
        run = follow(cfg, method, accelerator)
        found += _pixels(cfg, opened, headers, run, accelerator)
    except UserError as error:
        found.append(Findings("what follows"))
        found[-1].warn(f"training stops: {error}")
        _told(found[-1])
    _write(cfg, found, headers, run)
    return found


def _open(cfg: DoctorRecipe) -> Opened:
    """All splits, with labels where they can be read."""
    why_not = ""
    try:
        parts = open_every(cfg.data)
    except UserError as error:
        parts, why_not = open_source(cfg.data, labelled=False), str(error)
    names = sorted(parts, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    return Opened([(name, parts[name]) for name in names], join([parts[name] for name in names]).rows, why_not)


def _pixels(
    cfg: DoctorRecipe, opened: Opened, headers: Headers, run: Followed, accelerator: Accelerator
) -> list[Findings]:
    """What decoded images show, and what a run on them would be."""
    readable = np.flatnonzero([one.header is not None for one in headers.looked])
    sizes = Sizes(None, run.pool.sizes.short_side, run.pool.sizes.common or run.pool.sizes.usual)
    everything = {"rows": opened.rows, "ids": np.arange(len(opened.rows)), "groups": None, "blocks": None, "pieces": ()}
    images = replace(run.pool, sizes=sizes, **everything)
    sample = decode_some(images, readable, cfg.doctor.decoded)
    found = [_told(examine_sample(sample, len(readable), len(headers.looked)))]
    known = opened.known
    kind, classes = ("class", ()) if known is None else (known.kind, known.names)
    own = None if known is None else known.values[sample.places]
    risks = _told(examine_risks(sample, own, classes, kind, run.cfg))
    found.append(risks)
    following = examine_following(run, advised(risks.warnings))
    if cfg.out:
        following.shown += grid(run)
    found.append(_told(following))
    found.append(_told(examine_needs(run, accelerator, cfg.doctor.seconds)))
    return found


def _told(found: Findings) -> Findings:
    """Prints a part as soon as it is known."""
    print(f"{found.text}\n", flush=True)
    return found


def _write(cfg: DoctorRecipe, found: list[Findings], headers: Headers, run: Followed | None) -> None:
    warned = sum(len(part.warnings) for part in found)
    told = {0: "Nothing to warn of.", 1: "1 warning."}.get(warned, f"{warned} warnings.")
    if cfg.out is None:
        print(f"{told} With pictures: {_again(cfg)} --out doctor.html")
        return
    place = Path(cfg.out).expanduser()
    try:
        write_atomically(place, page(cfg, found, headers, run))
    except OSError as error:
        raise UserError(f"--out {place} cannot be written: {error.strerror}; name another file") from error
    print(f"{told} Page: {place}")


def _again(cfg: DoctorRecipe) -> str:
    """What was typed, the path as a bare word."""
    options = as_words(replace(cfg, data=replace(cfg.data, path=DataConfig().path)))
    return f"{typed('eval/doctor.py')} {shlex.join([cfg.data.path, *options])}"
