"""A block run for some of its tokens is the block."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from ssl_vit.models.blocks import run_block
from timm.models.vision_transformer import Block
from torch import nn


@pytest.mark.parametrize("wanted", [slice(0, 1), slice(3, None), slice(0, 7)], ids=["first", "last four", "all"])
@pytest.mark.parametrize(
    "options",
    [{}, {"qkv_bias": True}, {"qk_norm": True}, {"scale_attn_norm": True}, {"init_values": 0.3}],
    ids=lambda o: next(iter(o), "plain"),
)
@pytest.mark.parametrize("dropped", [False, True])
def test_some_tokens_of_a_block(options: dict[str, Any], wanted: slice, dropped: bool) -> None:
    torch.manual_seed(0)
    block = Block(12, 3, norm_layer=partial(nn.LayerNorm, eps=1e-6), **options).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(4, 7, 12, dtype=torch.float64, requires_grad=True)
    drop = torch.tensor([[0.0, 1.25], [1.25, 0.0], [1.25, 1.25], [0.0, 0.0]]) if dropped else None
    whole, some = run_block(block, x, drop)[:, wanted], run_block(block, x, drop, wanted)
    assert some.shape == whole.shape
    assert (some - whole).abs().max() <= 1e-12
    weights = torch.randn_like(whole)
    expected = torch.autograd.grad((whole * weights).sum(), [x, *block.parameters()])
    found = torch.autograd.grad((some * weights).sum(), [x, *block.parameters()])
    for a, b in zip(expected, found, strict=True):
        assert (a - b).abs().max() <= 1e-10


@pytest.mark.parametrize("factors", [[0.0, 1.25, 1.25], [0.0, 0.0, 0.0], [1.25, 1.25, 1.25]])
def test_samples_that_drop_a_branch_are_not_computed(factors: list[float]) -> None:
    torch.manual_seed(0)
    block = Block(12, 3).double()
    seen: list[int] = []
    block.attn.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    x = torch.randn(3, 7, 12, dtype=torch.float64, requires_grad=True)
    drop = torch.tensor(factors, dtype=torch.float64)
    found = run_block(block, x, torch.stack([drop, torch.ones_like(drop)], dim=1))
    scale = drop[:, None, None]
    plain = x + scale * block.attn(block.norm1(x))
    plain = plain + block.mlp(block.norm2(plain))
    assert (found - plain).abs().max() <= 1e-12
    assert seen[0] == (sum(f > 0 for f in factors) or 3)
    inside = list(block.parameters())
    for a, b in zip(
        torch.autograd.grad(found.sum(), [x, *inside]), torch.autograd.grad(plain.sum(), [x, *inside]), strict=True
    ):
        assert (a - b).abs().max() <= 1e-10
