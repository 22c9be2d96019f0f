"""Batches: what a view gets, and how it travels to the device: on a GPU from pinned memory, one ahead of the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from ssl_vit.data.images import ImageSet

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")

_END = object()

Fields = dict[str, Any]
"""A batch on its way: its fields by name, of which ``images`` are not yet the pixels that a view gets."""


@dataclass(frozen=True)
class Batch:
    """Images on the device, as decoded; what they are called and measure stays on the host, where views draw."""

    images: Integer[Tensor, "B C H W"]
    """uint8, or int32 holding 16-bit values."""
    index: Int[Tensor, " B"]
    """Position of each image in its set, on the host."""
    epoch: Int[Tensor, " B"]
    """How often the image has been visited before, on the host; with ``index`` the name of all its random numbers."""
    sizes: Float[Tensor, "B 2"]
    """Height and width before the canvas (of a window: its own), in pixels, on the host."""
    native: bool
    """Whether every image has kept its own size."""
    labels: Int[Tensor, " B"] | Float[Tensor, "B K"] | None
    """On the device."""
    cropped: bool = False
    """Whether these are the random crops already."""

    @property
    def truth(self) -> Int[Tensor, " B"] | Float[Tensor, "B K"]:
        """``labels``, for objectives that learn from them; a ValueError where there are none."""
        if self.labels is None:
            raise ValueError("this objective learns from labels, and its images were opened without them")
        return self.labels

    def part(self, which: slice) -> Batch:
        """Some of the images."""
        cut = {name: value[which] for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **cut)


def narrow(pixels: np.ndarray) -> Tensor:
    """uint8 as it is; the bits of uint16 as int16, because torch can do little with uint16."""
    return torch.from_numpy(pixels.view(np.int16) if pixels.dtype == np.uint16 else pixels)


def widen(pixels: Tensor) -> Tensor:
    """The inverse of ``narrow`` as a view gets it, on any device: uint8, or int32 holding 16-bit values."""
    return pixels if pixels.dtype == torch.uint8 else pixels.to(torch.int32) & 0xFFFF


def describe(
    images: ImageSet,
    source: Tensor,
    index: Int[np.ndarray, " B"],
    epoch: Int[np.ndarray, " B"],
    sizes: Float[np.ndarray, "B 2"],
    shape: tuple[int, ...],
) -> Fields:
    """The fields of a batch, still on the host.

    ``source`` are narrow pixels, or the rows they are to be taken from on the device; ``shape`` is height and width of
    what a view gets; all others are as in ``Batch``.
    """
    labels = None
    if images.labels is not None:  # numbers in single precision: MPS has no other
        chosen = images.labels[index]
        labels = torch.from_numpy(chosen if images.kind == "class" else chosen.astype(np.float32))
    told = {"index": torch.from_numpy(index), "epoch": torch.from_numpy(epoch), "sizes": torch.from_numpy(sizes)}
    return {"images": source, **told, "labels": labels, "native": bool((sizes == shape).all())}


def finish(fields: Fields) -> Batch:
    """A batch whose fields have arrived on the device."""
    return Batch(**{**fields, "images": widen(fields["images"])})


def one_ahead(items: Generator[T, None, None], send: Callable[[T], S], receive: Callable[[S], R]) -> Iterator[R]:
    """Sends every item while the one before it is in use; an error comes after all that was sent before it.

    ``send`` starts an item's way, ``receive`` waits for its end; ``items`` are closed with this iterator.
    """
    sent: deque[S] = deque()
    end: Exception | None = None
    with closing(items):
        while end is None:
            try:
                sent.append(send(next(items)))
            except Exception as error:  # StopIteration is one
                end = error
            if len(sent) > (end is None):
                yield receive(sent.popleft())
    if not isinstance(end, StopIteration):
        raise end


def made_ahead(items: Generator[T, None, None], device: torch.device) -> Generator[T, None, None]:
    """The same items in the same order, each made by a thread while the one before it is in use.

    ``items`` are closed with this iterator, and an error comes where they raise it. ``device`` is where they will go.
    """
    place = device
    if device.type == "cuda" and device.index is None:  # "cuda" is the one that this thread works with
        place = torch.device(device.type, torch.cuda.current_device())

    def begin() -> None:
        if device.type == "cuda":  # a thread begins with the first GPU
            torch.cuda.set_device(place)

    with closing(items), ThreadPoolExecutor(1, "batches", begin) as thread:  # the thread is waited for first
        coming = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield cast("T", item)


def to_device(
    items: Generator[Fields, None, None], device: torch.device, finish: Callable[[Fields], Batch]
) -> Iterator[Batch]:
    """Batches on the device, in order, of their fields on the host, which are closed with this iterator."""
    if device.type == "cuda":
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))  # pixels may be on their way to the device

        def fetched(value: Tensor) -> Tensor:
            # From other memory than pinned, the host would wait for the copy.
            return (value if value.is_pinned() else value.pin_memory()).to(device, non_blocking=True)

        def send(fields: Fields) -> tuple[Batch, torch.Event]:
            with torch.cuda.stream(side):
                return finish(_each(fields, fetched)), side.record_event()

        def receive(sent: tuple[Batch, torch.Event]) -> Batch:
            batch, arrived = sent
            here = torch.cuda.current_stream(device)
            here.wait_event(arrived)
            # Made on the other stream: their memory must not be given out anew before this one has used it.
            _each(vars(batch), lambda value: value.record_stream(here))
            return batch

        yield from one_ahead(items, send, receive)
        return
    with closing(items):
        for fields in items:
            yield finish(_each(fields, lambda value: value.to(device)))


def _each(fields: Fields, change: Callable[[Tensor], Tensor | None]) -> Fields:
    """Changes what is wanted on the device."""
    sent = {name: change(fields[name]) for name in ("images", "labels") if fields[name] is not None}
    return {**fields, **sent}
