"""From options, or from an exported folder, to a backbone."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import timm
import torch
from timm.layers.attention import Attention
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import Block, VisionTransformer

from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.init import init_weights
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.vit import ViTBackbone


class ModelFacts(NamedTuple):
    """What a named timm model is by default."""

    img_size: int
    patch_size: int
    """Side of a patch, or of what one place of the last feature map stands for, in pixels."""
    width: int
    depth: int
    heads: int
    class_token: bool = True
    plain: bool = True
    """Whether it is a plain ViT, with tokens and sizes to choose; else it makes one vector of an image."""
    flexible: bool = True
    """Whether one network reads images of several sizes."""


def model_facts(name: str, *, tokens: bool = False) -> ModelFacts:
    """Looks a timm model up without allocating its weights.

    Args:
        name: A timm model name, with or without a pretrained tag.
        tokens: Whether tokens are needed, which only plain ViTs give.

    Raises:
        UserError: For a name timm does not know, a model that does not make one vector of an image or, where tokens
            are needed, one that is not a plain ViT.
    """
    if not timm.is_model(name):
        raise UserError(
            f"--model.name {name} is not a timm model{did_you_mean(name.partition('.')[0], timm.list_models())}"
        )
    model = _on_meta(name)
    reason = _why_not_plain(model)
    if reason is None:
        vit = _plain(model)
        attention = vit.blocks[0].attn
        assert isinstance(attention, Attention)
        return ModelFacts(
            vit.patch_embed.img_size[0],
            vit.patch_embed.proj.kernel_size[0],
            vit.embed_dim,
            len(vit.blocks),
            attention.num_heads,
            vit.has_class_token,
        )
    if tokens:
        raise UserError(
            f"--model.name {name} is not a plain VisionTransformer: {reason}. "
            "Plain ones are, for example, vit_tiny_patch16_224, vit_small_patch16_224, vit_base_patch16_224"
        )
    return _pooled_facts(name, model)


@lru_cache(maxsize=4)
def _on_meta(name: str) -> torch.nn.Module:
    """A timm model without weights and classifier, for looking at."""
    with torch.device("meta"):
        return timm.create_model(name, num_classes=0)


def _pooled_facts(name: str, model: Any) -> ModelFacts:
    own, info = model.pretrained_cfg["input_size"][-1], getattr(model, "feature_info", None)
    stride = info[-1]["reduction"] if info else 1
    backbone = PooledBackbone(model, name, {}, own)
    flexible = _takes(model, "strict_img_size") or backbone.width_at(own + stride) == backbone.embed_dim
    return ModelFacts(own, stride, backbone.embed_dim, backbone.depth, 1, False, plain=False, flexible=flexible)


def _takes(model: torch.nn.Module, argument: str) -> bool:
    return argument in inspect.signature(type(model)).parameters


def _why_not_plain(model: torch.nn.Module) -> str | None:
    """None for a plain ViT; as one, anything else would compose silently wrong or fail late."""
    if type(model) is not VisionTransformer:
        return f"it is a {type(model).__name__}"
    if type(model.patch_embed) is not PatchEmbed:
        return f"its patch embedding is a {type(model.patch_embed).__name__}"
    if any(type(b) is not Block or type(b.attn) is not Attention for b in model.blocks):
        block = model.blocks[0]
        return f"its blocks are {type(block).__name__} with {type(getattr(block, 'attn', block)).__name__}"
    return None


def _plain(model: torch.nn.Module) -> VisionTransformer:
    assert isinstance(model, VisionTransformer)
    return model


def timm_args(cfg: ResolvedModel, channels: int) -> dict[str, Any]:
    """Arguments of ``timm.create_model`` for a resolved config: no classifier, norm before pooling."""
    if cfg.patch_size is None:  # no plain ViT
        model: Any = _on_meta(cfg.name)
        args: dict[str, Any] = {"in_chans": channels}
        if model.pretrained_cfg.get("fixed_input_size"):
            args["img_size"] = cfg.img_size
        if _takes(model, "strict_img_size"):  # Swin: images of other sizes too
            args["strict_img_size"] = False
        return args
    args = {
        "img_size": cfg.img_size,
        "patch_size": cfg.patch_size,
        "in_chans": channels,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "global_pool": "avg" if cfg.pool == "mean" else "token",
        "fc_norm": False,
        "pos_embed": "none" if cfg.positions == "none" else None,
    }
    return {key: value for key, value in args.items() if value is not None}


def build_backbone(cfg: ResolvedModel, channels: int) -> Backbone:
    """Builds a backbone with random weights from torch's global generator (seed it first).

    Args:
        cfg: A resolved model config (``configs.resolve``).
        channels: C of the images.

    Returns:
        The backbone; sine-cosine positions are filled in and trainable (an objective may freeze them).

    Raises:
        UserError: When sizes do not divide, or the model cannot read images of that size.
    """
    check_shape(cfg)
    return make_backbone(
        cfg.name, timm_args(cfg, channels), positions=cfg.positions or "learnable", img_size=cfg.img_size
    )


def make_backbone(
    architecture: str, model_args: dict[str, Any], *, positions: str = "learnable", img_size: int | None = None
) -> Backbone:
    """A backbone by timm's name and arguments: with tokens for a plain ViT, else one vector per image.

    Args:
        architecture: timm's model name.
        model_args: Arguments of ``timm.create_model``.
        positions: ``sincos`` fills a plain ViT's position embedding with that table, ``factorised`` replaces it by one
            table per axis; otherwise it stays as the arguments make it.
        img_size: Side of the input in pixels, where the arguments of a model that is no plain ViT do not say it;
            default: the model's own.

    Raises:
        UserError: When the model does not make one vector of an image.
    """
    model: Any = timm.create_model(architecture, pretrained=False, num_classes=0, **model_args)
    if _why_not_plain(model) is not None:
        own = model_args.get("img_size", model.pretrained_cfg["input_size"][-1])
        return PooledBackbone(model, architecture, model_args, img_size or own)
    init_weights(model)
    backbone = ViTBackbone(model, architecture, model_args)
    if positions == "sincos":
        backbone.set_sincos_positions()
    elif positions == "factorised":
        backbone.set_factorised_positions()
    return backbone


def check_sizes(backbone: Backbone, sizes: Sequence[int]) -> None:
    """Refuses a network that cannot read images of several sizes, as multi-crop has them.

    Args:
        backbone: As built for the first of them.
        sizes: Sides in pixels: of global crops, then of local ones.

    Raises:
        UserError: Naming the model, the size and what to do.
    """
    for size in sizes:
        if isinstance(backbone, PooledBackbone):
            reads, why = backbone.width_at(size) == backbone.embed_dim, f"beside those of {sizes[0]}"
        else:
            assert isinstance(backbone, ViTBackbone)
            reads, why = (
                size % backbone.patch_size == 0,
                f"which are no multiple of its patches of {backbone.patch_size}",
            )
        if not reads:
            raise UserError(
                f"{backbone.architecture} cannot read local crops of {size} pixels {why}; use --crops.local_crops 0, "
                f"--crops.local_size {sizes[0]}, or another --model.name, for example vit_small_patch16_224"
            )


def check_shape(cfg: ModelConfig) -> None:
    """Refuses sizes of a plain ViT that do not divide.

    Raises:
        UserError: With the nearest sizes that do.
    """
    if cfg.patch_size is None:  # no plain ViT: its sizes are tried when it is built
        return
    size, patch, width, heads = cfg.img_size, cfg.patch_size, cfg.width, cfg.heads
    assert size and patch and width and heads
    if size % patch:
        below = size // patch * patch
        options = f"{below} or {below + patch}" if below else f"{patch}"
        raise UserError(
            f"--model.img_size {size} is not a multiple of --model.patch_size {patch}; "
            f"use an image size of {options}, or a patch size that divides {size}"
        )
    if width % heads:
        raise UserError(f"--model.width {width} is not a multiple of --model.heads {heads}")
    if cfg.positions == "sincos" and width % 4:
        raise UserError(f"--model.positions sincos needs a --model.width that is a multiple of 4, got {width}")
    if cfg.positions == "factorised" and width % 2:
        raise UserError(f"--model.positions factorised needs an even --model.width, got {width}")
