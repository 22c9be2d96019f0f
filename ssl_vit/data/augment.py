"""Batched random geometry on the device: every sample has its own crop box and flip, resampled exactly.

A crop, its resize and its flip are one separable linear map per sample, so a batch is two batched matrix products; the
weights are those of antialiased bicubic interpolation (a = -0.5) on the cropped image, as Pillow and torch have them.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ssl_vit.randomness import Key, uniform

_TRIES = 10
_LARGE = 128
"""Side in pixels from which a CPU cuts several crops of an image one by one."""


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


def to_canvas(
    boxes: Float[Tensor, "B 4"], sizes: Float[Tensor, "B 2"], canvas: tuple[int, int]
) -> Float[Tensor, "B 4"]:
    """Boxes in original pixels as boxes on the canvas, at least one canvas pixel wide and high."""
    limit = torch.tensor(canvas, dtype=boxes.dtype, device=boxes.device)
    scale = limit / sizes
    extent = torch.maximum(boxes[:, 2:] * scale, torch.ones_like(scale))
    start = torch.minimum(boxes[:, :2] * scale, limit - extent)
    return torch.cat([start, extent], dim=1)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    x = x.abs()
    near = ((a + 2) * x).sub_(a + 3).mul_(x).mul_(x).add_(1)
    far = (a * x).sub_(5 * a).mul_(x).add_(8 * a).mul_(x).sub_(4 * a)
    return torch.where(x < 1, near, far.mul_(x < 2))


def resize_weights(
    start: Float[Tensor, " B"], extent: Float[Tensor, " B"], size: int, out: int, flip: Bool[Tensor, " B"] | None
) -> Float[Tensor, "B O S"]:
    """Weights that crop, resize and flip along one axis.

    Args:
        start: First pixel of each crop.
        extent: Length of each crop in pixels, from 1 to S.
        size: S, length of the axis.
        out: O, length wanted.
        flip: Which samples to mirror.

    Returns:
        One matrix per sample; rows sum to 1 and reach no pixel whose centre lies outside the crop.
    """
    scale = (extent / out)[:, None, None]
    row = torch.arange(out, device=start.device, dtype=start.dtype)
    row = row.expand(len(start), -1)
    if flip is not None:
        row = torch.where(flip[:, None], out - 1 - row, row)
    start, end = start[:, None, None], (start + extent)[:, None, None]
    centre = start + (row[:, :, None] + 0.5) * scale
    reach = scale.clamp(min=1.0)
    # A row's weights are worked out for the few pixels that the kernel reaches, then put among the zeros of the others.
    near = min(size, math.ceil(4 * max(size / out, 1.0)) + 1)
    first = (centre - 2.0 * reach).floor().clamp(0, size - near)
    pixel = first + torch.arange(near, device=start.device, dtype=start.dtype) + 0.5
    slack = 1e-4
    inside = (pixel >= start - slack) & (pixel <= end + slack)
    weights = _cubic((pixel - centre) / reach) * inside
    above = torch.arange(first.numel(), device=start.device).view_as(first) * size
    place = (first.long() + above + torch.arange(near, device=start.device)).flatten()
    result = torch.zeros(first.numel() * size, device=start.device, dtype=start.dtype)
    total = result.scatter_(0, place, weights.flatten()).view(-1, out, size).sum(dim=2, keepdim=True)
    # A crop narrower than the kernel's reach can leave a row empty by rounding: take its nearest pixel then.
    nearest = centre.floor().clamp((start - 0.5 - slack).ceil(), (end - 0.5 + slack).floor()) + 0.5
    weights = torch.where(total.abs() > 1e-6, weights / total, (pixel == nearest).to(weights.dtype))
    return result.scatter_(0, place, weights.flatten()).view(-1, out, size)


def crop_resize(
    images: Float[Tensor, "B C H W"],
    boxes: Float[Tensor, "B 4"],
    out: int,
    flip: Bool[Tensor, " B"] | None = None,
) -> Float[Tensor, "B C O O"]:
    """Crops every image to its own box, resizes it to a square and mirrors it where asked.

    Args:
        images: Pixels.
        boxes: Top, left, height and width in pixels of these images.
        out: O, side of the result.
        flip: Which samples to mirror left to right; None for none.
    """
    boxes = boxes.to(images.dtype)
    vertical = resize_weights(boxes[:, 0], boxes[:, 2], images.shape[2], out, None)
    horizontal = resize_weights(boxes[:, 1], boxes[:, 3], images.shape[3], out, flip)
    return vertical[:, None] @ images @ horizontal.transpose(1, 2)[:, None]


def crop_resize_views(
    images: Float[Tensor, "B C H W"],
    boxes: Float[Tensor, "B V 4"],
    out: int,
    flip: Bool[Tensor, "B V"] | None = None,
) -> Float[Tensor, "B V C O O"]:
    """Several crops of every image, each as ``crop_resize`` makes it, without a copy of the image for each.

    Columns first: one product per image makes the rows of all its crops, of all channels at once. On a CPU, where it
    is worth the calls, each crop of a large image is made from its own pixels instead of by weights of zero for others.

    Args:
        images: Pixels.
        boxes: Top, left, height and width of each crop in pixels of these images.
        out: O, side of the results.
        flip: Which crops to mirror left to right; None for none.
    """
    batch, views = boxes.shape[:2]
    channels, height, width = images.shape[1:]
    each = boxes.flatten(0, 1).to(images.dtype)
    if flip is not None:
        flip = torch.cat([torch.zeros_like(flip), flip]).flatten()
    # Both axes at once: no crop reaches beyond its own, so that the weights there are zeros.
    starts, extents = each[:, :2].T.flatten(), each[:, 2:].T.flatten()
    vertical, horizontal = resize_weights(starts, extents, max(height, width), out, flip).chunk(2)
    if images.device.type == "cpu" and height * width >= _LARGE**2:
        crops = images.new_empty((batch * views, channels, out, out))
        ends = (each[:, :2] + each[:, 2:]).ceil()
        for i, (top, left, bottom, right) in enumerate(torch.cat([each[:, :2].floor(), ends], dim=1).long().tolist()):
            inside = images[i // views, :, top:bottom, left:right]
            crops[i] = vertical[i, :, top:bottom] @ inside @ horizontal[i, :, left:right].T
        return crops.unflatten(0, (batch, views))
    vertical = vertical[:, :, :height].reshape(batch, views * out, height)
    rows = vertical @ images.transpose(1, 2).reshape(batch, height, channels * width)
    crops = rows.view(batch * views, out * channels, width) @ horizontal[:, :, :width].transpose(1, 2)
    return crops.view(batch, views, out, channels, out).transpose(2, 3)
