"""Small pictures of any kind of image, for people."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from ssl_vit.data.decoding.formats import Pixels

LONGEST = 96
"""Longer side of a picture in pixels."""
_TINY = 32  # images up to this side are enlarged by repeating pixels


def picture(pixels: Pixels) -> bytes:
    """A PNG with a longer side of 96 pixels.

    Args:
        pixels: uint8 or uint16, [C, H, W]. 8-bit grey and RGB are shown as they are; of all others the first three
            channels, or the first where there are not three, each stretched from its 1st to its 99th percentile.
    """
    shown = pixels[:3] if len(pixels) >= 3 else pixels[:1]
    if pixels.dtype != np.uint8 or len(pixels) not in (1, 3):
        low, high = np.percentile(shown, (1, 99), axis=(1, 2))[:, :, None, None]
        shown = np.rint(np.clip((shown - low) / np.maximum(high - low, 1), 0, 1) * 255).astype(np.uint8)
    image = Image.fromarray(shown[0] if len(shown) == 1 else np.ascontiguousarray(shown.transpose(1, 2, 0)))
    scale = LONGEST / max(image.size)
    kernel = Image.Resampling.NEAREST if max(image.size) <= _TINY else Image.Resampling.BICUBIC
    width, height = (max(1, round(side * scale)) for side in image.size)
    file = io.BytesIO()
    image.resize((width, height), kernel).save(file, "PNG")
    return file.getvalue()
