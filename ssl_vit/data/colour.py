"""Batched random intensity and colour: DeiT III's 3-Augment and jitter, on pixels scaled to [0, 1]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.randomness import Key, uniform

_LUMA = (0.299, 0.587, 0.114)


def grey(images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
    """ITU-R 601 luma on every channel."""
    weights = images.new_tensor(_LUMA)[:, None, None]
    return (images * weights).sum(dim=1, keepdim=True).expand_as(images)


def solarise(images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Inverts what is brighter than the middle of the range."""
    return torch.where(images >= 0.5, 1.0 - images, images)


def blur(images: Float[Tensor, "B C H W"], sigma: Float[Tensor, " B"]) -> Float[Tensor, "B C H W"]:
    """Gaussian blur with one width per sample, in pixels; edges are reflected."""
    radius = min(6, images.shape[2] - 1, images.shape[3] - 1)
    offset = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (offset / sigma[:, None].to(images.dtype)) ** 2)
    kernel = kernel / kernel.sum(dim=1, keepdim=True)
    batch, channels, height, width = images.shape
    x = F.pad(images, (radius,) * 4, mode="reflect").reshape(1, batch * channels, height + 2 * radius, -1)
    each = kernel.repeat_interleave(channels, dim=0)[:, None]
    x = F.conv2d(x, each[:, :, :, None], groups=batch * channels)
    x = F.conv2d(x, each[:, :, None, :], groups=batch * channels)
    return x.reshape(batch, channels, height, width)


def jitter(images: Float[Tensor, "B C H W"], u: Float[Tensor, "B 2"], strength: float) -> Float[Tensor, "B C H W"]:
    """Random brightness, then contrast about each image's mean, by factors in [1 - strength, 1 + strength]."""
    factor = (1.0 + strength * (2.0 * u.to(images.dtype) - 1.0))[:, :, None, None, None]
    images = images * factor[:, 0]
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return ((images - mean) * factor[:, 1] + mean).clamp(0.0, 1.0)


def three_augment(key: Key, images: Float[Tensor, "B C H W"], *, bits: int) -> Float[Tensor, "B C H W"]:
    """One of grey, solarise or blur per image, then jitter (Touvron et al. 2022, "DeiT III", section 3.2).

    Grey needs RGB and solarise an 8-bit range that is really used; where they make no sense blur or nothing is drawn.

    Args:
        key: One random stream per sample.
        images: Pixels in [0, 1].
        bits: Bits per channel of the files.
    """
    u = uniform(key, 4)
    choice = (u[:, 0] * 3).long()[:, None, None, None]
    if images.shape[1] == 3 and bits == 8:
        images = torch.where(choice == 0, grey(images), images)
    if bits == 8:
        images = torch.where(choice == 1, solarise(images), images)
    if min(images.shape[2:]) > 1:
        images = torch.where(choice == 2, blur(images, 0.1 + 1.9 * u[:, 1]), images)
    return jitter(images, u[:, 2:], 0.3)
