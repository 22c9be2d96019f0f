"""A few images of a set as one batch: what pictures show, and what a run looks at while it trains."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import Batch, UnreadableLog, eval_batches


def some_images(images: ImageSet, count: int, device: torch.device) -> tuple[Batch, list[str]]:
    """Evenly spaced images of a set, from the first to the last.

    Args:
        images: Where to take them from.
        count: How many at most.
        device: Where they go.

    Returns:
        Those that can be read, and names and reasons of the others.

    Raises:
        UserError: When none can be read.
    """
    return chosen_images(
        images, np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)), device
    )


def chosen_images(images: ImageSet, positions: Int[np.ndarray, " n"], device: torch.device) -> tuple[Batch, list[str]]:
    """The images at these positions of a set, in this order.

    Args:
        images: Where to take them from.
        positions: At least one; an image may occur again.
        device: Where they go.

    Returns:
        Those that can be read, and names and reasons of the others.

    Raises:
        UserError: When none can be read.
    """
    chosen = images.subset(positions)
    log = UnreadableLog(chosen, silent=True)
    batch = next(eval_batches(chosen, len(chosen), device, log, workers=0, alone=True), None)
    if batch is None:
        raise UserError(f"none of the chosen images can be read: {'; '.join(log.listing())}")
    return batch, log.listing()
