"""fit: the one loop that every objective trains in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from functools import partial
from itertools import chain
from typing import TypeVar, cast

import torch
from accelerate import Accelerator

from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.core.errors import Collapsed, UserError
from ssl_vit.core.schedules import is_look
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.compiling import COMPILING
from ssl_vit.training.continuing import Continuing
from ssl_vit.training.divergence import Names, Soundness, Unsound, images_of
from ssl_vit.training.forecast import Forecast, none_lighter
from ssl_vit.training.health import Health
from ssl_vit.training.joining import tell_unused
from ssl_vit.training.launch import DTYPES, count_steps
from ssl_vit.training.log import TrainingLog
from ssl_vit.training.metering import Meter, out_of_memory, product_ceiling, try_pass, with_every_branch
from ssl_vit.training.micro_batch import settle_micro_batch
from ssl_vit.training.optim import peak_learning_rate
from ssl_vit.training.profiling import StepProfile
from ssl_vit.training.progress import TrainingProgress
from ssl_vit.training.saving import Saving
from ssl_vit.training.sharding import check as check_sharding
from ssl_vit.training.sharding import is_sharded
from ssl_vit.training.stepping import Stepper, learning_rate
from ssl_vit.training.stopping import leave, stop_requests
from ssl_vit.training.watchdog import Watchdog
from ssl_vit.views.training import View

T = TypeVar("T", bound=Objective)

_ONE_VALUE = "more than 1 value per channel"
"""What torch says where batch normalisation has nothing to take a variance of."""
_TRIED = 8
"""Images of the pass that counts operations."""


def fit(
    objective: T,
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
) -> T:
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

    Returns:
        The same objective; where processes have a part of it each, a whole one in its place.

    Raises:
        UserError: When the loss stops being a number, or the run is already longer than asked for.
    """
    tell_unused(accelerator.mixed_precision)
    steps = count_steps(fit, loader)
    rates = partial(learning_rate, optim, peak_learning_rate(optim, loader.batch_size), loader.steps_per_epoch)
    rates(0, steps)  # a warm-up that is too long is told before anything is prepared
    sharded, tried = is_sharded(fit), cast("Meter | None", None)

    def settle() -> Meter | None:
        """What is tried before the first batch; a meter where it must know the network as it is now."""
        now = sharded or fit.recompute
        meter = _measured(loader.batches(0, 1), objective, view, seed, accelerator)[1] if now else None
        if fit.recompute:
            for part in objective.modules():
                if isinstance(part, Backbone):
                    part.recompute_activations()
        if fit.micro_batch == "auto":
            settle_micro_batch(objective, loader, view, fit=fit, accelerator=accelerator, seed=seed)
        return meter

    if sharded:
        check_sharding(fit, optim, continued=continuing is not None, watched=watch is not None)
        # What is tried on whole weights is tried before they are cut.
        objective.to(accelerator.device, dtype=DTYPES.get(fit.precision)).train()
        tried = settle()
    stepper = Stepper(objective, fit=fit, optim=optim, accelerator=accelerator, continuing=continuing, sharded=sharded)
    drift = None if continuing is None else continuing.drift
    if drift is not None:
        drift.begin(objective.exported())
    if fit.spike is not None and fit.on_divergence != "skip":
        raise UserError(f"--fit.spike {fit.spike:g} is for --fit.on_divergence skip; give both, or leave it out")
    soundness = Soundness(fit.spike) if fit.on_divergence == "skip" else None
    saving = Saving(stepper, run, loader, steps, soundness)
    done = saving.resume(rates)
    objective.train()
    if done == steps or (drift is not None and drift.passed is not None):
        return cast(T, stepper.whole())
    main, alone = accelerator.is_main_process, accelerator.num_processes == 1
    profile = StepProfile(run.path / "profile", accelerator.device) if fit.profile and main else None
    span = nullcontext if profile is None else profile.span
    try:
        if not sharded:
            tried = settle()
        source = cast("Generator[Batch, None, None]", loader.batches(done, steps))
        batches, meter = (source, tried) if tried else _measured(source, objective, view, seed, accelerator)
        run.record("flops_per_image", meter.flops)
        run.record("steps", steps)
        stepper.prepare(loader.accumulation, meter.least_seconds(loader.micro_batch), steps)
        run.record("compiled", stepper.compiled)
        forecast = Forecast(accelerator.device.type, fit.epochs if steps > fit.min_steps else None, lighter)
        drawn: list[Names] = []

        def feed() -> dict[str, torch.Tensor]:
            started = time.perf_counter()
            with span("data"):
                batch = next(batches)
            if soundness is not None:
                drawn.append((batch.index, batch.epoch))
            meter.waited += time.perf_counter() - started
            with span("view"):
                return view(batch, seed)

        def watched() -> dict[str, float]:
            if watch is None or not main:
                return {}
            with meter.aside():
                return watch(objective.exported())

        def before_training() -> None:
            if found := watched():
                run.log({"step": 0, "epoch": 0.0, **found})

        def go_back(error: Unsound) -> None:
            """On from the newest checkpoint, without the batch of the step that was about to be ``done``."""
            nonlocal source, batches, log, done, saved_time
            source.close()  # its processes read on in the old order
            images = images_of(drawn, loader.images)
            done = saving.go_back(step, error, {"seed": seed, "images": images}, fit.most_skips, shown.tell)
            batches = source = cast("Generator[Batch, None, None]", loader.batches(done, steps))
            log, saved_time = TrainingLog(run, loader, shown, meter, done), time.monotonic()
            if profile is not None:
                profile.end_step()
            if done == 0:
                before_training()

        if done == 0:
            if soundness is not None and (main or sharded):
                saving.save(0)  # there is something to go back to
            before_training()
        shown = TrainingProgress(steps, done, loader.batch_size, main, forecast)
        if stepper.compiled:
            shown.tell("compiling       some minutes at the first step; --fit.compile false trains without")
        log, saved_time, step, first = TrainingLog(run, loader, shown, meter, done), time.monotonic(), done, done
        watchdog = Watchdog(fit.watchdog, run.path)
        with stop_requests(accelerator.device, fit.max_time) as stop, closing(shown), watchdog:
            while done < steps:
                step = done
                watchdog.beat(step, COMPILING if stepper.compiled and step == first else 0.0)
                if profile is not None:
                    profile.begin_step()
                clock = Clock(step, steps, loader.steps_per_epoch)
                rate = rates(step, steps)
                drawn.clear()
                try:
                    logged = stepper(clock, rate, feed, span, None if soundness is None else soundness.judge)
                except Unsound as error:
                    go_back(error)
                    continue
                observed = objective.observed()
                if health is not None and (main or sharded) and health.is_due(clock):
                    with stepper.gathered():
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
                reason, wish = objective.stop_reason(), stop.heard(main and due)
                # The same on every process.
                everybody = every or over or (reason or wish) is not None or (sharded and stop.due)
                if everybody or (main and due and not sharded):  # parts are saved by all, once all were told
                    sound = log.is_sound(stepper.trained, everybody)
                    if not sound and (everybody or alone):
                        if soundness is None:
                            saving.finish()
                            raise log.divergence(done, log.saved)
                        go_back(Unsound("a weight is no finite number", math.nan, math.nan))
                        continue
                    if sound and (main or sharded):
                        saving.save(done)
                        log.saved = done
                    saved_time = time.monotonic()
                if reason or over or wish:
                    saving.finish()
                if reason:
                    raise Collapsed(f"{reason} (step {done:,} is saved)")
                if over:
                    break
                if wish:
                    leave(wish, done, main)
            run.record(
                "unreadable_images", loader.unreadable.listing()
            )  # the run is whole before a late signal ends it
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        fewer = f"--fit.micro_batch {max(1, loader.micro_batch // 2)} (the effective batch stays)"
        cures = (fewer, *(() if fit.recompute else ("--fit.recompute true",)), *objective.smaller)
        raise UserError(
            f"out of memory with {loader.micro_batch} images per forward pass; try {', '.join(cures)}, or a smaller "
            "network or input"
        ) from None
    except ValueError as error:
        if _ONE_VALUE not in str(error):
            raise
        raise UserError(
            f"batch normalisation has one value per channel with --fit.micro_batch {loader.micro_batch}, which tells "
            "nothing of a mean; give 2 or more images per forward pass, or larger ones"
        ) from None
    finally:
        saving.close()
        if profile is not None:
            profile.close()
    accelerator.wait_for_everyone()
    return cast(T, stepper.whole())


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
    # With every branch, so that a network counts the same in every run.
    flops = try_pass(objective, with_every_branch(view(few, seed)), accelerator.autocast()).flops / len(few.index)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = half.get(accelerator.mixed_precision, next(objective.parameters()).dtype)
    meter = Meter(accelerator.device, flops, product_ceiling(accelerator.device, dtype, torch.get_num_threads()))
    return chain([first], batches), meter
