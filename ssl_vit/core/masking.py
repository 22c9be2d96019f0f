"""Which patches a masked objective sees."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import Key, uniform


class Mask(NamedTuple):
    """A split of N patches into K visible and N-K masked ones; indices are row-major patch numbers."""

    keep_ids: Int[Tensor, "B K"]
    mask_ids: Int[Tensor, "B M"]


def kept_patches(num_patches: int, mask_ratio: float, option: str = "--mae.mask_ratio") -> int:
    """How many patches stay visible: ``int(N * (1 - ratio))`` as the official MAE code floors it.

    Args:
        num_patches: N, patches per image.
        mask_ratio: Share of patches hidden, in (0, 1).
        option: What the ratio is called.

    Raises:
        UserError: When nothing or everything would be visible.
    """
    inside = 0.0 <= mask_ratio <= 1.0  # false for nan
    kept = int(num_patches * (1.0 - mask_ratio)) if inside else 0
    if not 0 < kept < num_patches:
        state = "keeps everything" if mask_ratio <= 0.0 or kept == num_patches else "keeps nothing"
        raise UserError(
            f"{option} {mask_ratio:g} {state} of {num_patches} patches; "
            f"give a ratio between {1 / num_patches:.3g} and {math.floor(1000 - 1000 / num_patches) / 1000:g}"
        )
    return kept


def random_mask(noise: Float[Tensor, "B N"] | Int[Tensor, "B N"], kept: int) -> Mask:
    """Per-sample random masking (MAE, section 3): the patches with the smallest noise stay visible, in its order.

    Args:
        noise: One random number per patch.
        kept: K, visible patches per image.
    """
    order = noise.argsort(dim=1, stable=True)
    return Mask(order[:, :kept], order[:, kept:])


_BLOCKS = 32
"""Blocks that are drawn for an image; as many of them are hidden as it takes."""
_LEAST_BLOCK = 16 / 196
"""Patches of the smallest block, as a share of the image's."""
_ASPECT = 0.3
"""Height over width of the widest block; of the highest its inverse."""


def block_mask(key: Key, grid: tuple[int, int], hidden: int) -> Mask:
    """Blockwise masking (BEiT, algorithm 1) with exactly as many hidden patches in every image.

    Rectangles of drawn area, aspect (log-uniform) and place are hidden one after another; of the last one only the
    upper rows, as far as they are needed. ``keep_ids`` are in row-major order.

    Args:
        key: One stream per sample.
        grid: Rows and columns of patches; N = rows * columns.
        hidden: M, hidden patches per image, below N.
    """
    rows, columns = grid
    patches = rows * columns
    u = uniform(key, 4 * _BLOCKS)
    area, aspect, top, left = (u[:, i : i + _BLOCKS] for i in range(0, 4 * _BLOCKS, _BLOCKS))
    least = max(1.0, _LEAST_BLOCK * patches)
    area = least + area * max(0.0, hidden - least)
    aspect = torch.exp(math.log(_ASPECT) * (1.0 - 2.0 * aspect))
    high = (area * aspect).sqrt().round().clamp(1, rows)
    wide = (area / aspect).sqrt().round().clamp(1, columns)
    top, left = ((v * (side - size + 1)).floor() for v, side, size in ((top, rows, high), (left, columns, wide)))
    y = torch.arange(patches, device=key.low.device) // columns
    x = torch.arange(patches, device=key.low.device) % columns
    inside = [
        (place >= start[:, :, None]) & (place < (start + size)[:, :, None])
        for place, start, size in ((y, top, high), (x, left, wide))
    ]
    number = torch.arange(_BLOCKS, device=key.low.device)[:, None]
    first = torch.where(inside[0] & inside[1], number, _BLOCKS).amin(dim=1)  # the block that hides a patch
    order = first.argsort(dim=1, stable=True)
    return Mask(order[:, hidden:].sort(dim=1).values, order[:, :hidden])
