"""How a run shows itself: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ssl_vit.core.notices import write_line
from ssl_vit.core.text import duration
from ssl_vit.training.forecast import Forecast

_LINES = 10  # how often a run reports where there is no terminal, and beside it:
_OFTEN, _SELDOM = 60.0, 600.0  # seconds between two lines: in the first ten minutes, and later
_TIMED = 5.0  # seconds of steps that a forecast stands on; the first step also compiles and fills caches


class TrainingProgress:
    """Steps, images per second, the share of time spent waiting for data, loss and time left."""

    def __init__(self, total: int, done: int, batch_size: int, shown: bool, forecast: Forecast | None = None) -> None:
        """Starts showing, on the main process alone; of ``total`` steps of so many images each some are ``done``.

        A forecast says what the first steps tell of the whole run.
        """
        self.total, self.first, self.batch_size, self.shown = total, done, batch_size, shown
        self.started = self._last = time.perf_counter()
        self._forecast, self._warm, self._seen = forecast, self.started, ""
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
        """Moves the bar to a step (taken so far), or writes a line where the last one is a minute old."""
        if not self.shown:
            return
        now = time.perf_counter()
        if step == self.first + 1:
            self._warm = now
        elif self._forecast is not None and now - self._warm >= _TIMED:
            each = (now - self._warm) / (step - self.first - 1)
            said = self._forecast.words(each * (self.total - self.first), begun=self.first > 0)
            self._forecast = None
            self._write(f"forecast        {said}")
        if self.bar is not None:
            self.bar.update(self.task, completed=step)
        elif now - self._last >= (_OFTEN if now - self.started <= _SELDOM else _SELDOM):
            self._line(step)

    def _line(self, step: int) -> None:
        """What a log gets now and then; loss and shares are those of the newest line of metrics."""
        self._last = time.perf_counter()
        left = (self.total - step) * self.batch_size / max(1e-9, self.rate(step))
        self._write(f"step {step:,}/{self.total:,}{self._seen}  {duration(left)} left")

    def tell(self, text: str) -> None:
        """Writes a line beside bar or log, on the main process."""
        if self.shown:
            self._write(text)

    def _write(self, text: str) -> None:
        if self.bar is None:
            write_line(text)
            return
        with suppress(OSError):
            self.bar.console.print(text, highlight=False)

    def show(self, step: int, loss: float, timing: dict[str, Any], skipped: int = 0) -> None:
        """Shows a step's loss, and of ``metering.Meter``'s timing waiting, arithmetic (MFU) and memory.

        Args:
            step: Taken so far.
            loss: Of it.
            timing: Of the steps since the last line.
            skipped: Steps that fp16 has left out.
        """
        if not self.shown:
            return
        shares = f"data {100 * timing['data_wait']:.0f} %  mfu {100 * timing['mfu']:.0f} %"
        shares += f"  {timing['peak_memory'] / 2**30:.1f} GB{f'  {skipped:,} skipped' if skipped else ''}"
        speed = f"{self.rate(step):,.0f} images/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, text=f"loss {loss:.4f}  {speed}  {shares}")
            return
        self._seen = f"  loss {loss:.4f}  {speed}  {shares}"
        if (step * _LINES // self.total) != self.shown_at:
            self.shown_at = step * _LINES // self.total
            self._line(step)

    shown_at = -1

    def close(self) -> None:
        """Leaves the terminal in order."""
        if self.bar is not None:
            self.bar.stop()
