"""Images of several sizes in one pass: the tokens of all of them in one row, each attending to its own image's alone.

All that a block does is done token by token, but attention. So views of two sizes need two attentions and one of
everything else: fewer and larger kernels, and one gradient of every weight in place of a sum of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from ssl_vit.models.attention import attention, by_heads
from ssl_vit.models.blocks import normalise, same_bits


def can_pack(block: nn.Module) -> bool:
    """Whether a block is timm's plain one, whose weights are there outside of its forward pass."""
    attn: Any = getattr(block, "attn", None)
    plain = type(block) is Block and type(attn) is Attention and getattr(attn, "gate", None) is None
    return plain and not attn.attn_drop.p and not hasattr(block, "run_as_forward")


def pays(device: torch.device) -> bool:
    """Whether one pass takes less time than several.

    Not on a CPU: launching costs little there, and it would compute what stochastic depth drops, which ``run_block``
    leaves out.

    Args:
        device: Where it runs.
    """
    return device.type != "cpu"


def pack(parts: Sequence[Float[Tensor, "_ _ D"]]) -> Float[Tensor, "T D"]:
    """The tokens of all parts in one row."""
    return torch.cat([part.flatten(0, 1) for part in parts])


def unpack(x: Float[Tensor, "T D"], sizes: Sequence[tuple[int, int]]) -> list[Float[Tensor, "_ _ D"]]:
    """The parts again.

    Args:
        x: Tokens in one row.
        sizes: B and L of every part.
    """
    rows = x.split([batch * length for batch, length in sizes])
    return [part.unflatten(0, size) for part, size in zip(rows, sizes, strict=True)]


def token_factors(
    drops: Sequence[Float[Tensor, "_ K 2"] | None], sizes: Sequence[tuple[int, int]]
) -> Float[Tensor, "K 2 T 1"] | None:
    """Stochastic depth of every token, block and residual branch; None where no part has any.

    Args:
        drops: Of every part, per sample.
        sizes: B and L of every part.
    """
    rows = [
        drop[:, None].expand(-1, length, -1, -1).flatten(0, 1)
        for drop, (_, length) in zip(drops, sizes, strict=True)
        if drop is not None
    ]
    return torch.cat(rows).permute(1, 2, 0)[..., None].contiguous() if rows else None


def run_packed(
    block: Any, x: Float[Tensor, "T D"], sizes: Sequence[tuple[int, int]], factors: Float[Tensor, "2 T 1"] | None
) -> Float[Tensor, "T D"]:
    """What ``run_block`` makes of every part.

    Args:
        block: timm's ``Block`` that ``can_pack``.
        x: Tokens in one row.
        sizes: B and L of every part.
        factors: Of the two residual branches, by token; None for none.
    """
    attended = same_bits(x, block.ls1(_attend(block.attn, normalise(block.norm1, x), sizes)))
    x = x + (attended if factors is None else factors[0].to(x.dtype) * attended)
    made = same_bits(x, block.ls2(block.mlp(normalise(block.norm2, x))))
    return x + (made if factors is None else factors[1].to(x.dtype) * made)


def _attend(attn: Any, h: Float[Tensor, "T D"], sizes: Sequence[tuple[int, int]]) -> Float[Tensor, "T D"]:
    mixed: list[Tensor] = []
    for part in unpack(attn.qkv(h), sizes):
        q, k, v = by_heads(part, 3, attn.num_heads)
        mixed.append(attention(attn.q_norm(q), attn.k_norm(k), v).transpose(1, 2).flatten(2))
    return attn.proj_drop(attn.proj(attn.norm(pack(mixed))))
