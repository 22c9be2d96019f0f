"""The library that multiplies: chosen by the kind of processor, exact, and undone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from ssl_vit.training import products


@pytest.fixture(autouse=True)
def fresh():
    remembered = products._onednn_is_better
    remembered.cache_clear()
    yield
    remembered.cache_clear()


def settings() -> tuple[str, bool]:
    return getattr(products._SWITCH, "fp32_precision", ""), torch._C._get_flash_sdp_enabled()


@pytest.mark.skipif(not hasattr(products._SWITCH, "fp32_precision"), reason="this torch has no such switch")
@pytest.mark.parametrize("better", [False, True])
def test_settings_are_undone(better: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_onednn_is_better", lambda: better)
    with products._by_onednn():
        pass
    before = settings()
    with products.products_chosen():
        inside = settings()
    assert inside == (("bf16", False) if better else before)
    assert settings() == before


def test_products_are_those_of_single_precision() -> None:
    if not products._onednn_is_better():
        pytest.skip("this processor keeps torch's own choice")
    torch.manual_seed(0)
    a, b = torch.randn(130, 192), torch.randn(192, 576)
    exact = (a.double() @ b.double()).float()
    q = torch.randn(2, 3, 17, 64)
    with products.products_chosen():
        assert (a @ b - exact).abs().max() < 5e-5  # bfloat16 would be off by some tenths
        found = F.scaled_dot_product_attention(q, q, q)
    assert (found - F.scaled_dot_product_attention(q.double(), q.double(), q.double())).abs().max() < 1e-5


def test_attention_in_bf16_is_plain_products_until_another_precision() -> None:
    torch.manual_seed(0)
    before, q = settings(), torch.randn(2, 3, 17, 64, dtype=torch.bfloat16)
    fused = F.scaled_dot_product_attention(q, q, q)
    try:
        for precision, expected in (("bf16", False), ("bf16", False), ("fp32", before[1])):
            products.choose_attention(precision)
            assert torch._C._get_flash_sdp_enabled() == expected
            torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), fused, rtol=0.02, atol=0.02)
    finally:
        products.choose_attention("fp32")
    assert settings() == before


@pytest.mark.parametrize("missing", ["vendor", "width", "amx", "exact"])
def test_other_processors_keep_torchs_choice(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(products.sys, "platform", "linux")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(products, "_SWITCH", SimpleNamespace(fp32_precision="none"))
    vendor = "vendor_id : GenuineIntel" if missing == "vendor" else "vendor_id : AuthenticAMD"
    monkeypatch.setattr(products.Path, "read_text", lambda self: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2" if missing == "width" else "AVX512")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: missing == "amx")
    monkeypatch.setattr(products, "_is_exact", lambda *shape: missing != "exact")
    assert not products._onednn_is_better()
    assert products.choose_products() == "torch's own choice"
    monkeypatch.undo()


def test_rounded_factors_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products._is_exact(3, 5, 7)
    own = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: own(a.bfloat16(), b.bfloat16()).float())
    assert not products._is_exact(3, 5, 7)
