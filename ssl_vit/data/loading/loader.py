"""Ordered, self-sharding, resumable batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Int

from ssl_vit.core.dist import rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet, evenly
from ssl_vit.data.loading.batch import Batch, Fields, describe, finish, made_ahead, to_device
from ssl_vit.data.loading.cache import TAKEN, Cache, Place, choose, keep
from ssl_vit.data.loading.file_crops import FileCrops
from ssl_vit.data.loading.workers import Decoded, UnreadableLog, Wanted, decoded
from ssl_vit.data.order import epoch_order

_FROM_FILES = Place("none", "every visit's crop is cut from the file")


class Loader:
    """Training batches in an order that is a hash of seed and epoch.

    Positions 0, 1, 2... of the run walk through one permutation of the images after another; step s takes positions
    s * batch_size onwards, so batches are always full and cross epoch boundaries, and a run can start at any step.
    Micro-batch m of a step (m = accumulation round * processes + rank) is a contiguous slice of it.

    With ``repeats`` R every image of a permutation takes R positions, as so many visits: permutation e makes epochs
    eR to eR + R - 1 of its images, so that each visit has random numbers of its own. In a batch all first visits stand
    before all second ones: neighbours, which may be mixed, are different images where
    R is at most half of the batch.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        batch_size: int,
        micro_batch: int,
        seed: int,
        device: torch.device,
        cache: Cache = "auto",
        workers: int | None = None,
        crops: FileCrops | None = None,
        repeats: int = 1,
    ) -> None:
        """Prepares, and decodes everything once where it is to be kept (every process must call it).

        Args:
            images: What to train on.
            batch_size: Images per optimiser step over all processes.
            micro_batch: Images per process and forward pass.
            seed: Of the order.
            device: Where batches go.
            cache: Where decoded images are kept.
            workers: Loader processes; None chooses.
            crops: Cut from the files by the loader processes; nothing is kept then.
            repeats: R, visits of an image in a row.

        Raises:
            UserError: When the sizes do not divide, a batch holds fewer images than R, too many images are unreadable,
                or they do not fit where they were asked to be kept.
        """
        self.rank, self.world = rank_and_world()
        if micro_batch < 1 or batch_size % (micro_batch * self.world):
            raise UserError(
                f"--fit.batch_size {batch_size} is not a multiple of {self.world} process(es) x --fit.micro_batch "
                f"{micro_batch}"
            )
        if repeats > batch_size:
            raise UserError(f"--augment.repeats {repeats} is more than --fit.batch_size {batch_size} holds")
        self.images, self.batch_size, self.micro_batch, self.repeats = images, batch_size, micro_batch, repeats
        self.accumulation = batch_size // (micro_batch * self.world)
        self.seed, self.device, self.workers, self.crops = seed, device, workers, crops
        self.unreadable = UnreadableLog(images)
        self._left_out: list[int] = []
        self._orders: dict[int, np.ndarray] = {}
        place = _FROM_FILES if crops else choose(images, cache, device)
        self.kept = place.why
        self._store = None if place.kind == "none" else keep(images, place.kind, self.unreadable, device, workers)

    kept: str
    """Where decoded images are kept, how large they are and why."""

    def split(self, micro_batch: int) -> None:
        """Takes another number of images per forward pass, a divisor of this process's share of a batch."""
        self.micro_batch, self.accumulation = micro_batch, self.batch_size // (micro_batch * self.world)

    @property
    def left_out(self) -> list[int]:
        """Numbers of the batches that are never drawn, in ascending order."""
        return self._left_out

    def leave_out(self, batches: Iterable[int]) -> None:
        """Draws these batches never, whose numbers count from 0 as if none were left out; later ones move up."""
        self._left_out = sorted({*self._left_out, *batches})

    def number(self, step: int) -> int:
        """The batch that a step draws: its own number, and one more for every batch left out before."""
        for batch in self._left_out:
            step += batch <= step
        return step

    @property
    def steps_per_epoch(self) -> float:
        """Images / effective batch size."""
        return len(self.images) / self.batch_size

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            self._orders[epoch] = epoch_order(self.seed, epoch, len(self.images), self.images.blocks)
        return self._orders[epoch]

    def positions(self, step: int, micro: int) -> Wanted:
        """Image positions and their epochs in this process's micro-batch of a step."""
        first = (micro * self.world + self.rank) * self.micro_batch
        place, visit = np.divmod(
            self.number(step) * self.batch_size + np.arange(self.batch_size, dtype=np.int64), self.repeats
        )
        own = np.argsort(visit, kind="stable")[first : first + self.micro_batch]
        walk, place = np.divmod(place[own], len(self.images))
        index = np.empty_like(place)
        for e in np.unique(walk).tolist():
            index[walk == e] = self._order(e)[place[walk == e]]
        return index, walk * self.repeats + visit[own]

    def batches(self, start: int, stop: int) -> Iterator[Batch]:
        """This process's micro-batches of steps ``start`` to ``stop - 1``, in order."""
        plan = (self.positions(step, micro) for step in range(start, stop) for micro in range(self.accumulation))
        if self._store is None:
            return to_device(self._decoded(plan), self.device, finish)
        store = self._store
        fields = (store.fields(index, epoch) for index, epoch in plan)
        if store.pinned:  # the device computes meanwhile, and would wait for what this thread copies
            fields = made_ahead(fields, self.device)
        return to_device(fields, self.device, store.finish)

    def _decoded(self, plan: Iterator[Wanted]) -> Generator[Fields, None, None]:
        pinned = self.device.type == "cuda"
        for part in decoded(self.images, plan, self.workers, seed=self.seed, pinned=pinned, crops=self.crops):
            self.unreadable.add(part.bad, TAKEN)
            yield {**_described(self.images, part), "cropped": self.crops is not None}


def _described(images: ImageSet, part: Decoded) -> Fields:
    pixels = torch.as_tensor(part.pixels)
    return describe(images, pixels, part.index, part.epoch, part.sizes, pixels.shape[2:])


def eval_batches(
    images: ImageSet, batch_size: int, device: torch.device, log: UnreadableLog, workers: int | None = None, *,
    alone: bool = False, stops: bool = True,
) -> Iterator[Batch]:  # fmt: skip
    """This process's share of a set, in order: every readable image of the set on exactly one process, once.

    Args:
        images: The set.
        batch_size: Images per batch at most; the last one is smaller, never padded.
        device: Where batches go.
        log: Gets the unreadable images, which are left out; raises a UserError above 1 %.
        workers: Loader processes; None chooses.
        alone: All of the set on this process, because others do not take part.
        stops: Whether ``log`` may do so here; else its ``gather`` does.
    """
    rank, world = (0, 1) if alone else rank_and_world()
    first, last = (len(images) * r // world for r in (rank, rank + 1))
    parts = (np.arange(start, min(start + batch_size, last)) for start in range(first, last, batch_size))
    wanted = ((part, np.zeros_like(part)) for part in parts)

    def readable() -> Generator[Fields, None, None]:
        for part in decoded(images, wanted, workers, replace=False, pinned=device.type == "cuda"):
            log.add(part.bad, "it is left out", stops=stops)
            if len(part.index):
                yield _described(images, part)

    return to_device(readable(), device, finish)


def some_images(images: ImageSet, count: int, device: torch.device) -> tuple[Batch, list[str]]:
    """At most so many evenly spaced images of a set, from the first to the last, as ``chosen_images`` has them."""
    return chosen_images(images, evenly(len(images), count), device)


def chosen_images(images: ImageSet, positions: Int[np.ndarray, " n"], device: torch.device) -> tuple[Batch, list[str]]:
    """The images at these positions of a set, in this order, as one batch; an image may occur again.

    Beside those that can be read, names and reasons of the others; a UserError where none can.
    """
    chosen = images.subset(positions)
    log = UnreadableLog(chosen, silent=True)
    batch = next(eval_batches(chosen, len(chosen), device, log, workers=0, alone=True), None)
    if batch is None:
        raise UserError(f"none of the chosen images can be read: {'; '.join(log.listing())}")
    return batch, log.listing()
