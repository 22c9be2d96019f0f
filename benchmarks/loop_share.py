"""What share of the bare step's speed is left in recipes/mae.py: data, views, logging and loop included?

    python benchmarks/loop_share.py --data FOLDER      # bench_scale.py calls it in a process of its own

The recipe runs in this process. Between two of its steps it is paused, and a copy of its network takes as many steps on
one batch, over and over: so every slice of the recipe stands beside one of the bare step. CPU time of the process, on a
GPU time until it is idle.
"""

from __future__ import annotations

import argparse
import copy
import json
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ssl_vit.configs import ResolvedOptim
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.objectives.mae import MAE

from steps import Inputs, step_of

ROOT = Path(__file__).resolve().parent.parent
_WARM = 2  # steps of the recipe that do not count


class Finished(Exception):
    """Enough was measured."""


class Slices:
    """Seconds per step of the recipe's slices and of those between them."""

    def __init__(self, rounds: int, steps: int, device: torch.device) -> None:
        self.rounds, self.steps, self.device = rounds, steps, device
        self.whole, self.bare = list[float](), list[float]()
        self.started, self.step, self.inputs = 0.0, None, dict[str, torch.Tensor]()
        self.objective: Objective | None = None

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def look(self, objective: Objective, clock: Clock) -> None:
        """Called before every step, of the recipe and of the copy."""
        self.objective = self.objective or objective
        if objective is not self.objective or clock.step < _WARM or (clock.step - _WARM) % self.steps:
            return
        if self.step is None:
            self.step = self._prepare(objective)
        else:
            self.whole.append((self.now() - self.started) / self.steps)
        if len(self.whole) == self.rounds:
            raise Finished
        start = self.now()
        for _ in range(self.steps):
            self.step(lambda part: None)
        self.bare.append((self.now() - start) / self.steps)
        self.started = self.now()

    def _prepare(self, objective: Objective) -> Any:
        """A step of the same network with weights of its own."""
        twin = copy.deepcopy(objective)
        for wrapped in ("forward", "_original_forward"):  # Accelerate's autocast, which would lead to the first network
            vars(twin).pop(wrapped, None)
        twin.zero_grad(set_to_none=True)
        step = step_of(twin, twin, lambda: self.inputs, ResolvedOptim(lr=1e-5, base_lr=1e-3), self.device)
        step(lambda part: None)
        return step


def measured(data: str, rounds: int, steps: int, device: torch.device, words: list[str]) -> dict[str, Any]:
    """Both times of every round."""
    slices, forward, begin = Slices(rounds, steps, device), MAE.forward, MAE.begin_step

    def seen_forward(self: MAE, inputs: Inputs) -> Any:
        if slices.step is None:  # the last before the first slice: a whole batch, not the few images of the tried pass
            slices.inputs = inputs
        return forward(self, inputs)

    def seen_begin(self: MAE, clock: Clock) -> None:
        slices.look(self, clock)

    MAE.forward, MAE.begin_step = seen_forward, seen_begin
    with tempfile.TemporaryDirectory() as place:
        precision = "bf16" if device.type == "cuda" else "fp32"
        sys.argv = [str(ROOT / "recipes/mae.py"), "--data.path", data, "--run.dir", f"{place}/run",
                    "--fit.precision", precision, *words]  # fmt: skip
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except Finished:
            pass
        finally:
            MAE.forward, MAE.begin_step = forward, begin
    return {"whole": slices.whole, "bare": slices.bare[: len(slices.whole)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="images, as --data.path takes them")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2, help="steps of a slice")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path, required=True, help="where both times of every round are written")
    options, words = parser.parse_known_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    times = measured(options.data, options.rounds, options.steps, torch.device(options.device), words)
    options.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
