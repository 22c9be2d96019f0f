"""MobileViT for small images (Mehta and Rastegari 2022): timm's blocks, with two transformers on places of 4 x 4 px."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg
from torch import nn

from ssl_vit.models.families.manners import described

default_cfgs = generate_default_cfgs(
    {"mobilevit_small_images": described(32, "stem.conv", fixed_input_size=False, classifier="head.fc")}
)


def _inverted(width: int, stride: int) -> ByoBlockCfg:
    """An inverted residual block with twice its input's channels inside, as MobileViT-XXS has them."""
    inner = {"bottle_in": True, "linear_out": True}
    return ByoBlockCfg(type="bottle", d=1, c=width, s=stride, gs=1, br=2.0, block_kwargs=inner)


def _mixing(width: int, stride: int, dim: int, depth: int) -> tuple[ByoBlockCfg, ByoBlockCfg]:
    """The same, then a transformer over every fourth place (patches of 2 x 2 places)."""
    inner = {"transformer_dim": dim, "transformer_depth": depth, "patch_size": 2}
    return _inverted(width, stride), ByoBlockCfg(type="mobilevit", d=1, c=width, s=1, block_kwargs=inner)


@register_model
def mobilevit_small_images(
    pretrained: bool = False,
    widths: Sequence[int] = (16, 24, 32),
    dims: Sequence[int] = (48, 64),
    depths: Sequence[int] = (2, 3),
    **kwargs: Any,
) -> nn.Module:
    """Steps of 2 in the stem and in the second stage, none after it.

    Args:
        pretrained: There are no weights.
        widths: Channels of three stages.
        dims: Widths of the transformers in the last two.
        depths: Their blocks.
        **kwargs: timm's.
    """
    mixing = (_mixing(*each) for each in zip(widths[1:], (2, 1), dims, depths, strict=True))
    cfg = ByoModelCfg(
        blocks=(_inverted(widths[0], 1), *mixing), stem_chs=widths[0], stem_type="3x3", stem_pool="", downsample="",
        act_layer="silu",
    )  # fmt: skip
    return build_model_with_cfg(
        ByobNet, "mobilevit_small_images", pretrained, model_cfg=cfg, feature_cfg={"flatten_sequential": True}, **kwargs
    )
