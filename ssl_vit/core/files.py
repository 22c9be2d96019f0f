"""Files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ssl_vit.core.errors import UserError


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that a crash leaves the old one or the new one, never half of either."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """As ``write_atomically``, for bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def sha256(path: Path) -> str:
    """The hash of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_out(out: str, endings: Sequence[str]) -> Path:
    """The file that ``--out`` names, before anything is computed for it.

    Args:
        out: What was given.
        endings: What it may end in, in small letters.

    Raises:
        UserError: For another ending, or a folder that does not exist.
    """
    path = Path(out).expanduser()
    if path.suffix.lower() not in endings:
        *first, last = endings
        raise UserError(f"--out {out} must end in {', '.join(first)}{' or ' if first else ''}{last}")
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise UserError(f"--out {out} cannot be written: name a file in a folder that exists")
    return path
