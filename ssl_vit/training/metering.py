"""What a run achieves of what its device could do: images and FLOPs per second, waiting for data, memory."""

from __future__ import annotations

import contextlib
import copy
import resource
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.base import Objective

_SIDES = {"cpu": 1024, "mps": 2048}
"""Side of the square matrices whose product is the ceiling; 8,192 on larger devices."""
_SECONDS = {"cpu": 0.25}
"""How long it is tried: a GPU needs a second to reach its clock rate under load."""
_ATTENTION: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)
    ),
}
"""What older torch leaves out: attention on a CPU."""


@lru_cache(maxsize=8)
def product_ceiling(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """FLOPs per second of a large matrix product: the fastest of those that fit into some time; measured once.

    A CPU computes with as many threads as are set; their number is here so that each has its own measurement.
    """
    side, seconds = _SIDES.get(device.type, 8192), _SECONDS.get(device.type, 1.0)
    a, b = (torch.full((side, side), 1.0 / side, device=device, dtype=dtype) for _ in range(2))
    out = torch.mm(a, b)
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        _wait(device)
        started = time.perf_counter()
        torch.mm(a, b, out=out)
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * side**3 / best


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def with_every_branch(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a view made, with no residual branch left out, so that a network counts the same whatever was drawn."""
    drawn = {key for key in inputs if key == "drop" or key.startswith("drop_")}
    return inputs | {key: torch.ones_like(inputs[key]) for key in drawn}


class Pass(NamedTuple):
    """What one forward and backward pass takes."""

    flops: int
    """Floating-point operations of matrix products and convolutions. What is left out by design (hidden patches, tokens
    that nobody reads) and what is computed twice for want of memory are not counted."""
    kept: int
    """Bytes that the forward pass keeps for the backward pass."""


def try_pass(objective: Objective, inputs: dict[str, Tensor], context: contextlib.AbstractContextManager[Any]) -> Pass:
    """Runs an objective, not yet compiled, once in a context of arithmetic, and leaves no trace in it.

    Every process of the run has to do so with it.
    """
    shadow = copy.copy(objective)  # attributes that a pass sets are the copy's
    state = {name: buffer.clone() for name, buffer in objective.named_buffers()}
    own = {p.untyped_storage().data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counter = FlopCounterMode(display=False, custom_mapping=_ATTENTION)
    with counter:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), context:
            loss = torch.func.functional_call(shadow, state, (inputs,)).loss
        trained = [p for p in objective.parameters() if p.requires_grad]
        torch.autograd.grad(loss, trained, allow_unused=True)
    return Pass(counter.get_total_flops(), sum(kept.values()))


def forward_flops(backbone: Backbone) -> int:
    """Floating-point operations of reading one image of a network's own size, attention among them.

    Args:
        backbone: On any device, ``meta`` too.
    """
    device = next(backbone.parameters()).device
    image = torch.zeros(1, backbone.channels, backbone.img_size, backbone.img_size, device=device)
    # As plain products attention is counted on every device.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        backbone.forward_pooled(image, pool="mean")
    return counter.get_total_flops()


class Meter:
    """Speed since it was last read."""

    def __init__(self, device: torch.device, flops: float, ceiling: float) -> None:
        """Starts its clock; ``flops`` are per image, ``ceiling`` is this process's device's FLOPs per second."""
        self.device, self.flops, self.ceiling = device, flops, ceiling
        self.started, self.waited, self.watched = time.perf_counter(), 0.0, 0.0

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Around work that is no training (``--fit.watch``): its seconds are told by themselves, and slow nothing."""
        _wait(self.device)
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.started, self.watched = self.started + took, self.watched + took

    def least_seconds(self, images: int) -> float:
        """Time that so many images take at the ceiling."""
        return images * self.flops / self.ceiling

    def read(self, images: int, world: int) -> dict[str, float]:
        """Values for timing.jsonl of the images that all processes trained on since the last reading; starts over."""
        now = time.perf_counter()
        took, waited = max(1e-9, now - self.started), self.waited
        aside = {"watch_seconds": self.watched} if self.watched else {}
        self.started, self.waited, self.watched = now, 0.0, 0.0
        return {
            "images_per_second": images / took,
            "data_wait": waited / took,
            "mfu": images / world / took * self.flops / self.ceiling,
            "peak_memory": peak_memory(self.device),
            **aside,
        }


def peak_memory(device: torch.device) -> int:
    """Bytes: of tensors on a CUDA device since the start, else of the whole process in RAM."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def forget_peak() -> None:
    """Counts the peak from here on, where the system can: a process that has done other work before starts anew."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def out_of_memory(error: RuntimeError) -> bool:
    """Whether a failure is that of an allocation, on a device or in RAM."""
    known = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in known)
