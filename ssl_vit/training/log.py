"""What a run writes while it trains; numbers are fetched from the device without waiting for them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch

from ssl_vit.core.dist import mean_over_ranks
from ssl_vit.core.errors import Diverged
from ssl_vit.core.parts import local
from ssl_vit.data.loading.loader import Loader
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.metering import Meter
from ssl_vit.training.progress import TrainingProgress


class _Line(NamedTuple):
    """A line of metrics.jsonl whose numbers are on their way from the device."""

    step: int
    rate: float
    names: list[str]
    values: torch.Tensor
    arrived: torch.Event | None
    timing: dict[str, Any]
    saved: int
    watched: dict[str, float]


class TrainingLog:
    """metrics.jsonl, timing.jsonl, health.jsonl and the progress bar."""

    def __init__(self, run: RunDir, loader: Loader, progress: TrainingProgress, meter: Meter, done: int) -> None:
        """Goes on after so many steps that are ``done``, and saved; only the run's main process writes."""
        self.run, self.loader, self.progress, self.meter = run, loader, progress, meter
        self.saved = done
        """Step of the newest checkpoint."""
        self._finite = torch.ones((), device=meter.device)
        self._logged, self._pending = done, cast(_Line | None, None)

    def note(self, done: int, logged: dict[str, torch.Tensor], observed: dict[str, float]) -> None:
        """After every step: remembers whether its loss was a number, writes what the objective saw of itself."""
        self._finite = self._finite * torch.isfinite(logged["loss"])
        if observed:
            self.run.log({"step": done, "epoch": done / self.loader.steps_per_epoch, **observed}, "health.jsonl")
        arrived = self._pending is not None and (self._pending.arrived is None or self._pending.arrived.query())
        if arrived and (self.loader.world == 1 or not self._is_bad()):  # else told where all are at the same step
            self.finish_line()
        self.progress.update(done)

    def begin_line(self, done: int, rate: float, logged: dict[str, torch.Tensor], watched: dict[str, float]) -> None:
        """Averages a step's values over processes, which all are at it, and sends them on their way.

        What was ``watched`` after that step stands behind them, as it is on the main process.

        Diverged on every process where the line before, or this one, tells of a loss that was no finite number.
        """
        self.finish_line()
        stacked = torch.stack([v.to(logged["loss"].dtype) for v in (*logged.values(), self._finite)])
        values, arrived = mean_over_ranks(stacked), None
        if values.device.type == "cuda":
            host = torch.empty_like(values, device="cpu", pin_memory=True)
            values = host.copy_(values, non_blocking=True)
            arrived = torch.Event(device=stacked.device)
            arrived.record()
        timing = self.meter.read((done - self._logged) * self.loader.batch_size, self.loader.world)
        self._pending = _Line(done, rate, [*logged], values, arrived, timing, self.saved, watched)
        if arrived is None:
            self.finish_line()

    def finish_line(self) -> None:
        """Writes the line that is on its way, if any; Diverged where its loss was no finite number on any process."""
        line, self._pending = self._pending, None
        if line is None:
            return
        if line.arrived is not None:
            line.arrived.synchronize()
        *values, finite = line.values.tolist()
        if finite < 1:
            raise self.divergence(line.step, line.saved)
        values = dict(zip(line.names, values, strict=True))
        where = {"step": line.step, "epoch": line.step / self.loader.steps_per_epoch}
        loss = values.pop("loss")
        left_out = self.loader.number(line.step - 1) - (line.step - 1)
        told = {"skipped_batches": left_out} if left_out else {}
        self.run.log({**where, "loss": loss, "lr": line.rate, **values, **told, **line.watched})
        self.run.log({"step": line.step, **line.timing}, "timing.jsonl")
        self.progress.show(line.step, loss, line.timing, int(values.get("skipped_steps", 0)))
        self._logged = line.step

    def is_sound(self, trained: list[torch.nn.Parameter], together: bool) -> bool:
        """Whether every loss and weight is a finite number, so that it may be saved; the line on its way is written.

        Either all processes ask ``together``, or the main one alone: then the next line tells the others.
        """
        bad = self._is_bad()
        if not bad:
            self.finish_line()
        self._finite = self._finite * torch.stack([torch.isfinite(local(p)).all() for p in trained]).all()
        finite = mean_over_ranks(self._finite.clone()) if together else self._finite
        return bool(finite == 1) and not bad

    def _is_bad(self) -> bool:
        """Whether the line that is on its way tells of a loss that was no number, on any process."""
        if self._pending is None:
            return False
        if self._pending.arrived is not None:
            self._pending.arrived.synchronize()
        return bool(self._pending.values[-1] < 1)

    def divergence(self, now: int, saved: int) -> Diverged:
        """What went wrong up to this step where ``is_sound`` says no, the step that is saved, and what to do."""
        newest = f" (last checkpoint: step {saved:,})" if self.run.writes and saved else ""  # who saves knows
        return Diverged(
            f"the loss stopped being a finite number between steps {self._logged:,} and {now:,}{newest}; "
            "lower --optim.lr, set --fit.clip_grad 1, or use --fit.precision fp32"
        )
