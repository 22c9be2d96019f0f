"""Fills what the user left open, from the images and the named model; what comes out is what config.yaml records."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from ssl_vit.configs.data import AugmentConfig
from ssl_vit.configs.evaluation import ProbeOptimConfig
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.model import ModelConfig
from ssl_vit.configs.objectives import MAEConfig, SupervisedConfig
from ssl_vit.configs.recipes import LinearRecipe
from ssl_vit.errors import UserError

TINY = 16
"""Up to this many pixels an image is used whole: no crop, no flip, mean pooling, a narrow network."""

_TINY_SHAPE = {"width": 64, "depth": 4, "heads": 4}
_MAE_IMAGES_TINY, _MAE_IMAGES = 200_000, 4_000_000
"""Budget of training images (epochs x images) for MAE: measured on digits, and a start for everything else."""


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


def default_name(model: ModelConfig, short_side: int) -> str:
    """The timm model used where none is named: ViT-Ti up to 96 pixels, ViT-S above."""
    return model.name or ("vit_tiny_patch16_224" if (model.img_size or short_side) <= 96 else "vit_small_patch16_224")


def resolve_model(model: ModelConfig, short_side: int, shape: Shape) -> ModelConfig:
    """Every size of the backbone as a number.

    Args:
        model: As given.
        short_side: Median shorter side of the images in pixels.
        shape: Default sizes of the model named by ``model`` or ``default_name``.
    """
    size, patch = model.img_size, model.patch_size
    if model.name is not None:
        size = size or shape.img_size
        patch = patch or (shape.patch_size if size % shape.patch_size == 0 and size >= 128 else _patch_for(size))
    else:
        size = size or _size_for(short_side, patch)
        patch = patch or _patch_for(size)
    tiny = _TINY_SHAPE if model.name is None and size <= TINY else {}
    return replace(
        model,
        name=default_name(model, short_side),
        img_size=size,
        patch_size=patch,
        width=model.width or tiny.get("width", shape.width),
        depth=model.depth or tiny.get("depth", shape.depth),
        heads=model.heads or tiny.get("heads", 0) or _heads_for(model.width, shape),
        pool=model.pool or ("cls" if size > TINY and shape.class_token else "mean"),
    )


def _heads_for(width: int | None, shape: Shape) -> int:
    """The model's own heads, or as many of its head size (64 in ViT) as a given width holds."""
    return shape.heads if width is None else max(1, width * shape.heads // shape.width)


def _size_for(short_side: int, patch: int | None) -> int:
    """The images' own size up to 96 pixels, rounded to whole patches; 128 up to 192, 224 above."""
    if short_side > 96:
        return 224 if short_side > 192 else 128
    patch = patch or _patches(short_side)[0]
    return max(2, round(short_side / patch)) * patch


def _patches(size: int) -> tuple[int, ...]:
    """Patch sizes to try, best first: a grid of 4 x 4 for digits, about 8 x 8 above, 14 x 14 for photographs."""
    for limit, patches in ((TINY, (2, 1)), (40, (4, 2, 3)), (72, (8, 4, 6)), (110, (12, 8, 6))):
        if size <= limit:
            return patches
    return (16, 14, 12)


def _patch_for(size: int) -> int:
    return next((p for p in _patches(size) if size % p == 0), _patches(size)[0])


def resolve_augment(cfg: AugmentConfig, size: int, *, labelled: bool) -> AugmentConfig:
    """Crops, flips and colour as definite values.

    Raises:
        UserError: For a crop scale outside (0, 1] or the wrong way round.
    """
    plain = size <= TINY
    crop = cfg.crop_scale or ((1.0, 1.0) if plain else (0.35, 1.0) if labelled else (0.2, 1.0))
    if not 0 < crop[0] <= crop[1] <= 1:
        raise UserError(f"--augment.crop_scale {list(crop)} must be two shares of the area, 0 < least <= most <= 1")
    return replace(
        cfg,
        crop_scale=crop,
        flip=not plain if cfg.flip is None else cfg.flip,
        colour=labelled and not plain if cfg.colour is None else cfg.colour,
    )


def resolve_mae(cfg: MAEConfig, width: int, size: int) -> MAEConfig:
    """Masking and targets from the input's side in pixels, decoder sizes from the encoder's width."""
    large = width >= 768
    decoder = cfg.decoder_width or (512 if large else max(32, width // 2 // 32 * 32))
    return replace(
        cfg,
        mask_ratio=(0.5 if size <= TINY else 0.75) if cfg.mask_ratio is None else cfg.mask_ratio,
        norm_pix=size > TINY if cfg.norm_pix is None else cfg.norm_pix,
        decoder_width=decoder,
        decoder_depth=cfg.decoder_depth or (8 if large else 4 if width >= 192 else 2),
        decoder_heads=cfg.decoder_heads or (16 if large else max(2, decoder // 32)),
    )


_BASE_LR_TINY = {"mae": 3e-3, "scratch": 4e-3, "finetune": 2e-3}


def resolve_optim(cfg: OptimConfig, width: int, size: int, task: Literal["mae", "scratch", "finetune"]) -> OptimConfig:
    """The base learning rate as a number: measured on digits, else MAE's recipe for its sizes of network."""
    base = _BASE_LR_TINY[task] if size <= TINY else 1.5e-4 if task == "mae" and width >= 768 else 1e-3
    return replace(cfg, base_lr=base if cfg.base_lr is None else cfg.base_lr)


def resolve_supervised(cfg: SupervisedConfig, model_pool: str, size: int, labels: int) -> SupervisedConfig:
    """Pooling and mixing as definite values.

    Args:
        cfg: As given.
        model_pool: What represents an image in evaluation, ``cls`` or ``mean``.
        size: Side of the input in pixels.
        labels: Number of labelled training images.
    """
    mixing = size > TINY and labels >= 2000
    return replace(
        cfg,
        pool=cfg.pool or ("mean_prenorm" if model_pool == "mean" else "cls"),
        mixup=(0.8 if mixing else 0.0) if cfg.mixup is None else cfg.mixup,
        cutmix=(1.0 if mixing else 0.0) if cfg.cutmix is None else cfg.cutmix,
    )


def _batch_for(images: int, most: int) -> int:
    """A power of two, at least four steps an epoch where there are images enough for batches of 8."""
    batch = most
    while batch > 8 and 4 * batch > images:
        batch //= 2
    return batch


def resolve_fit(cfg: FitConfig, images: int, *, size: int, labelled: bool) -> FitConfig:
    """Epochs as a number: a budget of training images for MAE, 100 passes for training on labels."""
    budget = _MAE_IMAGES_TINY if size <= TINY else _MAE_IMAGES
    return replace(
        cfg,
        batch_size=cfg.batch_size or (64 if labelled else _batch_for(images, 128 if size <= TINY else 256)),
        epochs=cfg.epochs or (100.0 if labelled else float(min(800, max(20, round(budget / images))))),
    )


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
    batch_size = cfg.fit.batch_size or _batch_for(images, batch)
    optim = replace(own, **given)
    reduced = cfg.fit.batch_size is None and batch_size < batch
    if reduced and optim.name == "lars" and not {"lr", "base_lr"} & set(given):
        # LARS steps are a share of the weights' norm: with the rate of a small batch the head would never be trained.
        assert optim.base_lr is not None
        optim = replace(optim, lr=optim.base_lr * batch / 256)
    crop = cfg.augment.crop_scale or (None if size <= TINY else (0.08, 1.0))
    return replace(
        cfg,
        linear=replace(cfg.linear, pool=pool, heads=cfg.linear.heads or max(1, width // 64)),
        optim=optim,
        fit=replace(cfg.fit, epochs=cfg.fit.epochs or epochs, batch_size=batch_size),
        augment=resolve_augment(replace(cfg.augment, crop_scale=crop), size, labelled=False),
    )


def check_pool(pool: str, class_token: bool) -> None:
    """Refuses a pooling that needs a class token where there is none.

    Raises:
        UserError: Saying so.
    """
    if "cls" in pool and not class_token:
        raise UserError(f"--linear.pool {pool} needs a class token, which this backbone lacks; use mean")
