"""Attention from queries to keys: torch's fused kernel, but for backward passes that a CPU computes faster as products.

The fused kernel goes forwards fastest on every device and at every length. On a CPU its backward pass takes several
times as long as plain products where numbers are bf16 (benchmarks/results/bf16.md), and asks oneDNN for thousands of
tiny products where that multiplies (``training.products``).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

SHORT = 256
"""Tokens up to which rows of attention are kept for the backward pass: of one head, they fit in a core's cache."""
LONG = 1024
"""Tokens above which the fused backward pass is faster in bf16 as well."""
_ROOM = 2**20
"""Numbers of attention rows that a backward pass over longer sequences makes at a time."""
SWITCH: Any = getattr(torch.backends.mkldnn, "matmul", None)
"""What lets oneDNN multiply in single precision, where torch is new enough to have it."""
_fused: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attention(
    q: Float[Tensor, "B H M d"],
    k: Float[Tensor, "B H N d"],
    v: Float[Tensor, "B H N e"],
    mask: Float[Tensor, "*b M N"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H M e"]:
    """softmax(q k^T scale + mask) v, as ``torch.nn.functional.scaled_dot_product_attention``.

    Args:
        q: Queries of H heads.
        k: Keys.
        v: Values.
        mask: Added to the products of queries and keys.
        scale: Factor of the products; 1 / sqrt(d) by default.
    """
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        mask = None if mask is None else mask.to(dtype)
    tiny = onednn_multiplies() and q.dtype == torch.float32
    low = q.dtype in (torch.bfloat16, torch.float16)
    if not (tiny or low):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, mask))
    fusible = q.shape[-1] == v.shape[-1] and all(t.stride(-1) == 1 and t.numel() for t in (q, k, v))
    if trained and mask is None and fusible and k.shape[2] > SHORT:
        return _Recomputed.apply(q, k, v, factor) if tiny or k.shape[2] <= LONG else _forwards(q, k, v, None, factor)
    if trained or not fusible:
        return plain(q, k, v, mask, factor)
    return _forwards(q, k, v, mask, factor)


def by_heads(x: Float[Tensor, "B L S"], number: int, heads: int) -> tuple[Float[Tensor, "B heads L d"], ...]:
    """Queries, keys and values, or some of them, of a product that gave all at once.

    They are told apart before heads and tokens change places, so that the backward pass gathers their gradients as the
    product wants them: one copy, where the other order makes a second.

    Args:
        x: Number times heads times d numbers of every token.
        number: Of parts.
        heads: Of every part.
    """
    return tuple(part.transpose(1, 2) for part in x.unflatten(2, (number, heads, -1)).unbind(2))


def plain(
    q: Float[Tensor, "B H M d"],
    k: Float[Tensor, "B H N d"],
    v: Float[Tensor, "B H N e"],
    mask: Float[Tensor, "*b M N"] | None,
    scale: float,
) -> Float[Tensor, "B H M e"]:
    """The same as products, whose backward pass needs every row of attention.

    Args:
        q: As for ``attention``.
        k: As for ``attention``.
        v: As for ``attention``.
        mask: As for ``attention``.
        scale: As for ``attention``.
    """
    products = (q * scale) @ k.transpose(-2, -1)
    return (products if mask is None else products + mask).softmax(dim=-1) @ v


def onednn_multiplies() -> bool:
    """Whether oneDNN was given products of single precision."""
    return getattr(SWITCH, "fp32_precision", "") == "bf16"


def _forwards(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The fused kernel, whose own small products are torch's usual library's.

    Called by name, because modules of timm's may have been given another kernel for all (``training.products``).
    """
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
    before = getattr(SWITCH, "fp32_precision", None)
    if before != "bf16":
        return _fused(q, k, v, attn_mask=mask, scale=scale)[0]
    SWITCH.fp32_precision = "none"
    try:
        return _fused(q, k, v, attn_mask=mask, scale=scale)[0]
    finally:
        SWITCH.fp32_precision = before


class _Recomputed(torch.autograd.Function):
    """Fused forwards; backwards as products of a few samples at a time, whose rows of attention are made again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return _forwards(q, k, v, None, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        made = [torch.empty_like(t) for t in (q, k, v)]
        batch, heads, length, _ = q.shape
        some = max(1, _ROOM // (heads * length * k.shape[2]))
        for begin in range(0, batch, some):
            part = slice(begin, begin + some)
            parts = _gradients(q[part], k[part], v[part], gradients[0][part], ctx.scale)
            for whole, found in zip(made, parts, strict=True):
                whole[part] = found
        return *made, None


def _gradients(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    q = q * scale
    rows = (q @ k.transpose(-2, -1)).softmax(dim=-1)
    through = torch.ops.aten._softmax_backward_data(gradient @ v.transpose(-2, -1), rows, -1, rows.dtype)
    return (through @ k) * scale, through.transpose(-2, -1) @ q, rows.transpose(-2, -1) @ gradient
