"""Batches: what a view gets, and how its pixels travel to the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from ssl_vit.data.images import ImageSet

Fields = dict[str, Any]
"""A batch on its way: its fields by name, of which ``images`` are not yet the pixels that a view gets."""


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
    cropped: bool = False
    """Whether these are the random crops already."""
    on_host: tuple[Tensor, Tensor] | None = None
    """``index`` and ``epoch`` where the CPU can read them without waiting for the device."""

    @property
    def truth(self) -> Int[Tensor, " B"] | Float[Tensor, "B K"]:
        """``labels``, for objectives that learn from them.

        Raises:
            ValueError: Where there are none.
        """
        if self.labels is None:
            raise ValueError("this objective learns from labels, and its images were opened without them")
        return self.labels

    def names(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """``index`` and ``epoch`` on the CPU."""
        return self.on_host or (self.index.cpu(), self.epoch.cpu())

    def part(self, which: slice) -> Batch:
        """Some of the images.

        Args:
            which: Their places in the batch.
        """
        names = None if self.on_host is None else (self.on_host[0][which], self.on_host[1][which])
        cut = {name: value[which] for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **cut, on_host=names)


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

    Args:
        images: The set.
        source: Narrow pixels, or the rows they are to be taken from on the device.
        index: Position of each image in the set.
        epoch: How often each has been visited.
        sizes: Height and width before the canvas.
        shape: Height and width of the pixels that a view gets.
    """
    labels = None
    if images.labels is not None:  # numbers in single precision: MPS has no other
        chosen = images.labels[index]
        labels = torch.from_numpy(chosen if images.kind == "class" else chosen.astype(np.float32))
    names = (torch.from_numpy(index), torch.from_numpy(epoch))
    return {
        "images": source,
        "index": names[0],
        "epoch": names[1],
        "on_host": names,
        "sizes": torch.from_numpy(sizes),
        "native": bool((sizes == shape).all()),
        "labels": labels,
    }


def finish(fields: Fields) -> Batch:
    """A batch whose fields have arrived on the device."""
    return Batch(**{**fields, "images": widen(fields["images"])})
