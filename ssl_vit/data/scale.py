"""Pixel statistics: how decoded pixels become network input, stored with the backbone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.errors import UserError
from ssl_vit.data.constants import constant
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.images import ImageSet, Sizes, evenly


@dataclass(frozen=True)
class PixelScale:
    """How decoded pixels become network input; stored with the backbone."""

    mean: tuple[float, ...]
    """Per channel, of pixels scaled to [0, 1]."""
    std: tuple[float, ...]
    """Per channel, of pixels scaled to [0, 1]."""
    bits: int
    """Bits per channel of the files: [0, 1] is the whole 8- or 16-bit range."""

    def scaled(self, images: Tensor, dtype: torch.dtype) -> Float[Tensor, "B C H W"]:
        """Pixels as fractions of the full range, in memory of their own, channels apart."""
        return images.to(dtype, copy=True, memory_format=torch.contiguous_format).div_(2**self.bits - 1)

    def normalise(self, images: Float[Tensor, "B C H W"], out: Tensor | None = None) -> Float[Tensor, "B C H W"]:
        """Fractions to zero mean and unit deviation, written to ``out`` where it is given."""
        mean, std = (constant(v, images.dtype, images.device)[:, None, None] for v in (self.mean, self.std))
        return torch.sub(images, mean, out=out).div_(std)

    def restore(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The inverse of ``normalise``."""
        mean, std = (constant(v, images.dtype, images.device)[:, None, None] for v in (self.mean, self.std))
        return images * std + mean


_SILENT = 0.01  # deviation in grey levels below which a channel counts as constant


def measure_scale(images: ImageSet, at_most: int = 2000) -> PixelScale:
    """Mean and deviation of every channel over up to 2,000 evenly spaced training images, taken whole.

    Sums are whole numbers and therefore exact: every process of a run comes to the same last bit.
    """
    if images.window is not None:  # an image is decoded whole for its window anyway
        images = replace(images, window=None, sizes=Sizes(None, images.sizes.short_side))
    total = np.zeros(images.form.channels, dtype=object)  # Python's integers, which have no limit
    square, count, reasons = np.zeros_like(total), 0, list[str]()
    for i in evenly(len(images), at_most).tolist():
        try:
            pixels, _ = images.read(i)
        except Unreadable as error:
            reasons.append(f"{images.where(i)} ({error})")
            continue
        total += np.einsum("chw->c", pixels, dtype=np.uint64).astype(object)
        square += np.einsum("chw,chw->c", pixels, pixels, dtype=np.uint64).astype(object)
        count += pixels[0].size
    if not count:
        raise UserError(f"no image in {images.name} can be read: {'; '.join(reasons[:3])}")
    top = 2**images.form.bits - 1
    mean = [int(t) / (count * top) for t in total]
    levels = [math.sqrt(count * int(s) - int(t) ** 2) / count for s, t in zip(square, total, strict=True)]
    # A constant channel stays constant instead of becoming noise.
    std = [deviation / top if deviation >= _SILENT else 1.0 for deviation in levels]
    return PixelScale(tuple(mean), tuple(std), images.form.bits)
