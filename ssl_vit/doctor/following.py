"""What a run on these images would be: network, views, length, time and memory, by the functions that a run uses."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs import (
    LabelledDataConfig,
    PoolConfig,
    PretrainingRecipe,
    ResolvedAugment,
    ResolvedPretraining,
    as_command,
)
from ssl_vit.configs.doctor import DoctorRecipe
from ssl_vit.configs.networks import NETWORKS
from ssl_vit.core.text import duration
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.cache import choose
from ssl_vit.data.loading.loader import some_images
from ssl_vit.data.loading.shared import free_memory
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.doctor.findings import Findings
from ssl_vit.doctor.headers import in_bytes
from ssl_vit.methods import Method
from ssl_vit.methods.method import imported
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Built, Clock
from ssl_vit.report.cells import two_digits
from ssl_vit.training import launch
from ssl_vit.training.forecast import RATE, Cost, Forecast, cores, count, lighter_networks, network_of, within_an_hour
from ssl_vit.training.metering import try_pass
from ssl_vit.training.stepping import Stepper

_SCALED = 500
"""Images that pixel statistics are taken of here; a run takes 2,000."""
_TRIED = 64
"""Images of a tried step at most."""
_STATE = 4
"""Copies of every trained number: weight, gradient, two moments of AdamW."""
_FULL = 0.8
"""Of the free memory, above which a run is called too large."""


class Followed(NamedTuple):
    """A run that was not started."""

    method: Method
    asked: PretrainingRecipe
    """What would be typed."""
    cfg: ResolvedPretraining
    pool: ImageSet
    """On its canvas."""
    note: str
    """What is said about the pool."""
    chosen: str
    """What was chosen to fit into an hour of this CPU; empty where nothing was."""
    scale: PixelScale
    built: Built
    side: int
    cost: Cost
    parameters: int
    """Of the backbone."""


def asked_of(cfg: DoctorRecipe, method: Method) -> PretrainingRecipe:
    """The recipe of a run on the same images.

    Args:
        cfg: The doctor's.
        method: What would be trained.
    """
    return replace(method.recipe(), preset=cfg.preset, data=PoolConfig(**vars(cfg.data)), model=cfg.model)


def follow(cfg: DoctorRecipe, method: Method, accelerator: Accelerator) -> Followed:
    """Opens the pool and fills every option, as a run does before its first step.

    Args:
        cfg: As given.
        method: What would be trained.
        accelerator: Made by ``launch.join``.

    Raises:
        UserError: Where a run would stop, too.
    """
    typed = asked = asked_of(cfg, method)
    pool, note = open_pool(asked.data, LabelledDataConfig())
    side, chosen = asked.data.window or pool.sizes.short_side, ""
    if accelerator.device.type == "cpu":
        asked, chosen = within_an_hour(method, asked, len(pool), side, pool.form)
    facts, preset = network_of(method, asked, len(pool), side, cpu=accelerator.device.type == "cpu")
    resolved: ResolvedPretraining = method.resolve(asked, facts, preset)
    pool = pool.on_canvas(resolved.data.canvas, resolved.model.img_size, resolved.data.window)
    scale = measure_scale(pool, _SCALED)
    backbone = build_backbone(resolved.model, pool.form.channels)
    parameters = sum(p.numel() for p in backbone.parameters())
    built: Built = imported(method.build)(resolved, backbone, scale, torch.float32)
    cost = count(method, resolved, pool.form)
    return Followed(method, typed, resolved, pool, note, chosen, scale, built, side, cost, parameters)


def examine_following(run: Followed, advice: str = "") -> Findings:
    """Preset, network, views and length.

    Args:
        run: Resolved.
        advice: Options that warnings ask for; the command has them, what is said of views does not.
    """
    found, cfg = Findings("what follows"), run.cfg
    model, fit = cfg.model, cfg.fit
    found.say("command", f"{as_command(run.method.script, run.asked)} {advice}".strip())
    found.say("pool", f"{len(run.pool):,} images, {run.note}")
    found.say("preset", f"{cfg.preset}; {run.built.sees}")
    name = next((n.name for n in NETWORKS.values() if (n.width, n.depth) == (model.width, model.depth)), model.name)
    inner = f" of {model.depth} blocks of width {model.width}" if model.depth else ""
    found.say("network", f"{name}{inner}, {run.parameters:,} parameters, {run.cost.flops / 1e9:.2g} GFLOP an image")
    for line in run.built.notes:
        found.say("note", line.removeprefix("note: "))
    found.say("views", f"{_views(cfg)}{', without what the command adds' if advice else ''}")
    steps = _steps(run)
    found.say("length", f"{fit.epochs:g} epochs in batches of {fit.batch_size}, {steps:,} steps; base learning rate "
              f"{cfg.optim.base_lr:g} per 256 images")  # fmt: skip
    found.say("chosen", run.chosen.removeprefix("chosen").strip())
    return found


def _views(cfg: ResolvedPretraining) -> str:
    """Crops, mirror images and colours in words."""
    augment, crops = getattr(cfg, "augment", None), getattr(cfg, "crops", None)
    if isinstance(augment, ResolvedAugment):
        low, high = augment.crop_scale
        crop = (
            "no crop" if (low, high) == (1.0, 1.0) else f"one crop of {100 * low:.3g} to {100 * high:.3g} % of the area"
        )
        mirror = "half of them mirrored" if augment.flip else "none mirrored"
        return f"{crop}, {mirror}, {'no changes of colour' if augment.policy == 'none' else augment.policy}"
    if crops is None:
        return ""
    low, high = crops.global_scale
    words = [f"two crops of {100 * low:.3g} to {100 * high:.3g} % of the area"]
    words += [f"{crops.local_crops} small ones of {crops.local_size} px"] if crops.local_crops else []
    words += ["half of them mirrored" if crops.flip else "none mirrored"]
    words += ["colours and brightness varied" if crops.jitter else "colours kept"]
    return ", ".join(words)


def _steps(run: Followed) -> int:
    fit = run.cfg.fit
    return max(1, math.ceil(fit.epochs * len(run.pool) / fit.batch_size), fit.min_steps)


def examine_needs(run: Followed, accelerator: Accelerator, seconds: float) -> Findings:
    """Time and memory that a run takes, from steps that are tried here.

    Args:
        run: Resolved; its network is trained a few steps.
        accelerator: Made by ``launch.join``.
        seconds: How long steps are tried; 0: not at all.
    """
    found, cfg, device = Findings("what it takes"), run.cfg, accelerator.device
    launch.use_cores(accelerator, cfg.model.img_size)
    place = choose(run.pool, cfg.data.cache, device)
    images = _steps(run) * cfg.fit.batch_size
    counted = images * run.cost.operations / (RATE * cores())
    memory = _memory(run, accelerator, place.kind)
    if seconds:
        each = _seconds_an_image(run, accelerator, seconds)
        lighter = partial(lighter_networks, run.method, cfg, run.asked, len(run.pool), run.side, run.pool.form)
        found.say("time", Forecast(device.type, cfg.fit.epochs, lighter).words(images * each)
                  + f" ({two_digits(1 / each)} images a second in tried steps)")  # fmt: skip
    elif device.type == "cpu":
        found.say("time", f"about {duration(counted)} on {cores()} cores, counted and not tried")
    found.say("images", place.why)
    found.say("memory", memory[1])
    free = float(torch.cuda.mem_get_info()[0]) if device.type == "cuda" else free_memory()
    if memory[0] > _FULL * free:
        found.warn(f"that may be more than the {in_bytes(free)} that are free; add --fit.micro_batch auto")
    return found


def _some(run: Followed, device: torch.device, most: int) -> Batch:
    return some_images(run.pool, most, device)[0]


def _seconds_an_image(run: Followed, accelerator: Accelerator, seconds: float) -> float:
    """Time of training on one image, from whole steps: views, both passes, optimiser."""
    affordable = RATE * cores() * seconds / 2 / run.cost.operations
    few = int(min(_TRIED, run.cfg.fit.batch_size, max(2, affordable)))
    batch = _some(run, accelerator.device, few)
    stepper = Stepper(run.built.objective, fit=run.cfg.fit, optim=run.cfg.optim, accelerator=accelerator)
    run.built.objective.train()
    stepper.prepare(1)
    clock = Clock(0, _steps(run), len(run.pool) / run.cfg.fit.batch_size)

    def step() -> None:
        logged: dict[str, Any] = stepper(clock, 0.0, lambda: run.built.view(batch, run.cfg.seed))
        logged["loss"].item()  # waits for the device

    step()
    best, end = math.inf, time.perf_counter() + seconds
    while best == math.inf or time.perf_counter() < end:
        started = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - started)
    return best / len(batch.index)


def _memory(run: Followed, accelerator: Accelerator, kept: str) -> tuple[float, str]:
    """Bytes of a run, and the same in words."""
    objective, cfg = run.built.objective.to(accelerator.device), run.cfg
    batch = _some(run, accelerator.device, 2)
    each = try_pass(objective, run.built.view(batch, cfg.seed), accelerator.autocast()).kept / len(batch.index)
    at_once = launch.micro_batch_size(cfg.fit, accelerator.num_processes)
    weights = _STATE * sum(p.numel() * p.element_size() for p in objective.parameters() if p.requires_grad)
    decoded = len(run.pool) * run.pool.form.bytes_of(run.pool.shape) if kept != "none" else 0
    whole = each * at_once + weights + decoded
    return whole, (
        f"about {in_bytes(whole)} beside the program itself: {in_bytes(each * at_once)} for {at_once} images at a "
        f"time, {in_bytes(weights)} for weights and optimiser, {in_bytes(decoded)} for decoded images"
    )
