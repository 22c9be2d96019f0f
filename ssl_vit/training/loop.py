"""fit: the one loop that every objective trains in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from itertools import chain
from typing import cast

import torch
from accelerate import Accelerator

from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.core.dist import gather_rows
from ssl_vit.core.errors import Collapsed, UserError
from ssl_vit.core.schedules import is_look
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.checkpoint import load_checkpoint, save_checkpoint
from ssl_vit.training.continuing import Continuing
from ssl_vit.training.forecast import Forecast, none_lighter
from ssl_vit.training.health import Health
from ssl_vit.training.launch import count_steps
from ssl_vit.training.log import TrainingLog
from ssl_vit.training.metering import Meter, out_of_memory, product_ceiling, try_pass
from ssl_vit.training.micro_batch import settle_micro_batch
from ssl_vit.training.optim import peak_learning_rate, restore
from ssl_vit.training.profiling import StepProfile
from ssl_vit.training.progress import TrainingProgress
from ssl_vit.training.stepping import Stepper, learning_rate
from ssl_vit.training.stopping import leave, stop_requests
from ssl_vit.views.training import View

_TRIED = 8
"""Images of the pass that counts operations."""


def fit(
    objective: Objective,
    loader: Loader,
    view: View,
    *,
    fit: ResolvedFit,
    optim: ResolvedOptim,
    run: RunDir,
    accelerator: Accelerator,
    seed: int,
    health: Health | None = None,
    watch: Callable[[Backbone], dict[str, float]] | None = None,
    lighter: Callable[[], dict[str, float]] = none_lighter,
    continuing: Continuing | None = None,
) -> None:
    """Trains an objective; continues where the run directory's newest checkpoint ends.

    Args:
        objective: What to minimise; trained in place, on the accelerator's device.
        loader: Ordered batches.
        view: Draws every random number of a batch.
        fit: Resolved options of the loop.
        optim: Resolved options of the optimiser.
        run: Where metrics and checkpoints go.
        accelerator: Made by ``launch.join``.
        seed: Of the view's draws.
        health: Looks at features now and then; None for a backbone that is not trained.
        watch: Says what the features are worth, where ``is_watched``; only the main process asks it, the others wait.
        lighter: Other networks and their share of the time, for the forecast of a long run.
        continuing: Of a run that begins with weights, which the objective holds; None for any other.

    Raises:
        UserError: When the loss stops being a number, or the run is already longer than asked for.
    """
    steps = count_steps(fit, loader)
    rates = partial(learning_rate, optim, peak_learning_rate(optim, loader.batch_size), loader.steps_per_epoch)
    rates(0, steps)  # a warm-up that is too long is told before anything is prepared
    stepper = Stepper(objective, fit=fit, optim=optim, accelerator=accelerator, continuing=continuing)
    drift = None if continuing is None else continuing.drift
    if drift is not None:
        drift.begin(objective.exported())
    done = _resume(stepper, accelerator, run, steps, rates)
    objective.train()
    if done == steps or (drift is not None and drift.passed is not None):
        return
    main, alone = accelerator.is_main_process, accelerator.num_processes == 1
    profile = StepProfile(run.path / "profile", accelerator.device) if fit.profile and main else None
    span = nullcontext if profile is None else profile.span
    try:
        if fit.micro_batch == "auto":
            settle_micro_batch(objective, loader, view, fit=fit, accelerator=accelerator, seed=seed)
        batches, meter = _measured(loader.batches(done, steps), objective, view, seed, accelerator)
        run.record("flops_per_image", meter.flops)
        run.record("steps", steps)
        stepper.prepare(loader.accumulation, meter.least_seconds(loader.micro_batch))
        forecast = Forecast(accelerator.device.type, fit.epochs if steps > fit.min_steps else None, lighter)

        def feed() -> dict[str, torch.Tensor]:
            started = time.perf_counter()
            with span("data"):
                batch = next(batches)
            meter.waited += time.perf_counter() - started
            with span("view"):
                return view(batch, seed)

        def watched() -> dict[str, float]:
            if watch is None or not main:
                return {}
            with meter.aside():
                return watch(objective.exported())

        if done == 0 and (found := watched()):
            run.log({"step": 0, "epoch": 0.0, **found})
        shown = TrainingProgress(steps, done, loader.batch_size, main, forecast)
        with stop_requests(accelerator.device) as stop, closing(shown):
            log = TrainingLog(run, loader, shown, meter, done)
            saved_time = time.monotonic()
            for step in range(done, steps):
                if profile is not None:
                    profile.begin_step()
                clock = Clock(step, steps, loader.steps_per_epoch)
                rate = rates(step, steps)
                logged = stepper(clock, rate, feed, span)
                observed = objective.observed()
                if health is not None and main and health.is_due(clock):
                    observed |= health.look(objective.exported())
                if drift is not None and drift.is_due(step + 1, steps):
                    observed |= drift.look(objective.exported(), step + 1)
                over = step + 1 == steps or (drift is not None and drift.passed is not None)
                log.note(step + 1, logged, observed)
                if profile is not None:
                    profile.end_step()
                done = step + 1
                if done % fit.log_every == 0 or over:
                    log.begin_line(done, rate, logged, watched() if is_watched(done, steps, fit) else {})
                every = fit.checkpoint_steps is not None and done % fit.checkpoint_steps == 0
                due = time.monotonic() - saved_time > 60 * fit.checkpoint_minutes
                reason, wish = objective.stop_reason(), stop.heard()
                everybody = every or over or (reason or wish) is not None  # the same on every process
                if everybody or (main and due):
                    sound = log.is_sound(stepper.trained, everybody)
                    if not sound and (everybody or alone):
                        raise log.divergence(done, log.saved)
                    if sound and main:
                        _save(run, done, steps, stepper)
                        log.saved = done
                    saved_time = time.monotonic()
                if reason:
                    raise Collapsed(f"{reason} (step {done:,} is saved)")
                if over:
                    break
                if wish:
                    leave(wish, done, main)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        fewer = f"--fit.micro_batch {max(1, loader.micro_batch // 2)} (the effective batch stays)"
        raise UserError(
            f"out of memory with {loader.micro_batch} images per forward pass; try "
            f"{', '.join((fewer, '--fit.recompute true', *objective.smaller))}, or a smaller network or input"
        ) from None
    finally:
        if profile is not None:
            profile.close()
    run.record("unreadable_images", loader.unreadable.listing())
    accelerator.wait_for_everyone()


def is_watched(done: int, steps: int, fit: ResolvedFit) -> bool:
    """Whether features are looked at after so many steps, which have a line in metrics.jsonl.

    It is the first line at or after every ``watch_percent``, and the last.
    """
    return is_look(done, (done - 1) // fit.log_every * fit.log_every, steps, fit.watch_percent)


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


def _save(run: RunDir, step: int, steps: int, stepper: Stepper) -> None:
    own, optimizer = stepper.objective.state_dict(), stepper.optimizer.state_dict()
    state = {"objective": own, "optimizer": optimizer, "total_steps": steps}
    if stepper.continuing is not None:
        state["drift"] = stepper.continuing.drift.state()
    if stepper.accelerator.scaler is not None:
        state |= {"scaler": stepper.accelerator.scaler.state_dict(), "skipped_steps": int(stepper.skipped)}
    save_checkpoint(run.path / "checkpoints", step, state, stepper.fit.keep_checkpoints)


def _resume(
    stepper: Stepper, accelerator: Accelerator, run: RunDir, steps: int, rates: Callable[[int, int], float]
) -> int:
    """Loads the newest sound checkpoint and returns its step; 0 where there is none."""
    state = load_checkpoint(run.path / "checkpoints")
    done = 0 if state is None else cast(int, state["step"])
    if done > steps:
        raise UserError(
            f"{run.path} has already trained {done:,} steps, more than the {steps:,} asked for; a run can be extended "
            "but not shortened: give at least its --fit.epochs, or another --run.dir"
        )
    if state is not None:
        stepper.objective.load_state_dict(state["objective"])
        restore(stepper.optimizer, state["optimizer"])
        if stepper.continuing is not None:
            stepper.continuing.drift.load(state["drift"])
        if accelerator.scaler is not None and "scaler" in state:
            accelerator.scaler.load_state_dict(state["scaler"])
            stepper.skipped = cast(int, state.get("skipped_steps", 0))
        if accelerator.is_main_process:
            ended = stepper.continuing is not None and stepper.continuing.drift.passed is not None
            over = done == steps or ended
            what = "is already complete" if over else f"continues after step {done:,} of {steps:,}"
            before = cast(int, state.get("total_steps", steps))
            if ended:
                what += f": its drift alarm ended it after step {done:,}"
            elif before != steps and over:
                what += f", though its learning rate follows a schedule of {before:,} steps"
            elif before != steps:
                what += (
                    f"; the learning rate follows the schedule of {steps:,} steps instead of {before:,} from here on: "
                    f"{rates(done - 1, before):.3g} at the last step, {rates(done, steps):.3g} at the next; so does "
                    "everything else that is scheduled"
                )
            if (run.backbone / "config.json").exists() and not over:
                what += "; the backbone will be replaced"
            print(f"the run in {run.path} {what}", flush=True)
    if len(set(gather_rows(torch.tensor([done], device=accelerator.device)).tolist())) > 1:
        raise UserError(f"the processes find different checkpoints in {run.path}; it must be on a disk they share")
    run.confirm()
    run.rewind(done)
    accelerator.wait_for_everyone()
    return done
