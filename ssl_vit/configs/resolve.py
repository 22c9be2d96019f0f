"""Fills what the user left open, from the images and the named model; what comes out is what config.yaml records."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.fit import FitConfig, OptimConfig, ResolvedFit, ResolvedOptim
from ssl_vit.configs.model import ModelConfig, ResolvedModel
from ssl_vit.configs.presets import NETWORKS, Preset, for_side, named
from ssl_vit.configs.settled import settle
from ssl_vit.core.errors import UserError

LEAST_STEPS = 1000
"""Optimiser steps on labels, however few they are."""


@runtime_checkable
class Shape(Protocol):
    """Default sizes of a named model."""

    @property
    def img_size(self) -> int:
        """Pixels."""
        ...

    @property
    def patch_size(self) -> int:
        """Pixels."""
        ...

    @property
    def width(self) -> int:
        """D."""
        ...

    @property
    def depth(self) -> int:
        """Blocks."""
        ...

    @property
    def heads(self) -> int:
        """Attention heads."""
        ...

    @property
    def class_token(self) -> bool:
        """Whether there is one."""
        ...

    @property
    def plain(self) -> bool:
        """Whether it is a plain ViT."""
        ...

    @property
    def flexible(self) -> bool:
        """Whether one network reads images of several sizes."""
        ...


def preset_for(name: str | None, size: int) -> Preset:
    """The preset that was named, else the one for the network's input.

    Its ``input`` is the size to ask the functions below with, which differs from the input's where one was named.
    """
    return named(name) if name else for_side(size)


def full_name(name: str) -> str:
    """The timm model that a name, or one of the short names of ``presets.NETWORKS``, stands for."""
    return NETWORKS[name].timm_name if name in NETWORKS else name


def default_name(model: ModelConfig, short_side: int, preset: str | None = None) -> str:
    """The timm model that is used: the named one, or that of the preset."""
    return full_name(model.name or preset_for(preset, model.img_size or short_side).network)


def resolve_model(
    model: ModelConfig,
    short_side: int,
    shape: Shape,
    preset: str | None = None,
    positions: Literal["sincos", "learnable"] = "sincos",
) -> ResolvedModel:
    """Every size of the backbone as a number.

    Args:
        model: As given.
        short_side: Median shorter side of the images in pixels.
        shape: Default sizes of the model named by ``default_name``.
        preset: As given by ``--preset``.
        positions: What a plain ViT has where the options leave it open.

    Raises:
        UserError: For an option that the model does not have.
    """
    if not shape.plain:
        return _resolve_pooled(model, short_side, shape, preset)
    check_pool(model.pool or "mean", shape.class_token, "--model.pool")
    size, patch = model.img_size, model.patch_size
    own = model.name is not None and model.name not in NETWORKS  # a timm model brings sizes of its own
    if own:
        size = size or (shape.img_size if preset is None else _input(named(preset), short_side, patch))
        fits = size % shape.patch_size == 0 and size >= 128
        patch = patch or (shape.patch_size if fits else _patch_for(preset_for(preset, size), size))
    else:
        size = size or _input(preset_for(preset, short_side), short_side, patch)
        patch = patch or _patch_for(preset_for(preset, size), size)
    chosen = preset_for(preset, size)
    usual = shape if own else NETWORKS[model.name or chosen.network]
    return settle(
        ResolvedModel,
        model,
        name=default_name(model, short_side, preset),
        img_size=size,
        patch_size=patch,
        width=model.width or usual.width,
        depth=model.depth or usual.depth,
        heads=model.heads or _heads_for(model.width or usual.width, usual.width, usual.heads),
        positions=model.positions or positions,
        pool=model.pool or (chosen.pool if shape.class_token else "mean"),
    )


def _resolve_pooled(model: ModelConfig, short_side: int, shape: Shape, preset: str | None) -> ResolvedModel:
    """The size of the input, in whole places of the last feature map; a model that is no plain ViT has no other."""
    usual = ModelConfig()
    lost = [k for k in ("patch_size", "width", "depth", "heads", "positions") if getattr(model, k) != getattr(usual, k)]
    if lost:
        raise UserError(
            f"--model.{lost[0]} {getattr(model, lost[0])} is for plain ViTs; {model.name} is built as timm has it, "
            "only --model.img_size can be chosen"
        )
    if model.pool == "cls":
        raise UserError(f"--model.pool cls needs a plain ViT; {model.name} has its own pooled feature, called mean")
    size = shape.img_size
    if shape.flexible:
        size = _input(preset_for(preset, short_side), short_side, shape.patch_size, least=1)
    return settle(ResolvedModel, model, img_size=model.img_size or size, pool="mean")


def _heads_for(width: int, usual_width: int, usual_heads: int) -> int:
    """As many heads of at least the model's own head size as divide the width."""
    return next(h for h in range(max(1, width * usual_heads // usual_width), 0, -1) if width % h == 0)


def _input(preset: Preset, short_side: int, patch: int | None, least: int = 2) -> int:
    """The images' own size where the preset is for it, else the preset's, rounded to whole patches."""
    within = preset.own_size and for_side(short_side) == preset
    patch = patch or preset.patches[0]
    return max(least, round((short_side if within else preset.input) / patch)) * patch


def _patch_for(preset: Preset, size: int) -> int:
    return next((p for p in preset.patches if size % p == 0), preset.patches[0])


def resolve_augment(
    cfg: AugmentConfig, preset: Preset, crop: tuple[float, float], *, labelled: bool
) -> ResolvedAugment:
    """Crops, flips, policy and erasing as definite values.

    Args:
        cfg: As given.
        preset: Of the images.
        crop: Area of the random resized crop, where none is given.
        labelled: Whether labels are trained on.

    Raises:
        UserError: For a crop scale outside (0, 1] or the wrong way round or beside another crop, or erasing without
            labels.
    """
    crop = cfg.crop_scale or crop
    if cfg.crop == "pad":
        crop = cfg.crop_scale or (1.0, 1.0)
        if crop != (1.0, 1.0):
            raise UserError(
                f"--augment.crop_scale {list(crop)} is for random resized crops; --augment.crop pad has none"
            )
    if not 0 < crop[0] <= crop[1] <= 1:
        raise UserError(f"--augment.crop_scale {list(crop)} must be two shares of the area, 0 < least <= most <= 1")
    if cfg.erasing and not labelled:
        raise UserError(f"--augment.erasing {cfg.erasing:g} is for training on labels; without them leave it out")
    return settle(
        ResolvedAugment,
        cfg,
        crop_scale=crop,
        flip=preset.flip if cfg.flip is None else cfg.flip,
        policy=cfg.policy or (preset.policy if labelled else "none"),
        erasing=(preset.erasing if labelled else 0.0) if cfg.erasing is None else cfg.erasing,
    )


def batch_for(images: int, most: int) -> int:
    """A power of two, at least four steps an epoch where there are images enough for batches of 8."""
    batch = most
    while batch > 8 and 4 * batch > images:
        batch //= 2
    return batch


def resolve_budget(cfg: FitConfig, images: int, *, budget: int, epochs: tuple[int, int], batch: int) -> ResolvedFit:
    """Epochs from a budget of images seen, and the batch: the rule of every method without labels.

    Args:
        cfg: As given.
        images: Number of training images.
        budget: Images seen, epochs x images.
        epochs: Fewest and most that the budget may come to.
        batch: Effective batch, where there are images enough for four steps an epoch.
    """
    least, most = epochs
    return settle(
        ResolvedFit,
        cfg,
        batch_size=cfg.batch_size or batch_for(images, batch),
        epochs=cfg.epochs or float(min(most, max(least, round(budget / images)))),
        min_steps=cfg.min_steps or 0,
    )


def resolve_rate(cfg: OptimConfig, base_lr: float) -> ResolvedOptim:
    """The base learning rate as a number.

    Args:
        cfg: As given.
        base_lr: Where none is given.
    """
    return settle(ResolvedOptim, cfg, base_lr=base_lr if cfg.base_lr is None else cfg.base_lr)


def least_steps(cfg: FitConfig) -> int:
    """Few labels need a floor; a length that was asked for does not."""
    if cfg.min_steps is not None:
        return cfg.min_steps
    return LEAST_STEPS if cfg.epochs is None else 0


def check_pool(pool: str, class_token: bool, option: str = "--linear.pool") -> None:
    """Refuses a pooling that needs a class token where there is none.

    Raises:
        UserError: Saying so.
    """
    if "cls" in pool and not class_token:
        raise UserError(f"{option} {pool} needs a class token, which this backbone lacks; use mean")
