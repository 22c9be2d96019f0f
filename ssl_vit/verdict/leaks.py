"""The leak guard's part in a verdict: what is left out, and what is shown of the rest before anything is trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ssl_vit.configs import PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import object_in
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.leaks.audit import Audit, guard
from ssl_vit.leaks.guard import Omission, guard_labelled, guard_pool
from ssl_vit.report.page.guard import leaks_page
from ssl_vit.runs.directory import RunDir
from ssl_vit.verdict.options import Comparison


class Apart(NamedTuple):
    """Images of a verdict, those that are trained on without any that show test images."""

    pool: ImageSet
    data: Labelled
    omissions: tuple[Omission, ...]


def keep_apart(cfg: Comparison, pool: ImageSet, data: Labelled, device: torch.device) -> Apart:
    """Leaves out what shows test images, with ``--data.on_leak drop`` (every process must call it).

    Raises:
        UserError: Where another rule is named for the training images, or too little would be left.
    """
    if cfg.eval.data.on_leak not in (None, cfg.data.on_leak):
        raise UserError(
            "a verdict has one rule for pool and training images: --data.on_leak without --eval.data.on_leak"
        )
    if cfg.data.on_leak != "drop":
        return Apart(pool, data, ())
    guarded = guard_pool(pool, cfg.data, cfg.eval.data, device, data.test)
    data, omission = guard_labelled(data, "drop", cfg.data.workers, device)
    return Apart(guarded.images, data, tuple(filter(None, (guarded.omission, omission))))


def look_for_leaks(
    cfg: PoolConfig,
    run: RunDir,
    pool: ImageSet,
    data: Labelled,
    device: torch.device,
    omissions: Sequence[Omission] = (),
) -> None:
    """Writes leaks.json, unless it tells of these images and nothing in it stops this start (every process must call).

    Where leaks stop it, leaks.html shows them; what was left out before is listed.

    Raises:
        UserError: For a leak, unless ``--data.on_leak warn``.
    """
    path, page = run.path / "leaks.json", run.path / "leaks.html"
    sets = {"pool": pool, "train": data.train, "test": data.test}
    about = {"of": {name: [s.fingerprint, _groups(s)] for name, s in sets.items()}, "transductive": cfg.transductive}
    for omission in omissions if run.writes else ():
        omission.write(run.path)
    known = object_in(path) or {}
    same = all(known.get(name) == value for name, value in about.items())
    if same and not (known.get("affected") and {cfg.on_leak, known.get("on_leak")} != {"warn"}):
        return

    def keep(found: Audit) -> Path | None:
        told, stops = found.to_dict() | about, bool(found.leaks) and cfg.on_leak != "warn"
        if run.writes:
            write_atomically(path, json.dumps(told, indent=1) + "\n")
            page.unlink(missing_ok=True)
            if stops:
                write_atomically(page, leaks_page(pool.name, told))
        return page if stops else None

    guard(pool, data.train, data.test, cfg, device, keep, omissions)


def _groups(images: ImageSet) -> str | None:
    return None if images.groups is None else hashlib.sha256(images.groups.tobytes()).hexdigest()[:16]
