"""Any kind of pixels as something that a screen shows."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ssl_vit.data.decoding.formats import Pixels


def visible(pixels: Pixels) -> Image.Image:
    """An image in its own size, in 8 bits, grey or RGB.

    Args:
        pixels: uint8 or uint16, [C, H, W]. 8-bit grey and RGB are shown as they are; of all others the first three
            channels, or the first where there are not three, each stretched from its 1st to its 99th percentile.
    """
    shown = pixels[:3] if len(pixels) >= 3 else pixels[:1]
    if pixels.dtype != np.uint8 or len(pixels) not in (1, 3):
        low, high = np.percentile(shown, (1, 99), axis=(1, 2))[:, :, None, None]
        shown = np.rint(np.clip((shown - low) / np.maximum(high - low, 1), 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(shown[0] if len(shown) == 1 else np.ascontiguousarray(shown.transpose(1, 2, 0)))
