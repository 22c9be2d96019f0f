"""fit: the one loop that every objective trains in."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator

from ssl_vit.checkpoint import load_checkpoint, save_checkpoint
from ssl_vit.configs import FitConfig, OptimConfig
from ssl_vit.data.loader import Batch, Loader
from ssl_vit.data.views import View
from ssl_vit.dist import gather_rows, mean_over_ranks
from ssl_vit.errors import Collapsed, Diverged, UserError
from ssl_vit.memory import out_of_memory
from ssl_vit.metering import Meter, product_ceiling, try_pass
from ssl_vit.micro_batch import settle_micro_batch
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.optim import peak_learning_rate, restore
from ssl_vit.profiling import StepProfile
from ssl_vit.progress import TrainingProgress
from ssl_vit.rundir import RunDir
from ssl_vit.stepping import Span, Stepper, learning_rate, unmarked
from ssl_vit.stopping import StopRequest
from ssl_vit.train import count_steps

_TRIED = 8
"""Images of the pass that counts operations."""


def fit(
    objective: Objective,
    loader: Loader,
    view: View,
    *,
    fit: FitConfig,
    optim: OptimConfig,
    run: RunDir,
    accelerator: Accelerator,
    seed: int,
) -> None:
    """Trains an objective; continues where the run directory's newest checkpoint ends.

    Args:
        objective: What to minimise; trained in place, on the accelerator's device.
        loader: Ordered batches.
        view: Draws every random number of a batch.
        fit: Resolved options of the loop.
        optim: Options of the optimiser.
        run: Where metrics and checkpoints go.
        accelerator: Made by ``train.start``.
        seed: Seed of the view's draws.

    Raises:
        UserError: When the loss stops being a number, or the run is already longer than asked for.
    """
    steps = count_steps(fit, loader)
    rates = partial(learning_rate, optim, peak_learning_rate(optim, loader.batch_size))
    stepper = Stepper(objective, fit=fit, optim=optim, accelerator=accelerator)
    done = _resume(objective, stepper.optimizer, accelerator, run, steps, rates)
    objective.train()
    if done == steps:
        return
    main = accelerator.is_main_process
    profile = StepProfile(run.path / "profile", accelerator.device) if fit.profile and main else None
    span = unmarked if profile is None else profile.span
    try:
        if fit.micro_batch == "auto":
            settle_micro_batch(objective, loader, view, fit=fit, accelerator=accelerator, seed=seed)
        batches, meter = _measured(loader.batches(done, steps), objective, view, seed, accelerator)
        run.record("flops_per_image", meter.flops)
        stepper.prepare(loader.accumulation, meter.least_seconds(loader.micro_batch))
        feed = _Feed(batches, view, seed, meter, span)
        with (
            StopRequest(main) as stop,
            _Log(run, loader, TrainingProgress(steps, done, loader.batch_size, main), meter, done) as log,
        ):
            saved_at, saved_time = done, time.monotonic()
            for step in range(done, steps):
                if profile is not None:
                    profile.begin_step()
                clock = Clock(step, steps, loader.steps_per_epoch)
                rate = rates(step, steps)
                logged = stepper(clock, rate, feed, span)
                log.note(step + 1, logged, objective.observed())
                if profile is not None:
                    profile.end_step()
                done = step + 1
                if done % fit.log_every == 0 or done == steps:
                    log.begin_line(done, rate, logged, saved_at)
                every = fit.checkpoint_steps is not None and done % fit.checkpoint_steps == 0
                due = time.monotonic() - saved_time > 60 * fit.checkpoint_minutes
                reason = objective.stop_reason()
                if every or due or done == steps or stop.received or reason:
                    log.finish_line()
                    if main:
                        log.check(stepper.trained, done, saved_at)
                        _save(run, done, steps, objective, stepper, fit.keep_checkpoints)
                    saved_at, saved_time = done, time.monotonic()
                if reason:
                    raise Collapsed(f"{reason} (step {done:,} is saved)")
                if stop.received and done < steps:
                    sys.stderr.write(f"stopped after step {done:,}, which is saved; the same command continues\n")
                    raise SystemExit(128 + stop.received)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise UserError(_too_little_memory(loader, objective)) from None
    finally:
        if profile is not None:
            profile.close()
    run.record("unreadable_images", loader.unreadable.listing())
    accelerator.wait_for_everyone()


def _measured(
    batches: Iterator[Batch], objective: Objective, view: View, seed: int, accelerator: Accelerator
) -> tuple[Iterator[Batch], Meter]:
    """The batches as they were, and a meter that knows the operations per image and the device's ceiling."""
    first = next(batches)
    few = first.part(slice(_TRIED))
    inputs = view(few, seed)
    if "drop" in inputs:  # with every branch, so that a network counts the same in every run
        inputs["drop"] = torch.ones_like(inputs["drop"])
    flops = try_pass(objective, inputs, accelerator.autocast()).flops / len(few.index)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = half.get(accelerator.mixed_precision, next(objective.parameters()).dtype)
    meter = Meter(accelerator.device, flops, product_ceiling(accelerator.device, dtype, torch.get_num_threads()))
    return chain([first], batches), meter


class _Feed:
    """What the objective reads, one micro-batch a call."""

    def __init__(self, batches: Iterator[Batch], view: View, seed: int, meter: Meter, span: Span) -> None:
        self.batches, self.view, self.seed, self.meter, self.span = batches, view, seed, meter, span

    def __call__(self) -> dict[str, torch.Tensor]:
        started = time.perf_counter()
        with self.span("data"):
            batch = next(self.batches)
        self.meter.waited += time.perf_counter() - started
        with self.span("view"):
            return self.view(batch, self.seed)


class _Line(NamedTuple):
    """A line of metrics.jsonl whose numbers are on their way from the device."""

    step: int
    rate: float
    names: list[str]
    values: torch.Tensor
    arrived: torch.Event | None
    timing: dict[str, Any]
    saved: int


class _Log:
    """metrics.jsonl, timing.jsonl, health.jsonl and the progress bar; numbers are fetched without waiting for them."""

    def __init__(self, run: RunDir, loader: Loader, progress: TrainingProgress, meter: Meter, done: int) -> None:
        self.run, self.loader, self.progress, self.meter = run, loader, progress, meter
        self.finite = torch.ones((), device=meter.device)
        self.logged, self.pending = done, cast(_Line | None, None)

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.close()

    def note(self, done: int, logged: dict[str, torch.Tensor], observed: dict[str, float]) -> None:
        """After every step: remembers whether its loss was a number, writes what the objective saw of itself."""
        self.finite = self.finite * torch.isfinite(logged["loss"])
        if observed:
            self.run.log({"step": done, "epoch": done / self.loader.steps_per_epoch, **observed}, "health.jsonl")
        if self.pending is not None and (self.pending.arrived is None or self.pending.arrived.query()):
            self.finish_line()
        self.progress.update(done)

    def begin_line(self, done: int, rate: float, logged: dict[str, torch.Tensor], saved: int) -> None:
        """Averages a step's values over processes and sends them on their way."""
        self.finish_line()
        stacked = torch.stack([v.to(logged["loss"].dtype) for v in (*logged.values(), self.finite)])
        values, arrived = mean_over_ranks(stacked), None
        if values.device.type == "cuda":
            host = torch.empty_like(values, device="cpu", pin_memory=True)
            values = host.copy_(values, non_blocking=True)
            arrived = torch.Event(device=stacked.device)
            arrived.record()
        timing = self.meter.read((done - self.logged) * self.loader.batch_size, self.loader.world)
        self.pending = _Line(done, rate, [*logged, "finite"], values, arrived, timing, saved)
        if arrived is None:
            self.finish_line()

    def finish_line(self) -> None:
        """Writes the line that is on its way, if there is one."""
        line, self.pending = self.pending, None
        if line is None:
            return
        if line.arrived is not None:
            line.arrived.synchronize()
        values = dict(zip(line.names, line.values.tolist(), strict=True))
        if values.pop("finite") < 1.0:
            raise Diverged(_not_a_number(self.logged, line.step, line.saved))
        where = {"step": line.step, "epoch": line.step / self.loader.steps_per_epoch}
        loss = values.pop("loss")
        self.run.log({**where, "loss": loss, "lr": line.rate, **values})
        self.run.log({"step": line.step, **line.timing}, "timing.jsonl")
        self.progress.show(line.step, loss, line.timing)
        self.logged = line.step

    def check(self, trained: list[torch.nn.Parameter], done: int, saved: int) -> None:
        """Before weights are saved.

        Raises:
            Diverged: Where a loss or a weight is no finite number.
        """
        if not bool(self.finite) or not all(bool(torch.isfinite(p).all()) for p in trained):
            raise Diverged(_not_a_number(self.logged, done, saved))


def _save(run: RunDir, step: int, steps: int, objective: Objective, stepper: Stepper, keep: int) -> None:
    state = {"objective": objective.state_dict(), "optimizer": stepper.optimizer.state_dict(), "total_steps": steps}
    if stepper.accelerator.scaler is not None:
        state["scaler"] = stepper.accelerator.scaler.state_dict()
    save_checkpoint(run.checkpoints, step, state, keep)


def _too_little_memory(loader: Loader, objective: Objective) -> str:
    fewer = f"--fit.micro_batch {max(1, loader.micro_batch // 2)} (the effective batch stays), --fit.recompute true"
    return (
        f"out of memory with {loader.micro_batch} images per forward pass; try "
        f"{', '.join((fewer, *objective.smaller))}, or a smaller network or input"
    )


def _not_a_number(before: int, now: int, saved: int) -> str:
    return (
        f"the loss stopped being a finite number between steps {before:,} and {now:,} "
        f"(last checkpoint: step {saved:,}); "
        "lower --optim.lr, set --fit.clip_grad 1, or use --fit.precision fp32"
    )


def _resume(
    objective: Objective,
    optimizer: Any,
    accelerator: Accelerator,
    run: RunDir,
    steps: int,
    rates: Callable[[int, int], float],
) -> int:
    """Loads the newest sound checkpoint and returns its step; 0 where there is none."""
    state = load_checkpoint(run.checkpoints)
    done = 0 if state is None else cast(int, state["step"])
    if done > steps:
        raise UserError(
            f"{run.path} has already trained {done:,} steps, more than the {steps:,} asked for; a run can be extended "
            "but not shortened: give at least its --fit.epochs, or another --run.dir"
        )
    if state is not None:
        objective.load_state_dict(state["objective"])
        restore(optimizer, state["optimizer"])
        if accelerator.scaler is not None and "scaler" in state:
            accelerator.scaler.load_state_dict(state["scaler"])
        if accelerator.is_main_process:
            what = "is already complete" if done == steps else f"continues after step {done:,} of {steps:,}"
            before = cast(int, state.get("total_steps", steps))
            if before != steps and done == steps:
                what += f", though its learning rate follows a schedule of {before:,} steps"
            elif before != steps:
                what += (
                    f"; the learning rate follows the schedule of {steps:,} steps instead of {before:,} from here on: "
                    f"{rates(done - 1, before):.3g} at the last step, {rates(done, steps):.3g} at the next; so does "
                    "everything else that is scheduled"
                )
            if (run.backbone / "config.json").exists() and done < steps:
                what += "; the backbone will be replaced"
            print(f"the run in {run.path} {what}", flush=True)
    if len(set(gather_rows(torch.tensor([done], device=accelerator.device)).tolist())) > 1:
        raise UserError(f"the processes find different checkpoints in {run.path}; it must be on a disk they share")
    run.confirm()
    run.rewind(done)
    accelerator.wait_for_everyone()
    return done
