"""Pyramid Vision Transformer, version 1 (Wang et al. 2021, arXiv 2102.12122): attention to a reduced map, in stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.mlp import Mlp
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from ssl_vit.models.attention import attention, by_heads
from ssl_vit.models.families.manners import Network, described, dropped, linear_rates

_EPS = 1e-6
"""Of norms in blocks and at the end; those of patches and reduced maps keep torch's 1e-5, as in the authors' code."""


class ReducedAttention(nn.Module):
    """Attention of all places to a map that a convolution has made smaller (equation 2)."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        """Builds it.

        Args:
            width: D of the stage.
            heads: Divide D.
            reduction: How many times smaller the sides of the attended map are.
        """
        super().__init__()
        self.heads, self.reduction = heads, reduction
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        if reduction > 1:
            self.sr = nn.Conv2d(width, width, reduction, reduction)
            self.norm = nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B N D"]:
        """Attended tokens.

        Args:
            x: Row-major; behind a class token only where nothing is reduced.
            grid: Rows and columns of places.
        """
        attended = x
        if self.reduction > 1:
            attended = self.norm(self.sr(x.transpose(1, 2).unflatten(2, grid)).flatten(2).transpose(1, 2))
        q = self.q(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = by_heads(self.kv(attended), 2, self.heads)
        return self.proj(attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Reduced attention, then an MLP, each behind a norm."""

    def __init__(self, width: int, heads: int, mlp_ratio: float | int, reduction: int, drop_path: float) -> None:
        """Builds a block.

        Args:
            width: D of the stage.
            heads: Of attention.
            mlp_ratio: Hidden units of the MLP for each of D.
            reduction: Of the attended map.
            drop_path: Rate of stochastic depth, in [0, 1).
        """
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.attn = ReducedAttention(width, heads, reduction)
        self.norm2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.drop_path1, self.drop_path2 = dropped(drop_path), dropped(drop_path)

    def forward(self, x: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B N D"]:
        """One layer."""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """Patches of the map before, positions, blocks."""

    def __init__(
        self, channels: int, width: int, patch: int, grid: tuple[int, int], blocks: Sequence[Block], class_token: bool
    ) -> None:
        """Builds a stage.

        Args:
            channels: Of the map before.
            width: D.
            patch: Side of a patch in places of the map before.
            grid: Rows and columns that positions are for.
            blocks: Of this width.
            class_token: Whether one is put in front.
        """
        super().__init__()
        self.grid = grid
        self.proj = nn.Conv2d(channels, width, patch, patch)
        self.norm = nn.LayerNorm(width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, grid[0] * grid[1] + class_token, width))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B N D"], tuple[int, int]]:
        """Tokens, and rows and columns of their places."""
        x = self.proj(x)
        grid, prefix = (x.shape[2], x.shape[3]), int(self.cls_token is not None)
        x = self.norm(x.flatten(2).transpose(1, 2))
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        positions = self.pos_embed
        if grid != self.grid:
            positions = resample_abs_pos_embed(positions, list(grid), list(self.grid), num_prefix_tokens=prefix)
        x = x + positions
        for block in self.blocks:
            x = block(x, grid)
        return x, grid


class PyramidTransformer(Network):
    """PVT: stages of growing width on maps of falling size; a class token in the last speaks for the image."""

    last_eps = _EPS

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dims: Sequence[int] = (64, 128, 320, 512),
        depths: Sequence[int] = (2, 2, 2, 2),
        num_heads: Sequence[int] = (1, 2, 5, 8),
        mlp_ratios: Sequence[float | int] = (8, 8, 4, 4),
        sr_ratios: Sequence[int] = (8, 4, 2, 1),
        patch_sizes: Sequence[int] = (4, 2, 2, 2),
        drop_path_rate: float = 0.0,
    ) -> None:
        """Builds a network; every list has one entry per stage.

        Args:
            img_size: Side of the images that positions are for, in pixels; others are read with positions resampled.
            in_chans: C.
            num_classes: Of the classifier; 0 for none.
            embed_dims: Widths.
            depths: Blocks.
            num_heads: Of attention.
            mlp_ratios: Hidden units of an MLP for each of a width.
            sr_ratios: How many times smaller attended maps are; 1 in the last stage, which has the class token.
            patch_sizes: Sides of patches: of the first stage in pixels, then in places of the map before.
            drop_path_rate: Of the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        rates = iter(linear_rates(drop_path_rate, sum(depths)))
        rows, columns = (img_size, img_size) if isinstance(img_size, int) else img_size
        channels, stride, stages, self.feature_info = in_chans, 1, [], []
        for i, width in enumerate(embed_dims):
            rows, columns, stride = rows // patch_sizes[i], columns // patch_sizes[i], stride * patch_sizes[i]
            blocks = [Block(width, num_heads[i], mlp_ratios[i], sr_ratios[i], next(rates)) for _ in range(depths[i])]
            last = i == len(embed_dims) - 1
            stages.append(Stage(channels, width, patch_sizes[i], (rows, columns), blocks, class_token=last))
            self.feature_info.append({"num_chs": width, "reduction": stride, "module": f"stages.{i}"})
            channels = width
        self.stages = nn.ModuleList(stages)
        self.finish(channels, num_classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers by name, for layer decay."""
        return {
            "stem": r"^stages\.0\.(?:proj|norm|pos_embed)",
            "blocks": [
                (r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)\.", (0,)), (r"^norm", (99999,)),
            ],
        }  # fmt: skip

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Normalised tokens of the last stage, the class token first."""
        *before, last = self.stages
        for stage in before:
            x, grid = stage(x)
            x = x.transpose(1, 2).unflatten(2, grid)
        return self.norm(last(x)[0])


default_cfgs = generate_default_cfgs({name: described(224, "stages.0.proj") for name in ("pvt_tiny", "pvt_small")})


@register_model
def pvt_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """PVT-Tiny: 13.2 million parameters."""
    return build_model_with_cfg(PyramidTransformer, "pvt_tiny", pretrained, **kwargs)


@register_model
def pvt_small(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """PVT-Small: 24.5 million parameters."""
    return build_model_with_cfg(PyramidTransformer, "pvt_small", pretrained, **{"depths": (3, 4, 6, 3), **kwargs})
