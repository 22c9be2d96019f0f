"""Small pictures of many images on a few sheets, as a page holds them."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.decoding.visible import visible
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.processes import in_processes
from ssl_vit.data.loading.workers import loader_processes

COLUMNS = 32
"""Pictures beside each other on a sheet; as many lines, so that a phone can draw it."""
_SIDES = ((1500, 96), (50_000, 64))
"""Longer side of a picture in pixels, by how many there are."""
_TINY = 32  # side up to which images are kept as they are, and enlarged by repeating pixels
_AT_ONCE = 64  # images that a loader process draws before it reports
_LARGE = 512  # pixels of the median short side above which images are decoded to a canvas
_CANVAS = (256, 256)
_QUALITY = 82


class Sheets(NamedTuple):
    """Pictures in squares, line after line, sheet after sheet."""

    side: int
    """Of a square in pixels."""
    sizes: UInt8[np.ndarray, "m 2"]
    """Width and height of every picture, which lies at the top left of its square; 0 where it could not be drawn."""
    files: list[bytes]
    """Sheets of COLUMNS x COLUMNS squares as WebP; the last has only the lines it needs."""


def draw_sheets(images: ImageSet, positions: Int[np.ndarray, " m"], workers: int | None) -> Sheets:
    """Pictures of some images, in this order.

    Args:
        images: Where to take them from.
        positions: Which.
        workers: Processes that decode; None chooses.
    """
    side = next((s for most, s in _SIDES if len(positions) <= most), _SIDES[-1][1])
    tiny = max(images.sizes.common or (images.sizes.short_side,)) <= _TINY
    if tiny:
        side = max(images.sizes.common or (_TINY,))
    drawing = _Drawing(images, side)
    parts = [positions[start : start + _AT_ONCE] for start in range(0, len(positions), _AT_ONCE)]
    drawn = [
        one for part in in_processes(drawing, parts, loader_processes(images, workers, busy=False)) for one in part
    ]
    sizes = np.array([(one.shape[1], one.shape[0]) for one in drawn], dtype=np.uint8).reshape(-1, 2)
    files = []
    for start in range(0, len(drawn), COLUMNS**2):
        mine = drawn[start : start + COLUMNS**2]
        sheet = np.zeros((-(-len(mine) // COLUMNS) * side, COLUMNS * side, 3), dtype=np.uint8)
        for i, one in enumerate(mine):
            top, left = i // COLUMNS * side, i % COLUMNS * side
            sheet[top : top + one.shape[0], left : left + one.shape[1]] = one
        file = io.BytesIO()
        Image.fromarray(sheet).save(file, "WEBP", quality=_QUALITY, lossless=tiny)
        files.append(file.getvalue())
    return Sheets(side, sizes, files)


class _Drawing:
    """Draws pictures in a loader process."""

    def __init__(self, images: ImageSet, side: int) -> None:
        self.images, self.side = images, side

    def __getitem__(self, positions: np.ndarray) -> list[np.ndarray]:
        return [self._one(int(i)) for i in positions]

    def _one(self, i: int) -> np.ndarray:
        """UInt8[h w 3], whole and in the image's own shape; empty where it cannot be read any more."""
        canvas = _CANVAS if self.images.sizes.short_side > _LARGE else None
        try:
            pixels, (height, width) = decode(self.images.raw(i), self.images.form, canvas, self.images.most)
        except Unreadable:
            return np.zeros((0, 0, 3), dtype=np.uint8)
        scale = min(1.0, self.side / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        image = visible(pixels).convert("RGB")
        return np.asarray(image if image.size == size else image.resize(size, Image.Resampling.BICUBIC))
