"""What loader processes do: bytes become uint8 or uint16 pixels; and the one policy for images that cannot be read."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ssl_vit.core.dist import gather_lists, local_processes
from ssl_vit.core.errors import UserError
from ssl_vit.core.machine import threads
from ssl_vit.core.randomness import make_key, uniform
from ssl_vit.data.decoding import current
from ssl_vit.data.decoding.formats import Pixels, Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet, reads_here
from ssl_vit.data.loading.file_crops import FileCrops
from ssl_vit.data.loading.processes import AHEAD, in_processes

_SHARED = Path("/dev/shm")  # where torch puts what processes hand to each other

_TOLERATED = 0.01  # share of unreadable images above which a run stops

Wanted = tuple[np.ndarray, np.ndarray]
"""Int[B], Int[B]: the images of a batch, and how often each has been visited."""


@dataclass(frozen=True)
class Decoded:
    """A batch as a loader process hands it over."""

    pixels: Tensor | np.ndarray
    """Narrow, [B, C, H, W]: a tensor comes through shared memory, an array is copied through a pipe."""
    sizes: np.ndarray
    index: np.ndarray
    epoch: np.ndarray
    bad: list[tuple[int, str]]

    def pin_memory(self) -> Decoded:
        """The same with pixels that the device can fetch by itself (called by a thread)."""
        return replace(self, pixels=torch.as_tensor(self.pixels).pin_memory())


@dataclass(frozen=True)
class _Decoding:
    """Decodes whole batches in a loader process."""

    images: ImageSet
    replace: bool
    seed: int | None
    shared: bool
    """Hand pixels over as tensors."""
    crops: FileCrops | None

    def _read(self, index: list[int], epoch: list[int]) -> Iterator[tuple[Pixels, tuple[int, int]] | Unreadable]:
        """Pixels and size of each image in this visit, or why there are none."""
        if self.crops is not None and self.seed is not None:
            yield from self.crops.read(self.images, index, epoch, self.seed)
            return
        for i, visit in zip(index, epoch, strict=True):
            down = right = 0.5  # a window lies at the same place wherever and whenever it is decoded
            if self.images.window is not None and self.seed is not None:
                down, right = uniform(make_key(self.seed, "window", visit, i), 2)[0].tolist()
            try:
                yield self.images.read(i, (down, right))
            except Unreadable as error:
                yield error

    def copied(self) -> _Decoding:
        """The same, handing pixels over as arrays."""
        return replace(self, shared=False)

    def __getitem__(self, wanted: Wanted) -> Decoded:
        first, epochs = (part.tolist() for part in wanted)
        taken, bad = list(first), list[tuple[int, str]]()
        sizes: dict[int, tuple[int, int]] = {}
        room = torch.empty(0, dtype=torch.uint8)
        for beyond in range(min(len(self.images), 1000) if self.replace else 1):
            missing = [k for k in range(len(first)) if k not in sizes]
            if not missing:
                break
            for k in missing:
                taken[k] = (first[k] + beyond) % len(self.images)
            each = self._read([taken[k] for k in missing], [epochs[k] for k in missing])
            for k, image in zip(missing, each, strict=True):
                if isinstance(image, Unreadable):
                    bad.append((taken[k], str(image)))
                    continue
                pixels, sizes[k] = image
                if not room.numel():
                    room = _room(len(first), pixels, self.shared)
                assert pixels.shape == room.shape[1:], "images of many sizes must be brought to a canvas"
                # At once, while they are in the processor's cache.
                room.numpy().view(pixels.dtype)[k] = pixels
        order = sorted(sizes)
        found = room if len(order) == len(first) else room[order]
        # Sending a tensor from elsewhere would take shared memory for a copy of it.
        as_tensor = self.shared and (found.is_shared() or not current.is_watched())
        return Decoded(
            found if as_tensor else found.numpy(),
            np.array([sizes[k] for k in order], dtype=np.float32),
            np.array([taken[k] for k in order], dtype=np.int64),
            np.array([epochs[k] for k in order], dtype=np.int64),
            bad,
        )


def _room(count: int, first: Pixels, shared: bool) -> Tensor:
    """Memory for a batch of images like the first, narrow, with their channels together where it has them so.

    If shared, a loader process takes memory that other processes see, so that nothing is copied to hand it over; its
    own where there is none any more.
    """
    together = first.strides[0] < first.strides[2]
    shape = (count, *first.shape[1:], first.shape[0]) if together else (count, *first.shape)
    size = math.prod(shape) * first.itemsize
    room = torch.empty(0, dtype=torch.uint8)
    if shared and current.is_watched() and _free() > size:  # of each that fails, an empty file is left
        with suppress(RuntimeError):  # others were faster
            storage = torch.UntypedStorage._new_shared(size)  # as torch's own collate function has it
            room.set_(storage)  # pyright: ignore[reportArgumentType] - torch's stub
    if not room.numel():
        room = torch.empty(size, dtype=torch.uint8)
    room = room.view(torch.int16 if first.dtype == np.uint16 else torch.uint8).view(shape)
    return room.permute(0, 3, 1, 2) if together else room


def decoded(
    images: ImageSet,
    wanted: Iterable[Wanted],
    workers: int | None,
    *,
    replace: bool = True,
    seed: int | None = None,
    pinned: bool = False,
    crops: FileCrops | None = None,
) -> Iterator[Decoded]:
    """Decoded batches in order, whatever the number of processes.

    What is wanted is computed when a process is sent for it. The next readable image may replace an unreadable one,
    which else is left out. The seed is of windows' and crops' places; None takes windows from the middle. ``pinned``
    has a thread copy pixels to memory that the device can fetch by itself.
    """
    wanted = iter(wanted)
    for first in wanted:  # nothing is started where nothing is wanted
        count = loader_processes(images, workers)
        size = images.form.bytes_of((crops.side, crops.side) if crops else images.shape)
        work = _Decoding(images, replace, seed, _has_room(len(first[0]) * size, count), crops)
        yield from in_processes(work, chain([first], wanted), count, pinned)


def loader_processes(images: ImageSet, asked: int | None, *, busy: bool = True) -> int:
    """How many processes decode for this one (``asked``: ``--data.workers``), which may be busy itself meanwhile."""
    if isinstance(images.rows, ArrayRows) or (asked is None and reads_here(images.rows)):
        return 0
    return asked if asked is not None else max(1, min(16, threads() // local_processes() - busy))


def _has_room(batch: int, count: int) -> bool:
    """Whether what all loader processes of this machine hold fits in shared memory: containers often have 64 MB."""
    held = local_processes() * count * (AHEAD + 1) * batch
    return held < _free() // 2


def _free() -> int:
    """Bytes of shared memory that are free."""
    return shutil.disk_usage(_SHARED).free if _SHARED.is_dir() else sys.maxsize


class UnreadableLog:
    """Names every unreadable image once and stops the run when they are more than 1 % (one is always tolerated)."""

    def __init__(self, images: ImageSet, *, silent: bool = False) -> None:
        """Starts counting; a silent one neither warns nor stops, because another log already does."""
        self.images, self.silent = images, silent
        self.reasons: dict[int, str] = {}

    def listing(self) -> list[str]:
        """Names and reasons, in the order of the set."""
        return [f"{self.images.where(i)} cannot be read ({reason})" for i, reason in sorted(self.reasons.items())]

    def add(self, bad: list[tuple[int, str]], consequence: str, *, stops: bool = True) -> None:
        """Counts images and warns about new ones; a UserError lists them all when there are too many.

        Where that is left to ``gather``, several processes stop all together, and can go on with something else: one
        that stopped alone would leave the others waiting for it.

        Args:
            bad: Positions and reasons.
            consequence: What becomes of them, for the warning.
            stops: Whether there may be too many already.
        """
        new = {i: reason for i, reason in bad if i not in self.reasons}
        self.reasons |= new
        allowed = max(1, int(_TOLERATED * len(self.images)))
        for i, reason in new.items() if not self.silent and len(self.reasons) <= allowed else ():
            sys.stderr.write(f"warning: {self.images.where(i)} cannot be read ({reason}); {consequence}\n")
        if stops and not self.silent and (len(self.reasons) > allowed or len(self.reasons) == len(self.images)):
            listing = "\n  ".join(self.listing())
            raise UserError(
                f"{len(self.reasons)} of {len(self.images):,} images cannot be read, more than {_TOLERATED:.0%}; "
                f"repair or remove them:\n  {listing}"
            )

    def gather(self) -> None:
        """Learns what other processes found and have warned of (every process must call it)."""
        found = gather_lists([f"{i} {reason}" for i, reason in self.reasons.items()])
        self.reasons |= {int(i): reason for i, _, reason in (line.partition(" ") for line in found)}
        self.add([], "")
