"""DINO's many crops of one image: two global ones of the network's input and several small local ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import ResolvedCrops, ResolvedModel
from ssl_vit.core.randomness import Key, make_key, uniform
from ssl_vit.data.boxes import centre_crop, random_resized_crop, to_canvas, whole_pixels
from ssl_vit.data.constants import sent
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import check_sizes
from ssl_vit.views import augment
from ssl_vit.views.crop_colours import NUMBERS, Draws, apply, draw, group, notice, operations
from ssl_vit.views.training import View, drop_path_factors

GLOBALS = 2
_AT_ONCE = 1_000_000
"""Numbers in the crops of the images that a CPU works on together (but never fewer than four images): enough to hide
the cost of a call, few enough to stay in the cache and in memory that the system need not hand out anew."""


class _Crops(NamedTuple):
    """The views of one size, in pixels, that show such shares of an image."""

    name: str
    views: slice
    number: int
    size: int
    area: tuple[float, float]
    cfg: ResolvedCrops
    scale: PixelScale
    dtype: torch.dtype

    def cut(
        self, batch: Batch, pixels: Callable[[], Float[Tensor, "B C H W"]], key: Key, u: Float[Tensor, "B V"]
    ) -> Float[Tensor, "N C S S"]:
        """Random crops, resized and mirrored; as they are where images are used whole and have that size."""
        canvas, device = batch.images.shape[2:], batch.images.device
        flip = sent(u < 0.5, device) if self.cfg.flip else None
        whole = self.area == (1.0, 1.0)
        if whole and batch.native and canvas == (self.size, self.size):
            same = pixels().repeat_interleave(self.number, dim=0)
            return same if flip is None else torch.where(flip.view(-1, 1, 1, 1), same.flip(3), same)
        sizes = batch.sizes.repeat_interleave(self.number, dim=0)
        boxes = centre_crop(sizes) if whole else random_resized_crop(key, sizes, self.area, self.cfg.ratio)
        boxes = to_canvas(boxes, sizes, canvas)
        boxes = sent((boxes if whole else whole_pixels(boxes, canvas)).unflatten(0, u.shape), device)
        if not whole and self.dtype == torch.float32 and augment.crops_in_bytes(batch.images, self.size):
            return self.scale.scaled(augment.crop_bytes(batch.images, boxes, self.size, flip).flatten(0, 1), self.dtype)
        return augment.crop_resize(pixels(), boxes, self.size, flip, whole=not whole).flatten(0, 1).clamp_(0.0, 1.0)


def _keys(batch: Batch, seed: int, purpose: str, views: int) -> Key:
    """One stream per image and view, all views of an image next to each other."""
    number = torch.arange(views).repeat(len(batch.index))
    return make_key(seed, purpose, batch.epoch.repeat_interleave(views), batch.index.repeat_interleave(views), number)


def _of(drawn: Draws, crops: _Crops, shape: tuple[int, int]) -> Draws:
    """What belongs to the crops of one size, of what is drawn for all views of all images."""
    steps, values = (each.unflatten(1, shape)[:, :, crops.views].flatten(1) for each in (drawn.steps, drawn.values))
    return Draws(steps, values, drawn.jittered)


def by_size(inputs: dict[str, Tensor]) -> list[tuple[Float[Tensor, "B V C S S"], Float[Tensor, "B V *L"] | None]]:
    """The views of each size with their stochastic depth: global ones first, and all as one where sizes are equal."""
    views = [(inputs["globals"], inputs.get("drop_globals"))]
    if "locals" in inputs:
        views.append((inputs["locals"], inputs.get("drop_locals")))
    if len(views) == 2 and views[0][0].shape[2:] == views[1][0].shape[2:]:  # one size is one batch
        drops = [drop for _, drop in views if drop is not None]
        views = [(torch.cat([images for images, _ in views], dim=1), torch.cat(drops, dim=1) if drops else None)]
    return views


def multicrop_view(
    scale: PixelScale, cfg: ResolvedCrops, *, size: int, drop_rates: Float[Tensor, "*L"] | None, dtype: torch.dtype
) -> View:
    """Global and local crops with their colour changes (Caron et al. 2021, section 3.1), and stochastic depth.

    The view gives ``globals``, Float[B 2 C S S], and ``locals``, Float[B L C s s], normalised, and for each of them the
    factors of stochastic depth, ``drop_globals`` and ``drop_locals``, Float[B V *L]. There are no locals where
    ``cfg.local_crops`` is 0, and no factors without ``drop_rates``.

    Args:
        scale: Pixel statistics.
        cfg: Resolved.
        size: S, side of the network's input in pixels.
        drop_rates: As ``Backbone.drop_rates`` gives them; None for none.
        dtype: Arithmetic of the images, float32 or float64.
    """
    sets = [_Crops("globals", slice(0, GLOBALS), GLOBALS, size, cfg.global_scale, cfg, scale, dtype)]
    if cfg.local_crops:
        of_them = slice(GLOBALS, None), cfg.local_crops, cfg.local_size, cfg.local_scale
        sets.append(_Crops("locals", *of_them, cfg, scale, dtype))
    views, widest = GLOBALS + cfg.local_crops, cfg.blur_sigma[1]

    def colours(key: Key, images: int, channels: int) -> tuple[Float[Tensor, " N"], Draws]:
        """A number for the flip of every crop, and its colour changes."""
        # Swapped halves name another stream of the same view: these numbers share no bits with those of the boxes.
        u = uniform(Key(key.high, key.low), 1 + NUMBERS)
        number = torch.arange(views).repeat(images)
        return u[:, 0], draw(u[:, 1:], number, cfg, operations(channels, scale.bits))

    def crop(batch: Batch, seed: int) -> dict[str, Tensor]:
        channels, shape, device = batch.images.shape[1], (len(batch.index), views), batch.images.device
        key = _keys(batch, seed, "multicrop", views)
        u, drawn = colours(key, len(batch.index), channels)
        pixels = cache(partial(scale.scaled, batch.images, dtype))  # crops in bytes need none
        low, high, flip = (each.reshape(shape) for each in (key.low, key.high, u))
        inputs: dict[str, Tensor] = {}
        for crops in sets:
            own = Key(low[:, crops.views].flatten(), high[:, crops.views].flatten())
            cut = crops.cut(batch, pixels, own, flip[:, crops.views])
            apply(cut, group(_of(drawn, crops, shape), device), bits=scale.bits, widest=widest)
            inputs[crops.name] = scale.normalise(cut).unflatten(0, (shape[0], crops.number))
        if drop_rates is not None:
            factors = drop_path_factors(_keys(batch, seed, "drop-path", views), drop_rates).unflatten(0, shape)
            for crops in sets:
                inputs[f"drop_{crops.name}"] = sent(factors[:, crops.views], device)
        return inputs

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        numbers = batch.images.shape[1] * sum(s.number * s.size**2 for s in sets)
        at_once, images = max(4, _AT_ONCE // numbers), len(batch.index)
        if batch.images.device.type != "cpu" or images <= at_once:
            return crop(batch, seed)
        size = math.ceil(images / math.ceil(images / at_once))  # pieces of much the same size
        pieces = [crop(batch.part(slice(start, start + size)), seed) for start in range(0, images, size)]
        return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}

    return view


def views_for(
    backbone: Backbone, model: ResolvedModel, cfg: ResolvedCrops, drop_path: float, scale: PixelScale,
    dtype: torch.dtype,
) -> tuple[View, str, tuple[str, ...]]:  # fmt: skip
    """The crops of one run: their view, what the network sees of an image in words, and notes for the user.

    ``drop_path`` is the rate of stochastic depth at the last block, in [0, 1). A UserError names crops that the
    backbone cannot read.
    """
    size = cfg.global_size or model.img_size
    used = {"global": size != model.img_size, "local": cfg.local_crops > 0}
    sizes = {"global": size, "local": cfg.local_size}
    check_sizes(backbone, model.img_size, {kind: sizes[kind] for kind, other in used.items() if other})
    view = multicrop_view(scale, cfg, size=size, drop_rates=backbone.drop_rates(drop_path), dtype=dtype)
    patch, left_out = model.patch_size, notice(backbone.channels, scale.bits)
    patches = f" = {(size // patch) ** 2} patches of {patch} px" if patch else ""
    local = f", {cfg.local_crops} of {cfg.local_size} px" if cfg.local_crops else ""
    return view, f"{GLOBALS} crops of {size} px{patches}{local}", (f"note: {left_out}",) if left_out else ()
