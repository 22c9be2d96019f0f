"""Batches to the device: on a GPU from pinned memory, on a stream of their own, one batch ahead of the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TypeVar

import torch
from torch import Tensor

from ssl_vit.data.loading.batch import Batch, Fields

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


def one_ahead(items: Generator[T, None, None], send: Callable[[T], S], receive: Callable[[S], R]) -> Iterator[R]:
    """Sends every item while the one before it is in use; an error comes after all that was sent before it.

    Args:
        items: What to send; closed with this iterator.
        send: Starts an item's way.
        receive: Waits for an item's end.
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


def to_device(
    items: Generator[Fields, None, None], device: torch.device, finish: Callable[[Fields], Batch]
) -> Iterator[Batch]:
    """Batches on the device, in order.

    Args:
        items: Their fields on the host; closed with this iterator.
        device: Where to.
        finish: Makes a batch of fields that are on the device.
    """
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
    return {name: change(value) if isinstance(value, Tensor) else value for name, value in fields.items()}
