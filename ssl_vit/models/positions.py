"""Position embeddings and their resampling."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def sincos_2d(width: int, grid: tuple[int, int]) -> Float[Tensor, "N D"]:
    """Fixed 2-D sine-cosine positions (float64) in the order of the official MAE code: sin(x), cos(x), sin(y), cos(y).

    Args:
        width: D, a multiple of 4.
        grid: Rows and columns of patches; N = rows * columns, row-major.

    Raises:
        ValueError: When the width is no multiple of 4.
    """
    if width % 4:
        raise ValueError(f"sine-cosine positions need a width that is a multiple of 4, got {width}")
    rows, columns = grid
    frequency = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width / 4))
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in (rows, columns)), indexing="ij")
    angles = [axis.reshape(-1, 1) * frequency for axis in (x, y)]
    return torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=1)


class FactorisedPositions(nn.Module):
    """Learnable 2-D positions (ViT, appendix D.4): one table per axis, each half as wide as a token.

    A patch's embedding is that of its column (x) followed by that of its row (y). An exported backbone holds the
    whole table made from them, which plain timm reads: after loading it is an ordinary learnable table.
    """

    def __init__(self, width: int, grid: tuple[int, int], prefix: int) -> None:
        """Draws tables of deviation .02, as timm's are, from torch's global generator.

        Args:
            width: D, an even number.
            grid: Rows and columns of patches.
            prefix: Class and register tokens, each with a row of its own; 0 where they have no position.
        """
        super().__init__()
        rows, columns = grid
        self.pos_embed_x = nn.Parameter(torch.empty(columns, width // 2))
        self.pos_embed_y = nn.Parameter(torch.empty(rows, width // 2))
        self.pos_embed_prefix = nn.Parameter(torch.empty(prefix, width)) if prefix else None
        for table in self.parameters():
            nn.init.normal_(table, std=0.02)

    def forward(self) -> Float[Tensor, "1 L D"]:
        """The whole table: prefix rows, then one row per patch, row-major."""
        x, y = self.pos_embed_x, self.pos_embed_y
        patches = torch.cat([x.expand(len(y), -1, -1), y[:, None].expand(-1, len(x), -1)], dim=2).flatten(0, 1)
        whole = patches if self.pos_embed_prefix is None else torch.cat([self.pos_embed_prefix, patches])
        return whole[None]


@lru_cache(maxsize=64)
def _axis_weights(
    old: int, new: int, antialias: bool, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "M N"]:
    """Bicubic interpolation along one axis as a matrix, made on the host."""
    with torch.inference_mode(False):  # kept, and used in training later
        one_hot = torch.eye(old, dtype=dtype, device="cpu")[None, None]
        if antialias:
            weights = F.interpolate(one_hot, size=(new, old), mode="bicubic", antialias=True)
        else:  # places are a tenth of a step closer together than the grid has them, as in DINO's code
            weights = F.interpolate(one_hot, scale_factor=((new + 0.1) / old, 1.0), mode="bicubic")
        return weights[0, 0].to(device)


def resample(
    positions: Float[Tensor, "1 L D"], old: tuple[int, int], new: tuple[int, int], *, prefix: int,
    antialias: bool = True,
) -> Float[Tensor, "1 M D"]:  # fmt: skip
    """Interpolates position embeddings to another grid (ViT, section 3.2); prefix rows stay as they are.

    Args:
        positions: ``prefix`` rows followed by one row per patch of the old grid, row-major.
        old: Rows and columns that the embedding was made for.
        new: Rows and columns wanted; the same as ``old`` returns ``positions`` itself.
        prefix: Rows that belong to class and register tokens.
        antialias: Average over what a smaller grid passes over, as timm does; DINO's code reads the four nearest rows
            and columns alone.
    """
    if old == new:
        return positions
    kept, patches = positions[:, :prefix], positions[:, prefix:]
    dtype = patches.dtype if patches.dtype == torch.float64 else torch.float32
    rows, columns = (_axis_weights(a, b, antialias, dtype, patches.device) for a, b in zip(old, new, strict=True))
    # Two products instead of F.interpolate, whose antialiased bicubic (and its gradient) not every device has.
    with torch.autocast(patches.device.type, enabled=False):
        planes = patches.to(dtype).reshape(*old, -1).permute(2, 0, 1)
        planes = (rows @ planes @ columns.T).permute(1, 2, 0)
    return torch.cat([kept, planes.reshape(1, new[0] * new[1], -1).to(patches.dtype)], dim=1)
