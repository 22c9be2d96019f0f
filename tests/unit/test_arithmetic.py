"""Which device computes, and that pixels are multiplied exactly whatever networks are multiplied with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ssl_vit.core import arithmetic
from ssl_vit.core.errors import UserError
from ssl_vit.training import launch
from ssl_vit.views import augment, colour, randaugment
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("cuda")


@pytest.fixture
def tf32() -> Iterator[None]:
    """As on an NVIDIA GPU that computes in bf16."""
    arithmetic.choose_tf32(True)
    yield
    arithmetic.choose_tf32(False)


class Products(TorchDispatchMode):
    """Writes down how exactly each product is made."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(func) for name in ("mm.", "convolution")):
            self.found.append(torch.get_float32_matmul_precision())
        return func(*args, **(kwargs or {}))


def crop(images: Tensor, each: Tensor) -> Tensor:
    return augment.crop_resize(images, torch.stack([each, each, each + 9, each + 9], 1), 16)


def moved(images: Tensor, each: Tensor) -> Tensor:
    return randaugment._warp(images, randaugment._affine("rotate", each, 24, 24), each[:3])


VIEWS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "crop": (crop, 2),
    "resized": (lambda images, each: augment.resized(images, 8), 2),
    "blur": (colour.blur, 2),
    "blur by products": (lambda images, each: colour.blur_by_products(images, each, 3), 3),
    "sharpness": (lambda images, each: randaugment._sharpness(images, each[:, None, None, None]), 1),
    "moved": (moved, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_pixels_are_multiplied_exactly_beside_tf32(name: str, tf32: None) -> None:
    view, products = VIEWS[name]
    with FakeTensorMode(), Products() as counted:
        view(torch.empty(4, 3, 24, 24, device=GPU), torch.empty(4, device=GPU))
        assert torch.get_float32_matmul_precision() == "high"
        torch.empty(4, 4, device=GPU) @ torch.empty(4, 4, device=GPU)
    assert counted.found == ["highest"] * products + ["high"]


def test_what_was_chosen_is_back_after_an_error(tf32: None) -> None:
    with pytest.raises(ValueError, match="mine"), arithmetic.exact_products(GPU):
        assert torch.get_float32_matmul_precision() == "highest"
        raise ValueError("mine")
    assert torch.get_float32_matmul_precision() == "high"


def test_nothing_is_set_where_nothing_is_rounded() -> None:
    before = torch.get_float32_matmul_precision()
    for device in (GPU, torch.device("cpu")):
        with arithmetic.exact_products(device):
            assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("there", ["cuda", "mps"])
def test_a_cpu_that_was_asked_for_is_not_taken_for_the_gpu_beside_it(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: there == "cuda")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: there == "mps")
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(arithmetic, "_rounded", [True])
    monkeypatch.setattr(launch, "bf16_is_faster", lambda: False)
    assert arithmetic.computes_on() == there
    assert launch.auto_precision() == ("bf16" if there == "cuda" else "fp32")
    assert arithmetic.rounds_to_tf32() == (there == "cuda")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert arithmetic.computes_on() == "cpu" and launch.auto_precision() == "fp32" and not arithmetic.rounds_to_tf32()
    for precision in ("fp16", "tf32"):
        with pytest.raises(UserError, match=f"--fit.precision {precision}"):
            launch.join(precision)
    monkeypatch.setattr(launch, "bf16_is_faster", lambda: True)
    assert launch.auto_precision() == "bf16"
