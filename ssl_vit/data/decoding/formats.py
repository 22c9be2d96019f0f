"""What decoding speaks of: pixels, formats, headers, and the one error of images that cannot be used."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

Pixels = np.ndarray
"""uint8 or uint16, [C, H, W]."""

Raw = bytes | np.ndarray | tuple[bytes, ...]
"""A file's bytes; pixels [C, H, W] as they are; or several files that hold the channels of one image, in order."""


class Unreadable(Exception):
    """An image that cannot be decoded, with the reason in words."""


class Format(NamedTuple):
    """What every image of a set is brought to."""

    channels: int
    bits: int

    def bytes_of(self, shape: tuple[int, int] | None) -> int:
        """Size of a decoded image of this height and width; 0 where they are unknown."""
        height, width = shape or (0, 0)
        return self.channels * height * width * self.bits // 8


class Header(NamedTuple):
    """What a file says about itself before its pixels are decoded."""

    channels: int
    bits: int
    height: int
    width: int


def check_area(height: int, width: int) -> None:
    """Refuses sizes without a pixel or above Pillow's limit (179 million) for files that it does not read itself."""
    if not height * width:
        raise Unreadable("no pixels")
    if Image.MAX_IMAGE_PIXELS is not None and height * width > 2 * Image.MAX_IMAGE_PIXELS:
        raise Unreadable(f"too large: {width} x {height} pixels, above Pillow's limit of {2 * Image.MAX_IMAGE_PIXELS}")
