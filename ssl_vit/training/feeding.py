"""What every forward pass reads: batches through the view; on a GPU made one ahead, beside the step that is at work."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import torch
from torch import Tensor

from ssl_vit.data.loading.batch import Batch, made_ahead
from ssl_vit.training.divergence import Names
from ssl_vit.training.metering import Meter
from ssl_vit.training.stepping import Span
from ssl_vit.views.training import View

Inputs = dict[str, Tensor]


class Feed:
    """Gives the inputs of one forward pass after the other."""

    def __init__(
        self, batches: Iterator[Batch], view: View, *, seed: int, device: torch.device, meter: Meter, span: Span,
        named: bool,
    ) -> None:  # fmt: skip
        """Begins with the first of these batches.

        Args:
            batches: In order.
            view: Draws every random number of a batch.
            seed: Of its draws.
            device: Where the step is taken.
            meter: Gets the time that was waited for data.
            span: Marks the parts of the work.
            named: Whether ``drawn`` is kept.
        """
        self._view, self._seed, self._device, self._meter, self._span = view, seed, device, meter, span
        self._named = named
        self.drawn: list[Names] = []
        """Which images were given out, and in which pass; whoever reads it empties it."""
        self.begin(batches)

    def begin(self, batches: Iterator[Batch]) -> None:
        """Goes on with other batches; what was made ahead is forgotten."""
        self._made = made_ahead(self._waited_for(batches), self._device, self._make, lambda made: made[1].values())

    def __call__(self) -> Inputs:
        """The next."""
        names, inputs = next(self._made)
        if names is not None:
            self.drawn.append(names)
        return inputs

    def _waited_for(self, batches: Iterator[Batch]) -> Generator[Batch, None, None]:
        while True:
            started = time.perf_counter()
            with self._span("data"):
                batch = next(batches, None)
            self._meter.waited += time.perf_counter() - started
            if batch is None:
                return
            yield batch

    def _make(self, batch: Batch) -> tuple[Names | None, Inputs]:
        with self._span("view"):
            return batch.names() if self._named else None, self._view(batch, self._seed)
