"""Images that are decoded once for all trainings of a process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes

MOST = 2**30
"""Bytes of decoded pixels up to which a set is held: every process at work has its own."""


def in_memory(images: ImageSet, most: int = MOST) -> ImageSet:
    """The same images as pixels in memory, as they are decoded to; a loader process for every training costs seconds.

    Args:
        images: On a canvas, or of one size.
        most: Bytes that they may take.

    Returns:
        The set itself where it is in memory already, too large, of many sizes, or where an image cannot be read:
        whatever trains on it then counts and tells of that.
    """
    held = isinstance(images.rows, ArrayRows) and images.canvas in (None, images.sizes.common)
    if held or images.shape is None or len(images) * images.form.bytes_of(images.shape) > most:
        return images
    try:
        pixels = np.stack([images.read(i)[0] for i in range(len(images))])
    except Unreadable:
        return images
    height, width = pixels.shape[2:]
    return replace(
        images, rows=ArrayRows(pixels, images.name), ids=np.arange(len(images)), canvas=None,
        sizes=Sizes((height, width), min(height, width)), blocks=None, source=f"{images.fingerprint}-{height}-{width}",
        pieces=(), splits=frozenset(),
    )  # fmt: skip
