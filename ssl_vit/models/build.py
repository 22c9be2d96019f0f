"""From options, or from an exported folder, to a backbone."""

from __future__ import annotations

from typing import Any, NamedTuple

import timm
import torch
from timm.layers.attention import Attention
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import Block, VisionTransformer

from ssl_vit.configs import ModelConfig
from ssl_vit.errors import UserError, did_you_mean
from ssl_vit.models.init import init_weights
from ssl_vit.models.vit import ViTBackbone


class ModelFacts(NamedTuple):
    """What a named timm model is by default."""

    img_size: int
    patch_size: int
    width: int
    depth: int
    heads: int
    class_token: bool = True


def model_facts(name: str) -> ModelFacts:
    """Looks a timm model up without allocating its weights.

    Args:
        name: A timm model name, with or without a pretrained tag.

    Raises:
        UserError: For a name timm does not know, or a model that is not a plain ViT.
    """
    if not timm.is_model(name):
        raise UserError(
            f"--model.name {name} is not a timm model{did_you_mean(name.partition('.')[0], timm.list_models())}"
        )
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=0)
    vit = _plain(model, name)
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


def _plain(model: torch.nn.Module, name: str) -> VisionTransformer:
    """The model itself if it is a plain ViT; anything else would compose silently wrong or fail late."""
    reason = None
    if type(model) is not VisionTransformer:
        reason = f"it is a {type(model).__name__}"
    elif type(model.patch_embed) is not PatchEmbed:
        reason = f"its patch embedding is a {type(model.patch_embed).__name__}"
    elif any(type(b) is not Block or type(b.attn) is not Attention for b in model.blocks):
        block = model.blocks[0]
        reason = f"its blocks are {type(block).__name__} with {type(getattr(block, 'attn', block)).__name__}"
    if reason:
        raise UserError(
            f"--model.name {name} is not a plain VisionTransformer: {reason}. "
            "Plain ones are, for example, vit_tiny_patch16_224, vit_small_patch16_224, vit_base_patch16_224"
        )
    assert isinstance(model, VisionTransformer)
    return model


def timm_args(cfg: ModelConfig, channels: int) -> dict[str, Any]:
    """Arguments of ``timm.create_model`` for a resolved config: no classifier, norm before pooling."""
    args: dict[str, Any] = {
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


def build_backbone(cfg: ModelConfig, channels: int) -> ViTBackbone:
    """Builds a backbone with random weights from torch's global generator (seed it first).

    Args:
        cfg: A resolved model config (``configs.resolve``).
        channels: C of the images.

    Returns:
        The backbone; sine-cosine positions are filled in and trainable (an objective may freeze them).
    """
    assert cfg.name is not None
    check_shape(cfg)
    return make_vit(cfg.name, timm_args(cfg, channels), positions=cfg.positions)


def make_vit(architecture: str, model_args: dict[str, Any], *, positions: str = "learnable") -> ViTBackbone:
    """A plain ViT by timm's name and arguments.

    Args:
        architecture: timm's model name.
        model_args: Arguments of ``timm.create_model``.
        positions: ``sincos`` fills the position embedding with that table, ``factorised`` replaces it by one table per
            axis; otherwise it stays as the arguments make it.
    """
    vit = _plain(timm.create_model(architecture, pretrained=False, num_classes=0, **model_args), architecture)
    init_weights(vit)
    backbone = ViTBackbone(vit, architecture, model_args)
    if positions == "sincos":
        backbone.set_sincos_positions()
    elif positions == "factorised":
        backbone.set_factorised_positions()
    return backbone


def check_shape(cfg: ModelConfig) -> None:
    """Refuses sizes that do not divide.

    Raises:
        UserError: With the nearest sizes that do.
    """
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
