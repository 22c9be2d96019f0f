"""What recipes without labels share: images and network at the start, the backbone and what to type next at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

from accelerate import Accelerator

from ssl_vit.configs import (
    DataConfig,
    DINORecipe,
    LabelledDataConfig,
    MAERecipe,
    ModelConfig,
    networks,
    presets,
    to_dict,
)
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.leaks.seen import check_pool
from ssl_vit.models.backbone import Needs
from ssl_vit.models.build import ModelFacts, check_shape, model_facts
from ssl_vit.objectives.base import Objective
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.training import launch

_ROOT = Path(__file__).resolve().parents[2]


class Beginning(NamedTuple):
    """Accelerator, images and network of a run."""

    accelerator: Accelerator
    pool: ImageSet
    note: str
    """What is said about the pool: its source, and images that stay out."""
    model: ModelConfig
    """Resolved."""
    preset: presets.Preset
    side: int
    """What chose the preset: median short side of the images, or of a window, in pixels."""
    shape: ModelFacts
    named: str | None
    """As given by ``--preset``."""


def begin(
    cfg: MAERecipe | DINORecipe, *, needs: Needs = "pooled", positions: Literal["sincos", "learnable"] = "sincos"
) -> Beginning:
    """Joins the other processes, opens the images and chooses the network; a wrong model name comes before data.

    Args:
        cfg: As given.
        needs: What of a network the objective uses.
        positions: What a plain ViT has where the options leave it open.
    """
    if cfg.model.name is not None:
        model_facts(*networks.wanted(cfg.model), needs=needs)
    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    pool, note = open_pool(cfg.data, cfg.eval.data)
    check_pool(pool, cfg.data, cfg.eval.data)
    side = cfg.data.window or pool.sizes.short_side
    shape = model_facts(*networks.wanted(cfg.model, side, cfg.preset), needs=needs)
    model = networks.resolve_model(cfg.model, side, shape, cfg.preset, positions)
    check_shape(model)
    assert model.img_size
    return Beginning(
        accelerator, pool, note, model, presets.preset_for(cfg.preset, model.img_size), side, shape, cfg.preset
    )


def load(cfg: MAERecipe | DINORecipe, start: Beginning) -> tuple[Loader, PixelScale]:
    """Ordered batches of the pool, and its pixel statistics.

    Args:
        cfg: Resolved.
        start: What ``begin`` returned.
    """
    assert cfg.fit.batch_size is not None and cfg.model.img_size is not None
    accelerator = start.accelerator
    pool = start.pool.on_canvas(cfg.data.canvas, cfg.model.img_size, cfg.data.window)
    scale = measure_scale(pool)
    if isinstance(cfg, MAERecipe):
        crops = file_crops(cfg.data, pool, cfg.augment, cfg.model.img_size)
    elif cfg.data.crop_from == "file":
        raise UserError("--data.crop_from file: DINO cuts several crops of every decoded image; leave it out")
    else:
        crops = None
    loader = Loader(
        pool, batch_size=cfg.fit.batch_size, micro_batch=launch.micro_batch_size(cfg.fit, accelerator.num_processes),
        seed=cfg.seed, device=accelerator.device, cache=cfg.data.cache, workers=cfg.data.workers, crops=crops,
    )  # fmt: skip
    launch.use_cores(accelerator, cfg.model.img_size)
    return loader, scale


def open_run_for(method: str, cfg: MAERecipe | DINORecipe, start: Beginning) -> RunDir:
    """The run directory: new, the same, or refused."""
    return open_run(
        method, cfg, data=cfg.data.path, fingerprint=start.pool.fingerprint,
        writes=start.accelerator.is_main_process, accelerator=launch.describe(start.accelerator),
    )  # fmt: skip


def export(
    name: str, objective: Objective, cfg: MAERecipe | DINORecipe, start: Beginning, scale: PixelScale, run: RunDir
) -> None:
    """Writes RUN/backbone with what evaluation must know of its origin."""
    recorded: dict[str, Any] = {
        "objective": name,
        "pool_fingerprint": start.pool.fingerprint,
        "seed": cfg.seed,
        "transductive": cfg.data.transductive,
        **recorded_data(cfg.data, cfg.eval.data),
    }
    if start.shape.plain:
        recorded["positions"] = cfg.model.positions
    assert cfg.model.pool is not None
    export_backbone(objective.exported(), run.backbone, scale, cfg.model.pool, recorded)


def what_next(cfg: MAERecipe | DINORecipe, start: Beginning, run: RunDir, picture: Path | None) -> str:
    """Where everything is, and the commands that tell what it is worth.

    Args:
        cfg: Resolved.
        start: What ``begin`` returned.
        run: The run directory.
        picture: A figure that was drawn, if any.
    """
    # Only a made or given test split, or another labelled source, can be judged on.
    known = cfg.eval.data.path or "stay out" in start.note or cfg.data.transductive
    judged = "" if known else " --eval.data.path LABELLED_IMAGES"
    again = " ".join(_baseline_options(cfg, start))
    place = quote(str(run.backbone))
    seen = "" if picture is None else f"Picture: {picture}   "
    return (
        f"\nThe pre-trained backbone is in {run.backbone}"
        f"\n  timm.create_model('local-dir:{run.backbone}', pretrained=True)"
        f"\n{seen}Metrics: {run.path / 'metrics.jsonl'}   Options: {run.path / 'config.yaml'}\n"
        f"\nWhat it is worth on labelled images:"
        f"\n  accelerate launch {_script('eval/knn.py')} --backbone {place}{judged}"
        f"\n  accelerate launch {_script('eval/linear_probe.py')} --backbone {place}{judged}"
        f"\n  accelerate launch {_script('eval/finetune.py')} --backbone {place}{judged}"
        f"\nand the same network without pre-training:"
        f"\n  accelerate launch {_script('recipes/supervised.py')} {again}{judged}".rstrip()
    )


def _script(name: str) -> str:
    """A script's path from where the user is."""
    return quote(os.path.relpath(_ROOT / name))


def _baseline_options(cfg: MAERecipe | DINORecipe, start: Beginning) -> list[str]:
    """The options with which the labelled baseline uses the same images and network."""
    side, named, model = start.side, start.named, cfg.model
    name = None if model.name == networks.default_name(ModelConfig(), side, named) else model.name
    usual = networks.resolve_model(ModelConfig(name), side, start.shape, named)
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
