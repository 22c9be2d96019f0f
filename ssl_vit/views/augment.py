"""Batched random geometry on the device: every sample has its own crop box and flip, resampled exactly.

A crop, its resize and its flip are one separable linear map per sample, so a batch is two batched matrix products; the
weights are those of antialiased bicubic (a = -0.5) or bilinear interpolation of the cropped image, as Pillow and torch
have them. Only a CPU with large 8-bit images does what Pillow does instead: a crop at a time, in 8 bits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from ssl_vit.core.arithmetic import exact_products
from ssl_vit.core.randomness import Key, uniform
from ssl_vit.data.boxes import SMALL
from ssl_vit.data.constants import constant
from ssl_vit.data.decoding.resize import Interpolation, resize_bytes

_REACH = {"bicubic": 2.0, "bilinear": 1.0}
"""How far a kernel reaches to either side, in pixels of the coarser grid."""
_LARGE = 128
"""Side in pixels from which a CPU cuts several crops of an image one by one."""


def _kernel(x: Tensor, interpolation: Interpolation, a: float = -0.5) -> Tensor:
    x = x.abs()
    if interpolation == "bilinear":
        return (1.0 - x).clamp_(min=0.0)
    near = ((a + 2) * x).sub_(a + 3).mul_(x).mul_(x).add_(1)
    far = (a * x).sub_(5 * a).mul_(x).add_(8 * a).mul_(x).sub_(4 * a)
    return torch.where(x < 1, near, far.mul_(x < 2))


def resize_weights(
    start: Float[Tensor, " B"],
    extent: Float[Tensor, " B"],
    size: int,
    out: int,
    flip: Bool[Tensor, " B"] | None,
    interpolation: Interpolation = "bicubic",
) -> Float[Tensor, "B O S"]:
    """Weights that crop, resize and flip along one axis.

    Args:
        start: First pixel of each crop.
        extent: Length of each crop in pixels, from 1 to S.
        size: S, length of the axis.
        out: O, length wanted.
        flip: Which samples to mirror.
        interpolation: Kernel; both are widened where the crop shrinks (antialiased).

    Returns:
        One matrix per sample; rows sum to 1 and reach no pixel whose centre lies outside the crop.
    """
    scale = (extent / out)[:, None, None]
    row = torch.arange(out, device=start.device, dtype=start.dtype).expand(len(start), -1)
    if flip is not None:
        row = torch.where(flip[:, None], out - 1 - row, row)
    start, end = start[:, None, None], (start + extent)[:, None, None]
    centre = start + (row[:, :, None] + 0.5) * scale
    stretch, reach = scale.clamp(min=1.0), _REACH[interpolation]
    # A row's weights are worked out for the few pixels that the kernel reaches, then put among the zeros of the others.
    near = min(size, math.ceil(2 * reach * max(size / out, 1.0)) + 1)
    first = (centre - reach * stretch).floor().clamp(0, size - near)
    pixel = first + torch.arange(near, device=start.device, dtype=start.dtype) + 0.5
    slack = 1e-4
    inside = (pixel >= start - slack) & (pixel <= end + slack)
    distance = (pixel - centre) / stretch
    weights = _kernel(distance, interpolation) * inside
    above = torch.arange(first.numel(), device=start.device).view_as(first) * size
    place = (first.long() + above + torch.arange(near, device=start.device)).flatten()
    result = torch.zeros(first.numel() * size, device=start.device, dtype=start.dtype)
    total = result.scatter_(0, place, weights.flatten()).view(-1, out, size).sum(dim=2, keepdim=True)
    # A crop narrower than the kernel's reach can leave a row empty by rounding: take its nearest pixel then.
    nearest = centre.floor().clamp((start - 0.5 - slack).ceil(), (end - 0.5 + slack).floor()) + 0.5
    weights = torch.where(total.abs() > 1e-6, weights / total, (pixel == nearest).to(weights.dtype))
    return result.scatter_(0, place, weights.flatten()).view(-1, out, size)


@lru_cache(maxsize=8)
def _table(
    size: int, out: int, interpolation: Interpolation, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "T S O"]:
    """Weights of every crop of whole pixels along one axis, by extent and then start; after them those that mirror."""
    crops = [(start, extent) for extent in range(1, size + 1) for start in range(size - extent + 1)]
    start, extent = torch.tensor(crops, dtype=dtype, device=device).repeat(2, 1).unbind(1)
    flip = torch.arange(len(start), device=device) >= len(crops)
    # Transposed, because the second product takes them so.
    return resize_weights(start, extent, size, out, flip, interpolation).transpose(1, 2).contiguous()


def _from_table(
    start: Float[Tensor, " B"],
    extent: Float[Tensor, " B"],
    size: int,
    out: int,
    flip: Bool[Tensor, " B"] | None,
    interpolation: Interpolation,
) -> Float[Tensor, "B O S"]:
    weights = _table(size, out, interpolation, start.dtype, start.device)
    before = extent.long() - 1
    place = before * (2 * size + 1 - before) // 2 + start.long()
    return weights.index_select(0, place if flip is None else place + flip * (len(weights) // 2)).transpose(1, 2)


def _products(
    images: Float[Tensor, "B C H W"], vertical: Float[Tensor, "B V O H"], horizontal: Float[Tensor, "B V O W"]
) -> Float[Tensor, "B V C O O"]:
    """Columns first: one product per image makes the rows of all its crops, of all channels at once."""
    batch, views, out, height = vertical.shape
    channels = images.shape[1]
    with exact_products(images.device):
        rows = vertical.reshape(batch, views * out, height) @ images.transpose(1, 2).reshape(batch, height, -1)
        crops = rows.view(batch * views, out * channels, -1) @ horizontal.flatten(0, 1).transpose(1, 2)
    return crops.view(batch, views, out, channels, out).transpose(2, 3).contiguous()


def crop_resize(
    images: Float[Tensor, "B C H W"],
    boxes: Float[Tensor, "B *V 4"],
    out: int,
    flip: Bool[Tensor, " B *V"] | None = None,
    interpolation: Interpolation = "bicubic",
    *,
    whole: bool = False,
) -> Float[Tensor, "B *V C O O"]:
    """One or V crops of every image, resized to squares and mirrored where asked, without a copy of it for each.

    On a CPU, where it is worth the calls, each crop of a large image is made from its own pixels instead of by weights
    of zero for others.

    Args:
        images: Pixels.
        boxes: Top, left, height and width in pixels of these images.
        out: O, side of the result.
        flip: Which crops to mirror left to right; None for none.
        interpolation: Kernel.
        whole: Whether all boxes are of whole pixels: the weights of small images are then looked up.
    """
    batch, channels, height, width = images.shape
    each = boxes.reshape(-1, 4).to(images.dtype)
    views = math.prod(boxes.shape[1:-1])
    shape, result = (batch, views), (*boxes.shape[:-1], channels, out, out)
    if whole and max(height, width, out) <= SMALL:
        top, left, h, w = each.unbind(1)
        vertical = _from_table(top, h, height, out, None, interpolation)
        horizontal = _from_table(left, w, width, out, None if flip is None else flip.flatten(), interpolation)
        return _products(images, vertical.unflatten(0, shape), horizontal.unflatten(0, shape)).view(result)
    if flip is not None:
        flip = torch.cat([torch.zeros_like(flip), flip]).flatten()
    # Both axes at once: no crop reaches beyond its own, so that the weights there are zeros.
    starts, extents = each[:, :2].T.flatten(), each[:, 2:].T.flatten()
    both = resize_weights(starts, extents, max(height, width), out, flip, interpolation)
    vertical, horizontal = both.chunk(2)
    if images.device.type == "cpu" and height * width >= _LARGE**2:
        crops = images.new_empty((batch * views, channels, out, out))
        ends = (each[:, :2] + each[:, 2:]).ceil()
        for i, (top, left, bottom, right) in enumerate(torch.cat([each[:, :2].floor(), ends], dim=1).long().tolist()):
            inside = images[i // views, :, top:bottom, left:right]
            crops[i] = vertical[i, :, top:bottom] @ inside @ horizontal[i, :, left:right].T
        return crops.view(result)
    vertical, horizontal = vertical[..., :height].unflatten(0, shape), horizontal[..., :width].unflatten(0, shape)
    return _products(images, vertical, horizontal).view(result)


def resized(
    images: Float[Tensor, "B C H W"], out: int, interpolation: Interpolation = "bicubic"
) -> Float[Tensor, "B C O O"]:
    """Whole images as squares of that side; as they are where they have it."""
    height, width = images.shape[2:]
    if (height, width) == (out, out):
        return images
    whole = constant((0.0, 0.0, float(height), float(width)), images.dtype, images.device)
    return crop_resize(images, whole.expand(len(images), 4), out, interpolation=interpolation)


def crops_in_bytes(images: Shaped[Tensor, "B C H W"], out: int) -> bool:
    """Whether ``crop_bytes`` is the faster way: on a CPU, for 8-bit images that are not small.

    One core, per image: a crop of 350 x 350 pixels to 224 takes 0.2-0.3 ms, and 2.9 ms as products of float32. At 32
    pixels products take 8 microseconds and ``crop_bytes`` 19; a ``grid_sample``, for bilinear crops, 10.
    """
    large = max(*images.shape[2:], out) > SMALL
    return large and images.dtype == torch.uint8 and images.device.type == "cpu"


def crop_bytes(
    images: UInt8[Tensor, "B C H W"],
    boxes: Float[Tensor, "B *V 4"],
    out: int,
    flip: Bool[Tensor, " B *V"] | None = None,
    interpolation: Interpolation = "bicubic",
) -> UInt8[Tensor, "B *V C O O"]:
    """What ``crop_resize`` does, one crop after the other in integers, rounded to 8 bits as Pillow rounds.

    Args:
        images: Pixels, fastest where the channels of a pixel lie together (channels_last).
        boxes: Top, left, height and width in pixels of these images, whole numbers.
        out: O, side of the result.
        flip: Which crops to mirror left to right; None for none.
        interpolation: Kernel.
    """
    shape, views = boxes.shape[:-1], math.prod(boxes.shape[1:-1])
    mirrored = [False] * shape.numel() if flip is None else flip.flatten().tolist()
    crops: list[Tensor] = []
    for i, ((top, left, h, w), mirror) in enumerate(zip(boxes.reshape(-1, 4).long().tolist(), mirrored, strict=True)):
        image = images.narrow(0, i // views, 1)
        crop = resize_bytes(image[:, :, top : top + h, left : left + w], out, interpolation)
        crops.append(crop.flip(3) if mirror else crop)
    return (crops[0] if len(crops) == 1 else torch.cat(crops)).unflatten(0, shape)


def random_shift(key: Key, size: int) -> Int[Tensor, "B 2"]:
    """Where crops of padded images begin, down and right: from 0 to twice the padding of an eighth of the side."""
    return (uniform(key, 2) * (2 * (size // 8) + 1)).long()


def pad_crop(
    images: Shaped[Tensor, "B C S S"], shift: Int[Tensor, "B 2"], flip: Bool[Tensor, " B"] | None = None
) -> Shaped[Tensor, "B C S S"]:
    """Pads squares by an eighth of their side, reflected, and cuts squares of their own size out of that.

    The crop of CIFAR recipes (He et al. 2016; reflected as in Zagoruyko and Komodakis 2016): no pixel is resampled.

    Args:
        images: Pixels.
        shift: Where each crop begins in the padded image (``random_shift``).
        flip: Which samples to mirror left to right; None for none.
    """
    batch, channels, _, size = images.shape
    place = torch.arange(size, device=images.device) + shift[:, :, None] - size // 8
    rows, columns = ((size - 1) - ((size - 1) - place.abs()).abs()).unbind(1)
    if flip is not None:
        columns = torch.where(flip[:, None], columns.flip(1), columns)
    planes = torch.arange(batch * channels, device=images.device).view(batch, channels, 1) * size
    taken = images.reshape(-1, size).index_select(0, (planes + rows[:, None]).flatten()).view_as(images)
    return taken.gather(3, columns[:, None, None].expand_as(taken))
