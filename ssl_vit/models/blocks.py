"""timm's transformer block: made, initialised, run with given stochastic depth, or for some tokens only."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from ssl_vit.models.attention import attention, by_heads

_NUMBERS = 16
"""How many numbers of samples a residual branch is computed for, at most."""


def make_blocks(width: int, depth: int, heads: int) -> nn.ModuleList:
    """Plain pre-norm blocks with query/key/value biases and MLP ratio 4, as in MAE's decoder."""
    norm = partial(nn.LayerNorm, eps=1e-6)
    return nn.ModuleList(Block(width, heads, qkv_bias=True, norm_layer=norm) for _ in range(depth))  # pyright: ignore[reportArgumentType]


def run_block(
    block: nn.Module, x: Float[Tensor, "B L D"], drop: Float[Tensor, "B 2"] | None = None, wanted: slice | None = None
) -> Float[Tensor, "B M D"]:
    """Timm's ``Block``, its two residual branches scaled per sample (stochastic depth, drawn by the view).

    Args:
        block: timm's ``Block``.
        x: Tokens, all of which are attended to.
        drop: Per sample 0 or 1/(keep probability) for attention and MLP; None for none.
        wanted: Which M tokens are needed of the output; None for all.
    """
    run = getattr(block, "run_as_forward", None)  # where weights are only there during a forward pass
    return run_parts(cast(Block, block), x, drop, wanted) if run is None else run(x, drop, wanted)


def as_stream(x: Float[Tensor, "*B L D"], *, training: bool) -> Float[Tensor, "*B L D"]:
    """Tokens as they enter the first block: in bf16 where autocast multiplies in it and weights are trained.

    Norms, sums and their backward passes do little but read and write them, half as many bytes then. What is added has
    8 bits under autocast anyway; sums are rounded to as many now. Frozen features keep what they were, and so does
    fp16, whose largest number a sum may pass.

    Args:
        x: Behind the patch and position embeddings.
        training: Whether the network is in training mode.
    """
    device = x.device.type
    if device == "meta":  # shapes alone, of which autocast knows nothing
        return x
    if training and torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16:
        return x.to(torch.bfloat16)
    return x


def normalise(norm: nn.Module, x: Float[Tensor, "*B L D"]) -> Float[Tensor, "*B L D"]:
    """A block's norm, of a stream of bf16 in one pass, inside which numbers are single: autocast would widen it first.

    Args:
        norm: Of timm's ``Block``.
        x: Tokens.
    """
    if x.dtype != torch.bfloat16 or not isinstance(norm, nn.LayerNorm):
        return norm(x)
    weight, bias = norm.weight, norm.bias
    if x.device.type != "cpu":  # whose kernel takes weights of single precision as they are
        weight, bias = (None if each is None else each.to(x.dtype) for each in (weight, bias))
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


def is_block(module: nn.Module) -> bool:
    """Whether a module is a transformer block as ``run_block`` runs it."""
    return isinstance(module, Block)


def run_parts(
    block: Block, x: Float[Tensor, "B L D"], drop: Float[Tensor, "B 2"] | None, wanted: slice | None
) -> Float[Tensor, "B M D"]:
    """What ``run_block`` does with the parts of a block, instead of its own forward pass."""
    first, second = (None, None) if drop is None else drop.unbind(dim=1)
    needed = wanted or slice(None)
    x = _add(x, first, lambda part: block.ls1(attend(block.attn, normalise(block.norm1, part), needed)), needed)
    return _add(x, second, lambda part: block.ls2(block.mlp(normalise(block.norm2, part))))


def some_samples(factor: Float[Tensor, " B"]) -> Int[Tensor, " S"]:
    """Samples of a residual branch to compute: those that are kept, and others up to a multiple of a sixteenth of B.

    At least one, because parameters must get a gradient, be it zero. oneDNN makes a program for every number of samples
    and operation and keeps a thousand of them; with all numbers that occur there would be more.

    Args:
        factor: 0 of those that are dropped.
    """
    step = math.ceil(len(factor) / _NUMBERS)
    number = min(len(factor), math.ceil(max(1, int(factor.count_nonzero())) / step) * step)
    return (factor != 0).byte().argsort(descending=True, stable=True)[:number]


def _add(
    x: Float[Tensor, "B L D"], factor: Float[Tensor, " B"] | None, branch: Callable[[Tensor], Tensor],
    wanted: slice = slice(None),
) -> Float[Tensor, "B M D"]:  # fmt: skip
    """Wanted tokens plus a residual branch of all of them, each sample's times its factor.

    A CPU computes little of what it would multiply by zero; a device would have to be waited for to know what that is.
    """
    if factor is None:
        return x[:, wanted] + same_bits(x, branch(x))
    scale = factor.to(x.dtype)[:, None, None]
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        computed = some_samples(factor)
        if len(computed) < len(factor):
            part = scale[computed] * branch(x.index_select(0, computed))  # x[computed] goes backwards far slower
            return x[:, wanted].index_add(0, computed, part.to(x.dtype))
    return x[:, wanted] + scale * same_bits(x, branch(x))


def same_bits(x: Float[Tensor, "*B L D"], part: Float[Tensor, "*B M D"]) -> Float[Tensor, "*B M D"]:
    """What is added to a stream of bf16, in bf16; a layer scale widens it."""
    return part.to(x.dtype) if x.dtype == torch.bfloat16 else part


def attend(attn: Any, h: Float[Tensor, "B L D"], wanted: slice = slice(None)) -> Float[Tensor, "B M D"]:
    """Timm's ``Attention`` from some tokens to all.

    Args:
        attn: Of a block.
        h: Normalised tokens.
        wanted: Which M tokens are needed of the output.
    """
    width = h.shape[2]
    weight, bias = attn.qkv.weight, attn.qkv.bias
    if wanted == slice(None):
        if type(attn) is not Attention or getattr(attn, "gate", None) is not None or attn.attn_drop.p:
            return attn(h)
        q, k, v = by_heads(attn.qkv(h), 3, attn.num_heads)
    else:
        q = F.linear(h[:, wanted], weight[:width], None if bias is None else bias[:width])
        q = q.unflatten(2, (attn.num_heads, -1)).transpose(1, 2)
        key_value = F.linear(h, weight[width:], None if bias is None else bias[width:])
        k, v = by_heads(key_value, 2, attn.num_heads)
    mixed = attention(attn.q_norm(q), attn.k_norm(k), v).transpose(1, 2).flatten(2)
    return attn.proj_drop(attn.proj(attn.norm(mixed)))


def attention_rows(
    block: nn.Module, x: Float[Tensor, "B L D"], wanted: slice = slice(None)
) -> Float[Tensor, "B heads M L"]:
    """Softmax rows of the M wanted tokens and every head of a block, which timm's fused attention does not return."""
    block = cast(Block, block)
    attn: Any = block.attn
    q, k, _ = by_heads(attn.qkv(block.norm1(x)), 3, attn.num_heads)
    q, k = attn.q_norm(q[:, :, wanted]) * attn.scale, attn.k_norm(k)
    return (q @ k.transpose(-2, -1)).softmax(dim=-1)


def init_weights(module: nn.Module, kind: Literal["xavier", "trunc_normal"] = "xavier") -> None:
    """Xavier-uniform weights, zero biases, class, register and mask tokens of deviation .02 (MAE, appendix A.1).

    One initialisation for every network of the project, from torch's global generator, so that a comparison differs in
    its training alone. Small widths need it too: timm's deviation of .02 is made for hundreds of dimensions. Position
    embeddings stay as they are.

    Args:
        module: Initialised in place.
        kind: ``trunc_normal``: linear maps of deviation .02 whatever their size, and the patch projection as torch
            makes a convolution (DINO's and DeiT's code).
    """
    if kind == "trunc_normal":
        _init_normal(module)
        return
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):  # a patch projection is the linear map it is
            nn.init.xavier_uniform_(part.weight.flatten(1))
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        else:
            continue
        if part.bias is not None:
            nn.init.zeros_(part.bias)
    for name, parameter in module.named_parameters():
        if name.endswith(_TOKENS):
            nn.init.normal_(parameter, std=0.02)


_TOKENS = ("cls_token", "reg_token", "mask_token")


def _init_normal(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Conv2d | nn.LayerNorm):
            part.reset_parameters()
    for name, parameter in module.named_parameters():
        if name.endswith(_TOKENS):
            nn.init.trunc_normal_(parameter, std=0.02)
