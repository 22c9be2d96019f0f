"""How a run shows itself: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINES = 10  # how often a run reports where there is no terminal


class TrainingProgress:
    """Steps, images per second, the share of time spent waiting for data, loss and time left."""

    def __init__(self, total: int, done: int, batch_size: int, shown: bool) -> None:
        """Starts showing, on the main process alone; of ``total`` steps of so many images each some are ``done``."""
        self.total, self.first, self.batch_size, self.shown = total, done, batch_size, shown
        self.started = time.perf_counter()
        self.bar: Progress | None = None
        if shown and sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("training"), BarColumn(bar_width=None), MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True),
            )  # fmt: skip
            self.task = self.bar.add_task("training", total=total, completed=done, text="")
            self.bar.start()

    def rate(self, step: int) -> float:
        """Images per second since the start."""
        return (step - self.first) * self.batch_size / max(1e-9, time.perf_counter() - self.started)

    def update(self, step: int) -> None:
        """Moves the bar to a step (taken so far)."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def show(self, step: int, loss: float, timing: dict[str, Any]) -> None:
        """Shows a step's loss, and of ``metering.Meter``'s timing waiting, arithmetic (MFU) and memory."""
        if not self.shown:
            return
        shares = f"data {100 * timing['data_wait']:.0f} %  mfu {100 * timing['mfu']:.0f} %"
        shares += f"  {timing['peak_memory'] / 2**30:.1f} GB"
        speed = f"{self.rate(step):,.0f} images/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, text=f"loss {loss:.4f}  {speed}  {shares}")
        elif (step * _LINES // self.total) != self.shown_at:
            self.shown_at = step * _LINES // self.total
            left = (self.total - step) * self.batch_size / max(1e-9, self.rate(step))
            sys.stderr.write(f"step {step:,}/{self.total:,}  loss {loss:.4f}  {speed}  {shares}  {left:.0f} s left\n")
            sys.stderr.flush()

    shown_at = -1

    def close(self) -> None:
        """Leaves the terminal in order."""
        if self.bar is not None:
            self.bar.stop()
