"""The library that multiplies: chosen by the kind of processor or by name, exact, and undone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from ssl_vit.core.errors import UserError
from ssl_vit.core.processor import Processor, processor_in
from ssl_vit.training import launch, products

SWITCH = pytest.mark.skipif(not hasattr(products.SWITCH, "fp32_precision"), reason="this torch has no such switch")
ZEN4 = Processor("AuthenticAMD", 25, 17, frozenset({"avx512f", "avx512_bf16"}))
ZEN3 = Processor("AuthenticAMD", 25, 1, frozenset({"avx2"}))
ZEN5 = Processor("AuthenticAMD", 26, 2, frozenset({"avx512f", "avx512_bf16"}))
ICE_LAKE = Processor("GenuineIntel", 6, 106, frozenset({"avx512f"}))
COOPER_LAKE = Processor("GenuineIntel", 6, 85, frozenset({"avx512f", "avx512_bf16"}))
SAPPHIRE_RAPIDS = Processor("GenuineIntel", 6, 143, frozenset({"avx512f", "avx512_bf16", "amx_bf16"}))


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    products._CHOSEN.close()  # what an earlier test of this process chose
    yield
    products._CHOSEN.close()


def switch() -> str:
    return products.SWITCH.fp32_precision


def on(processor: Processor, monkeypatch: pytest.MonkeyPatch, why_not: str | None = None, amx: bool = False) -> None:
    """As on a processor, whose oneDNN is exact or not for a reason."""
    monkeypatch.setattr(products, "this_processor", lambda: processor)
    monkeypatch.setattr(products, "_no_onednn", lambda: why_not)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)


@SWITCH
@pytest.mark.parametrize(
    ("processor", "library", "precision"),
    [(ZEN4, "oneDNN", "bf16"), (ZEN5, "oneDNN", "bf16"), (ZEN3, "torch's own choice", "fp32"),
     (ICE_LAKE, "torch's own choice", "fp32"), (COOPER_LAKE, "torch's own choice", "fp32"),
     (SAPPHIRE_RAPIDS, "torch's own choice", "bf16"), (Processor(), "torch's own choice", "fp32")],
)  # fmt: skip
def test_the_kind_of_processor_decides(
    processor: Processor, library: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(processor, monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    before = switch()
    assert products.choose_products() == products.chosen_products() == library
    assert (switch() == "bf16") == (library == "oneDNN")
    assert launch.auto_precision() == precision
    assert products.choose_products("mkl") == "torch's own choice" and switch() == before
    assert products.choose_products("onednn") == "oneDNN" and switch() == "bf16"
    products.choose_products("mkl")
    with products.products_chosen():
        assert (switch() == "bf16") == (library == "oneDNN")
    assert switch() == before


def test_matrix_units_are_enough_for_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system does not say what the processor is."""
    on(Processor(), monkeypatch, amx=True)
    assert products.bf16_is_faster()


@SWITCH
def test_where_onednn_would_round_it_is_refused_by_name_and_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    on(ZEN4, monkeypatch, why_not="it would round")
    before = switch()
    assert products.choose_products() == "torch's own choice"
    with pytest.raises(UserError, match=r"^--fit.products onednn: it would round; use auto or mkl$"):
        products.choose_products("onednn")
    with products.products_chosen():
        assert switch() == before


def test_every_kind_says_where_it_was_measured() -> None:
    for one in products.KINDS:
        assert len(one.source) > 40 and one.source.endswith(("precision", "attention", "bf16"))


@SWITCH
def test_products_are_those_of_single_precision_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """On whatever processor this runs: either exact, or refused."""
    try:
        products.choose_products("onednn")
    except UserError as error:
        assert str(error).startswith("--fit.products onednn: ")
    torch.manual_seed(0)
    a, b = torch.randn(130, 192), torch.randn(192, 576)
    assert (a @ b - (a.double() @ b.double()).float()).abs().max() < 5e-5  # bfloat16 would be off by some tenths


@pytest.mark.parametrize("operator", ["matmul", "addmm", "bmm", "baddbmm", "linear", "einsum"])
def test_rounded_factors_of_any_operator_are_noticed(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert products._is_exact(3, 5, 7)
    place = torch.nn.functional if operator == "linear" else torch
    own = getattr(place, operator)

    def rounded(*args):
        return own(*(a.bfloat16().float() if isinstance(a, torch.Tensor) else a for a in args))

    monkeypatch.setattr(place, operator, rounded)
    assert not products._is_exact(3, 5, 7)


def test_rounded_gradients_are_noticed() -> None:
    class Backwards(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ == "mm" and not torch.is_grad_enabled():
                args = tuple(a.bfloat16().float() for a in args)
            return func(*args, **(kwargs or {}))

    with Backwards():
        assert not products._is_exact(3, 5, 7)


def test_attention_of_timms_own_modules_goes_backwards_as_products(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = torch._C._get_flash_sdp_enabled
    for precision, onednn, expected in (("bf16", False, False), ("no", True, False), ("no", False, fused())):
        monkeypatch.setattr(products, "onednn_multiplies", lambda onednn=onednn: onednn)
        with products.training_attention(precision):
            assert fused() == expected
    assert fused()


def test_a_processor_is_read_from_what_linux_tells() -> None:
    told = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
        "stepping\t: 1\nflags\t\t: fpu avx512_bf16\n\nprocessor\t: 1\nvendor_id\t: other\n"
    )
    name = "AMD EPYC, family 25 model 17 stepping 1"
    assert processor_in(told) == Processor("AuthenticAMD", 25, 17, frozenset({"fpu", "avx512_bf16"}), name)
    # ARM's have no name there; hardware() has another for them.
    assert processor_in("processor\t: 0\nBogoMIPS\t: 243.75\n") == processor_in("") == Processor()
