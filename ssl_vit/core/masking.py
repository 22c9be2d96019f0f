"""Which patches a masked objective sees."""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.core.errors import UserError


class Mask(NamedTuple):
    """A split of N patches into K visible and N-K masked ones; indices are row-major patch numbers."""

    keep_ids: Int[Tensor, "B K"]
    mask_ids: Int[Tensor, "B M"]


def kept_patches(num_patches: int, mask_ratio: float, option: str = "--mae.mask_ratio") -> int:
    """How many of N patches stay visible: ``int(N * (1 - ratio))`` as the official MAE code floors it.

    UserError, which names the option, where nothing or everything would be.
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
    """Per-sample random masking (MAE, section 3): the patches with the smallest noise stay visible, in its order."""
    order = noise.argsort(dim=1, stable=True)
    return Mask(order[:, :kept], order[:, kept:])
