"""Batched intensity and colour, each sample by its own amount, and DeiT III's 3-Augment; pixels scaled to [0, 1]."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.arithmetic import exact_products
from ssl_vit.core.randomness import Key, uniform
from ssl_vit.data.constants import constant, sent

_LUMA = (0.299, 0.587, 0.114)


class Operations(NamedTuple):
    """Operations to draw from; some make sense for RGB alone (for some also of 16 bits), or for 8 bits alone."""

    who: str
    names: tuple[str, ...]
    rgb: tuple[str, ...]
    eight_bits: tuple[str, ...]
    deep_rgb: bool

    def sensible(self, channels: int, bits: int) -> tuple[str, ...]:
        """What is drawn from: all of them for 8-bit RGB, else those that make sense."""
        without: tuple[str, ...] = () if channels == 3 and (bits == 8 or self.deep_rgb) else self.rgb
        without += () if bits == 8 else self.eight_bits
        return tuple(name for name in self.names if name not in without)

    def notice(self, channels: int, bits: int) -> str:
        """A sentence about the operations that are left out; empty where none is."""
        drawn = self.sensible(channels, bits)
        left = [name for name in self.names if name not in drawn]
        make = "it makes" if len(left) == 1 else "they make"
        said = f"{self.who} out {', '.join(left)}: {make} no sense for {channels} channel(s) of {bits} bits"
        return said if left else ""


_THREE = ("grey", "solarise", "blur")
notice = Operations("3-Augment leaves", _THREE, ("grey",), ("solarise",), deep_rgb=False).notice


def luma(images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1 H W"]:
    """ITU-R 601 luma."""
    red, green, blue = images.split(1, dim=1)
    return red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]


def grey(images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
    """Luma on every channel."""
    return luma(images).expand_as(images)


def _per_image(values: Float[Tensor, " B"], images: Tensor) -> Float[Tensor, "B 1 1 1"]:
    return values.to(images.dtype).view(-1, 1, 1, 1)


def brightness(images: Float[Tensor, "B C H W"], factor: Float[Tensor, " B"]) -> Float[Tensor, "B C H W"]:
    """Multiplies by a factor."""
    return (images * _per_image(factor, images)).clamp_(0.0, 1.0)


def contrast(images: Float[Tensor, "B C H W"], factor: Float[Tensor, " B"], *, rgb: bool) -> Float[Tensor, "B C H W"]:
    """Multiplies the distance from each image's mean, of RGB from its mean luma, by a factor."""
    mean = (luma(images) if rgb else images).mean(dim=(1, 2, 3), keepdim=True)
    factor = _per_image(factor, images)
    return (images * factor).add_(mean * (1.0 - factor)).clamp_(0.0, 1.0)


def saturation(images: Float[Tensor, "B 3 H W"], factor: Float[Tensor, " B"]) -> Float[Tensor, "B 3 H W"]:
    """Multiplies the distance from each pixel's luma by a factor."""
    return torch.lerp(luma(images), images, _per_image(factor, images)).clamp_(0.0, 1.0)


def hue(images: Float[Tensor, "B 3 H W"], shift: Float[Tensor, " B"]) -> Float[Tensor, "B 3 H W"]:
    """Turns every pixel's hue, in the sense of HSV, and keeps its saturation and value.

    The least and the largest of red, green and blue stay as they are, so that only the angle needs to be worked out.

    Args:
        images: Pixels in [0, 1].
        shift: Share of a whole turn.
    """
    red, green, blue = images.unbind(dim=1)
    low = torch.minimum(torch.minimum(red, green), blue)
    high = torch.maximum(torch.maximum(red, green), blue)
    span = high - low
    # The angle in sixths of a turn, times the span: red at 0, green at 2, blue at 4.
    angle = torch.where(green == high, (blue - red).add_(span, alpha=2.0), (red - green).add_(span, alpha=4.0))
    angle = torch.where(red == high, green - blue, angle)
    angle = angle.div_(span.clamp(min=torch.finfo(span.dtype).tiny))  # a grey pixel's is 0
    angle = angle.add_(6.0 * shift.to(images.dtype).view(-1, 1, 1))
    angle = angle.sub_((angle / 6.0).floor_(), alpha=6.0)
    # Red is strong away from cyan, green and blue are near themselves.
    centre, sign, least = (
        constant(each, images.dtype, images.device)[:, None, None]
        for each in ((3.0, 2.0, 4.0), (1.0, -1.0, -1.0), (-1.0, 2.0, 2.0))
    )
    share = (angle[:, None] - centre).abs_().mul_(sign).add_(least).clamp_(0.0, 1.0)
    return torch.addcmul(low[:, None], span[:, None], share)


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
    with exact_products(images.device):
        x = F.conv2d(x, each[:, :, :, None], groups=batch * channels)
        x = F.conv2d(x, each[:, :, None, :], groups=batch * channels)
    return x.reshape(batch, channels, height, width)


def blur_by_products(
    images: Float[Tensor, "B C S S"], sigma: Float[Tensor, " B"], reach: int
) -> Float[Tensor, "B C S S"]:
    """As ``blur``, but for rounding, as two matrix products: several times faster for small images on a CPU.

    Args:
        images: Pixels.
        sigma: Deviation of each sample's kernel in pixels.
        reach: Pixels to each side that count: beyond three deviations there is less than 0.3 % of a kernel.
    """
    size = images.shape[3]
    radius = min(reach, size - 1)
    offset = torch.arange(-radius, radius + 1, device=images.device)
    kernel = torch.softmax(-0.5 * (offset / sigma[:, None].to(images.dtype)) ** 2, dim=1)
    pixel = torch.arange(size, device=images.device)
    source = (pixel[:, None] + offset).abs()  # reflected at the near edge, and now at the far one
    source = size - 1 - (size - 1 - source).abs()
    taps = (source.T[:, :, None] == pixel).to(images.dtype)
    with exact_products(images.device):
        weights = (kernel @ taps.flatten(1)).unflatten(1, (size, size))
        rows = images.flatten(1, 2) @ weights.transpose(1, 2)
        return weights[:, None] @ rows.view_as(images)


def jitter(images: Float[Tensor, "B C H W"], u: Float[Tensor, "B 2"], strength: float) -> Float[Tensor, "B C H W"]:
    """Random brightness, then contrast about each image's mean.

    Args:
        images: Pixels in [0, 1].
        u: Uniform numbers in [0, 1), one for brightness and one for contrast.
        strength: In [0, 1]; factors lie in [1 - strength, 1 + strength].
    """
    factor = (1.0 + strength * (2.0 * u.to(images.dtype) - 1.0))[:, :, None, None, None]
    images = images * factor[:, 0]
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return ((images - mean) * factor[:, 1] + mean).clamp(0.0, 1.0)


def three_augment(key: Key, images: Float[Tensor, "B C H W"], *, bits: int) -> Float[Tensor, "B C H W"]:
    """One of grey, solarise or blur per image, then jitter (Touvron et al. 2022, "DeiT III", section 3.2).

    Grey needs RGB and solarise an 8-bit range that is really used; where they make no sense blur or nothing is drawn.

    Args:
        key: One random stream per sample, on the host.
        images: Pixels in [0, 1].
        bits: Bits per channel of the files.
    """
    u = sent(uniform(key, 4), images.device)
    choice = (u[:, 0] * 3).long()[:, None, None, None]
    if images.shape[1] == 3 and bits == 8:
        images = torch.where(choice == 0, grey(images), images)
    if bits == 8:
        images = torch.where(choice == 1, solarise(images), images)
    if min(images.shape[2:]) > 1:
        images = torch.where(choice == 2, blur(images, 0.1 + 1.9 * u[:, 1]), images)
    return jitter(images, u[:, 2:], 0.3)
