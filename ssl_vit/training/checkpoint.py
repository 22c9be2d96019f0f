"""Checkpoints that survive a crash, and a disk that gives back other bytes than it was given."""

from __future__ import annotations

import re
import shutil
import stat
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from ssl_vit.core.errors import UserError, one_line, reason
from ssl_vit.core.files import check_space, content_of, make_way, sha256, whole, write_atomically
from ssl_vit.training.metering import out_of_memory

_NAME = re.compile(r"step_(\d{9,})\.pt")
_OF_CHECKPOINT = re.compile(r"step_\d{9,}(\.pt|\.shards)?(\.sha256)?")
"""A checkpoint of either kind, or its hashes."""
_HALF = re.compile(r"step_\d{9,}(\.pt|\.shards)?(\.sha256)?\.part")
"""What ``save`` of either kind leaves where it is killed."""


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], keep: int) -> None:
    """Writes a checkpoint atomically, then removes all but the newest ``keep``.

    The data file is complete on disk before it gets its name, and its hash is written last: a checkpoint without a
    matching hash is never used.

    Args:
        folder: Where checkpoints of the run are; made in a folder that exists.
        step: Optimiser steps taken.
        state: Tensors, numbers and containers of them.
        keep: At least 1.

    Raises:
        OSError: Where it cannot be written, or there is no room for it; the ones before are as they were.
    """
    make_way(folder, folder=True)
    folder.mkdir(exist_ok=True)  # in a run directory that was deleted meanwhile, nothing begins again
    path = folder / f"step_{step:09d}.pt"
    held = {storage.data_ptr(): storage.nbytes() for storage in (t.untyped_storage() for t in _tensors(state))}
    check_space(path, sum(held.values()))  # what comes to these may still not fit: then nothing is left of it
    with whole(path) as file:
        kept = _Kept(file)
        try:
            torch.save({"step": step, **state}, cast("BinaryIO", kept))
        except Exception as error:
            if kept.error is None or error is kept.error:
                raise
            raise kept.error from error
    write_atomically(path.with_suffix(".sha256"), sha256(path) + "\n")
    found = _found(folder)
    # Later steps than this one are damaged ones that were passed over when the run continued, and those without a hash
    # were being written when it was killed: neither counts among those that are kept.
    sound = [one for one in found[: found.index(path) + 1] if one.with_suffix(".sha256").exists()]
    for old in sorted({*found} - {*sound[-keep:]}):
        remove(old)


def remove(path: Path) -> None:
    """Removes a checkpoint; its hash goes first, so that it is not used any more."""
    beside = path.with_suffix(".sha256")
    make_way(beside)
    beside.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def put_aside(folder: Path) -> None:
    """Gives other names to checkpoints of which none is sound, and says so: a person may know what to do with them.

    Args:
        folder: Where checkpoints of a run are.
    """
    old = [path for path in listed(folder) if _OF_CHECKPOINT.fullmatch(path.name)]
    if not old:
        return
    endings = (f".damaged{number or ''}" for number in count())
    ending = next(end for end in endings if not any(path.with_name(path.name + end).exists() for path in old))
    for path in old:
        path.rename(path.with_name(path.name + ending))
    sys.stderr.write(
        f"warning: no checkpoint in {folder} is sound, and training begins anew; they are called *{ending} now\n"
    )


def remove_halves(folder: Path) -> None:
    """Removes what a save that was killed has left: it would never be read, and is as large as a checkpoint.

    Args:
        folder: Where checkpoints of the run are, which nobody writes now.
    """
    for path in listed(folder):
        if not _HALF.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


class _Kept:
    """A file that remembers its error: torch tells of it in other words."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _tensors(value)


def _found(folder: Path) -> list[Path]:
    """The files of checkpoints, by their step."""
    named = {path: match for path in listed(folder) if (match := _NAME.fullmatch(path.name))}
    return sorted((path for path in named if _is_file(path)), key=lambda path: int(named[path][1]))


def listed(folder: Path) -> list[Path]:
    """What a folder holds, in order; nothing where there is no such folder.

    Args:
        folder: Where checkpoints of a run are.

    Raises:
        UserError: Where it cannot be listed, which ``glob`` takes for an empty one.
    """
    try:
        with cannot_be_read(folder):
            return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_file(path: Path) -> bool:
    """As ``Path.is_file``, which does not tell of a disk that does not answer in every version of Python."""
    try:
        with cannot_be_read(path):
            return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:  # also a link to nothing
        return False


@contextmanager
def cannot_be_read(path: Path) -> Generator[None, None, None]:
    """Has what cannot be read now end the process in one line: it may be sound, and nothing may take its place.

    Args:
        path: A checkpoint, or where they are.

    Raises:
        UserError: Where the disk or the memory fails; that there is no such file, or a folder, is left as it is.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not out_of_memory(error):
            raise
        why = reason(error) if isinstance(error, OSError) else f"there is no memory for it: {one_line(error)}"
        file = error.filename if isinstance(error, OSError) else None
        raise UserError(
            f"{file or path} cannot be read ({why}); nothing was changed, and the same command goes on once it can be "
            "read"
        ) from error


def load_checkpoint(folder: Path, needed: Sequence[str] = ()) -> dict[str, Any] | None:
    """What ``save_checkpoint`` was given, and ``step``, of the newest whole checkpoint; damaged ones are named.

    Args:
        folder: Where checkpoints of the run are.
        needed: Names of what it holds values by name of, or it counts as damaged.

    Raises:
        UserError: Where one cannot be read, so that nobody knows whether it is damaged.
    """
    for path in reversed(_found(folder)):
        state = _sound(path, needed)
        if state is not None:
            return state
        sys.stderr.write(f"warning: the checkpoint {path} is damaged or incomplete; an older one is used\n")
    return None


def _sound(path: Path, needed: Sequence[str]) -> dict[str, Any] | None:
    try:
        with cannot_be_read(path):
            if content_of(path.with_suffix(".sha256")).strip() != sha256(path).encode():
                return None
            state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception:  # no hash, or a file of something else with the right one
        return None
    if not isinstance(state, dict) or not all(isinstance(state.get(name), dict) for name in needed):
        return None
    step = cast("dict[str, Any]", state).get("step")
    return state if isinstance(step, int) and f"step_{step:09d}.pt" == path.name else None
