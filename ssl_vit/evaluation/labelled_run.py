"""The trunk of everything that trains all weights on labels: the labelled baseline and fine-tuning are one code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from accelerate import Accelerator

from ssl_vit.configs import networks, presets, to_dict
from ssl_vit.configs.presets import Preset
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.finetune import leave, train_on_labels
from ssl_vit.evaluation.judging import Evaluated, Judged, finish
from ssl_vit.evaluation.metrics import chosen_metric
from ssl_vit.evaluation.protocol import result_of
from ssl_vit.evaluation.session import labelled_for, on_canvas, warn_unlearnable
from ssl_vit.exports.origin import recorded_data
from ssl_vit.methods import Facts
from ssl_vit.methods.supervised import (
    FinetuneRecipe,
    ResolvedFinetuneRecipe,
    ResolvedSupervisedRecipe,
    SupervisedRecipe,
)
from ssl_vit.methods.supervised import resolve as resolve_scratch
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.models.build import build_backbone, check_shape, model_facts
from ssl_vit.runs.directory import open_run
from ssl_vit.runs.identity import digest, identity
from ssl_vit.training import launch
from ssl_vit.training.trackers import follow


class Ingredients(NamedTuple):
    """Weights and images that training on labels begins with; all else is the same for both."""

    method: str
    """What tables call it."""
    backbone: Backbone
    data: Labelled
    scale: PixelScale | None
    """None: measured on the training images."""
    metric: str
    """What results lead with."""
    facts: Facts
    """Of the training images and the network, at the size that it is trained at."""
    preset: Preset
    """What fills the options left open."""
    made_of: tuple[str, ...]
    """Hashes of weights and images: others are another run."""
    recorded: dict[str, Any]
    """What exports remember of how they came about."""
    folder: Path | None = None
    """Where the run's folder is made, unless ``--run.dir`` names one; None: in ``runs``."""


def from_scratch(cfg: SupervisedRecipe) -> Evaluated:
    """The labelled baseline: opens images, builds a network with random weights, trains and judges it.

    Args:
        cfg: What ``--help`` lists.

    Raises:
        UserError: For images, labels and options that cannot be used.
    """
    if cfg.model.name is not None:
        model_facts(*networks.wanted(cfg.model))
    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    if cfg.eval.data.path is None and cfg.eval.data.split is None:
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, split=cfg.data.split)))
    data = labelled_for(cfg.data, cfg.eval)
    metric = chosen_metric(cfg.eval.metric, data.test.kind, data.test.truth)
    if accelerator.is_main_process:
        warn_unlearnable(data)
    short = cfg.data.window or data.train.sizes.short_side
    shape = model_facts(*networks.wanted(cfg.model, short, cfg.preset))
    model = networks.resolve_model(cfg.model, short, shape, cfg.preset)
    check_shape(model)
    size, preset = model.img_size, presets.preset_for(cfg.preset, model.img_size)
    data = on_canvas(data, cfg.data.canvas, size, cfg.data.window)
    launch.use_cores(accelerator, size)
    recorded = {"objective": "supervised", "seed": cfg.seed, "preset": preset.name}
    recorded |= {"positions": model.positions} if shape.plain else {}
    recorded |= recorded_data(cfg.data, cfg.eval.data)
    facts = Facts(len(data.train), model, shape, data.train.kind)
    given = Ingredients(
        "from scratch", build_backbone(model, data.train.form.channels), data, None, metric, facts, preset,
        (data.train.fingerprint,), recorded,
    )  # fmt: skip
    judged = train_and_judge("supervised", cfg, resolve_scratch, given, accelerator)
    options = judged.options | {"preset": {"asked": cfg.preset}}
    result = result_of(
        "supervised", judged.rows, options, data=data, size=size, metric=metric, cfg=cfg.eval, seed=cfg.seed
    )
    assert judged.run is not None
    return finish(judged, result, data.test, metric, judged.run, "supervised")


def train_and_judge(
    script: Literal["supervised", "finetune"],
    asked: SupervisedRecipe | FinetuneRecipe,
    resolved: Callable[[Any, Facts, Preset], ResolvedSupervisedRecipe | ResolvedFinetuneRecipe],
    given: Ingredients,
    accelerator: Accelerator,
) -> Judged:
    """Fills the options left open, trains in a run directory, judges the last step and leaves backbone and classifier.

    Args:
        script: Name of the run.
        asked: What ``--help`` lists.
        resolved: Fills what it leaves open.
        given: Weights and images.
        accelerator: Made by ``launch.start``.

    Raises:
        UserError: For options that do not fit images or network, and a folder that holds another run.
    """
    train, facts, main = given.data.train, given.facts, accelerator.is_main_process
    cfg = resolved(asked, facts, given.preset)
    taken = takes_batch_statistics(given.backbone)
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    if cfg.run.dir is None and given.folder is not None:
        options = identity(to_dict(replace(cfg, backbone="")), type(cfg))
        cfg = replace(cfg, run=replace(cfg.run, dir=str(given.folder / digest([options, *given.made_of])[:8])))
    size = facts.model.img_size
    if main:
        parts = f"in patches of {facts.patch} px" if facts.shape.plain else f"for {facts.model.name}"
        print(f"preset          {given.preset.name}, {size} px {parts}")
    run = open_run(
        script, cfg, data=train.name, fingerprint="-".join(given.made_of), writes=main,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    follow(run, cfg)
    scale = given.scale or measure_scale(train)
    trained = train_on_labels(
        given.backbone, given.data, scale, cfg, size=size, run=run, accelerator=accelerator, metric=given.metric
    )
    left = leave(trained.objective, run, scale, train, cfg.supervised, given.recorded) if main else ""
    protocol, came_to = (
        {k: to_dict(getattr(options, k)) for k in ("model", "supervised", "augment", "optim", "fit")}
        for options in (asked, cfg)
    )
    row = {"method": given.method, "labels": len(train), "trained_with": came_to, **trained.metrics}
    if taken:
        protocol["batch_statistics"] = {"of": asked.fit.given_micro_batch or "the whole batch"}
    what = "labelled baseline" if script == "supervised" else "fine-tuning"
    return Judged(
        [row], protocol, f"{what}, {len(given.data.test):,} test images", trained.answers,
        {"method": "method", "labels": "labels"}, "none: fixed options, last step", run, size, left,
    )  # fmt: skip
