"""RandAugment in batches, on pixels scaled to [0, 1]: every sample has its own operations, magnitudes and signs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.arithmetic import exact_products
from ssl_vit.core.randomness import Key, normal, uniform
from ssl_vit.data.constants import constant, sent
from ssl_vit.views.colour import Operations, grey

Images = Float[Tensor, "B C H W"]
Strength = Float[Tensor, "B 1 1 1"]
"""Signed magnitude / 10, in [-1, 1]; operations without a direction read its absolute value."""

LAYERS, PROBABILITY, DEVIATION, MOST = 2, 0.5, 0.5, 10.0
"""Operations drawn per image, chance that each is applied, deviation and largest value of the magnitude."""


def _levels(images: Images) -> Images:
    """The nearest of the 256 levels, so that rounding errors of the crop cannot move a pixel over a threshold."""
    return (images * 255.0).round()


def _enhance(images: Images, plain: Tensor, strength: Strength) -> Images:
    """Moves away from a plain image, or towards it, by Pillow's factor in [0.1, 1.9]."""
    factor = (1.0 + 0.9 * strength).clamp(min=0.1)
    return (plain + (images - plain) * factor).clamp(0.0, 1.0)


def _contrast(images: Images, strength: Strength) -> Images:
    plain = grey(images) if images.shape[1] == 3 else images
    return _enhance(images, plain.mean(dim=(1, 2, 3), keepdim=True), strength)


def _sharpness(images: Images, strength: Strength) -> Images:
    """Against the image smoothed by the kernel (1 1 1, 1 5 1, 1 1 1) / 13; the outermost pixels stay."""
    smooth = images.clone()
    if min(images.shape[2:]) > 2:
        weights = (1.0, 1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0)
        kernel = constant(weights, images.dtype, images.device).view(1, 1, 3, 3) / 13.0
        with exact_products(images.device):
            inner = F.conv2d(images.flatten(0, 1)[:, None], kernel)
        smooth[:, :, 1:-1, 1:-1] = inner[:, 0].unflatten(0, images.shape[:2])
    return _enhance(images, smooth, strength)


def _autocontrast(images: Images, strength: Strength) -> Images:
    """Stretches every channel to the whole range; a constant one stays."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    span = high - low
    flat = span < 1e-6
    return torch.where(flat, images, (images - low) / torch.where(flat, torch.ones_like(span), span))


def _equalise(images: Images, strength: Strength) -> Images:
    """Spreads the levels of every channel so that they are used equally often, with Pillow's whole-number table."""
    levels = _levels(images).long().flatten(2)
    histogram = torch.zeros((*levels.shape[:2], 256), dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    brightest = histogram.gather(2, levels.amax(dim=2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    table = (step // 2 + histogram.cumsum(dim=2) - histogram) // step.clamp(min=1)
    spread = table.clamp(max=255).gather(2, levels).to(images.dtype).view_as(images) / 255.0
    return torch.where(step[:, :, :, None] > 0, spread, images)


def _posterise(images: Images, strength: Strength) -> Images:
    """Keeps the 4 to 1 highest bits, fewer for larger magnitudes (none, a black image, would keep no label either)."""
    step = 2.0 ** (4.0 + (strength.abs() * 4.0).floor().clamp(max=3.0))
    return (_levels(images) / step).floor() * step / 255.0


def _solarise(images: Images, strength: Strength) -> Images:
    """Inverts what is brighter than a threshold that falls from 256 to 0."""
    threshold = 256.0 - (strength.abs() * 256.0).floor()
    return torch.where(_levels(images) < threshold, images, 1.0 - images)


def _solarise_add(images: Images, strength: Strength) -> Images:
    """Brightens the darker half by up to 110 levels."""
    added = (images + (strength.abs() * 110.0).floor() / 255.0).clamp(max=1.0)
    return torch.where(_levels(images) < 128, added, images)


_INTENSITY: dict[str, Callable[[Images, Strength], Images]] = {
    "autocontrast": _autocontrast,
    "equalise": _equalise,
    "invert": lambda images, _: 1.0 - images,
    "posterise": _posterise,
    "solarise": _solarise,
    "solarise_add": _solarise_add,
    "saturation": lambda images, strength: _enhance(images, grey(images), strength),
    "contrast": _contrast,
    "brightness": lambda images, strength: _enhance(images, torch.zeros_like(images), strength),
    "sharpness": _sharpness,
}
_MOVED = {"shear_x": (0, 1, 0.3), "shear_y": (1, 0, 0.3), "translate_x": (0, 2, 0.45), "translate_y": (1, 2, 0.45)}
"""Which coefficient of the source's x or y changes, and by how much; translations are in shares of the side."""
_ALL = Operations(
    "RandAugment leaves", (*_INTENSITY, "rotate", *_MOVED), ("saturation",),
    ("equalise", "invert", "posterise", "solarise", "solarise_add"), deep_rgb=True,
)  # fmt: skip
operations, notice = _ALL.sensible, _ALL.notice


def _affine(name: str, strength: Float[Tensor, " B"], height: int, width: int) -> Float[Tensor, "B 2 3"]:
    """Where each pixel of the result comes from: x, y of the source as linear functions of x, y, 1, in pixels."""
    if name == "rotate":
        turn = strength * math.radians(30.0)
        cos, sin, x, y = turn.cos(), turn.sin(), width / 2, height / 2
        rows = [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y]
        return torch.stack(rows, dim=1).view(-1, 2, 3)
    row, column, most = _MOVED[name]
    affine = torch.eye(2, 3, dtype=strength.dtype, device=strength.device).repeat(len(strength), 1, 1)
    affine[:, row, column] = (most * (width, height)[row] if column == 2 else most) * strength
    return affine


def _warp(images: Images, affine: Float[Tensor, "B 2 3"], fill: Float[Tensor, " C"]) -> Images:
    """Bilinear resampling; what comes from outside the image gets the fill colour."""
    height, width = images.shape[2:]
    size = constant((width, height), images.dtype, images.device)
    x = torch.arange(width, device=images.device, dtype=images.dtype) + 0.5
    y = torch.arange(height, device=images.device, dtype=images.dtype) + 0.5
    place = torch.stack([x.expand(height, -1), y[:, None].expand(-1, width), torch.ones_like(images[0, 0])], dim=2)
    with exact_products(images.device):
        source = (place.view(1, -1, 3) @ affine.transpose(1, 2)).view(-1, height, width, 2)
    inside = ((source >= 0) & (source < size)).all(dim=3)[:, None]
    edge = 1.0 - 1.0 / size  # the outermost pixel centres: what border padding does, which MPS lacks
    grid = (2.0 * source / size - 1.0).clamp(-edge, edge)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return torch.where(inside, moved, fill[:, None, None])


def apply(
    images: Images, names: list[str | None], strength: Float[Tensor, " B"], fill: Float[Tensor, " C"]
) -> Float[Tensor, "B C H W"]:
    """One operation per sample (None for no change), computed only for the samples that have it.

    Pixels are in [0, 1], ``strength`` is the signed magnitude / 10, on the host; ``fill`` is the colour of what comes
    from outside.
    """
    result, device, strength = images.clone(), images.device, strength.to(images.dtype)
    drawn = {name: [i for i, each in enumerate(names) if each == name] for name in dict.fromkeys(names) if name}
    changed = [name for name in drawn if name in _INTENSITY]
    moved = [name for name in drawn if name not in _INTENSITY]
    order = torch.tensor([i for name in (*changed, *moved) for i in drawn[name]], dtype=torch.int64)
    sizes = [*(len(drawn[name]) for name in changed), sum(len(drawn[name]) for name in moved)]
    parts = zip(sent(order, device).split(sizes), sent(strength[order], device).split(sizes), strict=True)
    for name, (rows, amounts) in zip(changed, parts, strict=False):
        result[rows] = _INTENSITY[name](images[rows], amounts[:, None, None, None])
    if moved:
        affine = torch.cat([_affine(name, strength[drawn[name]], images.shape[2], images.shape[3]) for name in moved])
        rows, _ = next(parts)
        result[rows] = _warp(images[rows], sent(affine, device), fill.to(images.dtype))
    return result


def rand_augment(
    key: Key, images: Images, *, magnitude: float, fill: Float[Tensor, " C"], bits: int
) -> Float[Tensor, "B C H W"]:
    """RandAugment (Cubuk et al. 2020) as timm's rand-m9-mstd0.5-inc1, which MAE fine-tunes with.

    Two operations per image, drawn with replacement, each applied with a chance of one half, with normally distributed
    magnitudes and random signs. Geometry is bilinear; between operations pixels are not rounded to 8 bits.

    Args:
        key: One random stream per sample, on the host.
        images: Pixels in [0, 1].
        magnitude: Mean magnitude, in [0, 10].
        fill: Colour of what comes from outside the image: the mean of the training images.
        bits: Bits per channel of the files.
    """
    names = operations(images.shape[1], bits)
    u = uniform(key, 3 * LAYERS).view(-1, LAYERS, 3)
    # Swapped halves name another stream of the same sample: these numbers share no bits with the uniform ones.
    level = (magnitude + DEVIATION * normal(Key(key.high, key.low), LAYERS)).clamp(0.0, MOST) / MOST
    strength = torch.where(u[:, :, 1] < 0.5, -level, level)
    drawn = torch.where(u[:, :, 2] < PROBABILITY, (u[:, :, 0] * len(names)).long(), -1)
    for layer, numbers in enumerate(drawn.T.tolist()):
        chosen = [names[i] if i >= 0 else None for i in numbers]
        images = apply(images, chosen, strength[:, layer], fill)
    return images
