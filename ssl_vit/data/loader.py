"""Ordered, self-sharding, resumable batches; the one policy for images that cannot be read."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import psutil
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ssl_vit.data.formats import Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet
from ssl_vit.data.order import epoch_order
from ssl_vit.dist import rank_and_world
from ssl_vit.errors import UserError
from ssl_vit.randomness import make_key, uniform

TOLERATED = 0.01  # share of unreadable images above which a run stops


@dataclass(frozen=True)
class Batch:
    """Images on the device, as decoded."""

    images: Integer[Tensor, "B C H W"]
    """uint8, or int32 holding 16-bit values."""
    index: Int[Tensor, " B"]
    """Position of each image in its set."""
    epoch: Int[Tensor, " B"]
    """How often the image has been visited before; with ``index`` the name of all its random numbers."""
    sizes: Float[Tensor, "B 2"]
    """Height and width before the canvas (of a window: its own), in pixels."""
    native: bool
    """Whether every image has kept its own size."""
    labels: Int[Tensor, " B"] | Float[Tensor, "B K"] | None


@dataclass(frozen=True)
class _Decoded:
    pixels: np.ndarray
    sizes: np.ndarray
    index: np.ndarray
    bad: list[tuple[int, str]]


class _Decoding(Dataset[_Decoded]):
    """Decodes whole batches in a loader process."""

    def __init__(self, images: ImageSet, replace: bool, seed: int | None) -> None:
        self.images = images
        self.seed = seed  # of the windows' places; None takes the middle
        self.replace = replace  # an unreadable image by the next readable one; else it is left out

    def _place(self, i: int, epoch: int) -> tuple[float, float]:
        """Where image i's window lies in this visit, wherever and whenever it is decoded."""
        if self.images.window is None or self.seed is None:
            return (0.5, 0.5)
        down, right = uniform(make_key(self.seed, "window", epoch, i), 2)[0].tolist()
        return (down, right)

    def __getitem__(self, wanted: Sequence[tuple[int, int]]) -> _Decoded:
        pixels, sizes, index, bad = [], [], [], []
        for start, epoch in wanted:
            reach = min(len(self.images), 1000) if self.replace else 1
            for i in ((start + k) % len(self.images) for k in range(reach)):
                try:
                    array, size = self.images.read(i, self._place(i, epoch))
                except Unreadable as error:
                    bad.append((i, str(error)))
                    continue
                pixels.append(array)
                sizes.append(size)
                index.append(i)
                break
        stacked = np.stack(pixels) if pixels else np.empty(0, dtype=np.uint8)
        return _Decoded(stacked, np.array(sizes, dtype=np.float32), np.array(index, dtype=np.int64), bad)


class UnreadableLog:
    """Names every unreadable image once and stops the run when they are more than 1 % (one is always tolerated)."""

    def __init__(self, images: ImageSet, *, silent: bool = False) -> None:
        """Starts counting.

        Args:
            images: The set whose size the limit is a share of.
            silent: Neither warn nor stop, because another log already does.
        """
        self.images, self.silent = images, silent
        self.reasons: dict[int, str] = {}

    def listing(self) -> list[str]:
        """Names and reasons, in the order of the set."""
        return [f"{self.images.where(i)} cannot be read ({reason})" for i, reason in sorted(self.reasons.items())]

    def add(self, bad: list[tuple[int, str]], consequence: str) -> None:
        """Counts images and warns about new ones.

        Raises:
            UserError: With the list, when there are too many.
        """
        new = {i: reason for i, reason in bad if i not in self.reasons}
        self.reasons |= new
        allowed = max(1, int(TOLERATED * len(self.images)))
        for i, reason in new.items() if not self.silent and len(self.reasons) <= allowed else ():
            sys.stderr.write(f"warning: {self.images.where(i)} cannot be read ({reason}); {consequence}\n")
        if len(self.reasons) > allowed and not self.silent:
            listing = "\n  ".join(self.listing())
            raise UserError(
                f"{len(self.reasons)} of {len(self.images):,} images cannot be read, more than {TOLERATED:.0%}; "
                f"repair or remove them:\n  {listing}"
            )


def _workers(asked: int | None) -> int:
    if asked is not None:
        return asked
    _, world = rank_and_world()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return max(1, min(16, (os.cpu_count() or 1) // local - 1))


def _decoded(
    images: ImageSet,
    wanted: Sequence[Sequence[tuple[int, int]]],
    workers: int | None,
    *,
    replace: bool = True,
    seed: int | None = None,
) -> Iterator[_Decoded]:
    """Decoded batches of (image, epoch) in order, whatever the number of workers."""
    yield from DataLoader(
        _Decoding(images, replace, seed),
        sampler=wanted,  # pyright: ignore[reportArgumentType] - any sized iterable of keys serves
        batch_size=None,
        num_workers=0 if isinstance(images.rows, ArrayRows) else _workers(workers),
        collate_fn=_as_is,
        worker_init_fn=_ignore_signals,
    )


def _ignore_signals(worker: int) -> None:
    """A signal to the whole group is for the main process, which stops after its step and then ends its workers."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_is(batch: Any) -> Any:
    return batch


def _chunks(first: int, last: int, length: int) -> list[list[tuple[int, int]]]:
    return [[(i, 0) for i in range(s, min(s + length, last))] for s in range(first, last, length)]


def _to_batch(part: _Decoded, epoch: np.ndarray, images: ImageSet, device: torch.device) -> Batch:
    native = bool((part.sizes == part.pixels.shape[2:]).all())
    index, visit, sizes = (torch.from_numpy(p).to(device) for p in (part.index, epoch, part.sizes))
    labels = None
    if images.labels is not None:  # numbers in single precision: MPS has no other
        chosen = images.labels[part.index]
        labels = torch.from_numpy(chosen if images.kind == "class" else chosen.astype(np.float32)).to(device)
    return Batch(to_tensor(part.pixels).to(device), index, visit, sizes, native, labels)


def to_tensor(pixels: np.ndarray) -> Tensor:
    """uint8 stays, uint16 becomes int32 (torch computes little in uint16)."""
    return torch.from_numpy(pixels if pixels.dtype == np.uint8 else pixels.astype(np.int32))


class Loader:
    """Training batches in an order that is a hash of seed and epoch.

    Positions 0, 1, 2... of the run walk through one permutation of the images after another; step s takes positions
    s * batch_size onwards, so batches are always full and cross epoch boundaries, and a run can start at any step.
    Micro-batch m of a step (m = accumulation round * processes + rank) is a contiguous slice of it.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        batch_size: int,
        micro_batch: int,
        seed: int,
        device: torch.device,
        cache: Literal["auto", "ram", "none"] = "auto",
        workers: int | None = None,
    ) -> None:
        """Prepares, and decodes everything once where it is to be kept in memory.

        Args:
            images: What to train on.
            batch_size: Images per optimiser step over all processes.
            micro_batch: Images per process and forward pass.
            seed: Seed of the order.
            device: Where batches go.
            cache: Keep decoded images in memory; auto: when they need less than half of what is free. Never with
                windows.
            workers: Loader processes; None chooses.

        Raises:
            UserError: When the sizes do not divide, or too many images are unreadable.
        """
        self.rank, self.world = rank_and_world()
        if micro_batch < 1 or batch_size % (micro_batch * self.world):
            raise UserError(
                f"--fit.batch_size {batch_size} is not a multiple of {self.world} process(es) x --fit.micro_batch "
                f"{micro_batch}"
            )
        self.images, self.batch_size, self.micro_batch = images, batch_size, micro_batch
        self.accumulation = batch_size // (micro_batch * self.world)
        self.seed, self.device, self.workers = seed, device, workers
        self.unreadable = UnreadableLog(images)
        self._orders: dict[int, np.ndarray] = {}
        self._cache: _Decoded | None = None
        # Every visit of an image shows another window of it, so what is decoded once serves no second time.
        automatic = cache == "auto" and images.blocks is None and self._fits()
        if images.window is None and (cache == "ram" or automatic):
            self._cache = self._decode_all()

    def split(self, micro_batch: int) -> None:
        """Takes another number of images per forward pass.

        Args:
            micro_batch: A divisor of this process's share of a batch.
        """
        self.micro_batch, self.accumulation = micro_batch, self.batch_size // (micro_batch * self.world)

    @property
    def steps_per_epoch(self) -> float:
        """Images / effective batch size."""
        return len(self.images) / self.batch_size

    @property
    def cached(self) -> bool:
        """Whether decoded images are kept in memory."""
        return self._cache is not None

    def _pixel_bytes(self) -> int:
        height, width = self.images.canvas or self.images.sizes.common or (0, 0)
        return len(self.images) * self.images.form.channels * height * width * self.images.form.bits // 8

    def _fits(self) -> bool:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        return self._pixel_bytes() * local < psutil.virtual_memory().available // 2

    def _decode_all(self) -> _Decoded:
        parts = []
        for part in _decoded(self.images, _chunks(0, len(self.images), 64), self.workers):
            self._note(part)
            parts.append(part)
        pixels, sizes, index = (np.concatenate([getattr(p, n) for p in parts]) for n in ("pixels", "sizes", "index"))
        return _Decoded(pixels, sizes, index, [])

    def _note(self, part: _Decoded) -> None:
        self.unreadable.add(part.bad, "another image takes its place")

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            self._orders[epoch] = epoch_order(self.seed, epoch, len(self.images), self.images.blocks)
        return self._orders[epoch]

    def positions(self, step: int, micro: int) -> tuple[np.ndarray, np.ndarray]:
        """Image positions and their epochs in this process's micro-batch of a step."""
        first = step * self.batch_size + (micro * self.world + self.rank) * self.micro_batch
        place = np.arange(first, first + self.micro_batch, dtype=np.int64)
        epoch = place // len(self.images)
        index = np.array([self._order(int(e))[p % len(self.images)] for e, p in zip(epoch, place, strict=True)])
        return index, epoch

    def batches(self, start: int, stop: int) -> Iterator[Batch]:
        """This process's micro-batches of steps ``start`` to ``stop - 1``, in order."""
        plan = [(s, m) for s in range(start, stop) for m in range(self.accumulation)]
        if self._cache is not None:
            held = self._cache
            for step, micro in plan:
                index, epoch = self.positions(step, micro)
                part = _Decoded(held.pixels[index], held.sizes[index], held.index[index], [])
                yield _to_batch(part, epoch, self.images, self.device)
            return
        decoded = _decoded(self.images, _Plan(self, plan), self.workers, seed=self.seed)
        for (step, micro), part in zip(plan, decoded, strict=True):
            self._note(part)
            yield _to_batch(part, self.positions(step, micro)[1], self.images, self.device)


class _Plan(Sequence[list[tuple[int, int]]]):
    """The micro-batches still to come, computed when a worker is sent for them."""

    def __init__(self, loader: Loader, plan: list[tuple[int, int]]) -> None:
        self.loader, self.plan = loader, plan

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, i) -> Any:  # a sampler is only ever iterated
        index, epoch = self.loader.positions(*self.plan[i])
        return list(zip(index.tolist(), epoch.tolist(), strict=True))


def eval_batches(
    images: ImageSet, batch_size: int, device: torch.device, log: UnreadableLog, workers: int | None = None, *,
    alone: bool = False,
) -> Iterator[Batch]:  # fmt: skip
    """This process's share of a set, in order: every readable image of the set on exactly one process, once.

    Args:
        images: The set.
        batch_size: Images per batch at most; the last one is smaller, never padded.
        device: Where batches go.
        log: Gets the unreadable images, which are left out.
        workers: Loader processes; None chooses.
        alone: All of the set on this process, because others do not take part.

    Raises:
        UserError: When more than 1 % are unreadable.
    """
    rank, world = (0, 1) if alone else rank_and_world()
    first, last = (len(images) * r // world for r in (rank, rank + 1))
    for part in _decoded(images, _chunks(first, last, batch_size), workers, replace=False):
        log.add(part.bad, "it is left out")
        if len(part.index):
            yield _to_batch(part, np.zeros_like(part.index), images, device)
