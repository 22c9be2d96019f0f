"""One vector per image, extracted once and reused by every protocol that reads features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.data.augment import centre_crop, crop_resize, to_canvas
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loader import Batch, UnreadableLog, eval_batches
from ssl_vit.data.views import PixelScale, eval_images
from ssl_vit.dist import gather_lists, gather_rows
from ssl_vit.errors import UserError
from ssl_vit.models.backbone import Backbone, Pool

RAW_SIDE = 32
"""Raw pixels are compared at no more than this side, in pixels, so that k-NN on them stays affordable."""

Extractor = Callable[[Batch], Float[Tensor, "B D"]]


@dataclass(frozen=True)
class Features:
    """Vectors of the readable images of a set, in its order, the same on every process."""

    x: Float[np.ndarray, "n D"]
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n K"]
    index: Int[np.ndarray, " n"]
    """Positions in the set."""
    left_out: tuple[str, ...]
    """Unreadable images, which are not in here."""

    def subset(self, positions: np.ndarray) -> Features:
        """The vectors whose position in the set is among these."""
        chosen = np.isin(self.index, positions)
        return Features(self.x[chosen], self.labels[chosen], self.index[chosen], self.left_out)


def backbone_extractor(
    backbone: Backbone, scale: PixelScale, *, size: int, pool: Pool, device: torch.device
) -> Extractor:
    """Pooled features of a backbone in inference mode.

    Args:
        backbone: Moved to the device.
        scale: Pixel statistics it was trained with.
        size: Side of its input in pixels.
        pool: What represents an image.
        device: Where to compute.
    """
    backbone = backbone.to(device).eval()

    def extract(batch: Batch) -> Tensor:
        with torch.inference_mode():
            return backbone.forward_pooled(eval_images(batch, scale, size, torch.float32), pool=pool)

    return extract


def pixel_extractor(scale: PixelScale, *, size: int) -> Extractor:
    """Normalised pixels of the evaluation's own crop, at up to 32 x 32: the baseline that costs nothing."""
    side = min(size, RAW_SIDE)

    def extract(batch: Batch) -> Tensor:
        images = eval_images(batch, scale, size, torch.float32)
        if side != size:
            whole = torch.full((len(images), 2), float(size), device=images.device)
            images = crop_resize(images, to_canvas(centre_crop(whole), whole, (size, size)), side)
        return images.flatten(1)

    return extract


def extract_features(
    extract: Extractor, images: ImageSet, *, batch_size: int, device: torch.device, may_be_constant: bool = False
) -> Features:
    """Features of every readable image exactly once, on any number of processes.

    Args:
        extract: Batch to vectors.
        images: A labelled set.
        batch_size: Images per process and forward pass.
        device: Where to compute.
        may_be_constant: Whether all images may have the same vector: answers may, features may not.

    Raises:
        UserError: When features are not finite, or do not differ at all between images.
    """
    assert images.labels is not None
    log = UnreadableLog(images)
    rows, index = [], []
    for batch in eval_batches(images, batch_size, device, log):
        rows.append(extract(batch).float())
        index.append(batch.index)
    # A process without images must know how wide the others' features are.
    width = int(gather_rows(torch.tensor([rows[0].shape[1] if rows else 0], device=device)).max())
    x = gather_rows(torch.cat(rows) if rows else torch.empty((0, width), device=device)).cpu().numpy()
    where = gather_rows(torch.cat(index) if index else torch.empty(0, dtype=torch.int64, device=device)).cpu().numpy()
    if not len(x):
        raise UserError(f"no image in {images.name} can be read")
    if not np.isfinite(x).all():
        raise UserError("features are not finite: the backbone's weights or its pixel statistics are damaged")
    if not may_be_constant and len(x) > 1 and float(np.ptp(x, axis=0).max()) == 0.0:
        raise UserError("all images have the same features: the backbone has collapsed or its weights are empty")
    return Features(x, images.labels[where], where, tuple(gather_lists(log.listing())))
