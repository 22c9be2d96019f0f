"""The tasks that train: pre-training, training on labels, measuring a pace. Each leaves files that are whole.

Training on labels goes through the one loop (``labelled_run.train_on_labels``), not through the scripts: images are
opened once for all that a process trains, and permuted ones have no path.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssl_vit.configs import networks, presets
from ssl_vit.core.errors import Collapsed, Diverged, UserError
from ssl_vit.core.reading import json_lines
from ssl_vit.core.started import main_of
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.answers import save_answers
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.evaluation.labelled_run import facts_of_backbone, train_on_labels
from ssl_vit.evaluation.session import on_canvas
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.methods import METHODS, Facts, supervised
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.blocks import init_weights
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.questions.images import opened, pixel_scale
from ssl_vit.questions.scope import CNN, VIT, Pretraining, Training
from ssl_vit.questions.study import Study
from ssl_vit.runs.directory import open_run
from ssl_vit.training import launch
from ssl_vit.verdict.work import cost_of, discard, prepare

_LINES, _SECONDS, _MOST, _TIMES = 6, 1.5, 60, 3
"""Parts that measured steps are timed in, how long they should take, how many they are and how often at most."""


def pretrain(study: Study, pretraining: Pretraining) -> dict[str, Any]:
    """One pre-training run, continued where it was.

    Args:
        study: What it is about.
        pretraining: Which.

    Returns:
        ``cost``: what it took, or ``failed``: why, where self-distillation collapsed or training diverged.
    """
    config = study.pretrains(pretraining)
    prepare(study.run(pretraining))
    try:
        main_of(METHODS[pretraining.method].script)(config)
    except (Collapsed, Diverged) as error:
        return {"failed": str(error)}
    return {"cost": cost_of(study.run(pretraining)), "files": [f"runs/{pretraining.key}/backbone/config.json"]}


def train(study: Study, training: Training) -> dict[str, Any]:
    """One training on labels, judged on the test images.

    Args:
        study: What it is about.
        training: Which; what it begins with is there.

    Returns:
        ``value``, ``cost``, ``parameters`` and ``files``, or ``failed``: why.
    """
    folder = study.folder / "work" / training.key
    before = training.pretraining
    if before is not None and not (study.run(before) / "backbone" / "config.json").exists():
        return {"failed": "there is no pre-trained network"}
    prepare(folder)
    try:
        found = _train(study, training, folder, study.scope.steps, keep=True)
    except Diverged as error:
        found = {"failed": str(error)}
    discard(folder)
    return found


def _images(study: Study, training: Training, size: int) -> Labelled:
    """Training images of a draw and all test images, permuted where that is asked for."""
    square = training.images if training.plain or training.images != "whole" else None
    found = opened(study, square, 0 if training.images == "whole" else training.draw)
    found = found._replace(train=labelled_draw(found.train, training.labels, training.draw))
    return on_canvas(found, None, size, None)


def begun(
    study: Study, training: Training, asked: SupervisedRecipe | FinetuneRecipe
) -> tuple[Backbone, PixelScale, Any, int]:
    """What a training begins with.

    Args:
        study: What it is about.
        training: Which, on any number of labels.
        asked: Its options.

    Returns:
        Network, pixel statistics, resolved options, side of the input in pixels.
    """
    count = min(training.labels, len(opened(study).train))
    kind = study.kind
    if isinstance(asked, FinetuneRecipe):
        exported = load_backbone(asked.backbone)
        facts = facts_of_backbone(exported.backbone, exported, None, count, kind)
        cfg = supervised.resolve_finetuning(asked, facts, presets.named(study.preset))
        return exported.backbone, exported.scale, cfg, exported.size
    side = study.scope.img_size
    shape = model_facts(*networks.wanted(asked.model, side, study.preset))
    model = networks.resolve_model(asked.model, side, shape, study.preset)
    facts = Facts(count, model, shape, kind)
    cfg = supervised.resolve(asked, facts, presets.named(study.preset))
    torch.manual_seed(asked.seed)
    backbone = build_backbone(model, opened(study).train.form.channels)
    if training.net not in (VIT, CNN):
        init_weights(backbone)  # as every plain ViT: timm's deviation of .02 is made for far wider networks
    return (
        backbone,
        pixel_scale(study.recipe.data, study.recipe.eval.data, side),
        cfg,
        model.img_size,
    )


def _train(study: Study, training: Training, folder: Path, steps: int, *, keep: bool) -> dict[str, Any]:
    accelerator = launch.join("fp32", study.recipe.seed + training.draw)
    asked = study.trains(training, folder, steps)
    backbone, scale, cfg, size = begun(study, training, asked)
    launch.use_cores(accelerator, size)
    data = _images(study, training, size)
    run = open_run(
        "supervised", cfg, data=data.train.name, fingerprint=f"{training.key}-{data.train.fingerprint}", writes=True,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    done = train_on_labels(
        backbone, data, scale, cfg, size=size, run=run, accelerator=accelerator, metric=study.metric, quiet=True
    )
    found: dict[str, Any] = {"value": done.metrics.get(study.metric), "cost": cost_of(folder)}
    found["parameters"] = sum(parameter.numel() for parameter in done.objective.exported().parameters())
    if not keep:
        return found
    files = [f"results/{training.key}.npz"]
    if training.kept:
        about = {"objective": "supervised", "preset": study.preset, "positions": training.positions}
        place = study.network(training)
        export_backbone(done.objective.exported(), place / "backbone", scale, _pool(cfg), about)
        files.append(f"networks/{training.key}/backbone/config.json")
    answers = {name: value for name, value in done.answers.items() if name in ("units", "clusters", "positions")}
    (study.folder / "results").mkdir(parents=True, exist_ok=True)
    save_answers(study.folder / "results" / f"{training.key}.json", answers)
    return found | {"files": files}


def _pool(cfg: Any) -> str:
    return "cls" if cfg.supervised.pool == "cls" else "mean"


def measure(study: Study, work: Training | Pretraining) -> dict[str, Any]:
    """Some steps, for planning: the pace, and what a run takes beside its steps.

    Tried at least twice: the first time also imports and opens what all runs use.

    Args:
        study: What it is about.
        work: Of which kind.
    """
    steps, found, folder = _LINES, dict[str, Any](), study.folder / "work" / f"measure-{work.key}"
    for number in range(_TIMES):
        discard(folder)
        began = time.monotonic()
        _try(study, work, folder, steps)
        took = time.monotonic() - began
        timing = json_lines(folder / "timing.jsonl").whole
        cost = cost_of(folder)
        pace = float(np.median([line["images_per_second"] for line in timing[len(timing) // 2 :]]))  # it warms up
        batch = cost["images"] / cost["steps"]
        found = {"images_per_second": pace, "overhead": max(0.0, took - cost["seconds"])}
        wanted = int(np.clip(_SECONDS * pace / batch, _LINES, _MOST))
        if number and wanted < 2 * steps:
            break
        steps = _LINES * (wanted // _LINES)
    discard(folder)
    return found


def _try(study: Study, work: Training | Pretraining, folder: Path, steps: int) -> None:
    if isinstance(work, Training):
        prepare(folder)
        try:
            _train(study, work, folder, steps, keep=False)
        except Diverged as error:
            raise UserError(f"{work.key} diverged in its first {steps} steps: {error}") from error
        return
    config = study.pretrains(work, epochs=1e-6)
    own = getattr(config, work.method)
    if hasattr(own, "on_collapse"):  # so few steps say nothing of it
        config = replace(config, **{work.method: replace(own, on_collapse="warn")})
    fit = replace(config.fit, min_steps=steps, log_every=max(1, steps // _LINES))
    prepare(folder)
    main_of(METHODS[work.method].script)(replace(config, fit=fit, run=replace(config.run, dir=str(folder))))
