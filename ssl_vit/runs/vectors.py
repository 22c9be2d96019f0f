"""Vectors of images in a file that tells whether it is whole, as those of RUN/features."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float, Int

from ssl_vit.core.files import regular, write_bytes_atomically


class Rows(NamedTuple):
    """Vectors of a source's images."""

    ids: Int[np.ndarray, " n"]
    """Rows of the source, ascending."""
    x: Float[np.ndarray, "n D"]


def read_vectors(path: Path) -> tuple[str, Rows] | None:
    """What the vectors are of, and the vectors; None where there are none, or they do not have their hash.

    Args:
        path: Where they are.
    """
    try:
        with safetensors.safe_open(regular(path), framework="numpy") as file:
            told = file.metadata() or {}
            rows = Rows(file.get_tensor("ids"), file.get_tensor("x"))
    except (OSError, KeyError, ValueError, safetensors.SafetensorError):
        return None
    return (told["about"], rows) if "about" in told and told.get("sha256") == _hash(rows) else None


def write_vectors(path: Path, about: str, rows: Rows) -> None:
    """Writes vectors with their hash.

    Args:
        path: In a folder that exists or can be made.
        about: What they are of.
        rows: The vectors.

    Raises:
        OSError: Naming the file.
    """
    metadata = {"about": about, "sha256": _hash(rows)}
    write_bytes_atomically(path, safetensors.numpy.save({"ids": rows.ids, "x": rows.x}, metadata))


def _hash(rows: Rows) -> str:
    hashed = hashlib.sha256(np.ascontiguousarray(rows.ids).data)
    hashed.update(np.ascontiguousarray(rows.x).data)
    return hashed.hexdigest()
