"""What decoding speaks of: pixels, formats, headers, and the one error of images that cannot be used."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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


MOST = 1 << 27
"""``--data.max_pixels`` where it is not given."""
_BYTES, _BYTES_PER_PIXEL = 1 << 26, 16
"""What a file may have whatever its pixels (profiles, previews), and for each pixel: eight channels of 16 bits."""


def check_area(height: int, width: int, most: int, pages: int = 1) -> None:
    """Refuses an image without a pixel, or with more than ``--data.max_pixels``.

    Args:
        height: In pixels.
        width: In pixels.
        most: Pixels of all pages together.
        pages: Of a TIFF.

    Raises:
        Unreadable: With both numbers.
    """
    if not height * width:
        raise Unreadable("no pixels")
    if height * width * pages > most:
        times = f" in {pages:,} pages" if pages > 1 else ""
        raise Unreadable(f"too large: {width:,} x {height:,} pixels{times}, above --data.max_pixels {most}")


def check_bytes(size: int, most: int) -> None:
    """Refuses a file that is larger than an image of ``--data.max_pixels`` needs, before it is read.

    Args:
        size: Of the file.
        most: ``--data.max_pixels``.

    Raises:
        Unreadable: With both numbers.
    """
    allowed = max(_BYTES, _BYTES_PER_PIXEL * most)
    if size > allowed:
        raise Unreadable(f"too large: {size:,} bytes, above the {allowed:,} that --data.max_pixels {most} allows")
