"""Fills what the user left open, from the images and the named model; what comes out is what config.yaml records."""

from __future__ import annotations

from dataclasses import replace

from ssl_vit.configs.data import AugmentConfig
from ssl_vit.configs.evaluation import ProbeOptimConfig
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.networks import check_pool, network_for
from ssl_vit.configs.objectives import MAEConfig, SupervisedConfig
from ssl_vit.configs.presets import NARROW, Task, for_side
from ssl_vit.configs.recipes import LinearRecipe
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once

LEAST_STEPS = 1000
"""Optimiser steps on labels, however few they are."""


def resolve_augment(cfg: AugmentConfig, size: int, *, labelled: bool) -> AugmentConfig:
    """Crops, flips, policy and erasing as definite values.

    Raises:
        UserError: For a crop scale outside (0, 1] or the wrong way round or beside another crop, or erasing without
            labels.
    """
    preset = for_side(size)
    crop = cfg.crop_scale or (preset.labelled_crop if labelled else preset.crop)
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
    return replace(
        cfg,
        crop_scale=crop,
        flip=preset.flip if cfg.flip is None else cfg.flip,
        policy=cfg.policy or (preset.policy if labelled else "none"),
        erasing=(preset.erasing if labelled else 0.0) if cfg.erasing is None else cfg.erasing,
    )


def resolve_mae(cfg: MAEConfig, width: int, size: int) -> MAEConfig:
    """Masking and targets from the input's side in pixels, decoder sizes from the encoder's width."""
    preset, network = for_side(size), network_for(width)
    decoder = cfg.decoder_width or network.decoder_width or max(32, width // 2 // 32 * 32)
    return replace(
        cfg,
        mask_ratio=preset.mask_ratio if cfg.mask_ratio is None else cfg.mask_ratio,
        norm_pix=preset.norm_pix if cfg.norm_pix is None else cfg.norm_pix,
        decoder_width=decoder,
        decoder_depth=cfg.decoder_depth or network.decoder_depth,
        decoder_heads=cfg.decoder_heads or network.decoder_heads or max(2, decoder // 32),
    )


def resolve_optim(cfg: OptimConfig, width: int, size: int, task: Task) -> OptimConfig:
    """The base learning rate as a number: the preset's, for MAE of wide networks the paper's."""
    preset = for_side(size)
    own = network_for(width).mae_base_lr if task == "mae" else preset.narrow_lr if width < NARROW else None
    base = own or preset.base_lr[task]
    return replace(cfg, base_lr=base if cfg.base_lr is None else cfg.base_lr)


def resolve_supervised(
    cfg: SupervisedConfig,
    model_pool: str,
    size: int,
    labels: int,
    kind: str = "class",
    *,
    plain: bool = True,
    drop_path: bool = True,
) -> SupervisedConfig:
    """Pooling, mixing and stochastic depth as definite values.

    Args:
        cfg: As given.
        model_pool: What represents an image in evaluation, ``cls`` or ``mean``.
        size: Side of the input in pixels.
        labels: Number of labelled training images.
        kind: What labels are (``ImageSet.kind``).
        plain: Whether the model is a plain ViT; others have one pooled feature.
        drop_path: Whether it has places for stochastic depth.

    Raises:
        UserError: For a pooling that the model does not have.
    """
    preset = for_side(size)
    usual = "mean_prenorm" if model_pool == "mean" else "cls"
    if not plain:
        usual = "mean"
        if cfg.pool not in (None, usual):
            raise UserError(f"--supervised.pool {cfg.pool} needs the tokens of a plain ViT; this model has mean alone")
    if cfg.drop_path and not drop_path:
        say_once("note: timm's model has no place for stochastic depth (--supervised.drop_path): it is trained without")
        cfg = replace(cfg, drop_path=0.0)
    mixing = labels >= preset.mixed_from and kind != "regression"
    return replace(
        cfg,
        pool=cfg.pool or usual,
        mixup=(preset.mixup if mixing else 0.0) if cfg.mixup is None else cfg.mixup,
        cutmix=(preset.cutmix if mixing else 0.0) if cfg.cutmix is None else cfg.cutmix,
    )


def batch_for(images: int, most: int) -> int:
    """A power of two, at least four steps an epoch where there are images enough for batches of 8."""
    batch = most
    while batch > 8 and 4 * batch > images:
        batch //= 2
    return batch


def resolve_fit(cfg: FitConfig, images: int, *, size: int, labelled: bool) -> FitConfig:
    """Epochs and batch as numbers: for MAE from a budget of training images."""
    preset = for_side(size)
    least, most = preset.epochs
    epochs = preset.labelled_epochs if labelled else min(most, max(least, round(preset.images / images)))
    return replace(
        cfg,
        batch_size=cfg.batch_size or (preset.labelled_batch if labelled else batch_for(images, preset.batch)),
        epochs=cfg.epochs or float(epochs),
        min_steps=_least_steps(cfg, labelled=labelled),
    )


def _least_steps(cfg: FitConfig, *, labelled: bool) -> int:
    """Few labels need a floor; a length that was asked for does not."""
    if cfg.min_steps is not None:
        return cfg.min_steps
    return LEAST_STEPS if labelled and cfg.epochs is None else 0


_PROBES = {
    "aug-mae": (ProbeOptimConfig("lars", None, 0.1, 1 / 9, 0.0), 90.0, 16384),
    "aug-dino": (ProbeOptimConfig("sgd", None, 1e-3, 0.0, 0.0), 100.0, 1024),
    "attentive": (ProbeOptimConfig("adamw", None, 1e-3, 0.05, 0.05), 100.0, 1024),
}
"""Optimiser, epochs and batch of each protocol that trains on augmented images (MAE, appendix A.1; DINO's released
linear evaluation; the attentive probe's are our own)."""


def resolve_probe(cfg: LinearRecipe, images: int, *, size: int, width: int, class_token: bool) -> LinearRecipe:
    """The protocol's own optimiser, length, batch, crops and pooling as definite values.

    A batch that the images do not fill four times is halved until they do; LARS then keeps the rate of the paper's
    batch (6.4), other optimisers scale theirs down.

    Args:
        cfg: As given, with a protocol that trains on augmented images.
        images: Number of labelled training images.
        size: Side of the input in pixels.
        width: D of the backbone.
        class_token: Whether it has one.

    Raises:
        UserError: For a pooling that the backbone does not have.
    """
    protocol = cfg.linear.protocol
    own, epochs, batch = _PROBES[protocol]
    given = {k: v for k, v in vars(cfg.optim).items() if v is not None}
    pool = cfg.linear.pool
    if protocol != "attentive":
        usual = "cls" if protocol == "aug-mae" else "cls4" if width < 768 else "cls+mean"
        pool = pool or (usual if class_token else "mean")
        check_pool(pool, class_token)
    batch_size = cfg.fit.batch_size or batch_for(images, batch)
    optim = replace(own, **given)
    reduced = cfg.fit.batch_size is None and batch_size < batch
    if reduced and optim.name == "lars" and not {"lr", "base_lr"} & set(given):
        # LARS steps are a share of the weights' norm: with the rate of a small batch the head would never be trained.
        assert optim.base_lr is not None
        optim = replace(optim, lr=optim.base_lr * batch / 256)
    boxes = for_side(size).flip and cfg.augment.crop != "pad"  # digits are used whole
    crop = cfg.augment.crop_scale or ((0.08, 1.0) if boxes else None)
    return replace(
        cfg,
        linear=replace(cfg.linear, pool=pool, heads=cfg.linear.heads or max(1, width // 64)),
        optim=optim,
        fit=replace(
            cfg.fit,
            epochs=cfg.fit.epochs or epochs,
            batch_size=batch_size,
            min_steps=_least_steps(cfg.fit, labelled=True),
        ),
        augment=resolve_augment(replace(cfg.augment, crop_scale=crop), size, labelled=False),
    )
