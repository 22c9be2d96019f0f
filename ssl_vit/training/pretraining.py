"""pretrain: images in, a backbone out, by any method of the table; and what to type next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs import (
    DataConfig,
    LabelledDataConfig,
    ModelConfig,
    PretrainingRecipe,
    ResolvedAugment,
    ResolvedPretraining,
    networks,
    presets,
    to_dict,
)
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.core.started import typed
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import FileCrops, file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import known_classes, open_pool
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.leaks.seen import check_pool
from ssl_vit.methods import Facts, Method
from ssl_vit.methods.method import imported
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.models.build import build_backbone, check_shape, model_facts
from ssl_vit.models.families import ours
from ssl_vit.objectives.base import Built, Objective
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.training import launch, loop
from ssl_vit.training.health import Health


class Beginning(NamedTuple):
    """Accelerator, images and network of a run."""

    accelerator: Accelerator
    pool: ImageSet
    note: str
    """What is said about the pool: its source, and images that stay out."""
    side: int
    """What chose the preset: median short side of the images, or of a window, in pixels."""
    facts: Facts
    preset: presets.Preset
    named: str | None
    """As given by ``--preset``."""


def pretrain(method: Method, asked: PretrainingRecipe) -> RunDir:
    """Images in, RUN/backbone out; continues where an earlier start ended.

    Args:
        method: An entry of ``methods.METHODS``.
        asked: Its recipe, as given.

    Returns:
        The run's directory.

    Raises:
        UserError: For options, images and networks that do not go together.
    """
    start = _begin(method, asked)
    accelerator, facts = start.accelerator, start.facts
    cfg: ResolvedPretraining = method.resolve(asked, facts, start.preset)
    size = cfg.model.img_size
    pool = start.pool.on_canvas(cfg.data.canvas, size, cfg.data.window)
    crops = _crops(method, cfg, pool)
    scale = measure_scale(pool)
    backbone = build_backbone(cfg.model, pool.form.channels)
    dtype = launch.DTYPES.get(cfg.fit.precision, torch.float32)
    built: Built = method.builder()(cfg, backbone, scale, dtype)
    objective = built.objective
    taken = takes_batch_statistics(backbone) or objective.batch_statistics
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    loader = Loader(
        pool, batch_size=cfg.fit.batch_size, micro_batch=launch.micro_batch_size(cfg.fit, accelerator.num_processes),
        seed=cfg.seed, device=accelerator.device, cache=cfg.data.cache, workers=cfg.data.workers, crops=crops,
    )  # fmt: skip
    launch.use_cores(accelerator, size)
    run = open_run(
        method.name, cfg, data=cfg.data.path, fingerprint=start.pool.fingerprint,
        writes=accelerator.is_main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    if accelerator.is_main_process:
        _warn(method, built, cfg)
    sees = f"{start.note}; preset {cfg.preset}, {built.sees}"
    launch.summarise(objective, loader, cfg.fit, cfg.optim, sees, accelerator)
    words = objective.describe(launch.count_steps(cfg.fit, loader))
    if accelerator.is_main_process and words:
        print(words, flush=True)
    loop.fit(
        objective, loader, built.view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=Health(loader, scale, cfg.model.pool),
    )  # fmt: skip
    if accelerator.is_main_process:
        _export(method, objective, cfg, start, scale, run)
        picture = _picture(method, objective, loader.images, scale, cfg, run)
        print(what_next(cfg, start, run, picture))
    return run


def _begin(method: Method, cfg: PretrainingRecipe) -> Beginning:
    """Joins the other processes, opens the images and chooses the network; a wrong model name comes before data."""
    if cfg.model.name is not None:
        model_facts(*networks.wanted(cfg.model), needs=method.needs)
    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    pool, note = open_pool(cfg.data, cfg.eval.data)
    check_pool(pool, cfg.data, cfg.eval.data)
    side = cfg.data.window or pool.sizes.short_side
    shape = model_facts(*networks.wanted(cfg.model, side, cfg.preset), needs=method.needs)
    model = networks.resolve_model(cfg.model, side, shape, cfg.preset, method.positions)
    check_shape(model)
    preset = presets.preset_for(cfg.preset, model.img_size)
    return Beginning(accelerator, pool, note, side, Facts(len(pool), model, shape), preset, cfg.preset)


def _crops(method: Method, cfg: ResolvedPretraining, pool: ImageSet) -> FileCrops | None:
    """Crops that loader processes cut: of methods that see one of an image."""
    augment = getattr(cfg, "augment", None)
    if isinstance(augment, ResolvedAugment):
        return file_crops(cfg.data, pool, augment, cfg.model.img_size)
    if cfg.data.crop_from == "file":
        raise UserError(
            f"--data.crop_from file: {method.title} cuts several crops of every decoded image; leave it out"
        )
    return None


def _warn(method: Method, built: Built, cfg: ResolvedPretraining) -> None:
    """Says what the view leaves out, and that outputs are fewer than classes where both are known."""
    for note in built.notes:
        say_once(note)
    outputs = built.objective.answers
    classes = known_classes(cfg.data, cfg.eval.data) if outputs is not None and not cfg.data.stream else None
    if outputs is not None and classes is not None and outputs < classes:
        say_once(
            f"warning: --{method.name}.out_dim {outputs} is smaller than the {classes} classes of the images; outputs "
            "should be many times as many, or classes have to share them"
        )


def _export(
    method: Method, objective: Objective, cfg: ResolvedPretraining, start: Beginning, scale: PixelScale, run: RunDir
) -> None:
    """Writes RUN/backbone with what evaluation must know of its origin."""
    note = objective.export_note
    recorded: dict[str, Any] = {
        "objective": f"{method.title}, {note}" if note else method.title,
        "method": method.name,
        "preset": cfg.preset,
        "pool_fingerprint": start.pool.fingerprint,
        "seed": cfg.seed,
        "transductive": cfg.data.transductive,
        **recorded_data(cfg.data, cfg.eval.data),
    }
    if start.facts.shape.plain:
        recorded["positions"] = cfg.model.positions
    export_backbone(objective.exported(), run.backbone, scale, cfg.model.pool, recorded)


def _picture(
    method: Method, objective: Objective, images: ImageSet, scale: PixelScale, cfg: ResolvedPretraining, run: RunDir
) -> Path | None:
    """Draws what was learnt, where the method has a picture for it."""
    if not method.picture:
        return None
    draw = imported(method.picture)  # so late because plotting takes time to import
    path = run.figures / f"{method.picture.partition(':')[0].rpartition('.')[2]}.png"
    draw(objective, images, scale, path, cfg)
    return path


def what_next(cfg: ResolvedPretraining, start: Beginning, run: RunDir, picture: Path | None) -> str:
    """Where everything is, and the commands that tell what it is worth.

    Args:
        cfg: Resolved.
        start: Images and network.
        run: The run directory.
        picture: A figure that was drawn, if any.
    """
    # Only a made or given test split, or another labelled source, can be judged on.
    known = cfg.eval.data.path or "stay out" in start.note or cfg.data.transductive
    judged = "" if known else " --eval.data.path LABELLED_IMAGES"
    again = " ".join(_baseline_options(cfg, start))
    place = quote(str(run.backbone))
    registered = "import ssl_vit.families; " if ours(cfg.model.name) else ""
    seen = "" if picture is None else f"Picture: {picture}   "
    return (
        f"\nThe pre-trained backbone is in {run.backbone}"
        f"\n  {registered}timm.create_model('local-dir:{run.backbone}', pretrained=True)"
        f"\n{seen}Metrics: {run.path / 'metrics.jsonl'}   Options: {run.path / 'config.yaml'}\n"
        f"\nWhat it is worth on labelled images:"
        f"\n  {typed('eval/knn.py')} --backbone {place}{judged}"
        f"\n  {typed('eval/linear_probe.py')} --backbone {place}{judged}"
        f"\n  {typed('eval/finetune.py')} --backbone {place}{judged}"
        f"\nand the same network without pre-training:"
        f"\n  {typed('recipes/supervised.py')} {again}{judged}".rstrip()
    )


def _baseline_options(cfg: ResolvedPretraining, start: Beginning) -> list[str]:
    """The options with which the labelled baseline uses the same images and network."""
    side, named, model, shape = start.side, start.named, cfg.model, start.facts.shape
    name = None if model.name == networks.default_name(ModelConfig(), side, named) else model.name
    usual: ModelConfig = networks.resolve_model(ModelConfig(name), side, shape, named)
    if cfg.eval.data.path not in (None, cfg.data.path):  # other images would choose another network: name all of it
        name, usual = None, ModelConfig()
    words = [w for option, value in (("preset", named), ("model.name", name)) if value for w in (f"--{option}", value)]
    groups = [("data", cfg.data, DataConfig()), ("eval.data", cfg.eval.data, LabelledDataConfig())]
    for group, given, default in [*groups, ("model", model, usual)]:
        for field, value in to_dict(given).items():
            if value is not None and value != getattr(default, field, value):  # the baseline has no leaks to guard
                text = value if isinstance(value, str) else json.dumps(value)
                words += [f"--{group}.{field}", quote(text)]
    return words
