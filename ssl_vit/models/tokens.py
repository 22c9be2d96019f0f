"""Tokens of other families than the plain ViT: relative positions and BEiT, distilled DeiT, hybrids.

Their pooled feature is timm's own (``PooledBackbone``); here stands what makes their tokens, of all patches or of some.
A bias of relative positions belongs to pairs of tokens, so it is gathered for the tokens that each image keeps: what
comes out equals attention in which all others are masked.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from timm.layers.attention import Attention
from timm.layers.hybrid_embed import HybridEmbed
from timm.layers.patch_embed import PatchEmbed
from timm.models import beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Block, VisionTransformer
from timm.models.vision_transformer_relpos import (
    RelPosAttention,
    RelPosBlock,
    ResPostRelPosBlock,
    VisionTransformerRelPos,
)
from torch import Tensor, nn

from ssl_vit.models.attention import attention, by_heads
from ssl_vit.models.backbone import Replace, TokenBackbone, Tokens
from ssl_vit.models.blocks import attend, attention_rows
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.stochastic_depth import recomputed
from ssl_vit.models.vit import add_positions, embed_patches

_MODELS = (beit.Beit, VisionTransformerRelPos, VisionTransformerDistilled, VisionTransformer)
_STEMS = (PatchEmbed, HybridEmbed)
_BLOCKS = {
    Block: Attention, beit.Block: beit.Attention, RelPosBlock: RelPosAttention, ResPostRelPosBlock: RelPosAttention,
}  # fmt: skip


def gives_tokens(model: Any) -> bool:
    """Whether the tokens of one of timm's models are made as this file makes them."""
    if type(model) not in _MODELS or type(model.patch_embed) not in _STEMS:
        return False
    return all(type(block.attn) is _BLOCKS.get(type(block)) for block in model.blocks)


def looks_beyond(model: Any) -> bool:
    """Whether what embeds a patch sees others, too: what is hidden would then show in what is not."""
    return type(model.patch_embed) is not PatchEmbed


class FamilyTokens(PooledBackbone, TokenBackbone):
    """A family with timm's pooled feature that also gives its tokens.

    Tokens after the "final norm" pass through the one norm that there is behind the blocks, be it timm's ``fc_norm``,
    which the pooled feature reads behind the mean.
    """

    def __init__(self, model: nn.Module, architecture: str, model_args: dict[str, Any], img_size: int) -> None:
        """As ``PooledBackbone``, of a model that ``gives_tokens``."""
        super().__init__(model, architecture, model_args, img_size)
        own: Any = model
        self.drops_tokens = not looks_beyond(own)
        self.built: tuple[int, int] = tuple(own.patch_embed.grid_size)
        """Grid that biases and positions are made for."""
        self.patch_size = int(own.patch_embed.img_size[0]) // self.built[0]
        self.grid: tuple[int, int] = self.built
        self.prefix_tokens = int(own.num_prefix_tokens)
        self.embedded_prefix = 0 if getattr(own, "no_embed_class", False) else self.prefix_tokens
        self.recompute = False

    def read_at(self, size: int) -> None:
        """As ``PooledBackbone`` has it."""
        super().read_at(size)
        model: Any = self.model
        self.built = tuple(model.patch_embed.grid_size)
        self.grid = (size // self.patch_size, size // self.patch_size)

    @property
    def reads_class_token(self) -> bool:
        """See ``TokenBackbone.reads_class_token``; pooled features are timm's own all the same."""
        return self.prefix_tokens > 0

    def recompute_activations(self) -> None:
        """By block; see ``Backbone.recompute_activations``."""
        super().recompute_activations()
        self.recompute = True

    def patch_positions(self) -> Float[Tensor, "N D"] | None:
        """One row per patch; None where there is only a bias for pairs of patches."""
        table = getattr(self.model, "pos_embed", None)
        return None if table is None else table[0, self.embedded_prefix :]

    def forward_tokens(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        keep_ids: Int[Tensor, "B K"] | None = None,
        replace: Replace | None = None,
        drop: Float[Tensor, "B L"] | None = None,
        norm: bool = True,
    ) -> Tokens:
        """Tokens of every image; see ``TokenBackbone.forward_tokens``. ``drop`` is as ``drop_rates`` has it."""
        grid = self.grid

        def run(images: Tensor) -> Tensor:
            nonlocal grid
            x, grid = self._embed(images, keep_ids, replace)
            for block, bias in zip(self._blocks(), self._biases(grid, keep_ids), strict=True):
                x = recomputed(_run, self.places, block, x, bias) if self.recompute else _run(block, x, bias)
            return self._last_norm()(x) if norm else x

        x = self.places.run(run, images, drop)
        return Tokens(x[:, : self.prefix_tokens], x[:, self.prefix_tokens :], grid)

    def attentions(
        self, images: Float[Tensor, "B C H W"], wanted: slice = slice(None)
    ) -> list[Float[Tensor, "B heads M T"]]:
        """Of every block, with its bias; see ``TokenBackbone.attentions``."""
        x, grid = self._embed(images, None, None)
        found: list[Tensor] = []
        for block, bias in zip(self._blocks(), self._biases(grid, None), strict=True):
            found.append(_rows(block, x, bias, wanted))
            x = _run(block, x, bias)
        return found

    def _blocks(self) -> Any:
        return self.model.blocks

    def _last_norm(self) -> nn.Module:
        model: Any = self.model
        return model.fc_norm if isinstance(model.norm, nn.Identity) else model.norm

    def _embed(
        self, images: Float[Tensor, "B C H W"], keep_ids: Int[Tensor, "B K"] | None, replace: Replace | None
    ) -> tuple[Float[Tensor, "B L D"], tuple[int, int]]:
        model: Any = self.model
        if self.drops_tokens:
            x, grid = embed_patches(model.patch_embed, self.patch_size, images, keep_ids, replace)
        elif keep_ids is None and replace is None:
            x = model.patch_embed(images)
            grid = tuple(model.patch_embed.dynamic_feat_size(images.shape[2:]))
            x = x if x.ndim == 3 else x.flatten(1, 2)
        else:
            raise ValueError(f"the stem of {self.architecture} looks beyond each patch: hidden ones would be seen")
        tokens = (getattr(model, name, None) for name in ("cls_token", "reg_token", "dist_token"))
        prefix = [token.expand(len(x), -1, -1) for token in tokens if token is not None]
        table = getattr(model, "pos_embed", None)
        x, prefix = add_positions(x, prefix, table, self.embedded_prefix, self.built, grid, keep_ids)
        x = torch.cat([*prefix, x], dim=1) if prefix else x
        return (model.norm_pre(x) if hasattr(model, "norm_pre") else x), grid

    def _biases(self, grid: tuple[int, int], keep_ids: Int[Tensor, "B K"] | None) -> list[Tensor | None]:
        """What every block adds to its logits, for the tokens that are there."""
        model: Any = self.model
        shared = _of_all(model)
        all_biases = [_sum(_of_block(block), shared) for block in model.blocks]
        if grid != self.built and any(bias is not None for bias in all_biases):
            raise ValueError(f"{self.architecture} was built for {self.built} patches, and these images have {grid}")
        if keep_ids is None:
            return all_biases
        first = torch.arange(self.prefix_tokens, device=keep_ids.device).expand(len(keep_ids), -1)
        ids = torch.cat([first, keep_ids + self.prefix_tokens], dim=1)
        return [None if bias is None else kept_pairs(bias, ids) for bias in all_biases]


def kept_pairs(bias: Float[Tensor, "heads T T"], ids: Int[Tensor, "B L"]) -> Float[Tensor, "B heads L L"]:
    """The bias of every pair of tokens that an image keeps.

    Args:
        bias: Of all pairs, the same for all images.
        ids: Tokens that each image keeps, in their order.
    """
    return bias[:, ids[:, :, None], ids[:, None, :]].transpose(0, 1)


def _of_all(model: Any) -> Tensor | None:
    """The bias that all blocks of a model share."""
    if isinstance(model, beit.Beit):
        return None if model.rel_pos_bias is None else model.rel_pos_bias()
    shared = getattr(model, "shared_rel_pos", None)
    return None if shared is None else shared.get_bias()[0]


def _of_block(block: Any) -> Tensor | None:
    attn = block.attn
    if isinstance(attn, beit.Attention):
        return None if attn.relative_position_bias_table is None else attn._get_rel_pos_bias()[0]
    own = getattr(attn, "rel_pos", None)
    return None if own is None else own.get_bias()[0]


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _run(block: Any, x: Float[Tensor, "B L D"], bias: Tensor | None) -> Float[Tensor, "B L D"]:
    """A block of timm's with a given bias; its places for stochastic depth are where timm has them."""
    if isinstance(block, Block):
        x = x + block.drop_path1(block.ls1(attend(block.attn, block.norm1(x))))
        return x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
    if isinstance(block, ResPostRelPosBlock):
        x = x + block.drop_path1(block.norm1(_attend(block.attn, x, bias)))
        return x + block.drop_path2(block.norm2(block.mlp(x)))
    x = x + block.drop_path1(_scaled(block, 1, _attend(block.attn, block.norm1(x), bias)))
    return x + block.drop_path2(_scaled(block, 2, block.mlp(block.norm2(x))))


def _scaled(block: Any, branch: int, part: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
    """A residual branch times its layer scale, where it has one."""
    if isinstance(block, RelPosBlock):
        return getattr(block, f"ls{branch}")(part)
    gamma = getattr(block, f"gamma_{branch}")
    return part if gamma is None else gamma * part


def _attend(attn: Any, h: Float[Tensor, "B L D"], bias: Tensor | None) -> Float[Tensor, "B L D"]:
    q, k, v = _query_key_value(attn, h)
    mask = None if bias is None else bias.to(q.dtype)
    mixed = attention(q, k, v, mask)
    return attn.proj(mixed.transpose(1, 2).flatten(2))


def _query_key_value(attn: Any, h: Float[Tensor, "B L D"]) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(attn, RelPosAttention):
        q, k, v = by_heads(attn.qkv(h), 3, attn.num_heads)
        return attn.q_norm(q), attn.k_norm(k), v
    bias = None if attn.q_bias is None else torch.cat([attn.q_bias, attn.k_bias, attn.v_bias])
    q, k, v = by_heads(F.linear(h, attn.qkv.weight, bias), 3, attn.num_heads)
    return q, k, v


def _rows(block: Any, x: Float[Tensor, "B L D"], bias: Tensor | None, wanted: slice) -> Float[Tensor, "B heads M L"]:
    """Softmax rows of the wanted tokens, which fused attention does not return."""
    if isinstance(block, Block):
        return attention_rows(block, x, wanted)
    q, k, _ = _query_key_value(block.attn, x if isinstance(block, ResPostRelPosBlock) else block.norm1(x))
    logits = q[:, :, wanted] * block.attn.scale @ k.transpose(-2, -1)
    return (logits if bias is None else logits + bias[:, wanted]).softmax(dim=-1)
