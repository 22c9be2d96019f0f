"""The residual stream of training under bf16 autocast: 16 bits from the first block to the last, and nowhere else."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.randomness import make_key
from ssl_vit.models import blocks, vit
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.models.packing import pack, run_packed, unpack
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.views.training import drop_path_factors
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MODEL = ResolvedModel("vit_tiny_patch16_224", 16, 4, 32, 3, 2, "learnable", "cls")


def network(seed: int = 0) -> ViTBackbone:
    torch.manual_seed(seed)
    return cast(ViTBackbone, build_backbone(MODEL, 3)).train()


def images(count: int = 6) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def autocast(dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.autocast("cpu", dtype)


def entering(net: ViTBackbone, run: Any) -> list[torch.dtype]:
    """Of the norm that each block begins with."""
    seen: list[torch.dtype] = []
    before = blocks.normalise

    def watched(norm: Any, x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return before(norm, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "normalise", watched)
        run(net)
    return seen


def tokens(net: ViTBackbone) -> Tensor:
    return net.forward_tokens(images()).patches


def pooled(net: ViTBackbone) -> Tensor:
    return net.forward_pooled(images(), pool="cls+mean")


@pytest.mark.parametrize("run", [tokens, pooled])
def test_blocks_read_16_bits_where_weights_are_trained(run: Any) -> None:
    net = network()
    with autocast():
        assert entering(net, run) == [torch.bfloat16] * 6
        assert run(net).dtype == torch.float32
        assert entering(net.eval(), run) == [torch.float32] * 6, "frozen features keep what they were"
    assert entering(net.train(), run) == [torch.float32] * 6, "no autocast, no 16 bits"


def test_fp16_keeps_a_stream_of_single_precision() -> None:
    x = torch.ones(2, 3, 4)
    with autocast(torch.float16):
        assert blocks.as_stream(x, training=True) is x


def test_shapes_alone_have_no_autocast() -> None:
    net = network().to("meta")
    assert net.forward_pooled(torch.empty(2, 3, 16, 16, device="meta"), pool="mean").shape == (2, 32)


@torch.no_grad()
def test_numbers_stay_within_the_rounding_of_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    exact = tokens(net)
    with autocast():
        narrow = tokens(net)
        monkeypatch.setattr(vit, "as_stream", lambda x, *, training: x)
        wide = tokens(net)

    def error(x: Tensor) -> float:
        return float((x - exact).norm() / exact.norm())

    assert 0 < error(wide) < 0.01
    assert error(narrow) < 3 * error(wide)


def test_gradients_of_all_weights_come_in_their_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    net, drop = network(), drop_path_factors_of(6)

    def gradients() -> dict[str, Tensor]:
        net.zero_grad()
        net.forward_pooled(images(), pool="mean", drop=drop).square().sum().backward()
        return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}

    exact = gradients()
    with autocast():
        narrow = gradients()
    assert narrow.keys() == exact.keys()
    for name, gradient in narrow.items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() <= 0.05 * exact[name].norm() + 1e-6, name


def drop_path_factors_of(count: int) -> Tensor:
    rates = linear_rates(3, 0.3)
    assert rates is not None
    return drop_path_factors(make_key(0, "drop", torch.arange(count)), rates)


def test_a_layer_scale_does_not_widen_the_stream() -> None:
    net = make_backbone("vit_tiny_patch16_224", {"init_values": 0.1, "depth": 3, "img_size": 16, "patch_size": 4})
    with autocast():
        assert entering(cast(ViTBackbone, net.train()), tokens) == [torch.bfloat16] * 6


def test_a_packed_pass_reads_the_same_16_bits() -> None:
    block: Any = network().vit.blocks[0]
    parts = [torch.randn(2, 5, 32).bfloat16(), torch.randn(3, 2, 32).bfloat16()]
    sizes = [(2, 5), (3, 2)]
    with autocast():
        together = unpack(run_packed(block, pack(parts), sizes, None), sizes)
        alone = [blocks.run_block(block, part) for part in parts]
    for a, b in zip(together, alone, strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a.float(), b.float(), rtol=0.02, atol=0.02)


class _Moved(TorchDispatchMode):
    """Counts the bytes that operations other than products read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if name in _PASSES:
            there = [t for t in (*tree_leaves(args), *tree_leaves(out)) if isinstance(t, Tensor)]
            self.bytes += sum(t.numel() * t.element_size() for t in there)
        return out


_PASSES = {"add", "mul", "native_layer_norm", "native_layer_norm_backward", "_to_copy", "clone"}


def test_it_moves_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()

    def moved() -> int:
        with _Moved() as count, autocast():
            tokens(net).sum().backward()
        return count.bytes

    narrow = moved()
    monkeypatch.setattr(vit, "as_stream", lambda x, *, training: x)
    assert narrow < 0.7 * moved()
