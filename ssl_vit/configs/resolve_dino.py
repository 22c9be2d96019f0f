"""Fills what the user left open of DINO's options, from the images and the network."""

from __future__ import annotations

import math
from dataclasses import replace

from ssl_vit.configs.crops import CropsConfig, check_crops
from ssl_vit.configs.dino_presets import DINO_PRESETS, IMAGES_PER_OUTPUT, MOST_OUTPUTS
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.objectives import DINOConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.resolve import batch_for
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once

_WIDE = 192
"""D of ViT-Ti, the narrowest network that gets the paper's head."""
_PAPER_TEMP = 0.04
"""Of the teacher at the start."""
_WARMUP = 0.3
"""Share of the epochs in which the teacher's temperature grows; DINO's recipes take 30 of 100."""


def resolve_fit(cfg: FitConfig, images: int, preset: Preset) -> FitConfig:
    """Epochs from the budget of images, and the batch.

    Args:
        cfg: As given.
        images: Number of training images.
        preset: Of the images' size.
    """
    own = DINO_PRESETS[preset.name]
    least, most = own.epochs
    return replace(
        cfg,
        batch_size=cfg.batch_size or batch_for(images, own.batch),
        epochs=cfg.epochs or float(min(most, max(least, round(own.images / images)))),
        min_steps=cfg.min_steps or 0,
    )


def resolve_optim(cfg: OptimConfig, preset: Preset) -> OptimConfig:
    """The base learning rate as a number."""
    return replace(cfg, base_lr=cfg.base_lr or DINO_PRESETS[preset.name].base_lr)


def resolve_dino(cfg: DINOConfig, preset: Preset, *, images: int, width: int, drop_path: bool = True) -> DINOConfig:
    """Sizes of the head, temperatures and stochastic depth as numbers.

    Args:
        cfg: As given.
        preset: Of the images' size.
        images: Number of training images.
        width: D of the backbone.
        drop_path: Whether the network has places for stochastic depth.
    """
    own, wide = DINO_PRESETS[preset.name], width >= _WIDE
    drop = own.drop_path if cfg.drop_path is None else cfg.drop_path
    if drop and not drop_path:
        say_once("note: timm's model has no place for stochastic depth (--dino.drop_path): it is trained without")
    final, given = own.teacher_temp if cfg.teacher_temp is None else cfg.teacher_temp, cfg.teacher_warmup
    start = min(_PAPER_TEMP, final) if cfg.warmup_teacher_temp is None else cfg.warmup_teacher_temp
    outputs = 2 ** round(math.log2(max(2, images / IMAGES_PER_OUTPUT)))
    return replace(
        cfg,
        drop_path=drop if drop_path else 0.0,
        out_dim=cfg.out_dim or min(MOST_OUTPUTS, max(own.outputs, outputs)),
        head_hidden=cfg.head_hidden or (2048 if wide else 8 * width),
        head_bottleneck=cfg.head_bottleneck or (256 if wide else 2 * width),
        teacher_temp=final,
        warmup_teacher_temp=start,
        teacher_warmup=(_WARMUP if final > start else 0.0) if given is None else given,
        centring=cfg.centring or own.centring,
    )


def resolve_crops(cfg: CropsConfig, preset: Preset, *, size: int, patch: int, plain: bool = True) -> CropsConfig:
    """Crops as definite values.

    Args:
        cfg: As given.
        preset: Of the images' size.
        size: Side of the input, and of a global crop, in pixels.
        patch: Side of a patch, or of what a place of the last feature map stands for, in pixels.
        plain: Whether the network is a plain ViT, whose images are made of whole patches.

    Raises:
        UserError: For a local crop that is not made of whole patches, or ranges the wrong way round.
    """
    own = DINO_PRESETS[preset.name]
    local = cfg.local_size or max(1, round(own.local_share * size / patch)) * patch
    if plain and local % patch:
        below = local // patch * patch
        options = f"{below} or {below + patch}" if below else f"{patch}"
        raise UserError(
            f"--crops.local_size {local} is not a multiple of the patch size {patch}; use {options}, or another "
            "--model.patch_size"
        )
    taken = {
        name: getattr(own, name) if getattr(cfg, name) is None else getattr(cfg, name)
        for name in ("global_scale", "local_scale", "local_crops", "flip", "jitter", "blur", "blur_sigma", "solarise")
    }
    resolved = replace(cfg, local_size=local, **taken)
    check_crops(resolved)
    return resolved
