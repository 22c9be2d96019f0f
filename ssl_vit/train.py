"""fit: the one loop that every objective trains in."""

from __future__ import annotations

import atexit
import math
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, cast

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs

from ssl_vit.checkpoint import load_checkpoint, save_checkpoint
from ssl_vit.configs import FitConfig, OptimConfig
from ssl_vit.configs.presets import TINY
from ssl_vit.data.loader import Batch, Loader
from ssl_vit.data.views import View
from ssl_vit.dist import check_world_size, gather_rows, mean_over_ranks, use_idle_cores
from ssl_vit.errors import UserError
from ssl_vit.memory import out_of_memory, peak_memory
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.optim import clip_each, make_optimizer, parameter_groups, peak_learning_rate
from ssl_vit.progress import TrainingProgress
from ssl_vit.rundir import RunDir
from ssl_vit.schedules import warmup_cosine
from ssl_vit.stopping import StopRequest

DTYPES = {"fp64": torch.float64}
"""Arithmetic of parameters and images; lower precisions keep fp32 masters under autocast."""


def start(precision: str = "fp32", seed: int = 0) -> Accelerator:
    """Joins the other processes, settles precision and seeds what initialises weights.

    Args:
        precision: ``--fit.precision``; given to Accelerate explicitly because launchers bring their own.
        seed: ``--seed``.

    Raises:
        UserError: When the device cannot compute so, or the number of processes is not what was asked for.
    """
    resolved = _auto_precision() if precision == "auto" else precision
    if resolved == "fp16" and not torch.accelerator.is_available():
        raise UserError("--fit.precision fp16 needs a GPU; use fp32 or bf16 on a CPU")
    accelerator = Accelerator(mixed_precision=resolved if resolved in ("bf16", "fp16") else "no")
    cast(Any, accelerator).ddp_handler = OwnBuffers()
    if accelerator.num_processes > 1:
        atexit.register(_leave, accelerator)
    if resolved == "fp64" and accelerator.device.type == "mps":
        raise UserError("--fit.precision fp64: Apple's GPU (mps) has no fp64; use fp32, or set ACCELERATE_USE_CPU=1")
    check_world_size(accelerator.num_processes)
    torch.manual_seed(seed)
    return accelerator


@dataclass
class OwnBuffers(DistributedDataParallelKwargs):
    """Every process keeps the buffers it computed, under the name that this version of torch has for it."""

    def to_kwargs(self) -> dict[str, Any]:
        """Arguments for DistributedDataParallel."""
        known = signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
        return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def _leave(accelerator: Accelerator) -> None:
    """Parts from the other processes while Python still runs.

    A thread of the process group that frees a tensor after Python has begun to shut down aborts the process, and the
    launcher then takes a finished run for a failed one. After a traceback the group is left as it is: others may be in
    the middle of a sum, and NCCL would wait for them.
    """
    if getattr(sys, "last_value", None) is None:
        accelerator.free_memory()  # the network's wrapper holds the group as well
        accelerator.end_training()


def _auto_precision() -> str:
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if torch.backends.mps.is_available():
        return "fp32"
    return "bf16" if torch.cpu._is_amx_tile_supported() else "fp32"  # bf16 vectors alone measured slower


def use_cores(accelerator: Accelerator, size: int) -> None:
    """Lets a lone CPU process compute on every core, where images are large enough for that to pay.

    On images of a few pixels a second thread gains little, and costs a factor of ten where another program needs the
    core: its threads wait for each other after every small operation.

    Args:
        accelerator: Made by ``start``.
        size: Side of the input in pixels.
    """
    if accelerator.device.type == "cpu" and size > TINY:
        use_idle_cores(accelerator.num_processes)


def describe(accelerator: Accelerator) -> dict[str, Any]:
    """Devices, processes and arithmetic, for environment.json."""
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "device": name,
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "mixed_precision": accelerator.mixed_precision,
    }


def micro_batch_size(cfg: FitConfig, processes: int) -> int:
    """Images per process and forward pass.

    Raises:
        UserError: When the effective batch cannot be shared evenly.
    """
    assert cfg.batch_size is not None
    if cfg.micro_batch:
        return cfg.micro_batch
    if cfg.batch_size % processes:
        raise UserError(f"--fit.batch_size {cfg.batch_size} cannot be shared evenly by {processes} processes")
    return cfg.batch_size // processes


def with_statistics(cfg: FitConfig, processes: int, taken: bool) -> FitConfig:
    """Records over how many images statistics are taken, where there are any: they make another run of it.

    Args:
        cfg: Resolved.
        processes: Number of processes.
        taken: Whether network or loss take statistics over a micro-batch.
    """
    return replace(cfg, statistics_batch=micro_batch_size(cfg, processes) * processes if taken else None)


def count_steps(cfg: FitConfig, loader: Loader) -> int:
    """Optimiser steps of the whole run."""
    assert cfg.epochs is not None
    return max(1, math.ceil(cfg.epochs * loader.steps_per_epoch), cfg.min_steps or 0)


def summarise(
    objective: Objective, loader: Loader, cfg: FitConfig, optim: OptimConfig, tokens: str, accelerator: Accelerator
) -> None:
    """Prints once what the options came to."""
    if not accelerator.is_main_process:
        return
    steps = count_steps(cfg, loader)
    trained = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    backbone = sum(p.numel() for p in objective.exported().parameters())
    precision = "fp64" if cfg.precision == "fp64" else accelerator.mixed_precision.replace("no", "fp32")
    images, (channels, bits) = loader.images, loader.images.form
    decoded = images.canvas or images.sizes.common
    size = "of many sizes" if decoded is None else f"decoded to {decoded[1]} x {decoded[0]} px"
    asked = math.ceil((cfg.epochs or 0) * loader.steps_per_epoch)
    least = f"; --fit.min_steps {cfg.min_steps:,} overrules {asked:,}" if (cfg.min_steps or 0) > asked else ""
    print(
        f"images          {len(images):,} from {images.name} ({loader.kept}), {tokens}\n"
        f"pixels          {channels} channel(s), {bits} bits, {size}\n"
        f"effective batch {loader.batch_size} = {loader.world} process(es) x {loader.micro_batch} per device x "
        f"{loader.accumulation} accumulation\n"
        f"learning rate   {peak_learning_rate(optim, loader.batch_size):.4g} peak, {steps:,} steps "
        f"({steps / loader.steps_per_epoch:,.1f} epochs{least}), {round(optim.warmup * steps):,} warm-up\n"
        f"parameters      {backbone:,} in the backbone, {trained:,} trained, {precision} on {accelerator.device.type}",
        flush=True,
    )


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
        accelerator: Made by ``start``.
        seed: Seed of the view's draws.

    Raises:
        UserError: When the loss stops being a number, or the run is already longer than asked for.
    """
    objective.to(accelerator.device, dtype=DTYPES.get(fit.precision))
    groups = parameter_groups(
        objective.named_parameters(),
        weight_decay=optim.weight_decay,
        layer_decay=optim.layer_decay,
        layer_id=objective.layer_id,
        top_layer=objective.top_layer,
        decays_tokens=objective.decays_tokens,
    )
    if fit.recompute:
        for part in objective.modules():
            if isinstance(part, Backbone):
                part.recompute_activations()
    model, optimizer = accelerator.prepare(objective, make_optimizer(groups, optim))
    steps = count_steps(fit, loader)
    rates = partial(_learning_rate, optim, peak_learning_rate(optim, loader.batch_size))
    done = _resume(objective, optimizer, accelerator, run, steps, rates)
    objective.train()
    if done == steps:
        return
    batches = loader.batches(done, steps)
    trained = [p for p in objective.parameters() if p.requires_grad]
    progress = TrainingProgress(steps, done, loader.batch_size, accelerator.is_main_process)
    finite = torch.ones((), device=accelerator.device)
    saved_at, saved_time, logged_step, logged_time, waited = done, time.monotonic(), done, time.perf_counter(), 0.0

    def save(step: int) -> None:
        if accelerator.is_main_process:
            if not bool(finite) or not all(bool(torch.isfinite(p).all()) for p in trained):
                raise UserError(_not_a_number(logged_step, step, saved_at))
            state = {"objective": objective.state_dict(), "optimizer": optimizer.state_dict(), "total_steps": steps}
            if accelerator.scaler is not None:
                state["scaler"] = accelerator.scaler.state_dict()
            save_checkpoint(run.checkpoints, step, state, fit.keep_checkpoints)

    with StopRequest(accelerator.is_main_process) as stop:
        try:
            for step in range(done, steps):
                clock = Clock(step, steps, loader.steps_per_epoch)
                rate = rates(step, steps)
                for group, made in zip(optimizer.param_groups, groups, strict=True):
                    group["lr"] = rate * group["lr_scale"]
                    if made["decays"]:
                        group["weight_decay"] = _weight_decay(optim, step, steps)
                objective.begin_step(clock)
                logged: dict[str, torch.Tensor] = {}
                for micro in range(loader.accumulation):
                    before = time.perf_counter()
                    batch = next(batches)
                    waited += time.perf_counter() - before
                    _forward_backward(accelerator, model, view, batch, seed, loader.accumulation, micro, logged)
                objective.after_backward(clock)
                if fit.clip_each is not None or fit.clip_grad is not None:
                    accelerator.unscale_gradients(optimizer)
                if fit.clip_each is not None:
                    clip_each(trained, fit.clip_each)
                if fit.clip_grad is not None:
                    torch.nn.utils.clip_grad_norm_(trained, fit.clip_grad)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                objective.after_step(clock)
                seen = objective.observed()
                if seen:
                    run.log({"step": step + 1, "epoch": (step + 1) / loader.steps_per_epoch, **seen}, "health.jsonl")
                finite = finite * torch.isfinite(logged["loss"])
                done, loss, data_wait = step + 1, None, 0.0
                if done % fit.log_every == 0 or done == steps:
                    values = _averaged(logged, finite)
                    if values.pop("finite") < 1.0:
                        raise UserError(_not_a_number(logged_step, done, saved_at))
                    loss = values["loss"]
                    run.log({"step": done, "epoch": done / loader.steps_per_epoch, "loss": loss, "lr": rate, **values})
                    now = time.perf_counter()
                    images = (done - logged_step) * loader.batch_size
                    data_wait = waited / (now - logged_time)
                    timing = {
                        "images_per_second": images / (now - logged_time),
                        "data_wait": data_wait,
                        "peak_memory": peak_memory(accelerator.device),
                    }
                    run.log({"step": done, **timing}, "timing.jsonl")
                    logged_step, logged_time, waited = done, now, 0.0
                progress.update(done, loss, data_wait)
                every = fit.checkpoint_steps is not None and done % fit.checkpoint_steps == 0
                due = time.monotonic() - saved_time > 60 * fit.checkpoint_minutes
                reason = objective.stop_reason()
                if every or due or done == steps or stop.received or reason:
                    save(done)
                    saved_at, saved_time = done, time.monotonic()
                if reason:
                    raise UserError(f"{reason} (step {done:,} is saved)")
                if stop.received and done < steps:
                    sys.stderr.write(f"stopped after step {done:,}, which is saved; the same command continues\n")
                    raise SystemExit(128 + stop.received)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise UserError(_too_little_memory(loader, objective)) from None
        finally:
            progress.close()
    run.record("unreadable_images", loader.unreadable.listing())
    accelerator.wait_for_everyone()


def _forward_backward(
    accelerator: Accelerator,
    model: torch.nn.Module,
    view: View,
    batch: Batch,
    seed: int,
    accumulation: int,
    micro: int,
    logged: dict[str, torch.Tensor],
) -> None:
    """One micro-batch; gradients are exchanged after the last one, logged values add up to their mean."""
    last = micro == accumulation - 1
    with nullcontext() if last else accelerator.no_sync(model):
        output = model(view(batch, seed))
        accelerator.backward(output.loss / accumulation)
    for name, value in {"loss": output.loss, **output.metrics}.items():
        share = value.detach() / accumulation
        logged[name] = logged[name] + share if name in logged else share


def _averaged(logged: dict[str, torch.Tensor], finite: torch.Tensor) -> dict[str, float]:
    """The mean over processes of every logged value, fetched in one transfer."""
    names = [*logged, "finite"]
    stacked = torch.stack([v.to(logged["loss"].dtype) for v in (*logged.values(), finite)])
    return dict(zip(names, mean_over_ranks(stacked).tolist(), strict=True))


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


def _learning_rate(optim: OptimConfig, peak: float, step: int, steps: int) -> float:
    """The rate of one step (0-based) of a run of so many."""
    warmup, twice = round(optim.warmup * steps), optim.schedule == "dino"
    return warmup_cosine(step, total_steps=steps, warmup_steps=warmup, peak=peak, final=optim.min_lr, peak_twice=twice)


def _weight_decay(optim: OptimConfig, step: int, steps: int) -> float:
    """The weight decay of one step (0-based): constant, or on a half cosine (DINO, section 3.2)."""
    final = optim.weight_decay if optim.weight_decay_end is None else optim.weight_decay_end
    return warmup_cosine(step, total_steps=steps, warmup_steps=0, peak=optim.weight_decay, final=final)


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
        optimizer.load_state_dict(state["optimizer"])
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
