"""Random erasing on normalised images."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.randomness import Key, normal, uniform
from ssl_vit.data.constants import sent

_TRIES = 10
_AREA, _RATIO = (0.02, 1 / 3), (0.3, 1 / 0.3)
"""Share of the image and height / width of the box (least, most), as MAE fine-tunes."""


def erase(
    key: Key, images: Float[Tensor, "B C H W"], probability: float, host: Key | None = None
) -> Float[Tensor, "B C H W"]:
    """Replaces a random box by normal noise (Zhong et al. 2020; every pixel of its own, as MAE fine-tunes).

    Ten boxes are drawn at once and the first that fits is taken; an image for which none fits stays whole.

    Pixels are normalised, so that noise of unit deviation looks like them. ``host``: the same streams on the host, so
    that the device need not be waited for.
    """
    channels, height, width = images.shape[1:]
    u = uniform(host or key, 1 + 4 * _TRIES)
    v = u[:, 1:].view(-1, 4, _TRIES)
    area = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * v[:, 0])
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    shape = torch.exp(low + (high - low) * v[:, 1])
    h, w = torch.sqrt(area * shape).round(), torch.sqrt(area / shape).round()
    fits = (h > 0) & (h < height) & (w > 0) & (w < width)
    top, left = (v[:, 2] * (height - h + 1)).floor(), (v[:, 3] * (width - w + 1)).floor()
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    rows = ((u[:, 0] < probability) & fits.any(dim=1)).nonzero()[:, 0]
    boxes = torch.stack([t.gather(1, first)[rows] for t in (top, left, h, w)])
    rows, boxes = sent(rows, images.device), sent(boxes, images.device)
    top, left, h, w = boxes[..., None]
    y, x = (torch.arange(n, device=images.device) for n in (height, width))
    inside = ((y >= top) & (y < top + h))[:, :, :, None] & ((x >= left) & (x < left + w))[:, :, None]
    noise = normal(Key(key.high[rows], key.low[rows]), channels * height * width).view(-1, channels, height, width)
    result = images.clone()
    result[rows] = torch.where(inside, noise.to(images.dtype), images[rows])
    return result
