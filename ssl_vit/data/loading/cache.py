"""Decoded images that are kept: in memory that all processes of a machine share, or on the device."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from ssl_vit.core.dist import gather_lists, max_over_ranks, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.data.boxes import SMALL
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet
from ssl_vit.data.loading.batch import Batch, Fields, describe, finish, narrow
from ssl_vit.data.loading.processes import in_processes
from ssl_vit.data.loading.shared import SharedArray, free_memory
from ssl_vit.data.loading.workers import UnreadableLog, loader_processes

Cache = Literal["auto", "ram", "device", "none"]
"""``--data.cache``."""

TAKEN = "another image takes its place"
"""What training does about an unreadable image."""

_STRETCH = 64  # images that a loader process decodes before it reports
_SILENCE = 60.0  # seconds between two reports where there is no terminal

T = TypeVar("T")


class Place(NamedTuple):
    """Where decoded images are kept."""

    kind: Literal["ram", "device", "none"]
    why: str
    """The same in words, with sizes."""


def choose(images: ImageSet, asked: Cache, device: torch.device) -> Place:
    """Decides where decoded images are kept, the same on all processes (every process must call it).

    Every visit of an image shows another window of it, so windows are never kept; streamed images only where memory
    was asked for by name. Of a device's memory a quarter is taken at most, of the machine's a half, unless asked for.

    Raises:
        UserError: When they do not fit where they were asked to be.
    """
    size = len(images) * images.form.bytes_of(images.shape)
    why = ": every visit cuts another window" if images.window is not None else ""
    if asked == "auto" and size and images.blocks is not None:
        why = why or ": they are streamed"
    if why or asked == "none" or not size:
        return Place("none", f"decoded as needed{why}")
    needed = 0 if _is_array(images) else size
    ram, own = _free(device)
    all_of_it, free, free_there = map(_in_words, (size, ram, own))
    on_device = Place("device", f"kept on the GPU: {all_of_it} of {free_there} free")
    in_ram = Place("ram", f"kept in shared memory: {all_of_it} of {free} free" if needed else "in memory")
    if asked == "auto":
        if 2 * needed > ram:
            return Place("none", f"decoded as needed: {all_of_it} do not fit in half of {free} free")
        return on_device if device.type != "cpu" and 4 * size <= own else in_ram
    there = f"--data.cache {asked}: {all_of_it} of decoded images do not fit in"
    if needed > ram:
        raise UserError(f"{there} {free} of free memory; use --data.cache none, or a smaller --data.canvas")
    if asked == "ram" or device.type == "cpu":
        return in_ram
    if size > own:
        raise UserError(f"{there} {free_there} of free memory on the GPU; use --data.cache auto")
    return on_device


def _free(device: torch.device) -> tuple[int, int]:
    """Bytes free in memory and on the device, of the process that has the fewest."""
    ram, module = free_memory(), torch.get_device_module(device)
    own = module.mem_get_info(device)[0] if hasattr(module, "mem_get_info") else ram  # Apple's GPU has no other
    ram, own = (-max_over_ranks(torch.tensor([-ram, -own], device=device))).tolist()
    return ram, own


def _in_words(size: int) -> str:
    power = min((len(str(size)) - 1) // 3, 4)
    value, unit = size / 1000**power, ("bytes", "kB", "MB", "GB", "TB")[power]
    return f"{value:.1f} {unit}" if power and value < 100 else f"{value:.0f} {unit}"


def _is_array(images: ImageSet) -> bool:
    """Whether the set is in memory already, as it would be decoded."""
    return isinstance(images.rows, ArrayRows) and images.canvas in (None, images.rows.pixels.shape[2:])


@dataclass(frozen=True)
class Kept:
    """All images of a set, decoded."""

    images: ImageSet
    pixels: Tensor
    """Narrow, [rows, C, H, W]; a CPU keeps larger images with their channels together, as it crops them."""
    rows: np.ndarray
    """Int[n]: where an image of the set, or the one that takes its place, lies in ``pixels``."""
    index: np.ndarray
    """Int[n]: which image of the set that is."""
    sizes: np.ndarray
    """Float[n, 2]: every image's height and width before the canvas."""
    on_device: bool
    """Whether batches are put together on the device, so that only row numbers travel."""
    pinned: bool
    """Whether batches are put together on the host, in memory that the device can fetch by itself."""

    def fields(self, chosen: np.ndarray, epoch: np.ndarray) -> Fields:
        """A batch on the host."""
        index, source = self.index[chosen], torch.from_numpy(self.rows[chosen])
        if not self.on_device:
            together = not self.pixels.is_contiguous()
            pixels = self.pixels.permute(0, 2, 3, 1) if together else self.pixels
            shape = (len(chosen), *pixels.shape[1:])
            out = torch.empty(shape, dtype=pixels.dtype, pin_memory=True) if self.pinned else None
            source = torch.index_select(pixels, 0, source, out=out)
            source = source.permute(0, 3, 1, 2) if together else source
        return describe(self.images, source, index, epoch, self.sizes[index], self.pixels.shape[2:])

    def finish(self, fields: Fields) -> Batch:
        """A batch whose fields have arrived on the device."""
        if not self.on_device:
            return finish(fields)
        return finish({**fields, "images": self.pixels.index_select(0, fields["images"])})


def keep(
    images: ImageSet, kind: Literal["ram", "device"], log: UnreadableLog, device: torch.device, workers: int | None
) -> Kept:
    """Decodes every image once per machine, with a progress bar; what is an array already is used as it is.

    The log gets the unreadable images, whose places the next readable ones take; it raises a UserError above 1 %.
    """
    every = np.arange(len(images))
    if _is_array(images):
        assert isinstance(images.rows, ArrayRows)
        array = np.require(images.rows.pixels, requirements=("C", "W"))
        rows, index = images.ids.astype(np.int64), every
        sizes = np.broadcast_to(np.array(array.shape[2:], dtype=np.float32), (len(images), 2))
    else:
        array, sizes = _decode_all(images, log, workers, together=device.type == "cpu")
        readable = np.setdiff1d(every, list(log.reasons))
        rows = index = readable[np.searchsorted(readable, every) % len(readable)]
    pixels = narrow(array).to(device) if kind == "device" else narrow(array)
    return Kept(images, pixels, rows, index, sizes, kind == "device", kind == "ram" and device.type == "cuda")


@dataclass(frozen=True)
class _Filling:
    """Decodes stretches of a set straight into shared memory, in a loader process; returns what is unreadable."""

    images: ImageSet
    pixels: SharedArray
    sizes: SharedArray
    together: bool

    def __getitem__(self, stretch: range) -> list[tuple[int, str]]:
        bad = []
        for i in stretch:
            try:
                pixels, self.sizes.array[i] = self.images.read(i)
                self.pixels.array[i] = pixels.transpose(1, 2, 0) if self.together else pixels
            except Unreadable as error:
                bad.append((i, str(error)))
        return bad


def _decode_all(
    images: ImageSet, log: UnreadableLog, workers: int | None, *, together: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and sizes; every process of this machine decodes a share of them, and all see the whole.

    Channels of 8-bit images are kept together, if asked for, where these are large enough to be cropped so.
    """
    shape = images.shape
    if shape is None:
        raise ValueError("images of many sizes must be brought to a canvas")
    channels, bits = images.form
    together = together and bits == 8 and max(shape) > SMALL
    rank, world = rank_and_world()
    machines = gather_lists([socket.gethostname()])
    peers = [r for r, name in enumerate(machines) if name == machines[rank]]
    one = (*shape, channels) if together else (channels, *shape)
    forms = (((len(images), *one), f"uint{bits}"), ((len(images), 2), "float32"))
    made = [SharedArray(*form) for form in forms] if rank == peers[0] else []
    paths = gather_lists([array.path for array in made] or ["", ""])[2 * peers[0] :]
    pixels, sizes = made or map(SharedArray, *zip(*forms, strict=True), paths[:2])
    share = peers.index(rank)
    first, last = (len(images) * k // len(peers) for k in (share, share + 1))
    stretches = [range(s, min(s + _STRETCH, last)) for s in range(first, last, _STRETCH)]
    work = _Filling(images, pixels, sizes, together)
    try:
        parts = in_processes(work, stretches, loader_processes(images, workers, busy=False))
        for bad in _reported(parts, len(stretches), shown=rank == 0):
            log.add(bad, TAKEN, stops=world == 1)
        log.gather()  # from here on everything is decoded
    finally:
        pixels.close()
        sizes.close()
    return pixels.array.transpose(0, 3, 1, 2) if together else pixels.array, sizes.array


def _reported(parts: Iterator[T], total: int, *, shown: bool) -> Iterator[T]:
    """Passes parts on, with a bar on a terminal and a line a minute elsewhere."""
    if shown and sys.stderr.isatty():
        yield from track(parts, "decoding", total, console=Console(stderr=True))
        return
    said = time.monotonic()
    for done, part in enumerate(parts, 1):
        yield part
        if shown and time.monotonic() - said > _SILENCE:
            sys.stderr.write(f"decoded {done / total:.0%} of the images\n")
            said = time.monotonic()
