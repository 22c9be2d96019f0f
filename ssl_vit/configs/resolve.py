"""Fills what the user left open, from the images and the named model; what comes out is what config.yaml records."""

from __future__ import annotations

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.fit import FitConfig, OptimConfig, ResolvedFit, ResolvedOptim
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.settled import settle
from ssl_vit.core.errors import UserError

LEAST_STEPS = 1000
"""Optimiser steps on labels, however few they are."""


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
