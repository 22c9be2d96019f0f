"""Attention: the same numbers whichever way it is computed, forwards and backwards, on every kind of input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.models import attention as module
from ssl_vit.models.attention import LONG, SHORT, attention, plain
from ssl_vit.models.families.cct import Block
from ssl_vit.training.products import training_attention
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode


class Counted(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        if isinstance(found, Tensor):
            self.largest = max(self.largest, found.numel())
        return found


def made(*shape: int, dtype: torch.dtype = torch.float64, trained: bool = True, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_(trained) for _ in range(3)]


def expected(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where oneDNN multiplies, without its rounding on processors with matrix units."""
    monkeypatch.setattr(module, "onednn_multiplies", lambda: True)
    return


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_products_and_gradients_are_those_of_the_formula(batch: int, heads: int, m: int, n: int, seed: int) -> None:
    q, k, v = made(batch, heads, m, 4, seed=seed)[0], *made(batch, heads, n, 4, seed=seed + 1)[1:]
    for way in (
        lambda: plain(q, k, v, None, 0.5),
        lambda: module._Recomputed.apply(q, k, v, 0.5),
        lambda: attention(q, k, v, scale=0.5),
    ):
        found = way()
        whole = torch.einsum("bhmd,bhnd->bhmn", q, k).mul(0.5).softmax(-1) @ v
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
        probe = torch.randn(whole.shape, dtype=whole.dtype, generator=torch.Generator().manual_seed(seed))
        ours = torch.autograd.grad(found, (q, k, v), probe)
        theirs = torch.autograd.grad(whole, (q, k, v), probe)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gradients_of_some_samples_at_a_time_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = made(5, 2, 6, 4)
    whole = torch.autograd.grad(module._Recomputed.apply(q, k, v, 0.5).square().sum(), (q, k, v))
    monkeypatch.setattr(module, "_ROOM", 2 * 2 * 6 * 6)  # two samples
    parts = torch.autograd.grad(module._Recomputed.apply(q, k, v, 0.5).square().sum(), (q, k, v))
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *x: module._Recomputed.apply(*x, 0.5), (q, k, v))


@pytest.mark.parametrize("tokens", [17, SHORT + 1, LONG + 1])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_is_that_of_double_precision_within_its_rounding(tokens: int, trained: bool, autocast: bool) -> None:
    dtype = torch.float32 if autocast else torch.bfloat16
    given = made(2, 2, tokens, 16, dtype=dtype, trained=trained)
    exact = [t.detach().bfloat16().double().requires_grad_(trained) for t in given]
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        found = attention(*given)
    assert found.dtype == torch.bfloat16
    wanted = expected(*exact)
    assert (found.double() - wanted).abs().max() < 0.02
    if trained:
        ours = torch.autograd.grad(found.float().square().sum(), given)
        theirs = torch.autograd.grad(wanted.square().sum(), exact)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.double() - other).abs().max() < 0.03 * other.abs().max()


@pytest.mark.parametrize("shape", [(1, 2, 5, 7), (3, 2, 5, 7), (2, 5, 7), (5, 7)])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_of_every_shape(shape: tuple[int, ...], trained: bool, dtype: torch.dtype, onednn: None) -> None:
    q, (k, v) = made(3, 2, 5, 4, dtype=dtype, trained=trained)[0], made(3, 2, 7, 4, dtype=dtype, trained=trained)[:2]
    mask = torch.randn(shape, dtype=dtype).requires_grad_(trained)
    with torch.no_grad():
        mask[..., 0] = -torch.inf  # a place that nobody looks at
    found = attention(q, k, v, mask)
    wanted = expected(*(t.detach().double() for t in (q, k, v, mask)))
    assert (found.double() - wanted).abs().max() < (0.03 if dtype == torch.bfloat16 else 1e-5)
    if trained:
        (gradient,) = torch.autograd.grad(found.float().sum(), mask)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("lean", [(3, 2, 5, 4), (3, 2, 5, 6)])
def test_values_of_another_width_and_no_tokens(lean: tuple[int, ...], onednn: None) -> None:
    q, k = made(3, 2, 5, 4, dtype=torch.float32, trained=False)[:2]
    v = torch.randn(lean)
    torch.testing.assert_close(attention(q, k, v), plain(q, k, v, None, 0.5), rtol=1e-5, atol=1e-6)
    assert attention(q[:0], k[:0], v[:0]).shape == (0, 2, 5, lean[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_sequences_keep_no_rows_of_attention(dtype: torch.dtype, onednn: None) -> None:
    """Neither features nor a backward pass make anything as large as tokens x tokens of all samples."""
    tokens, batch, heads = SHORT + 44, 16, 4
    whole = batch * heads * tokens * tokens
    given = made(batch, heads, tokens, 8, dtype=dtype)
    with Counted() as features, torch.inference_mode():
        attention(*(t.detach() for t in given))
    kept: list[Tensor] = []
    with Counted() as training, torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        found = attention(*given)
        found.float().sum().backward()
    assert "_scaled_dot_product_flash_attention_for_cpu" in features.names and "_softmax" not in features.names
    assert features.largest < whole / 8 and training.largest < whole / 4
    assert max(t.numel() for t in kept) < whole / 8


@pytest.mark.parametrize("precision", ["bf16", "no"])
def test_a_compact_transformer_keeps_no_rows_of_long_sequences(precision: str, onednn: None) -> None:
    tokens, batch, heads = SHORT + 44, 16, 4
    block, kept = Block(32, heads, 2.0, 0.0), list[Tensor]()
    with (
        training_attention(precision), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t), Counted() as counted,
    ):  # fmt: skip
        block(torch.randn(batch, tokens, 32)).float().sum().backward()
    whole = batch * heads * tokens * tokens
    assert max(t.numel() for t in kept) < whole / 8 and counted.largest < whole / 4


@pytest.mark.parametrize("tokens", [SHORT, SHORT + 1])
def test_single_precision_by_torchs_library_is_torchs_own_attention(tokens: int) -> None:
    with Counted() as ours:
        attention(*made(1, 1, tokens, 4, dtype=torch.float32)).sum().backward()
    with Counted() as theirs:
        F.scaled_dot_product_attention(*made(1, 1, tokens, 4, dtype=torch.float32)).sum().backward()
    assert ours.names == theirs.names


@pytest.mark.skipif(module.SWITCH is None, reason="this torch has no such switch")
def test_the_fused_kernel_multiplies_by_torchs_library_and_leaves_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def fused(*args: Tensor, **kwargs: object) -> tuple[Tensor]:
        seen.append(module.SWITCH.fp32_precision)
        return (args[0],)

    monkeypatch.setattr(module, "_fused", fused)
    before = module.SWITCH.fp32_precision
    try:
        module.SWITCH.fp32_precision = "bf16"
        attention(*made(1, 1, 3, 4, dtype=torch.float32, trained=False))
        assert seen == ["none"] and module.SWITCH.fp32_precision == "bf16"
    finally:
        module.SWITCH.fp32_precision = before


def test_a_block_is_timms_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ssl_vit.models.blocks import make_blocks, run_block

    torch.manual_seed(0)
    (block,) = make_blocks(16, 1, 2).double()
    block.attn.q_norm = nn.LayerNorm(8, dtype=torch.float64)
    x = torch.randn(3, 7, 16, dtype=torch.float64)
    torch.testing.assert_close(run_block(block, x), block(x), rtol=1e-12, atol=1e-12)
    calls: list[int] = []
    monkeypatch.setattr(
        "ssl_vit.models.blocks.attention", lambda q, k, v: calls.append(1) or plain(q, k, v, None, 8**-0.5)
    )
    torch.testing.assert_close(run_block(block, x), block(x), rtol=1e-12, atol=1e-12)
    assert calls
