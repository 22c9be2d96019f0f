"""Crop boxes in original pixels and on the canvas, drawn by keyed random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.randomness import Key, uniform
from ssl_vit.data.constants import constant

_TRIES = 10

SMALL = 40
"""Side in pixels up to which a CPU is fastest with matrix products, and the weights of all crops fit in a table."""


def random_resized_crop(
    key: Key, sizes: Float[Tensor, "B 2"], scale: tuple[float, float], ratio: tuple[float, float]
) -> Float[Tensor, "B 4"]:
    """Crop boxes of random area and aspect ratio (Inception; MAE, appendix A.1), as torchvision draws them.

    Ten candidates are drawn at once; the first that fits is taken, else the largest central crop of an allowed ratio.

    Args:
        key: One random stream per sample.
        sizes: Height and width of each original image in pixels.
        scale: Least and most area as a share of the image, in (0, 1].
        ratio: Least and most width / height, drawn on a logarithmic scale.

    Returns:
        Top, left, height and width in original pixels, whole numbers.
    """
    u = uniform(key, 4 * _TRIES).view(-1, 4, _TRIES)
    height, width = sizes[:, :1], sizes[:, 1:]
    area = height * width * (scale[0] + (scale[1] - scale[0]) * u[:, 0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(low + (high - low) * u[:, 1])
    w, h = torch.sqrt(area * shape).round(), torch.sqrt(area / shape).round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    top, left = (u[:, 2] * (height - h + 1)).floor(), (u[:, 3] * (width - w + 1)).floor()
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    drawn = torch.stack([t.gather(1, first)[:, 0] for t in (top, left, h, w)], dim=1)
    full_w = torch.minimum(width, (height * ratio[1]).round()).clamp(min=1)[:, 0]
    full_h = torch.minimum(height, (width / ratio[0]).round()).clamp(min=1)[:, 0]
    middle_top, middle_left = ((height[:, 0] - full_h) / 2).floor(), ((width[:, 0] - full_w) / 2).floor()
    fallback = torch.stack([middle_top, middle_left, full_h, full_w], dim=1)
    return torch.where(fits.any(dim=1, keepdim=True), drawn, fallback)


def centre_crop(sizes: Float[Tensor, "B 2"], share: Float[Tensor, " B"] | float = 1.0) -> Float[Tensor, "B 4"]:
    """The central square whose side is a share of the short side: the usual resize and centre crop in one box."""
    side = (sizes.amin(dim=1) * share).clamp(min=1)
    return torch.stack([(sizes[:, 0] - side) / 2, (sizes[:, 1] - side) / 2, side, side], dim=1)


def judged_share(size: int) -> float:
    """Share of the short side that the central square keeps in evaluation, of images larger than the input.

    All of it for inputs of up to 64 px, whose images have no border to spare; else 7/8, the usual resize to 256 and
    crop of 224.
    """
    return 1.0 if size <= 64 else 0.875


def to_canvas(boxes: Float[Tensor, "B 4"], sizes: Float[Tensor, "B 2"], canvas: Sequence[int]) -> Float[Tensor, "B 4"]:
    """Boxes in original pixels as boxes on the canvas, at least one canvas pixel wide and high."""
    limit = constant(tuple(canvas), boxes.dtype, boxes.device)
    scale = limit / sizes
    extent = torch.maximum(boxes[:, 2:] * scale, torch.ones_like(scale))
    start = torch.minimum(boxes[:, :2] * scale, limit - extent)
    return torch.cat([start, extent], dim=1)


def whole_pixels(boxes: Float[Tensor, "B 4"], canvas: Sequence[int]) -> Float[Tensor, "B 4"]:
    """Boxes with their edges moved to the nearest pixels' edges, at least one pixel wide and high."""
    limit = constant(tuple(canvas), boxes.dtype, boxes.device)
    start = torch.minimum(boxes[:, :2].round(), limit - 1)
    end = torch.maximum((boxes[:, :2] + boxes[:, 2:]).round(), start + 1)
    return torch.cat([start, end - start], dim=1)
