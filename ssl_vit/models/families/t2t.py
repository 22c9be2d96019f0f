"""Tokens-to-Token ViT (Yuan et al. 2021, arXiv 2101.11986): tokens are made of overlapping neighbours, twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.mlp import Mlp
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from ssl_vit.models.attention import attention
from ssl_vit.models.families.manners import Network, described, linear_rates

Split = tuple[int, int, int] | list[int]
"""Side, stride and padding of a soft split (section 3.1)."""
_SPLITS = ((7, 4, 2), (3, 2, 1), (3, 2, 1))


class TokenTransformer(nn.Module):
    """One narrow attention layer on wide tokens; the residual starts from the values."""

    def __init__(self, wide: int, width: int) -> None:
        """Builds it.

        Args:
            wide: Numbers in a token that comes in.
            width: In one that goes out.
        """
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(wide, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = Mlp(width, width)
        self.scale = wide**-0.5  # of what comes in, as in the authors' code

    def forward(self, x: Float[Tensor, "B N W"]) -> Float[Tensor, "B N D"]:
        """Narrow tokens."""
        q, k, v = self.qkv(self.norm1(x)).unsqueeze(1).chunk(3, dim=3)
        x = (v + self.proj(attention(q, k, v, scale=self.scale))).squeeze(1)
        return x + self.mlp(self.norm2(x))


class TokenPerformer(nn.Module):
    """The same with attention by random features (Choromanski et al. 2021), linear in the number of tokens."""

    w: Tensor
    """Directions, drawn once and never trained."""

    def __init__(self, wide: int, width: int) -> None:
        """Builds it.

        Args:
            wide: Numbers in a token that comes in.
            width: In one that goes out; half as many random features.
        """
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(width)
        self.kqv, self.proj = nn.Linear(wide, 3 * width), nn.Linear(width, width)
        self.mlp = Mlp(width, width)
        features = width // 2
        self.register_buffer("w", nn.init.orthogonal_(torch.empty(features, width)) * features**0.5)

    def features(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N F"]:
        """Positive random features of the softmax kernel."""
        half = x.square().sum(dim=2, keepdim=True) / 2
        return torch.exp(x @ self.w.T - half) / len(self.w) ** 0.5

    def forward(self, x: Float[Tensor, "B N W"]) -> Float[Tensor, "B N D"]:
        """Narrow tokens."""
        k, q, v = self.kqv(self.norm1(x)).chunk(3, dim=2)
        k, q = self.features(k), self.features(q)
        total = q @ k.sum(dim=1).unsqueeze(2) + 1e-8
        x = v + self.proj(q @ (k.transpose(1, 2) @ v) / total)
        return x + self.mlp(self.norm2(x))


class TokensToToken(nn.Module):
    """Two rounds of soft split and token attention, and a last split."""

    def __init__(
        self, channels: int, width: int, token_dim: int, kind: type[nn.Module], splits: Sequence[Split]
    ) -> None:
        """Builds it.

        Args:
            channels: C of the images.
            width: D of the tokens that go out.
            token_dim: Of the tokens in between.
            kind: TokenTransformer or TokenPerformer.
            splits: Three.
        """
        super().__init__()
        self.splits = splits
        self.attention1 = kind(channels * splits[0][0] ** 2, token_dim)
        self.attention2 = kind(token_dim * splits[1][0] ** 2, token_dim)
        self.project = nn.Linear(token_dim * splits[2][0] ** 2, width)

    def forward(self, x: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B N D"], tuple[int, int]]:
        """Tokens, and rows and columns of their places."""
        first, second, last = self.splits
        for split, mixing in ((first, self.attention1), (second, self.attention2)):
            tokens, grid = soft_split(x, split)
            x = mixing(tokens).transpose(1, 2).unflatten(2, grid)
        tokens, grid = soft_split(x, last)
        return self.project(tokens), grid


def soft_split(x: Float[Tensor, "B C H W"], split: Split) -> tuple[Float[Tensor, "B N K"], tuple[int, int]]:
    """Overlapping neighbours as one token each (section 3.1), and rows and columns of these tokens.

    Args:
        x: A map.
        split: Side, stride and padding.
    """
    side, stride, padding = split
    rows, columns = ((n + 2 * padding - side) // stride + 1 for n in x.shape[2:])
    return F.unfold(x, side, stride=stride, padding=padding).transpose(1, 2), (rows, columns)


class TokensToTokenViT(Network):
    """T2T-ViT: a plain transformer on those tokens, with fixed sine positions."""

    learned_tables = ("cls_token",)
    pos_embed: Tensor

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 256,
        depth: int = 7,
        num_heads: int = 4,
        mlp_ratio: float | int = 2,
        token_dim: int = 64,
        tokens: str = "performer",
        splits: Sequence[Split] = _SPLITS,
        drop_path_rate: float = 0.0,
    ) -> None:
        """Builds a network.

        Args:
            img_size: Side of the images that positions are for, in pixels; others are read with positions resampled.
            in_chans: C.
            num_classes: Of the classifier; 0 for none.
            embed_dim: D.
            depth: Blocks.
            num_heads: Of attention.
            mlp_ratio: Hidden units of an MLP for each of D.
            token_dim: Width of tokens while they are made.
            tokens: How they attend then: performer or transformer.
            splits: Side, stride and padding of the three soft splits.
            drop_path_rate: Of the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        kinds = {"performer": TokenPerformer, "transformer": TokenTransformer}
        self.tokens_to_token = TokensToToken(in_chans, embed_dim, token_dim, kinds[tokens], splits)
        sides = (img_size, img_size) if isinstance(img_size, int) else img_size
        stride = 1
        for side, step, padding in splits:
            sides, stride = tuple((n + 2 * padding - side) // step + 1 for n in sides), stride * step
        self.grid_size = sides
        positions = sinusoid(1 + self.grid_size[0] * self.grid_size[1], embed_dim)
        self.register_buffer("pos_embed", positions[None])
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        rates = linear_rates(drop_path_rate, depth)
        self.blocks = nn.Sequential(
            *(Block(embed_dim, num_heads, mlp_ratio, drop_path=rate, norm_layer=nn.LayerNorm) for rate in rates)
        )
        self.feature_info = [{"num_chs": embed_dim, "reduction": stride, "module": "norm"}]
        self.finish(embed_dim, num_classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers by name, for layer decay."""
        stem = r"^tokens_to_token|cls_token|pos_embed"
        return {"stem": stem, "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]}

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Normalised tokens, the class token first."""
        x, grid = self.tokens_to_token(x)
        positions = self.pos_embed
        if grid != self.grid_size:
            positions = resample_abs_pos_embed(positions, list(grid), list(self.grid_size))
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + positions
        return self.norm(self.blocks(x))


def sinusoid(count: int, width: int) -> Float[Tensor, "N D"]:
    """Sine and cosine in turn, of positions in a row (Vaswani et al. 2017, section 3.5).

    Args:
        count: N.
        width: D.
    """
    column = torch.arange(width, dtype=torch.float64)
    angles = torch.arange(count)[:, None] / 10000 ** (2 * (column // 2) / width)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos()).float()


default_cfgs = generate_default_cfgs({name: described(224, "") for name in ("t2t_vit_7", "t2t_vit_14", "t2t_vit_t_14")})


def _create(name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    return build_model_with_cfg(TokensToTokenViT, name, pretrained, **kwargs)


@register_model
def t2t_vit_7(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """T2T-ViT-7: 4.3 million parameters."""
    return _create("t2t_vit_7", pretrained, **kwargs)


@register_model
def t2t_vit_14(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """T2T-ViT-14: 21.5 million parameters."""
    sizes = {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3}
    return _create("t2t_vit_14", pretrained, **{**sizes, **kwargs})


@register_model
def t2t_vit_t_14(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """T2T-ViT-14 whose tokens are made by full attention: 21.5 million parameters."""
    sizes = {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3, "tokens": "transformer"}
    return _create("t2t_vit_t_14", pretrained, **{**sizes, **kwargs})
