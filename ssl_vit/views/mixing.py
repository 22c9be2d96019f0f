"""Targets from labels; mixup and CutMix between neighbours in the global order, whatever the number of processes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.special import betaincinv
from torch import Tensor

from ssl_vit.core.randomness import Key, uniform
from ssl_vit.data.constants import constant
from ssl_vit.data.targets import Kind, TargetScale


@lru_cache(maxsize=8)
def _beta_table(alpha: float) -> np.ndarray:
    """Quantiles of Beta(alpha, alpha) at 4,097 even probabilities."""
    return np.asarray(betaincinv(alpha, alpha, np.linspace(0.0, 1.0, 4097)))


def beta(u: Float[Tensor, " B"], alpha: float) -> Float[Tensor, " B"]:
    """Beta(alpha, alpha) numbers from uniform ones, by interpolated quantiles."""
    table = torch.from_numpy(_beta_table(alpha)).to(u)
    place = u * (len(table) - 1)
    below = place.floor().long().clamp(max=len(table) - 2)
    return torch.lerp(table[below], table[below + 1], place - below)


def make_targets(
    labels: Int[Tensor, " B"] | Float[Tensor, "B K"],
    kind: Kind,
    *,
    classes: int,
    smoothing: float,
    scale: TargetScale | None,
    dtype: torch.dtype,
) -> Float[Tensor, "B K"]:
    """What the network is to answer: class probabilities, one probability per label, or standardised numbers.

    Args:
        labels: As ``ImageSet.labels``.
        kind: How to read them.
        classes: K, number of classes, labels or numbers.
        smoothing: Mass moved from the class to all classes (Szegedy et al. 2016); of several labels, 0 and 1 each move
            by half of it.
        scale: What numbers are standardised by; needed for regression alone.
        dtype: Of the result.
    """
    if kind == "class":
        return F.one_hot(labels, classes).to(dtype) * (1.0 - smoothing) + smoothing / classes
    if kind == "multilabel":
        return labels.to(dtype) * (1.0 - smoothing) + smoothing / 2.0
    assert scale is not None
    mean, std = (constant(v, labels.dtype, labels.device) for v in scale)
    return ((labels - mean) / std).to(dtype)


def mix(
    key: Key, images: Float[Tensor, "B C H W"], targets: Float[Tensor, "B K"], *, mixup: float, cutmix: float
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B K"]]:
    """Mixes each image with its neighbour (0 with 1, 2 with 3, ...): mixup or CutMix, each with half the chance.

    Args:
        key: One random stream per sample; a pair uses the first one's.
        images: Pixels; B is even.
        targets: Class probabilities, label probabilities or numbers: all of them mix linearly.
        mixup: Beta parameter of mixup (Zhang et al. 2018), 0 for off.
        cutmix: Beta parameter of CutMix (Yun et al. 2019), 0 for off.
    """
    if not mixup and not cutmix:
        return images, targets
    batch, _, height, width = images.shape
    partner = torch.arange(batch, device=images.device) ^ 1
    u = uniform(Key(key.low[::2], key.high[::2]), 4).repeat_interleave(2, dim=0).to(images.dtype)
    cuts = u[:, 0] < 0.5 if mixup and cutmix else torch.full_like(u[:, 0], bool(cutmix), dtype=torch.bool)
    share = torch.where(cuts, beta(u[:, 1], cutmix or 1.0), beta(u[:, 1], mixup or 1.0))
    # CutMix: a box of area (1 - share) around a random centre comes from the partner.
    half = 0.5 * torch.sqrt(1.0 - share)
    inside = torch.ones((batch, 1, 1, 1), dtype=torch.bool, device=images.device)
    for size, centre, view in ((height, u[:, 2], (1, 1, -1, 1)), (width, u[:, 3], (1, 1, 1, -1))):
        place = torch.arange(size, device=images.device, dtype=images.dtype).view(view)
        low = ((centre - half) * size).round()[:, None, None, None]
        high = ((centre + half) * size).round()[:, None, None, None]
        inside = inside & (place >= low) & (place < high)
    own = torch.where(cuts, 1.0 - inside.to(images.dtype).mean(dim=(1, 2, 3)), share)
    blend = torch.where(cuts[:, None, None, None], 1.0 - inside.to(images.dtype), share[:, None, None, None])
    mixed = images * blend + images[partner] * (1.0 - blend)
    weight = own[:, None].to(targets.dtype)
    return mixed, targets * weight + targets[partner] * (1.0 - weight)
