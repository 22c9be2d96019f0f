"""Fills what the user left open, from the images and the named model; what comes out is what config.yaml records."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.fit import FitConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.settled import fill
from ssl_vit.core.errors import UserError

LEAST_STEPS = 1000
"""Optimiser steps on labels, however few they are."""


def resolve_augment(
    cfg: AugmentConfig, preset: Preset, crop: tuple[float, float], *, labelled: bool
) -> ResolvedAugment:
    """Crops (``crop`` where none is given), flips, policy and erasing as definite values.

    UserError for a crop scale outside (0, 1], the wrong way round or beside another crop, erasing without labels, and
    for a magnitude or a shape of crops that nothing reads.
    """
    crop = cfg.crop_scale or (crop if cfg.crop != "pad" else (1.0, 1.0))
    if cfg.crop == "pad" and crop != (1.0, 1.0):
        raise UserError(f"--augment.crop_scale {list(crop)} is for random resized crops; --augment.crop pad has none")
    if not 0 < crop[0] <= crop[1] <= 1:
        raise UserError(f"--augment.crop_scale {list(crop)} must be two shares of the area, 0 < least <= most <= 1")
    if not cfg.crop_ratio[0] <= cfg.crop_ratio[1]:
        raise UserError(f"--augment.crop_ratio {list(cfg.crop_ratio)} must be two positive numbers, least first")
    if cfg.erasing and not labelled:
        raise UserError(
            f"--augment.erasing {cfg.erasing:g} is for training all weights on labels and for DIET; leave it out here"
        )
    found = fill(
        ResolvedAugment,
        cfg,
        crop_scale=crop,
        crop="random_resized",
        flip=preset.flip,
        policy=preset.policy if labelled else "none",
        erasing=preset.erasing if labelled else 0.0,
    )
    if cfg.magnitude != AugmentConfig.magnitude and found.policy != "randaugment":
        raise UserError(
            f"--augment.magnitude {cfg.magnitude:g} is RandAugment's, and --augment.policy is {found.policy} here; "
            "leave it out, or give --augment.policy randaugment"
        )
    if cfg.crop_ratio != AugmentConfig.crop_ratio and found.crop_scale == (1.0, 1.0):
        raise UserError(
            f"--augment.crop_ratio {list(cfg.crop_ratio)} is of random boxes, and none are cut here; leave it out, or "
            "give --augment.crop_scale"
        )
    return found


def labelled_augment(
    cfg: AugmentConfig,
    preset: Preset,
    crop: Literal["random_resized", "pad"] = "random_resized",
    *,
    from_files: bool = False,
) -> ResolvedAugment:
    """Of training on labels: padded crops where the preset or ``crop`` has them, unless boxes are asked for.

    They are by their area, or by ``from_files``: each is cut from its image's file, of which padding would need all.
    UserError as ``resolve_augment``.
    """
    padded = "pad" in (preset.crop, crop) and cfg.crop_scale is None and not from_files
    cfg = replace(cfg, crop=cfg.crop or ("pad" if padded else "random_resized"))
    return resolve_augment(cfg, preset, preset.labelled_crop, labelled=True)


def batch_for(images: int, most: int) -> int:
    """A power of two, at least four steps an epoch where there are images enough for batches of 8."""
    batch = most
    while batch > 8 and 4 * batch > images:
        batch //= 2
    return batch


LARGEST_RATE = 4e-3
"""Learning rate of AdamW up to which scaling with the batch was published (MAE's fine-tuning: 1e-3 x 1,024 / 256)."""
_LABELLED_STEPS, _LABELLED_BATCH = 1024, 1024
"""Optimiser steps of an epoch on labels above which batches grow, and images that they grow to: those of DeiT and of
MAE's fine-tuning on the 1.28 million of ImageNet-1k."""


def labelled_batch(images: int, usual: int) -> int:
    """A batch on labels: ``usual`` below 131,072 images (for 64), from there on a power of two, at most 1,024."""
    return max(usual, min(_LABELLED_BATCH, 2 ** (images // _LABELLED_STEPS).bit_length() // 2))


def least_steps(cfg: FitConfig) -> int:
    """Few labels need a floor; a length that was asked for does not."""
    if cfg.min_steps is not None:
        return cfg.min_steps
    return LEAST_STEPS if cfg.epochs is None else 0
