"""Position embeddings and their resampling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def sincos_2d(width: int, grid: tuple[int, int]) -> Float[Tensor, "N D"]:
    """Fixed 2-D sine-cosine positions in the order of the official MAE code: sin(x), cos(x), sin(y), cos(y).

    Args:
        width: D, a multiple of 4.
        grid: Rows and columns of patches; N = rows * columns, row-major.

    Returns:
        One float64 row per patch.

    Raises:
        ValueError: When the width is no multiple of 4.
    """
    if width % 4:
        raise ValueError(f"sine-cosine positions need a width that is a multiple of 4, got {width}")
    rows, columns = grid
    frequency = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width / 4))
    y, x = torch.meshgrid(
        torch.arange(rows, dtype=torch.float64), torch.arange(columns, dtype=torch.float64), indexing="ij"
    )
    angles = [axis.reshape(-1, 1) * frequency for axis in (x, y)]
    return torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=1)


def resample(
    positions: Float[Tensor, "1 L D"], old: tuple[int, int], new: tuple[int, int], *, prefix: int
) -> Float[Tensor, "1 M D"]:
    """Interpolates position embeddings to another grid (ViT, section 3.2); prefix rows stay as they are.

    Args:
        positions: ``prefix`` rows followed by one row per patch of the old grid, row-major.
        old: Rows and columns that the embedding was made for.
        new: Rows and columns wanted; the same as ``old`` returns ``positions`` itself.
        prefix: Rows that belong to class and register tokens.

    Returns:
        ``prefix`` rows followed by one row per patch of the new grid.
    """
    if old == new:
        return positions
    kept, patches = positions[:, :prefix], positions[:, prefix:]
    planes = patches.reshape(1, *old, -1).permute(0, 3, 1, 2)
    dtype = planes.dtype if planes.dtype == torch.float64 else torch.float32
    planes = F.interpolate(planes.to(dtype), size=new, mode="bicubic", antialias=True)
    return torch.cat([kept, planes.flatten(2).transpose(1, 2).to(patches.dtype)], dim=1)
