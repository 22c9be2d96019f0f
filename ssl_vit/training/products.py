"""How a CPU multiplies matrices: which library, in which arithmetic, and what that asks of attention.

What is best depends on the kind of processor, and is chosen by it, never by timing: two runs of one command must not
differ because another program was busy. ``KINDS`` says what was measured, and where; other processors keep what torch
chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ssl_vit.core.errors import UserError
from ssl_vit.core.processor import this_processor
from ssl_vit.models.attention import SWITCH, onednn_multiplies

Products = Literal["auto", "mkl", "onednn"]
NAMES = {"mkl": "torch's own choice", "onednn": "oneDNN"}
"""What environment.json calls them. On processors of Intel and AMD torch's own choice is MKL."""


@dataclass(frozen=True)
class Kind:
    """Processors that were measured."""

    vendor: str
    family: int
    needs: str
    """An extension that tells them from others of their family."""
    products: Literal["mkl", "onednn"]
    bf16: bool
    """Whether training is faster in bf16."""
    source: str


KINDS = (
    Kind("AuthenticAMD", 25, "avx512_bf16", "onednn", True,
         "Zen 4. benchmarks/results/products.md and bf16.md, on family 25 model 17: oneDNN is level with MKL in "
         "training (0.99 to 1.02; 0.92 at 17 tokens) and up to 1.15 times as fast in inference (0.95 at 17); bf16 "
         "trains ViTs of 65 tokens or more 1.6 to 2.0 times as fast as oneDNN's single precision"),
    Kind("AuthenticAMD", 26, "avx512_bf16", "onednn", True,
         "Zen 5. benchmarks/results/bf16.md and step.md, on family 26 model 2: MKL at about half the speed of oneDNN, "
         "bf16 trains 1.4 to 2.1 times as fast as oneDNN's single precision"),
    Kind("GenuineIntel", 6, "amx_bf16", "mkl", True,
         "Sapphire Rapids and later. benchmarks/results/bf16.md, on family 6 model 207; oneDNN would round factors of "
         "single precision to bf16"),
    Kind("GenuineIntel", 6, "avx512_bf16", "mkl", False,
         "Cooper Lake. benchmarks/results/bf16.md, on family 6 model 207 with its matrix units left out: bf16 "
         "is slower than single precision"),
)  # fmt: skip
"""The first that fits counts."""

_SHAPES = ((16, 16, 16), (65, 192, 576), (520, 192, 192), (3, 2048, 256))
"""Rows, inner length and columns of the products that are checked."""
_CHOSEN = ExitStack()


def kind() -> Kind | None:
    """What was measured of this processor's kind; None where nothing was."""
    own = this_processor()
    for one in KINDS:
        if (one.vendor, one.family) == (own.vendor, own.family) and one.needs in own.abilities:
            return one
    return None


def choose_products(asked: Products = "auto") -> str:
    """Lets a library multiply matrices of single precision in this process, from here on until called again.

    torch offers no switch for oneDNN but one that lets it round factors to bfloat16, which it does on processors with
    AMX. So it is chosen only where products are exact, of every operator that the switch concerns, forwards and
    backwards.

    Args:
        asked: ``auto`` is what ``KINDS`` says of the processor.

    Returns:
        The library's name, for environment.json.

    Raises:
        UserError: Where oneDNN was asked for and would round, or cannot be chosen.
    """
    _CHOSEN.close()
    best = kind()
    wanted = asked if asked != "auto" else "mkl" if best is None else best.products
    if wanted == "onednn":
        why_not = _no_onednn()
        if why_not is None:
            _CHOSEN.enter_context(_by_onednn())
        elif asked == "onednn":
            raise UserError(f"--fit.products onednn: {why_not}; use auto or mkl")
        else:
            wanted = "mkl"
    return NAMES[wanted]


def chosen_products() -> str:
    """The name of the library that multiplies now."""
    return NAMES["onednn" if onednn_multiplies() else "mkl"]


@contextmanager
def products_chosen() -> Iterator[None]:
    """What ``choose_products`` chooses by itself, for a while."""
    best = kind()
    with _by_onednn() if best is not None and best.products == "onednn" and _no_onednn() is None else nullcontext():
        yield


@contextmanager
def as_they_were() -> Iterator[None]:
    """Whatever is chosen inside, on a CPU or a GPU, the process multiplies as before when it is left."""
    kinds: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul] if torch.cuda.is_available() else []
    before = [kind.allow_tf32 for kind in kinds]
    try:
        yield
    finally:
        _CHOSEN.close()
        for kind, rounded in zip(kinds, before, strict=True):
            kind.allow_tf32 = rounded


def bf16_is_faster() -> bool:
    """Whether processors of this kind train faster in bf16."""
    if torch.cpu._is_amx_tile_supported():
        return True
    best = kind()
    return best is not None and best.bf16


def training_attention(precision: str) -> AbstractContextManager[object]:
    """Around forward and backward passes on a CPU: attention of timm's own modules as plain products.

    The networks' own attention (``models.attention``) needs none of it. The others call torch's fused kernel, which
    goes backwards through bf16 several times slower than through single precision (benchmarks/results/bf16.md), and
    asks oneDNN for thousands of tiny products.

    Args:
        precision: Of autocast: ``bf16``, ``fp16`` or ``no``.
    """
    return sdpa_kernel(SDPBackend.MATH) if precision == "bf16" or onednn_multiplies() else nullcontext()


@contextmanager
def _by_onednn() -> Iterator[None]:
    before, SWITCH.fp32_precision = SWITCH.fp32_precision, "bf16"
    try:
        yield
    finally:
        SWITCH.fp32_precision = before


@lru_cache(maxsize=1)
def _no_onednn() -> str | None:
    """Why oneDNN cannot multiply here; None where it can."""
    if not torch.backends.mkldnn.is_available() or not hasattr(SWITCH, "fp32_precision"):
        return f"torch {torch.__version__} cannot be told to use it here"
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "torch asks it for products of single precision on processors with AVX-512 alone"
    with _by_onednn():
        exact = all(_is_exact(*shape) for shape in _SHAPES)
    return None if exact else "it would round factors of single precision to bfloat16 on this processor"


def _is_exact(rows: int, inner: int, columns: int) -> bool:
    """Whether factors keep what bfloat16 (8 bits) has no place for: products of small integers of 12 bits are exact.

    By every operator that multiplies matrices, with factors as they lie in memory and turned, and in gradients.
    """
    a, b = torch.zeros(rows, inner), torch.zeros(inner, columns)
    a[:, 0], b[0] = 2049.0, 2051.0
    wide, turned = a.T.contiguous().T, b.T.contiguous()
    zeros = torch.zeros(columns)
    pair = torch.stack([a, a]), torch.stack([b, b])
    made: list[Tensor] = [
        a @ b, wide @ b, a @ turned.T, wide @ turned.T, torch.addmm(zeros, a, b), F.linear(a, turned, zeros),
        torch.bmm(*pair), torch.baddbmm(zeros.expand(2, rows, columns), *pair), torch.matmul(pair[0], b),
        torch.einsum("ri,ic->rc", a, b),
    ]  # fmt: skip
    if not all(bool((found == 2049.0 * 2051.0).all()) for found in made):
        return False
    if not bool((a @ b[:, 0] == 2049.0 * 2051.0).all()):
        return False
    one, other = a.clone().requires_grad_(), turned.clone().requires_grad_()
    upper = torch.zeros(rows, columns)
    upper[0, 0] = 2051.0
    (F.linear(one, other) * upper).sum().backward()
    assert one.grad is not None and other.grad is not None
    return bool(one.grad[0, 0] == 2051.0 * 2051.0) and bool(other.grad[0, 0] == 2051.0 * 2049.0)
