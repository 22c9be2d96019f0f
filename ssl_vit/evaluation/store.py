"""RUN/features: vectors computed before, so that draws of labels, protocols and later commands compute them once."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssl_vit.core.arithmetic import rounds_to_tf32
from ssl_vit.core.dist import gather_rows
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import UnreadableLog, eval_batches
from ssl_vit.data.scale import PixelScale
from ssl_vit.evaluation.features import Extractor, Features, extract_features
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.runs.identity import digest
from ssl_vit.runs.provenance import versions
from ssl_vit.runs.vectors import Rows, read_vectors, write_vectors

LARGEST = 2**29
"""Bytes of vectors that are kept at most of one network and source: more cost less to compute than they take up."""
_SAMPLE = 16  # kept vectors that are computed again, to see whether they still hold
_CLOSE = 0.02  # of a vector's length: more than bf16 differs between batches


def kept_features(
    folder: Path | None,
    extract: Extractor,
    identity: dict[str, Any],
    images: ImageSet,
    *,
    writes: bool,
    batch_size: int,
    device: torch.device,
) -> Features:
    """``extract_features``, or what it once returned: one file per network, view and source.

    Images are found in it by their row of the source. So a draw of labels is found in the vectors of all of them, and
    images drawn before are still there. Names and sizes of files, which tell sources apart, do not tell whether pixels
    were changed in place: a sample is computed again at each use, and where one vector disagrees, nothing kept is used.
    The same happens to files that are damaged or made by other versions.

    Args:
        folder: Where vectors are kept; None keeps none.
        extract: Batch to vectors.
        identity: All that the vectors depend on beside the images.
        images: A labelled set.
        writes: Whether this is the main process.
        batch_size: Images per process and forward pass.
        device: Where to compute.
    """
    if folder is None:
        return extract_features(extract, images, batch_size=batch_size, device=device)
    name = {**identity, "source": images.source, "images": images.policy()}
    name |= {"tf32": True} if rounds_to_tf32() else {}
    path, ids = folder / f"{digest(name)}.safetensors", images.ids.astype(np.int64)
    about = json.dumps(name | {"versions": versions()}, sort_keys=True)
    kept, x = _read(path, about), None
    if kept is not None:  # all of these rows, or nothing
        place = np.minimum(np.searchsorted(kept.ids, ids), len(kept.ids) - 1)
        x = kept.x[place] if (kept.ids[place] == ids).all() else None
    holds = x is None or _holds(extract, images, x, batch_size, device)
    # Each process has looked for itself; all must go the same way.
    alike = bool(gather_rows(torch.tensor([x is not None and holds], device=device)).all())
    if alike and x is not None:
        return Features(x, images.truth, np.arange(len(x)), ())
    found = extract_features(extract, images, batch_size=batch_size, device=device)
    if writes and not found.left_out:  # unreadable images must be met, named and counted every time
        _write(path, about, _merged(kept if holds else None, Rows(ids[found.index], found.x)))
    return found


def identity_of(backbone: Backbone, scale: PixelScale, *, size: int, pool: Pool, bf16: bool) -> dict[str, Any]:
    """All that vectors of a network depend on beside the images.

    Args:
        backbone: Any.
        scale: Pixel statistics it was trained with.
        size: Side of its input in pixels.
        pool: What represents an image.
        bf16: Whether matrices are multiplied in bf16.
    """
    return {"network": network_hash(backbone), "scale": asdict(scale), "size": size, "pool": pool, "bf16": bf16}


def network_hash(backbone: Backbone) -> str:
    """Hash of a network's structure and weights, random ones included."""
    hashed = hashlib.sha256(json.dumps([backbone.architecture, backbone.model_args], sort_keys=True).encode())
    for name, weight in backbone.timm_state().items():
        hashed.update(name.encode())
        hashed.update(weight.detach().cpu().contiguous().numpy().reshape(-1).data)
    return hashed.hexdigest()[:16]


def _holds(extract: Extractor, images: ImageSet, x: np.ndarray, batch_size: int, device: torch.device) -> bool:
    chosen = np.unique(np.linspace(0, len(images) - 1, _SAMPLE).astype(np.int64))
    sample = images.subset(chosen)
    log = UnreadableLog(sample, silent=True)
    batches = eval_batches(sample, min(batch_size, _SAMPLE), device, log, workers=0, alone=True)
    again = [extract(batch).float().cpu().numpy() for batch in batches]
    if log.reasons:
        return False
    error, length = (np.linalg.norm(v, axis=1) for v in (np.concatenate(again) - x[chosen], x[chosen]))
    return bool((error <= _CLOSE * length).all())


def _merged(old: Rows | None, new: Rows) -> Rows:
    if old is not None:
        others = ~np.isin(old.ids, new.ids)
        new = Rows(np.concatenate([old.ids[others], new.ids]), np.concatenate([old.x[others], new.x]))
    order = np.argsort(new.ids)
    return Rows(new.ids[order], new.x[order])


def _read(path: Path, about: str) -> Rows | None:
    told, rows = read_vectors(path) or ("", None)
    return rows if rows is not None and told == about and len(rows.ids) else None


def _write(path: Path, about: str, rows: Rows) -> None:
    # A directory that cannot be written to, or a full disk, costs time and no result.
    with suppress(OSError):
        if rows.x.nbytes <= LARGEST:
            write_vectors(path, about, rows)
