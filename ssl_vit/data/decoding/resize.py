"""Resizing of decoded images, antialiased: 8 bits in integers as Pillow does it, 16 bits in Pillow's float mode."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from ssl_vit.data.decoding.formats import Pixels

Interpolation = Literal["bicubic", "bilinear"]


def as_tensor(pixels: Pixels) -> UInt8[Tensor, "1 C H W"]:
    """One 8-bit image as torch has it; what Pillow decoded may only be read, which torch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(pixels)[None]


def resize_bytes(
    image: UInt8[Tensor, "1 C H W"], out: int, interpolation: Interpolation
) -> UInt8[Tensor, "1 C {out} {out}"]:
    """One image to a square of that side, in integers as Pillow has them.

    Part of a larger image is copied first: torch would do that, too, but into planes, and take twice as long.
    """
    if image.shape[1] in (3, 4) and image.stride(1) == 1:
        image = image.contiguous(memory_format=torch.channels_last)
    return F.interpolate(image, (out, out), mode=interpolation, antialias=True, align_corners=False)


def resize_8bit(pixels: Pixels, canvas: tuple[int, int], extent: tuple[float, float]) -> Pixels:
    """Bicubic by torch, in integers like Pillow's and in a third of the time; photographs differ by at most two levels.

    ``extent`` is height and width of the image in these pixels, of which it may leave a part of the last ones.
    """
    images = as_tensor(pixels)
    if extent == pixels.shape[1:]:
        return F.interpolate(images, canvas, mode="bicubic", antialias=True)[0].numpy()
    # torch rounds sizes down: a little more than the canvas makes sure of it
    scale = tuple((side + 1e-6) / length for side, length in zip(canvas, extent, strict=True))
    resized = F.interpolate(images, scale_factor=scale, recompute_scale_factor=False, mode="bicubic", antialias=True)
    return resized[0].numpy()


def resize_planes(pixels: Pixels, canvas: tuple[int, int], interpolation: Interpolation = "bicubic") -> Pixels:
    """Of any integers, through Pillow's float mode, because nothing filters 16-bit integers."""
    kernel = Image.Resampling.BICUBIC if interpolation == "bicubic" else Image.Resampling.BILINEAR
    size = (canvas[1], canvas[0])
    planes = [np.asarray(Image.fromarray(p.astype(np.float32)).resize(size, kernel)) for p in pixels]
    return np.clip(np.rint(np.stack(planes)), 0, np.iinfo(pixels.dtype).max).astype(pixels.dtype)
