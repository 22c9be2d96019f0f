"""What a disk does to a run, in one line: full, read-only, too slow to be there; what is safe, and what to do."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ssl_vit.core.errors import UserError
from ssl_vit.runs import lock

_ROOM = "make room, and the same command goes on"
_DISK = {
    errno.ENOSPC: ("the disk is full", _ROOM),
    errno.EDQUOT: ("the quota of the disk is used up", _ROOM),
    errno.EFBIG: ("a file may not grow so large (ulimit -f)", "raise the limit, and the same command goes on"),
    errno.EROFS: ("the disk can only be read", "make it writable, and the same command goes on"),
    errno.EIO: ("the disk failed", "look at the disk; the same command goes on"),
    errno.ESTALE: ("the shared disk has lost the file", "the same command goes on"),
}
"""Errors that are of a disk, whatever file they are about: what is wrong, what to do."""
_PLACE = {
    errno.EACCES: ("nothing can be written any more", "give back the right to write, and the same command goes on"),
    errno.EPERM: ("nothing can be written any more", "give back the right to write, and the same command goes on"),
    errno.ENOENT: ("the folder was removed or moved meanwhile", "put it back, and the same command goes on"),
    errno.ENOTDIR: ("the folder was removed or moved meanwhile", "put it back, and the same command goes on"),
}  # fmt: skip
"""Errors that are of a disk where they are about a file of the run."""
_HASHED = re.compile(r"step_(\d{9,})(?:\.shards)?\.sha256")
"""The hash of a checkpoint, or of one in parts, which is written last and removed first."""


@contextmanager
def disk_told() -> Generator[None, None, None]:
    """Has errors of the disk come as a ``UserError`` that says what is safe; must be left before locks are."""
    try:
        yield
    except OSError as error:
        words = told(error, lock.held())
        if words is None:
            raise
        raise UserError(words) from error


def told(error: OSError, folders: list[Path]) -> str | None:
    """One line about an error of the disk; None for another one.

    Args:
        error: What was raised.
        folders: Run directories that this process writes into.
    """
    file = Path(os.fsdecode(error.filename)).absolute() if isinstance(error.filename, str | bytes) else None
    own = [folder for folder in folders if file is not None and file.is_relative_to(folder)]
    known = _DISK.get(error.errno or 0) or (_PLACE.get(error.errno or 0) if own else None)
    if known is None:
        return None
    what, remedy = known
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and own[0].is_dir():
        return None  # a file of it that is missing is another matter
    where = f" ({file}: {error.strerror})" if file is not None else f" ({error.strerror})"
    return f"{what}{where}; {'; '.join(map(_safe, own or folders)) or 'what was complete is safe'}; {remedy}"


def _safe(folder: Path) -> str:
    """What of a run directory is safe."""
    hashed = [path.name for path in folder.glob("checkpoints/step_*.sha256") if path.is_file()]
    steps = [int(found[1]) for found in map(_HASHED.fullmatch, hashed) if found]
    return f"step {max(steps):,} is safe in {folder / 'checkpoints'}" if steps else f"no step is saved yet in {folder}"
