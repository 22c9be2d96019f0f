"""What is known before anything is measured: operations and memory, counted; so what cannot be kept is not tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from ssl_vit.configs import ModelConfig, networks, presets
from ssl_vit.core.reading import loads
from ssl_vit.core.text import duration
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.shared import free_memory
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import PUBLIC, start_called
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.models.build import facts_of
from ssl_vit.training.forecast import RATE, Cost, count, narrower, network_of
from ssl_vit.training.products import bf16_is_faster
from ssl_vit.verdict.estimate import Pace
from ssl_vit.verdict.options import Comparison
from ssl_vit.verdict.plan import LEAST_EPOCHS, LEAST_SHARE, PRETRAINING
from ssl_vit.verdict.study import Study

_RATHER = 1.5
"""How many times as fast as other pre-training what was not measured is taken to be."""
_LARGE = 128
"""Pixels that a larger input is shrunk to before a network is; smaller images go down to their preset's usual input."""
_BEST = {False: 10.0, True: 20.0}
"""How many times ``RATE`` a core might do at best, without bf16 and with it; whole steps reach 9 and 16 times it
(benchmarks/results/step.md)."""
_PROCESS, _FREE = 0.6e9, 0.9
"""Bytes of a process without images and networks, and the share of the free memory that all may take together."""


def best_rate() -> float:
    """Operations a second that no core of this kind reaches: what does not fit even so is not measured."""
    return _BEST[bf16_is_faster()] * RATE


class Fitted(NamedTuple):
    """The Vision Transformer of a verdict."""

    model: ModelConfig
    note: str
    """What was chosen and why; empty where nothing was."""


def fitted(
    cfg: Comparison, start: str, images: int, side: int, form: Format, seconds: float | None, jobs: int, folder: Path
) -> Fitted:
    """The preset's network and input, or smaller ones where whole pre-training would not fit into its share of time.

    Nothing changes where network or preset were named. The input is shrunk before the network, both as far as it takes;
    where not even the smallest fits, that one is taken, and trained for shorter. A plan that is there has its network.

    Args:
        cfg: As given.
        start: The method that must fit.
        images: To pre-train on.
        side: Median short side of the images, or of a window, in pixels.
        form: Channels and bits of the images.
        seconds: The budget; None for no limit.
        jobs: Runs at a time.
        folder: The verdict's.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = loads((folder / "plan.json").read_text())
        if told["budget"] == seconds:
            return Fitted(replace(cfg.model, **{k: told["model"][k] for k in ("name", "img_size")}), "")
    method, sizes = METHODS[start], ("name", "width", "depth", "heads", "patch_size", "args")
    if seconds is None or cfg.preset is not None or any(getattr(cfg.model, name) is not None for name in sizes):
        return Fitted(cfg.model, "")
    preset = presets.for_side(cfg.model.img_size or side, cpu=True)
    least = min(_LARGE, preset.input)
    shrunk = [least] if cfg.model.img_size is None and (preset.input > _LARGE or side > preset.input) else []
    room = PRETRAINING * seconds * jobs * RATE / (cfg.verdict.seeds * cfg.verdict.pretraining)
    chosen, note = cfg.model, ""
    for name in (None, *narrower(preset.network)):
        for size in (cfg.model.img_size, *shrunk):
            chosen = replace(cfg.model, name=name, img_size=size)
            own = cfg.of(method)
            facts, filled = network_of(method, replace(own, model=chosen), images, side, cpu=True)
            whole = method.resolve(replace(own, model=chosen), facts, filled)
            if whole.fit.epochs * images * count(method, whole, form).operations <= room:
                return Fitted(chosen, note)
            note = f"a smaller network than {preset.network} at {preset.input} px, for the budget; --preset "
            note += f"{preset.name} asks for that one"
    return Fitted(chosen, note)


class Counted(NamedTuple):
    """What pre-training by one start takes."""

    epochs: float
    """Whole length."""
    cost: Cost | None
    """Of an image; None where it is not counted."""
    batch: int


def counted(study: Study, pool: ImageSet, side: int, *, cpu: bool) -> dict[str, Counted]:
    """Whole lengths and, on a CPU, costs of all pre-training that is still to be done."""
    found: dict[str, Counted] = {}
    for start in (s for s in study.starts if start_called(s).made and s not in study.given):
        method, asked = METHODS[start_called(start).method], study.whole(start)
        facts, preset = network_of(method, asked, len(pool), side, cpu=cpu)
        whole = method.resolve(asked, facts, preset)
        micro = whole.fit.given_micro_batch or whole.fit.batch_size
        found[start] = Counted(whole.fit.epochs, count(method, whole, pool.form) if cpu else None, micro)
    return found


class TooMuch(NamedTuple):
    """Why a start cannot take part."""

    why: str
    lacks: Literal["memory", "time"]
    budget: float = 0.0
    """Seconds of a budget that would not do either; 0 where time is not what it lacks."""


def cannot(
    study: Study, costs: Mapping[str, Counted], images: int, seconds: float | None, jobs: int
) -> dict[str, TooMuch]:
    """Starts that need more memory than there is, or more time than pre-training may have, and why."""
    found, free = dict[str, TooMuch](), _FREE * free_memory() / max(1, jobs)
    v = study.recipe.verdict
    for start, (epochs, cost, batch) in costs.items():
        if cost is None:
            continue
        needed = _PROCESS + cost.weights + batch * cost.kept
        least = max(LEAST_SHARE * epochs, min(epochs, LEAST_EPOCHS)) * min(1.0, v.pretraining / LEAST_SHARE)
        takes = v.seeds * least * images * cost.operations / (best_rate() * max(1, jobs))
        if needed > free:
            why = f"a run needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free for each"
            found[start] = TooMuch(why, "memory")
        elif seconds is not None and takes > PRETRAINING * seconds:
            found[start] = TooMuch(
                f"{least:.3g} epochs would take {duration(takes)} or more", "time", takes / PRETRAINING
            )
    return found


def pace_of_public(study: Study) -> Pace:
    """The pace of training public weights on labels, counted: they are often too slow for steps to be tried."""
    public = load_backbone(str(study.runs(PUBLIC)[0]))
    flops = trained(public.backbone, public.size, public.pool)
    return Pace(2 * RATE / flops, 1.0, flops, float(study.batch(study.labels[-1])))


def trained(backbone: Backbone, size: int, pool: Pool) -> float:
    """Operations of one image of ``size`` pixels, forwards and backwards, counted."""
    image = torch.zeros(1, backbone.channels, size, size)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        backbone.eval().forward_pooled(image, pool=pool)
    return 3.0 * counter.get_total_flops()


def guesses(costs: Mapping[str, Counted], paces: Mapping[str, Pace], starts: Sequence[str]) -> dict[str, Pace]:
    """Paces of pre-training that was not measured, by its operations and those of what was; rather fast ones."""
    rates = [paces[s].images_per_second * cost.operations for s, (_, cost, _) in costs.items() if cost and s in paces]
    found = {s: cost for s in starts if (cost := costs[s].cost) is not None}
    rate = _RATHER * max(rates, default=best_rate())
    return {s: Pace(rate / cost.operations, 1.0, cost.flops, float(costs[s].batch)) for s, cost in found.items()}


def lighter(cfg: Comparison, images: int, side: int, form: Format) -> dict[str, float]:
    """Narrower networks than the one that was named, by their share of its operations in pre-training.

    Empty where it is no plain ViT, or weights are given.
    """
    method = next(iter(METHODS.values()))
    shape = facts_of(cfg.model, side, cfg.preset)
    if not shape.plain or cfg.model.weights is not None:
        return {}

    def operations(model: ModelConfig) -> float:
        asked = replace(cfg.of(method), model=model, preset=cfg.preset)
        facts, preset = network_of(method, asked, images, side, cpu=True)
        return count(method, method.resolve(asked, facts, preset), form).operations

    own = networks.resolve_model(cfg.model, side, shape, cfg.preset).width or 0
    below = [network.name for network in networks.NETWORKS.values() if network.width < own]
    whole, model = operations(cfg.model), ModelConfig(img_size=cfg.model.img_size)
    return {name: operations(replace(model, name=name)) / whole for name in below[::-1]}
