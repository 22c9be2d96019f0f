"""Targets from labels; mixup and CutMix between neighbours in the global order, however many processes; erasing."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.special import betaincinv
from torch import Tensor

from ssl_vit.core.randomness import Key, normal, uniform
from ssl_vit.data.constants import sent
from ssl_vit.data.targets import Kind

_TRIES = 10
_AREA, _RATIO = (0.02, 1 / 3), (0.3, 1 / 0.3)
"""Share of the image and height / width of the box (least, most), as MAE fine-tunes."""


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
    dtype: torch.dtype,
) -> Float[Tensor, "B K"]:
    """What the network is to answer: class probabilities, one probability per label, or the numbers as they come.

    Args:
        labels: As ``ImageSet.labels``, numbers as ``ImageSet.standardised`` has them.
        kind: How to read them.
        classes: K, number of classes, labels or numbers.
        smoothing: Mass moved from the class to all K, in [0, 1] (Szegedy et al. 2016); of several labels, 0 and 1 each
            move by half of it.
        dtype: Of the result.
    """
    if kind == "class":
        return F.one_hot(labels, classes).to(dtype) * (1.0 - smoothing) + smoothing / classes
    if kind == "multilabel":
        return labels.to(dtype) * (1.0 - smoothing) + smoothing / 2.0
    return labels.to(dtype)


def mix(
    key: Key, images: Float[Tensor, "B C H W"], targets: Float[Tensor, "B K"], *, mixup: float, cutmix: float
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B K"]]:
    """Mixes each image with its neighbour (0 with 1, 2 with 3, ...): mixup or CutMix, each with half the chance.

    Args:
        key: One random stream per sample, on the host; a pair uses the first one's.
        images: Pixels; B is even.
        targets: Class probabilities, label probabilities or numbers: all of them mix linearly.
        mixup: Beta parameter of mixup (Zhang et al. 2018), 0 for off.
        cutmix: Beta parameter of CutMix (Yun et al. 2019), 0 for off.
    """
    if not mixup and not cutmix:
        return images, targets
    batch, _, height, width = images.shape
    device, partner = images.device, torch.arange(batch) ^ 1
    u = uniform(Key(key.low[::2], key.high[::2]), 4).repeat_interleave(2, dim=0).to(images.dtype)
    cuts = u[:, 0] < 0.5 if mixup and cutmix else torch.full_like(u[:, 0], bool(cutmix), dtype=torch.bool)
    share = torch.where(cuts, beta(u[:, 1], cutmix or 1.0), beta(u[:, 1], mixup or 1.0))
    # CutMix: a box of area (1 - share) around a random centre comes from the partner.
    half, area = 0.5 * torch.sqrt(1.0 - share), torch.ones_like(share)
    edges: list[Tensor] = []
    for size, centre in ((height, u[:, 2]), (width, u[:, 3])):
        low, high = (((centre + side) * size).round().clamp(0, size) for side in (-half, half))
        area, edges = area * (high - low), [*edges, low, high]
    own = torch.where(cuts, 1.0 - area / (height * width), share)
    outside, edges = torch.where(cuts, 1.0, share), [torch.where(cuts, edge, 0.0) for edge in edges]
    partner, numbers = sent(partner, device), sent(torch.stack([own, outside, *edges]), device)
    own, outside, top, bottom, left, right = numbers[:, :, None, None, None]
    y = torch.arange(height, device=device, dtype=images.dtype).view(1, 1, -1, 1)
    x = torch.arange(width, device=device, dtype=images.dtype)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    blend = torch.where(inside, 0.0, outside)
    mixed = images * blend + images[partner] * (1.0 - blend)
    weight = own[:, :, 0, 0].to(targets.dtype)
    return mixed, targets * weight + targets[partner] * (1.0 - weight)


def erase(key: Key, images: Float[Tensor, "B C H W"], probability: float) -> Float[Tensor, "B C H W"]:
    """Replaces a random box by normal noise (Zhong et al. 2020; every pixel of its own, as MAE fine-tunes).

    Ten boxes are drawn at once and the first that fits is taken; an image for which none fits stays whole.

    Args:
        key: One random stream per sample, on the host.
        images: Normalised pixels, so that noise of unit deviation looks like them.
        probability: Chance of each image, in [0, 1].
    """
    channels, height, width = images.shape[1:]
    u = uniform(key, 1 + 4 * _TRIES)
    v = u[:, 1:].view(-1, 4, _TRIES)
    area = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * v[:, 0])
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    shape = torch.exp(low + (high - low) * v[:, 1])
    h, w = torch.sqrt(area * shape).round(), torch.sqrt(area / shape).round()
    fits = (h > 0) & (h < height) & (w > 0) & (w < width)
    top, left = (v[:, 2] * (height - h + 1)).floor(), (v[:, 3] * (width - w + 1)).floor()
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    rows = ((u[:, 0] < probability) & fits.any(dim=1)).nonzero()[:, 0]
    boxes = torch.stack([t.gather(1, first)[rows] for t in (top, left, h, w)])
    streams = sent(torch.stack([key.high[rows], key.low[rows]]), images.device)
    rows, boxes = sent(rows, images.device), sent(boxes, images.device)
    top, left, h, w = boxes[..., None]
    y, x = (torch.arange(n, device=images.device) for n in (height, width))
    inside = ((y >= top) & (y < top + h))[:, :, :, None] & ((x >= left) & (x < left + w))[:, :, None]
    noise = normal(Key(*streams), channels * height * width).view(-1, channels, height, width)
    result = images.clone()
    result[rows] = torch.where(inside, noise.to(images.dtype), images[rows])
    return result
