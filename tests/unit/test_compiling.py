"""Whether a step is compiled: asked for, or where it pays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo
from ssl_vit.core.errors import UserError
from ssl_vit.training import compiling
from ssl_vit.training.compiling import compiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NEEDS = pytest.mark.skipif(not any(map(shutil.which, ("gcc", "clang", "cc"))), reason="no C compiler")


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiling, "find_spec", lambda name: name)  # Triton is there with a GPU
    with torch._dynamo.config.patch(suppress_errors=False):
        yield


@NEEDS
@pytest.mark.parametrize(
    ("seconds", "passes", "expected"),
    [(0.1, 3_999, False), (0.1, 4_001, True), (1e-4, 39_999, False), (1e-4, 40_001, True), (1.0, 0, False)],
)
def test_a_gpu_compiles_what_takes_twenty_minutes_without(seconds: float, passes: int, expected: bool) -> None:
    assert compiles(None, CUDA, seconds, passes) is expected
    # A run that nobody wanted compiled must not end where a compiler fails.
    assert torch._dynamo.config.suppress_errors is expected


@NEEDS
def test_what_was_asked_for_counts_on_every_device() -> None:
    for device in (CPU, CUDA):
        assert compiles(True, device, 1e-9, 1) is True
        assert compiles(False, device, 1.0, 10**6) is False
    assert torch._dynamo.config.suppress_errors is False


def test_a_cpu_does_not_compile_by_itself() -> None:
    assert compiles(None, CPU, 1.0, 10**6) is False


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compiles(None, CUDA, 1.0, 10**6) is False
    with pytest.raises(UserError, match="needs a C"):
        compiles(True, CPU, 1.0, 10**6)


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert compiles(None, CUDA, 1.0, 10**6) is False
