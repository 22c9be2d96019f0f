"""How a CPU multiplies matrices: which library, and attention as what."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_SHAPES = ((16, 16, 16), (65, 192, 576), (520, 192, 192), (3, 2048, 256))
"""Rows, inner length and columns of the products that are checked."""
_CHOSEN = ExitStack()
_ATTENTION = ExitStack()
_SWITCH: Any = getattr(torch.backends.mkldnn, "matmul", None)
"""Where torch is new enough to have it."""


def choose_products() -> str:
    """Lets oneDNN multiply where torch's usual library (MKL) runs at half the speed: AMD processors with AVX-512.

    torch offers no switch for that but one that lets oneDNN round factors to bfloat16, which it does on processors with
    AMX alone. So the choice is made by the kind of processor, never by timing, and products are checked first.
    Attention must then be plain products as well: torch's fused kernel would ask oneDNN for thousands of tiny ones.
    What is returned is the library's name, for environment.json.
    """
    if not _onednn_is_better():
        return "torch's own choice"
    if _SWITCH.fp32_precision != "bf16":
        _CHOSEN.enter_context(products_chosen())
    return "oneDNN"


def choose_attention(precision: str) -> None:
    """Makes attention plain products where a CPU computes in bf16, from here on until called with another precision.

    torch's fused kernel goes backwards through bf16 many times slower than through single precision, so that a step of
    a small network took three times as long as without bf16; with plain products it is as fast, and larger ones are 1.2
    to 2 times as fast (benchmarks/results/bf16.md).
    """
    _ATTENTION.close()
    if precision == "bf16":
        _ATTENTION.enter_context(sdpa_kernel(SDPBackend.MATH))


@contextmanager
def products_chosen() -> Iterator[None]:
    """The same for a while."""
    if not _onednn_is_better():
        yield
        return
    with _by_onednn(), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def _by_onednn() -> Iterator[None]:
    before, _SWITCH.fp32_precision = _SWITCH.fp32_precision, "bf16"
    try:
        yield
    finally:
        _SWITCH.fp32_precision = before


@lru_cache(maxsize=1)
def _onednn_is_better() -> bool:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    if not torch.backends.mkldnn.is_available() or not hasattr(_SWITCH, "fp32_precision"):
        return False
    amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()[:200]
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if not (amd and wide) or torch.cpu._is_amx_tile_supported():
        return False
    with _by_onednn():
        return all(_is_exact(*shape) for shape in _SHAPES)


def _is_exact(rows: int, inner: int, columns: int) -> bool:
    """Whether factors keep what bfloat16 (8 bits) has no place for: products of small integers of 12 bits are exact."""
    a, b = torch.zeros(rows, inner), torch.zeros(inner, columns)
    a[:, 0], b[0] = 2049.0, 2051.0
    return bool((a @ b == 2049.0 * 2051.0).all())
