"""Checkpoints that survive a crash, and a disk that gives back other bytes than it was given."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from ssl_vit.core.files import check_space, content_of, make_way, sha256, whole, write_atomically

_NAME = re.compile(r"step_(\d{9,})\.pt")


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
    # Later steps than this one are damaged ones that were passed over when the run continued.
    for old in [*found[: found.index(path) + 1][:-keep], *found[found.index(path) + 1 :]]:
        remove(old)


def remove(path: Path) -> None:
    """Removes a checkpoint; its hash goes first, so that it is not used any more."""
    beside = path.with_suffix(".sha256")
    make_way(beside)
    beside.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


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
    named = {path: match for path in folder.glob("step_*.pt") if (match := _NAME.fullmatch(path.name))}
    return sorted((path for path in named if path.is_file()), key=lambda path: int(named[path][1]))


def load_checkpoint(folder: Path, needed: Sequence[str] = ()) -> dict[str, Any] | None:
    """What ``save_checkpoint`` was given, and ``step``, of the newest whole checkpoint; damaged ones are named.

    Args:
        folder: Where checkpoints of the run are.
        needed: Names of what it holds values by name of, or it counts as damaged.
    """
    for path in reversed(_found(folder)):
        state = _sound(path, needed)
        if state is not None:
            return state
        sys.stderr.write(f"warning: the checkpoint {path} is damaged or incomplete; an older one is used\n")
    return None


def _sound(path: Path, needed: Sequence[str]) -> dict[str, Any] | None:
    try:
        if content_of(path.with_suffix(".sha256")).strip() != sha256(path).encode():
            return None
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a disk that cannot be read, or a file of something else with the right hash
        return None
    if not isinstance(state, dict) or not all(isinstance(state.get(name), dict) for name in needed):
        return None
    step = cast("dict[str, Any]", state).get("step")
    return state if isinstance(step, int) and f"step_{step:09d}.pt" == path.name else None
