"""Whether a step is compiled: asked for, or where it pays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from ssl_vit.core.errors import UserError
from ssl_vit.training import compiling
from ssl_vit.training.compiling import compiles, forgive
from torch._dynamo.backends.common import aot_autograd

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiling, "find_spec", lambda name: name)  # Triton is there with a GPU
    monkeypatch.setattr(shutil, "which", lambda name: name)
    yield
    forgive(False)


@pytest.mark.parametrize(
    ("seconds", "passes", "expected"),
    [(0.1, 5_999, False), (0.1, 6_001, True), (1e-4, 39_999, False), (1e-4, 40_001, True), (1.0, 0, False)],
)
def test_a_gpu_compiles_what_takes_twenty_minutes_without(seconds: float, passes: int, expected: bool) -> None:
    assert compiles(None, CUDA, seconds, passes) is expected


def test_what_was_asked_for_counts_on_every_device() -> None:
    for device in (CPU, CUDA):
        assert compiles(True, device, 1e-9, 1) is True
        assert compiles(False, device, 1.0, 10**6) is False


def test_a_cpu_does_not_compile_by_itself() -> None:
    assert compiles(None, CPU, 1.0, 10**6) is False


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compiles(None, CUDA, 1.0, 10**6) is False
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        compiles(True, CPU, 1.0, 10**6)


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert compiles(None, CUDA, 1.0, 10**6) is False


@pytest.mark.parametrize("broken", ["forward", "backward"])
def test_what_nobody_asked_for_does_not_end_a_run(broken: str) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        def fails(*_: Any) -> Callable[..., Any]:
            raise RuntimeError("no such kernel")

        def works(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
            return make_boxed_func(graph.forward)

        both = {"fw_compiler": works, "bw_compiler": works} | {f"{broken[0]}w_compiler": fails}
        return aot_autograd(**both)(graph, inputs)

    def gradient(unasked: bool) -> torch.Tensor:
        torch._dynamo.reset()
        forgive(unasked)
        x = torch.arange(3.0, requires_grad=True)
        torch.compile(lambda x: (x.sin() * x).sum(), backend=backend)(x).backward()
        assert x.grad is not None
        return x.grad

    x = torch.arange(3.0)
    torch.testing.assert_close(gradient(True), x.cos() * x + x.sin())
    with pytest.raises(Exception, match="no such kernel"):  # whoever asks is told
        gradient(False)
