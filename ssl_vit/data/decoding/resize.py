"""Resizing of 8-bit images as Pillow does it, in bytes."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

Interpolation = Literal["bicubic", "bilinear"]


def resize_bytes(
    image: UInt8[Tensor, "1 C H W"], out: int, interpolation: Interpolation
) -> UInt8[Tensor, "1 C {out} {out}"]:
    """One image to a square, antialiased, in integers as Pillow has them.

    Part of a larger image is copied first: torch would do that, too, but into planes, and take twice as long.

    Args:
        image: Pixels.
        out: Side of the result.
        interpolation: Kernel.
    """
    if image.shape[1] in (3, 4) and image.stride(1) == 1:
        image = image.contiguous(memory_format=torch.channels_last)
    return F.interpolate(image, (out, out), mode=interpolation, antialias=True, align_corners=False)
