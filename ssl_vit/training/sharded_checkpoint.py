"""Checkpoints that all processes write together, each its part, while training goes on (torch.distributed.checkpoint).

A checkpoint is a folder ``step_000000100.shards``: tensors by name, whatever part of each the processes held, and
``rest.pt`` with everything else. It is made as ``.part`` and gets its name when all of it is on the disk and hashed, so
that, as with a file, it is whole or not there. Any number of processes reads it.
"""

from __future__ import annotations

import io
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import check_space, make_way, sha256, write_atomically, write_bytes_atomically
from ssl_vit.core.parts import local
from ssl_vit.core.signals import hold
from ssl_vit.training.checkpoint import cannot_be_read
from ssl_vit.training.shards import ENDING, remove

_PARTS: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__name__): kind for kind in (
        metadata.ChunkStorageMetadata, metadata.Metadata, metadata.MetadataIndex, metadata.StorageMeta,
        metadata.TensorProperties, TensorStorageMetadata, metadata._MEM_FORMAT_ENCODING, filesystem._StorageInfo,
    )},
    ("torch", "Size"): torch.Size,
    # What is not needed to read a checkpoint: where it was written, and how its tensors were laid out.
    **dict.fromkeys(
        [("pathlib", "PosixPath"), ("pathlib._local", "PosixPath"), ("torch.serialization", "_get_layout")],
        lambda *_: None,
    ),
    # How some versions of Python write a member of an enumeration.
    ("builtins", "getattr"): lambda _, name: metadata._MEM_FORMAT_ENCODING[name],
}  # fmt: skip
"""All that the pickle may name in which torch says where the tensors of a checkpoint lie; nothing of it runs code."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but what describes tensors."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle names, where it is one of the parts that are known.

        Raises:
            UnpicklingError: For all else.
        """
        if (module, name) in _PARTS:
            return _PARTS[module, name]
        dtype = vars(torch).get(name) if module == "torch" else None
        if isinstance(dtype, torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")


class _Reader(FileSystemReader):
    """Torch's, which would run what a file of a stranger says."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Where tensors lie.

        Raises:
            UnpicklingError: Where the file is damaged, or says something else.
        """
        with Path(self.path, ".metadata").open("rb") as file:
            found = _Unpickler(file).load()
        if not isinstance(found, Metadata) or not isinstance(found.state_dict_metadata, dict):
            raise pickle.UnpicklingError(f"{self.path} does not say where its tensors lie")
        found.storage_meta = metadata.StorageMeta(load_id=self.load_id)
        return found


class ShardedCheckpoints:
    """Those of one training; all of its processes do everything together."""

    def __init__(self, folder: Path, group: Any, keep: int, main: bool) -> None:
        """Writes nothing yet.

        Args:
            folder: Where checkpoints of the run are.
            group: Processes that agree on checkpoints beside training; None for one process.
            keep: How many are kept, at least 1.
            main: Whether this process gives names and removes.
        """
        self.folder, self.group, self.keep, self.main = folder, group, keep, main
        self._under_way: Thread | None = None
        self._part = folder
        self._failed: list[BaseException] = []

    def save(self, step: int, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Begins to write; what is given may change as soon as this returns.

        Args:
            step: Optimiser steps taken.
            tensors: Whole or in parts.
            rest: Numbers, text and containers of them, the same on every process.

        Raises:
            OSError: Where there is no room for it, or for the one before; the main process tells, the others end.
        """
        self.finish()
        part = self.folder / f"step_{step:09d}.part"
        parts = self._all(sum(local(value).nbytes for value in tensors.values() if local(value) is not value))
        error = None
        if self.main:
            try:
                self._begin(part, parts, tensors, {"step": step, **rest})
            except OSError as caught:
                error = caught
        self._agree(part, error)
        # What is on a device is copied to the machine before this returns; what is there already is not, and would be
        # written while the next step changes it.
        held = {
            name: value.detach().clone() if value.device.type == "cpu" else value.detach()
            for name, value in tensors.items()
        }
        writer = FileSystemWriter(str(part), sync_files=True)
        future: Any = async_save(held, storage_writer=writer, process_group=self.group)
        future = getattr(future, "upload_completion", future)

        def complete() -> None:
            try:
                future.result()
                if self.main:
                    self._name(part, step)
            except BaseException as error:  # told by the thread that trains
                self._failed.append(error)

        self._under_way, self._part = Thread(target=complete, name="checkpoint", daemon=True), part
        self._under_way.start()

    def finish(self) -> None:
        """Waits for the checkpoint that is being written, if any; every process has its part of it on the disk then.

        Raises:
            OSError: Where the disk has failed one of them; the main process tells, the others end.
        """
        if self._under_way is None:
            return
        self._under_way.join()
        self._under_way = None
        error = _of_disk(self._failed.pop()) if self._failed else None
        self._agree(self._part, error)  # and that it has its name

    def _begin(self, part: Path, parts: list[int], tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Makes the folder, once there is room for what every process writes and for what one of them does."""
        make_way(self.folder, folder=True)
        self.folder.mkdir(exist_ok=True)  # in a run directory that was deleted meanwhile, nothing begins again
        once = sum(value.nbytes for value in tensors.values() if local(value) is value)
        check_space(part, sum(parts) + once, max(parts))
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        packed = io.BytesIO()
        torch.save(rest, packed)
        write_bytes_atomically(part / "rest.pt", packed.getvalue())

    def _all(self, told: Any) -> list[Any]:
        """What every process says, in their order."""
        heard: list[Any] = [None] * torch.distributed.get_world_size(self.group)
        torch.distributed.all_gather_object(heard, told, group=self.group)
        return heard

    def _agree(self, part: Path, error: OSError | None) -> None:
        """Waits for all processes; where the disk failed one of them, all end, and half a checkpoint is removed."""
        told = next((other for other in self._all(error) if other is not None), None)
        if told is None:
            return
        told.filename = told.filename or str(part)
        if self.main:
            hold()  # a launcher ends those that are left, and this one has something to say
            shutil.rmtree(part, ignore_errors=True)
        torch.distributed.barrier(self.group)
        if not self.main:
            sys.exit(1)
        raise told

    def _name(self, part: Path, step: int) -> None:
        place = self.folder / f"step_{step:09d}{ENDING}"
        lines = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(part.iterdir()))
        shutil.rmtree(place, ignore_errors=True)  # a damaged one of the same step
        make_way(place, folder=True)
        part.replace(place)
        write_atomically(place.with_suffix(".shards.sha256"), lines)
        found = sorted(self.folder.glob(f"step_*{ENDING}"))
        sound = [one for one in found[: found.index(place) + 1] if one.with_suffix(".shards.sha256").exists()]
        for old in sorted({*found} - {*sound[-self.keep :]}):  # as ``save_checkpoint``
            remove(old)


def _of_disk(error: BaseException) -> OSError:
    """The disk's error behind that of a checkpoint, which every process is told; any other is raised.

    Raises:
        BaseException: What was given, where the disk is not behind it.
    """
    behind = [one for one, _ in error.failures.values()] if isinstance(error, CheckpointException) else [error]
    for one in behind:
        if isinstance(one, OSError):
            return one
    raise error


def is_of(place: Path, step: int) -> bool:
    """Whether files whose hashes are known to be right hold a checkpoint of that step.

    Args:
        place: A folder that ``shards.newest_whole`` looks at.
        step: That its name says.

    Raises:
        UserError: Where they cannot be read.
    """
    try:
        with cannot_be_read(place):
            _Reader(str(place)).read_metadata()
            rest = _rest(place)
    except UserError:
        raise
    except Exception:  # files of something else, with hashes of their own
        return False
    return isinstance(rest, dict) and rest.get("step") == step


def _rest(place: Path) -> Any:
    return torch.load(place / "rest.pt", map_location="cpu", weights_only=True)


def read(
    place: Path, room: Callable[[str, torch.Size, torch.dtype], Tensor], group: Any
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and the rest of a checkpoint.

    Args:
        place: A whole one.
        room: Makes a tensor to read into, whole or in parts, by name, shape of the whole and type.
        group: Processes that read together, which all must; None for one, and for the usual ones.

    Raises:
        UserError: Where one of the processes cannot read it.
    """
    reader = _Reader(str(place))
    known = reader.read_metadata().state_dict_metadata
    tensors = {
        name: room(name, about.size, about.properties.dtype)
        for name, about in known.items()
        if isinstance(about, TensorStorageMetadata)
    }
    with _reading(place):
        load(cast("dict[str, Any]", tensors), storage_reader=reader, process_group=group)
        return tensors, _rest(place)


@contextmanager
def _reading(place: Path) -> Generator[None, None, None]:
    with cannot_be_read(place), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that one process is one process
        try:
            yield
        except CheckpointException as error:
            behind = [
                one for one, _ in error.failures.values() if isinstance(one, OSError | MemoryError | RuntimeError)
            ]
            raise (behind[0] if behind else error) from error


def read_one(place: Path, name: str) -> Tensor | None:
    """A whole tensor of a checkpoint, read by one process; None where it has none of that name.

    Args:
        place: A whole checkpoint.
        name: Of the tensor.
    """
    reader = _Reader(str(place))
    about = reader.read_metadata().state_dict_metadata.get(name)
    if not isinstance(about, TensorStorageMetadata):
        return None
    tensors: dict[str, Any] = {name: torch.empty(about.size, dtype=about.properties.dtype)}
    with _reading(place):
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors[name]
