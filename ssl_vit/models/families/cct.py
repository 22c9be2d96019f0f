"""Compact Convolutional Transformer (Hassani et al. 2021, arXiv 2104.05704): tokens by convolutions, no class token."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from timm.layers.attention import Attention
from timm.layers.mlp import Mlp
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.layers.weight_init import trunc_normal_
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn
from torch.nn import functional as F

from ssl_vit.models.blocks import attend
from ssl_vit.models.families.manners import Network, described, dropped, linear_rates


class Block(nn.Module):
    """A transformer block whose second residual starts from the normalised tokens, as the authors' code has it."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, drop_path: float) -> None:
        """Builds a block.

        Args:
            width: D.
            heads: Of attention.
            mlp_ratio: Hidden units of the MLP for each of D.
            drop_path: Rate of stochastic depth, in [0, 1).
        """
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, qkv_bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.drop_path1, self.drop_path2 = dropped(drop_path), dropped(drop_path)

    def forward(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Attention, then the MLP."""
        x = self.norm2(x + self.drop_path1(attend(self.attn, self.norm1(x))))
        return x + self.drop_path2(self.mlp(x))


class CompactTransformer(Network):
    """CCT: convolutions and max pooling make the tokens (section 3.3), and learned weights pool them (section 3.2)."""

    num_prefix_tokens = 0

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 256,
        depth: int = 7,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        kernel_size: int = 3,
        conv_layers: int = 1,
        conv_width: int = 64,
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
            kernel_size: Side of the tokenizer's convolutions, odd; their stride is half of it less one, at least 1.
            conv_layers: Convolutions of the tokenizer, each followed by pooling to half the side.
            conv_width: Channels between convolutions, where there are several; the authors' have 64.
            drop_path_rate: Of the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        stride, channels = max(1, kernel_size // 2 - 1), [in_chans, *[conv_width] * (conv_layers - 1), embed_dim]
        self.tokenizer = nn.Sequential(
            *(
                layer
                for i in range(conv_layers)
                for layer in (
                    nn.Conv2d(channels[i], channels[i + 1], kernel_size, stride, kernel_size // 2, bias=False),
                    nn.ReLU(),
                    nn.MaxPool2d(3, 2, 1),
                )
            )
        )
        rows, columns = (img_size, img_size) if isinstance(img_size, int) else img_size
        for factor in (stride, 2) * conv_layers:  # convolution, pooling; both round up
            rows, columns = -(-rows // factor), -(-columns // factor)
        self.grid_size = (rows, columns)
        self.pos_embed = nn.Parameter(torch.zeros(1, rows * columns, embed_dim))
        rates = linear_rates(drop_path_rate, depth)
        self.blocks = nn.Sequential(*(Block(embed_dim, num_heads, mlp_ratio, rate) for rate in rates))
        self.attn_pool = nn.Linear(embed_dim, 1)
        self.feature_info = [{"num_chs": embed_dim, "reduction": (2 * stride) ** conv_layers, "module": "norm"}]
        self.finish(embed_dim, num_classes)

    def init_weights(self) -> None:
        """As the authors': positions wider than usual, He's for convolutions."""
        super().init_weights()
        trunc_normal_(self.pos_embed, std=0.2)
        for part in self.tokenizer:
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers by name, for layer decay."""
        return {"stem": r"^tokenizer|pos_embed", "blocks": [(r"^blocks\.(\d+)", None), (r"^norm|attn_pool", (99999,))]}

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Normalised tokens, row-major."""
        x = self.tokenizer(x)
        grid = (x.shape[2], x.shape[3])
        positions = self.pos_embed
        if grid != self.grid_size:
            positions = resample_abs_pos_embed(positions, list(grid), list(self.grid_size), num_prefix_tokens=0)
        return self.norm(self.blocks(x.flatten(2).transpose(1, 2) + positions))

    def forward_head(self, x: Float[Tensor, "B N D"], pre_logits: bool = False) -> Float[Tensor, "B E"]:
        """Tokens pooled by a softmax over them of one learned score each (equations 3 and 4), then the classifier."""
        pooled = (F.softmax(self.attn_pool(x), dim=1).transpose(1, 2) @ x).squeeze(1)
        return pooled if pre_logits else self.head(pooled)


default_cfgs = generate_default_cfgs(
    {"cct_7_3x1_32": described(32, "tokenizer.0"), "cct_14_7x2_224": described(224, "tokenizer.0")}
)


@register_model
def cct_7_3x1_32(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """CCT-7/3x1 for 32 px: 3.76 million parameters with 10 classes."""
    return build_model_with_cfg(CompactTransformer, "cct_7_3x1_32", pretrained, **kwargs)


@register_model
def cct_14_7x2_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """CCT-14/7x2 for 224 px: 22.4 million parameters."""
    sizes = {"img_size": 224, "embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3.0, "kernel_size": 7}
    return build_model_with_cfg(
        CompactTransformer, "cct_14_7x2_224", pretrained, **{**sizes, "conv_layers": 2, **kwargs}
    )
