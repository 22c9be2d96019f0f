"""The trunk of everything that trains all weights on labels: the labelled baseline and fine-tuning are one code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from accelerate import Accelerator

from ssl_vit.configs import AdaptConfig, FinetuneRecipe, ModelConfig, RunConfig, SupervisedRecipe, resolve, to_dict
from ssl_vit.configs.presets import Preset, Task
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.finetune import leave, train_on_labels, trained_row
from ssl_vit.evaluation.judging import Evaluated, Judged, finish
from ssl_vit.evaluation.metrics import chosen_metric
from ssl_vit.evaluation.protocol import result_of
from ssl_vit.evaluation.session import labelled_for, on_canvas, warn_unlearnable
from ssl_vit.exports.origin import recorded_data
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.models.build import build_backbone, check_shape, model_facts
from ssl_vit.runs.directory import open_run
from ssl_vit.runs.identity import digest, identity
from ssl_vit.training import launch


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
    size: int
    """Side of the input in pixels."""
    model: ModelConfig | AdaptConfig
    """Resolved; without ``patch_size`` for what is no plain ViT."""
    preset: Preset
    """What fills the options left open."""
    pool: str
    """What represents an image in evaluation."""
    task: Task
    """Which learning rates are usual."""
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
        model_facts(resolve.full_name(cfg.model.name))
    accelerator = launch.start(cfg.fit.precision, cfg.seed)
    if cfg.eval.data.path is None and cfg.eval.data.split is None:
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, split=cfg.data.split)))
    data = labelled_for(cfg.data, cfg.eval)
    assert data.test.labels is not None
    metric = chosen_metric(cfg.eval.metric, data.test.kind, data.test.labels)
    if accelerator.is_main_process:
        warn_unlearnable(data)
    short = cfg.data.window or data.train.sizes.short_side
    shape = model_facts(resolve.default_name(cfg.model, short, cfg.preset))
    model = resolve.resolve_model(cfg.model, short, shape, cfg.preset)
    check_shape(model)
    assert model.img_size and model.pool
    size, preset = model.img_size, resolve.preset_for(cfg.preset, model.img_size)
    data = on_canvas(data, cfg.data.canvas, size, cfg.data.window)
    launch.use_cores(accelerator, size)
    recorded = {"objective": "supervised", "seed": cfg.seed, "preset": preset.name}
    recorded |= {"positions": model.positions} if shape.plain else {}
    recorded |= recorded_data(cfg.data, cfg.eval.data)
    given = Ingredients(
        "from scratch", build_backbone(model, data.train.form.channels), data, None, metric, size, model, preset,
        model.pool, "scratch", (data.train.fingerprint,), recorded,
    )  # fmt: skip
    judged = train_and_judge("supervised", cfg, given, accelerator)
    options = judged.options | {"preset": {"asked": cfg.preset}}
    result = result_of(
        "supervised", judged.rows, options, data=data, size=size, metric=metric, cfg=cfg.eval, seed=cfg.seed
    )
    assert judged.run is not None
    return finish(judged, result, data.test, metric, judged.run, "supervised")


def train_and_judge(
    script: Literal["supervised", "finetune"], cfg: SupervisedRecipe | FinetuneRecipe, given: Ingredients,
    accelerator: Accelerator,
) -> Judged:  # fmt: skip
    """Fills the options left open, trains in a run directory, judges the last step and leaves backbone and classifier.

    Args:
        script: Name of the run.
        cfg: What ``--help`` lists.
        given: Weights and images.
        accelerator: Made by ``launch.start``.

    Raises:
        UserError: For options that do not fit images or network, and a folder that holds another run.
    """
    asked, train, main = cfg, given.data.train, accelerator.is_main_process
    preset, plain = given.preset, given.model.patch_size is not None
    cfg = replace(
        cfg,
        model=given.model,
        supervised=resolve.resolve_supervised(
            cfg.supervised, given.pool, preset.input, len(train), train.kind, plain=plain
        ),
        augment=resolve.resolve_augment(cfg.augment, preset.input, labelled=True),
        optim=resolve.resolve_optim(cfg.optim, given.backbone.embed_dim, preset.input, given.task),
        fit=resolve.resolve_fit(cfg.fit, len(train), size=preset.input, labelled=True),
    )
    taken = takes_batch_statistics(given.backbone)
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    if isinstance(cfg, SupervisedRecipe):
        cfg = replace(cfg, preset=preset.name)
    elif cfg.run.dir is None and given.folder is not None:
        options = identity(to_dict(replace(cfg, backbone="")))
        cfg = replace(cfg, run=RunConfig(str(given.folder / digest([options, *given.made_of])[:8])))
    if main:
        parts = f"in patches of {given.model.patch_size} px" if plain else f"for {given.backbone.architecture}"
        print(f"preset          {preset.name}, {given.size} px {parts}")
    run = open_run(
        script, cfg, data=train.name, fingerprint="-".join(given.made_of), writes=main,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    scale = given.scale or measure_scale(train)
    trained = train_on_labels(
        given.backbone, given.data, scale, size=given.size, supervised=cfg.supervised, augment=cfg.augment,
        optim=cfg.optim, fit_cfg=cfg.fit, loading=cfg.data, run=run, accelerator=accelerator, seed=cfg.seed,
        metric=given.metric,
    )  # fmt: skip
    left = leave(trained.objective, run, scale, train, cfg.supervised, given.recorded) if main else ""
    row = trained_row(given.method, len(train), cfg, trained.metrics)
    protocol = {k: to_dict(getattr(asked, k)) for k in ("model", "supervised", "augment", "optim", "fit")}
    if taken:
        protocol["batch_statistics"] = {"of": asked.fit.given_micro_batch or "the whole batch"}
    what = "labelled baseline" if script == "supervised" else "fine-tuning"
    return Judged(
        [row], protocol, f"{what}, {len(given.data.test):,} test images", trained.answers,
        {"method": "method", "labels": "labels"}, "none: fixed options, last step", run, given.size, left,
    )  # fmt: skip
