"""Convolutional vision Transformer (Wu et al. 2021, arXiv 2103.15808): convolutions make tokens, queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.create_act import get_act_layer
from timm.layers.mlp import Mlp
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from ssl_vit.models.attention import attention
from ssl_vit.models.families.manners import Network, described, dropped, linear_rates


class Projection(nn.Module):
    """A depthwise convolution, batch normalisation and a linear layer (section 3.2); a class token skips the first."""

    def __init__(self, width: int, stride: int) -> None:
        """Builds it.

        Args:
            width: D.
            stride: Of the 3 x 3 convolution.
        """
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.linear = nn.Linear(width, width)

    def forward(self, tokens: Float[Tensor, "B P D"], places: Float[Tensor, "B D h w"]) -> Float[Tensor, "B M D"]:
        """Projected tokens, then places.

        Args:
            tokens: In front of the places; P may be 0.
            places: As a map.
        """
        made = self.bn(self.conv(places)).flatten(2).transpose(1, 2)
        return self.linear(torch.cat([tokens, made], dim=1))


class Block(nn.Module):
    """Attention with convolutional projections, keys and values on half the side, then an MLP."""

    def __init__(self, width: int, heads: int, mlp_ratio: float | int, act: str, drop_path: float) -> None:
        """Builds a block.

        Args:
            width: D of the stage.
            heads: Divide D.
            mlp_ratio: Hidden units of the MLP for each of D.
            act: timm's name of the MLP's nonlinearity.
            drop_path: Rate of stochastic depth, in [0, 1).
        """
        super().__init__()
        self.heads, self.scale = heads, width**-0.5  # of the whole width, as in the authors' code
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = Projection(width, 1), Projection(width, 2), Projection(width, 2)
        self.proj = nn.Linear(width, width)
        nonlinearity: Any = get_act_layer(act)
        self.mlp = Mlp(width, int(width * mlp_ratio), act_layer=nonlinearity)
        self.drop_path1, self.drop_path2 = dropped(drop_path), dropped(drop_path)

    def forward(self, x: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B N D"]:
        """One layer.

        Args:
            x: Places row-major, behind a class token or none.
            grid: Rows and columns of places.
        """
        tokens, places = self.norm1(x).split([x.shape[1] - grid[0] * grid[1], grid[0] * grid[1]], dim=1)
        places = places.transpose(1, 2).unflatten(2, grid)
        q, k, v = (
            part(tokens, places).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        attended = attention(q, k, v, scale=self.scale).transpose(1, 2).flatten(2)
        x = x + self.drop_path1(self.proj(attended))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """Overlapping patches of the map before, then blocks."""

    def __init__(
        self, channels: int, width: int, patch: Sequence[int], blocks: Sequence[Block], class_token: bool
    ) -> None:
        """Builds a stage.

        Args:
            channels: Of the map before.
            width: D.
            patch: Side, stride and padding of the convolution.
            blocks: Of this width.
            class_token: Whether one is put in front.
        """
        super().__init__()
        side, stride, padding = patch
        self.proj = nn.Conv2d(channels, width, side, stride, padding)
        self.norm = nn.LayerNorm(width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B N D"], tuple[int, int]]:
        """Tokens, and rows and columns of their places."""
        x = self.proj(x)
        grid = (x.shape[2], x.shape[3])
        x = self.norm(x.flatten(2).transpose(1, 2))
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x, grid)
        return x, grid


class ConvolutionalTransformer(Network):
    """CvT: three stages without positions; a class token in the last speaks for the image."""

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dims: Sequence[int] = (64, 192, 384),
        depths: Sequence[int] = (1, 2, 10),
        num_heads: Sequence[int] = (1, 3, 6),
        mlp_ratio: float | int = 4,
        patches: Sequence[Sequence[int]] = ((7, 4, 2), (3, 2, 1), (3, 2, 1)),
        act: str = "quick_gelu",
        drop_path_rate: float = 0.0,
    ) -> None:
        """Builds a network; every list has one entry per stage.

        Args:
            in_chans: C.
            num_classes: Of the classifier; 0 for none.
            embed_dims: Widths.
            depths: Blocks.
            num_heads: Of attention.
            mlp_ratio: Hidden units of an MLP for each of a width.
            patches: Side, stride and padding of the convolutions that make tokens.
            act: timm's name of the nonlinearity: the authors' is quick_gelu.
            drop_path_rate: Of the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        rates = iter(linear_rates(drop_path_rate, sum(depths)))
        channels, stride, self.feature_info, stages = in_chans, 1, [], []
        for i, width in enumerate(embed_dims):
            stride *= patches[i][1]
            blocks = [Block(width, num_heads[i], mlp_ratio, act, next(rates)) for _ in range(depths[i])]
            last = i == len(embed_dims) - 1
            stages.append(Stage(channels, width, patches[i], blocks, class_token=last))
            self.feature_info.append({"num_chs": width, "reduction": stride, "module": f"stages.{i}"})
            channels = width
        self.stages = nn.ModuleList(stages)
        self.finish(channels, num_classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers by name, for layer decay."""
        return {
            "stem": r"^stages\.0\.(?:proj|norm)",
            "blocks": [(r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)\.", (0,)), (r"^norm", (99999,))],
        }

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Normalised tokens of the last stage, the class token first."""
        *before, last = self.stages
        for stage in before:
            x, grid = stage(x)
            x = x.transpose(1, 2).unflatten(2, grid)
        return self.norm(last(x)[0])


default_cfgs = generate_default_cfgs({"cvt_13": described(224, "stages.0.proj", fixed_input_size=False)})


@register_model
def cvt_13(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """CvT-13: 20.0 million parameters."""
    return build_model_with_cfg(ConvolutionalTransformer, "cvt_13", pretrained, **kwargs)
