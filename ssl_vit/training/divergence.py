"""Where training blows up: a rule that all processes see alike, and what is told of the batch that did it.

The rule is looked at before the optimiser moves anything. A step whose loss or gradient is no finite number is never
taken; with ``--fit.spike k`` neither is one whose loss or gradient norm is more than k times the largest of the (at
most 100) sound steps before it. The largest and not the median, because late in training on labels most losses are near
zero, and a batch with one wrong label is nothing to skip.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.core.dist import gather_lists, mean_over_ranks
from ssl_vit.data.images import ImageSet

KEPT, LEAST = 100, 20
"""Sound steps that a spike is measured against, at most, and without which nothing counts as one."""

Names = tuple[Int[Tensor, " B"], Int[Tensor, " B"]]
"""Positions in the set and epochs of the images of a forward pass."""


class Unsound(Exception):
    """A step that must not be taken, the same on every process."""

    def __init__(self, why: str, loss: float, norm: float) -> None:
        """Says why, with the mean loss over processes and the norm of the gradient."""
        super().__init__(why)
        self.loss, self.norm = loss, norm


class Soundness:
    """Judges every step before it is taken; what it remembers is saved with the run."""

    def __init__(self, spike: float | None) -> None:
        """Remembers nothing yet; without ``spike`` only numbers that are not finite count."""
        self.spike = spike
        self.recent: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """Loss and gradient norm of the newest sound steps."""

    def judge(self, loss: Float[Tensor, ""], norm: Float[Tensor, ""]) -> None:
        """Waits for the device, and agrees with all other processes (each must call it at every step).

        Args:
            loss: Of this process.
            norm: Of the gradient of all parameters, before it is clipped; the same on every process, or 0 where it
                says nothing.

        Raises:
            Unsound: On every process, or on none.
        """
        seen = mean_over_ranks(torch.stack([loss.detach(), norm.detach().to(loss.dtype)]))
        mean, size = seen.tolist()
        if why := self._why(mean, size):
            raise Unsound(why, mean, size)
        self.recent.append((mean, size))

    def _why(self, loss: float, norm: float) -> str | None:
        if not math.isfinite(loss):
            return "the loss is no finite number"
        if not math.isfinite(norm):
            return "the gradient is no finite number"
        if self.spike is None or len(self.recent) < LEAST:
            return None
        for name, now, before in (
            ("loss", loss, [loss for loss, _ in self.recent]),
            ("gradient norm", norm, [norm for _, norm in self.recent]),
        ):
            largest = max(before)
            if largest > 0 and now > self.spike * largest:
                return (
                    f"the {name} is {now:.4g}, more than {self.spike:g} times the largest ({largest:.4g}) of the "
                    + (f"{len(before)} steps before")
                )
        return None

    def state(self) -> list[list[float]]:
        """What a checkpoint holds of it."""
        return [list(pair) for pair in self.recent]

    def load(self, state: Sequence[Sequence[float]]) -> None:
        """Goes on from there."""
        self.recent.clear()
        self.recent.extend((loss, norm) for loss, norm in state)


def images_of(drawn: Sequence[Names], images: ImageSet) -> list[dict[str, Any]]:
    """Name, position and epoch of every image of a step, over all processes, each of which must call it.

    Seed, epoch and position are the key of all random numbers that an image had in this step.

    Args:
        drawn: Of this process's forward passes.
        images: What is trained on.
    """
    own: list[str] = []
    for index, epoch in drawn:
        for position, visit in zip(index.tolist(), epoch.tolist(), strict=True):
            own.append(json.dumps({"image": images.where(position), "index": position, "epoch": visit}))
    return [json.loads(text) for text in gather_lists(own)]
