"""The deterministic view of evaluation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.data.boxes import centre_crop, judged_share, to_canvas
from ssl_vit.data.constants import sent
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.views import augment


def eval_images(batch: Batch, scale: PixelScale, size: int, dtype: torch.dtype) -> Float[Tensor, "B C S S"]:
    """The deterministic view of evaluation, normalised.

    The central square is resized to the model's input: all of the short side where images are no larger than the input,
    else ``judged_share`` of it.
    """
    images, canvas = scale.scaled(batch.images, dtype), batch.images.shape[2:]
    if not (batch.native and canvas == (size, size)):
        share = torch.where(batch.sizes.amin(dim=1) > size, judged_share(size), 1.0)
        boxes = sent(to_canvas(centre_crop(batch.sizes, share), batch.sizes, canvas), images.device)
        images = augment.crop_resize(images, boxes, size).clamp(0.0, 1.0)
    return scale.normalise(images)
