"""A block run for some of its tokens is the block; what weights are drawn from."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import ModelConfig, ResolvedModel, networks
from ssl_vit.core.errors import UserError
from ssl_vit.models.blocks import run_block, some_samples
from ssl_vit.models.build import build_backbone, make_backbone, model_facts
from ssl_vit.models.vit import ViTBackbone
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
    block.norm1.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    x = torch.randn(3, 7, 12, dtype=torch.float64, requires_grad=True)
    drop = torch.tensor(factors, dtype=torch.float64)
    found = run_block(block, x, torch.stack([drop, torch.ones_like(drop)], dim=1))
    scale = drop[:, None, None]
    plain = x + scale * block.attn(block.norm1(x))
    plain = plain + block.mlp(block.norm2(plain))
    assert (found - plain).abs().max() <= 1e-12
    assert seen[0] == (sum(f > 0 for f in factors) or 1)
    inside = list(block.parameters())
    for a, b in zip(
        torch.autograd.grad(found.sum(), [x, *inside]), torch.autograd.grad(plain.sum(), [x, *inside]), strict=True
    ):
        assert (a - b).abs().max() <= 1e-10


@given(st.integers(1, 200), st.floats(0, 1), st.integers(0, 2**16))
def test_a_branch_is_computed_for_few_numbers_of_samples(batch: int, rate: float, seed: int) -> None:
    dropped = torch.rand(batch, generator=torch.Generator().manual_seed(seed)) < rate
    factor = torch.where(dropped, 0.0, 1.25)
    found = some_samples(factor)
    assert len(found) == len(set(found.tolist())) and set((~dropped).nonzero()[:, 0].tolist()) <= set(found.tolist())
    step = -(-batch // 16)
    assert len(found) == batch or (len(found) % step == 0 and len(found) - max(1, int((~dropped).sum())) < step)
    assert len({len(some_samples((torch.arange(batch) < n).float())) for n in range(batch + 1)}) <= 16


def test_trunc_normal_weights_have_one_deviation_whatever_their_size() -> None:
    """As DINO's and DeiT's code draws them; what is drawn there and here stands beside each other."""
    for width in (64, 192):
        torch.manual_seed(0)
        cfg = ResolvedModel("vit_tiny_patch16_224", 32, 4, width, 4, 4, "learnable", "cls", init="trunc_normal")
        backbone = build_backbone(cfg, 3)
        assert isinstance(backbone, ViTBackbone)
        matrices = [m.weight for m in backbone.modules() if isinstance(m, nn.Linear)]
        drawn = torch.cat([w.detach().flatten() for w in matrices])
        assert abs(drawn.std() / 0.02 - 1) < 0.01
        assert abs(drawn.mean()) < 1e-4
        assert abs((drawn.abs() > 1.96 * 0.02).float().mean() - 0.05) < 0.003  # a normal distribution
        assert all(m.bias.abs().max() == 0 for m in backbone.modules() if isinstance(m, nn.Linear))
        patches = backbone.vit.patch_embed.proj
        bound = (3 * 4 * 4) ** -0.5  # uniform, as torch makes a convolution
        assert 0.9 * bound < patches.weight.abs().max() <= bound * (1 + 1e-6)
        assert 0 < patches.bias.abs().max() <= bound * (1 + 1e-6)
        assert abs(backbone.vit.cls_token.std() / 0.02 - 1) < 0.3
        assert all(torch.equal(m.weight, torch.ones(width)) for m in backbone.modules() if isinstance(m, nn.LayerNorm))


def test_weights_are_drawn_by_size_where_nothing_else_is_asked_for() -> None:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 64, "depth": 1, "num_heads": 4}
    network = make_backbone("vit_tiny_patch16_224", sizes)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            bound = (6 / sum(module.weight.shape)) ** 0.5
            assert 0.98 * bound < module.weight.abs().max() <= bound * (1 + 1e-6)


def test_only_plain_vits_choose_what_they_are_drawn_from() -> None:
    for init, raises in (("xavier", True), ("trunc_normal", True), (None, False)):
        model = ModelConfig("swin_micro", init=init)  # pyright: ignore[reportArgumentType]
        shape = model_facts(*networks.wanted(model))
        with pytest.raises(UserError, match=r"--model\.init \w+ is for plain ViTs") if raises else nullcontext():
            assert networks.resolve_model(model, 32, shape).init is None
    plain = networks.resolve_model(ModelConfig(), 32, model_facts(*networks.wanted(ModelConfig(), 32)))
    assert plain.init == "xavier"
