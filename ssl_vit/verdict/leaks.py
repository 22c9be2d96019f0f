"""The leak guard's part in a verdict: looked before anything is trained, and again where images or options differ."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from ssl_vit.configs import PoolConfig
from ssl_vit.core.files import write_atomically
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.leaks.audit import Audit, guard
from ssl_vit.report.page.guard import leaks_page
from ssl_vit.runs.directory import RunDir


def look_for_leaks(cfg: PoolConfig, run: RunDir, pool: ImageSet, data: Labelled, device: torch.device) -> None:
    """Writes leaks.json, unless it tells of these images and nothing in it stops this start (every process must call).

    Where leaks stop it, leaks.html shows them.

    Raises:
        UserError: For a leak, with ``--data.on_leak stop``.
    """
    path, page = run.path / "leaks.json", run.path / "leaks.html"
    sets = {"pool": pool, "train": data.train, "test": data.test}
    about = {"of": {name: [s.fingerprint, _groups(s)] for name, s in sets.items()}, "transductive": cfg.transductive}
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text())
    same = all(known.get(name) == value for name, value in about.items())
    if same and not (known["affected"] and "stop" in (cfg.on_leak, known.get("on_leak"))):
        return

    def keep(found: Audit) -> Path | None:
        told, stops = found.to_dict() | about, bool(found.leaks) and cfg.on_leak == "stop"
        if run.writes:
            write_atomically(path, json.dumps(told, indent=1) + "\n")
            page.unlink(missing_ok=True)
            if stops:
                write_atomically(page, leaks_page(pool.name, told))
        return page if stops else None

    guard(pool, data.train, data.test, cfg, device, keep)


def _groups(images: ImageSet) -> str | None:
    return None if images.groups is None else hashlib.sha256(images.groups.tobytes()).hexdigest()[:16]
