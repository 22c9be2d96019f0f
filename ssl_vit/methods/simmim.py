"""SimMIM: options, presets and their resolution."""

from __future__ import annotations

_SHARE = 32 / 224
"""Side of the paper's squares as a share of the image's."""


def side_of_hidden(size: int, stride: int) -> int:
    """Side of the squares that are hidden, in pixels: near the paper's share of the image, and at least four to a side.

    Args:
        size: Side of the image in pixels.
        stride: Side of a patch, or of what a place of the last feature map stands for: squares are made of whole ones,
            or whole parts of one.
    """
    fitting = [n for n in range(1, max(1, size // 4) + 1) if size % n == 0 and (n % stride == 0 or stride % n == 0)]
    return min(fitting, key=lambda n: (abs(n - max(stride, _SHARE * size)), n))
