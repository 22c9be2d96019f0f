"""How benchmarks time training steps: in turns, part by part, beside the fastest matrix product of the same run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

Mark = Callable[[str], None]
"""Called after each part of a step with its name."""
Step = Callable[[Mark], torch.Tensor]
"""One training step; returns its loss."""
Times = list[dict[str, float]]
"""Per round the seconds of every part."""
CEILING = "matrix product"
_TURN = 0.25  # seconds that a turn takes at least


class Watch:
    """Seconds between marks: of CPU time of the process, on a GPU between events on its stream."""

    def __init__(self, device: torch.device) -> None:
        self.cuda, self.marks = device.type == "cuda", list[tuple[str, Any]]()
        self("")

    def __call__(self, part: str) -> None:
        if not self.cuda:
            self.marks.append((part, time.process_time()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append((part, event))

    def parts(self) -> dict[str, float]:
        """The sum of every part."""
        if self.cuda:
            torch.cuda.synchronize()
        seconds: dict[str, float] = {}
        for (_, before), (part, now) in zip(self.marks, self.marks[1:], strict=False):
            took = before.elapsed_time(now) / 1e3 if self.cuda else now - before
            seconds[part] = seconds.get(part, 0.0) + took
        return seconds


def turn(step: Step, repeats: int, device: torch.device) -> dict[str, float]:
    """Seconds of every part of one step, the mean of some."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    watch = Watch(device)
    for _ in range(repeats):
        step(watch)
    return {part: seconds / repeats for part, seconds in watch.parts().items()}


def in_turns(steps: dict[str, Step], rounds: int, device: torch.device) -> dict[str, Times]:
    """Every step once per round, each long enough to be timed, in an order that is reversed every other round."""
    repeats = {}
    for name, step in steps.items():
        turn(step, 1, device)  # compiles, allocates
        once = min(sum(turn(step, 1, device).values()) for _ in range(2 if rounds > 1 else 1))
        repeats[name] = max(1, min(200, math.ceil(_TURN / once))) if rounds > 1 else 1
    times: dict[str, Times] = {name: [] for name in steps}
    for number in range(rounds):
        for name in sorted(steps, key=list(steps).index, reverse=number % 2 == 1):
            times[name].append(turn(steps[name], repeats[name], device))
    return times


def totals(times: Times) -> list[float]:
    """Seconds of a step, per round."""
    return [sum(parts.values()) for parts in times]


def quartiles(values: Iterable[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    values = list(values)
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def paired(ours: Times, theirs: Times) -> tuple[float, float, float]:
    """Quartiles of theirs / ours, round by round."""
    return quartiles(b / a for a, b in zip(totals(ours), totals(theirs), strict=True))


def shares(times: Times) -> dict[str, float]:
    """Median share of every part in the time of a step."""
    return {part: statistics.median(t[part] / sum(t.values()) for t in times) for part in times[0]}


def products(device: torch.device, tiny: bool) -> tuple[Step, float]:
    """A large matrix product in the arithmetic that training has there, as a step, and its operations.

    Single precision on a CPU and bf16 on a GPU; the fastest of some shapes and, on a CPU, of both libraries that torch
    has (on some processors one is twice as fast as the one that torch prefers), tried here.
    """
    if device.type == "cuda":
        shapes, dtype = [(8192, 8192, 8192), (16384, 4096, 4096), (16384, 1024, 4096)], torch.bfloat16
    else:
        shapes, dtype = [(1024, 768, 3072), (2048, 384, 1536), (1024, 1024, 1024)], torch.float32
    best: tuple[float, Step, float] | None = None
    for rows, inner, columns in [(128, 128, 128)] if tiny else shapes:
        a = torch.randn(rows, inner, device=device, dtype=dtype)
        b = torch.randn(columns, inner, device=device, dtype=dtype)
        operations = 2.0 * rows * inner * columns
        for product in (torch.nn.functional.linear, *([_onednn] if device.type == "cpu" and _ONEDNN else [])):
            step = _product_step(product, a, b)
            turn(step, 3, device)
            rate = operations / min(sum(turn(step, 5, device).values()) for _ in range(3))
            if best is None or rate > best[0]:
                best = (rate, step, operations)
    assert best is not None
    return best[1], best[2]


_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


def _product_step(product: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> Step:
    def step(mark: Mark) -> torch.Tensor:
        out = product(a, b)
        mark(CEILING)
        return out

    return step


def device_name(device: torch.device) -> str:
    """What a result calls the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, one thread"
