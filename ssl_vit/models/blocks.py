"""timm's transformer block: made, run with given stochastic depth, or run for some tokens only."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from jaxtyping import Float
from timm.models.vision_transformer import Block
from torch import Tensor, nn


def make_blocks(width: int, depth: int, heads: int) -> nn.ModuleList:
    """Plain pre-norm blocks with query/key/value biases and MLP ratio 4, as in MAE's decoder."""
    norm = partial(nn.LayerNorm, eps=1e-6)
    return nn.ModuleList(Block(width, heads, qkv_bias=True, norm_layer=norm) for _ in range(depth))  # pyright: ignore[reportArgumentType]


def run_block(block: nn.Module, x: Float[Tensor, "B L D"], drop: Float[Tensor, "B 2"] | None) -> Float[Tensor, "B L D"]:
    """A block whose two residual branches are scaled per sample (stochastic depth, drawn by the view).

    Args:
        block: timm's ``Block``.
        x: Tokens.
        drop: Per sample 0 or 1/(keep probability) for attention and MLP; None runs the block as it is.
    """
    if drop is None:
        return block(x)
    block = cast(Block, block)
    scale = drop.to(x.dtype)[:, :, None, None]
    x = x + scale[:, 0] * block.ls1(block.attn(block.norm1(x)))
    return x + scale[:, 1] * block.ls2(block.mlp(block.norm2(x)))


def run_block_from(block: nn.Module, x: Float[Tensor, "B L D"], first: int) -> Float[Tensor, "B M D"]:
    """A block of ``make_blocks`` evaluated only for the tokens from ``first`` on; all tokens are attended to.

    Args:
        block: A block of ``make_blocks``.
        x: Tokens, L = first + M.
        first: First token whose output is wanted.
    """
    block = cast(Block, block)
    attn: Any = block.attn
    batch, length, width = x.shape
    h = block.norm1(x)
    weight, bias = attn.qkv.weight, attn.qkv.bias
    query = F.linear(h[:, first:], weight[:width], bias[:width])
    key_value = F.linear(h, weight[width:], bias[width:])
    q = query.reshape(batch, length - first, attn.num_heads, -1).transpose(1, 2)
    k, v = key_value.reshape(batch, length, 2, attn.num_heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length - first, width)
    x = x[:, first:] + attn.proj(mixed)
    return x + block.mlp(block.norm2(x))


def attention_from_first(block: nn.Module, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B heads L"]:
    """The first token's softmax row in every head of a block, which timm's fused attention does not return.

    Args:
        block: timm's ``Block``.
        x: Tokens, as they enter the block.
    """
    block = cast(Block, block)
    attn: Any = block.attn
    q, k, _ = attn.qkv(block.norm1(x)).unflatten(2, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
    q, k = attn.q_norm(q[:, :, :1]) * attn.scale, attn.k_norm(k)
    return (q @ k.transpose(-2, -1)).softmax(dim=-1)[:, :, 0]
