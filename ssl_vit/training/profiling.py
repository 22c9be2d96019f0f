"""Where the time of a step goes: a trace for chrome://tracing or Perfetto, and one page of words and numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

WARM_UP, RECORDED = 5, 10
"""Optimiser steps that are let go by, and that are recorded then."""
_OPERATIONS = 20


class StepProfile:
    """Records some steps of a run; the device is waited for between their parts, so that each time is its own."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Waits for the first steps to pass; writes trace.json and summary.md into the folder then."""
        self.folder, self.device = folder, device
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile: Any = profile(activities=activities)
        self._seen, self._started, self._spent = 0, 0.0, dict[str, float]()
        self.recording = False

    def begin_step(self) -> None:
        """Before every step."""
        if self._seen == WARM_UP:
            self._profile.start()
            self.recording, self._started = True, self._now()
        self._seen += 1

    def end_step(self) -> None:
        """After every step; writes the result after the last of those to be recorded."""
        if self.recording and self._seen == WARM_UP + RECORDED:
            self.close()

    def close(self) -> None:
        """Writes what was recorded, also where the run ends earlier."""
        if not self.recording:
            return
        took, self.recording = self._now() - self._started, False
        self._profile.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._profile.export_chrome_trace(str(self.folder / "trace.json"))
        (self.folder / "summary.md").write_text(self._summary(took, self._seen - WARM_UP))

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Times a part of a step."""
        if not self.recording:
            yield
            return
        started = self._now()
        with record_function(name):
            yield
        self._spent[name] = self._spent.get(name, 0.0) + self._now() - started

    def _now(self) -> float:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return time.perf_counter()

    def _summary(self, took: float, steps: int) -> str:
        rest = took - sum(self._spent.values())
        lines = [f"# Where the time of a step goes ({steps} steps, {1000 * took / steps:.1f} ms each)", "",
                 "Recorded with the device waited for between parts, which costs time itself.", "",
                 "| part | ms per step | share |", "| --- | ---: | ---: |"]  # fmt: skip
        for name, seconds in [*self._spent.items(), ("everything else", rest)]:
            lines.append(f"| {name} | {1000 * seconds / steps:.2f} | {seconds / took:.1%} |")
        key = "self_cpu_time_total" if self.device.type == "cpu" else "self_device_time_total"
        found = sorted(self._profile.key_averages(), key=lambda event: -getattr(event, key))
        found = [event for event in found if event.key not in self._spent][:_OPERATIONS]
        total = 1e6 * took
        lines += ["", f"| operation on the {self.device.type} | calls per step | ms per step | share |",
                  "| --- | ---: | ---: | ---: |"]  # fmt: skip
        for event in found:
            own = getattr(event, key)
            lines.append(f"| {event.key} | {event.count / steps:g} | {own / 1000 / steps:.2f} | {own / total:.1%} |")
        return "\n".join([*lines, ""])
