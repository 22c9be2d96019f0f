"""The tasks: pre-train, train on labels, look at a network, measure a pace. Each leaves files that are whole.

Training on labels goes through the one loop (``labelled_run.train_on_labels``), not through the scripts: images are
opened once for all that a process trains, and permuted ones have no path.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ssl_vit.configs import LabelledDataConfig, PoolConfig, networks, presets
from ssl_vit.core.errors import Collapsed, Diverged, UserError
from ssl_vit.core.started import main_of
from ssl_vit.data.images import ImageSet, evenly
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.evaluation.answers import save_answers
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.evaluation.labelled_run import facts_of_backbone, train_on_labels
from ssl_vit.evaluation.session import on_canvas
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.leaks.guard import guard_labelled, on_leak
from ssl_vit.methods import METHODS, Facts, supervised
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe
from ssl_vit.models.backbone import Backbone, Pool, TokenBackbone
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.questions.asked.positions import shown
from ssl_vit.questions.memory import in_memory
from ssl_vit.questions.metrics import (
    amplitudes,
    attention_distance,
    attention_information,
    relative_change,
    shifted,
)
from ssl_vit.questions.permuting import permuted
from ssl_vit.questions.scope import Images, Look, Pretraining, Training
from ssl_vit.questions.study import Study
from ssl_vit.runs.directory import open_run
from ssl_vit.training import launch
from ssl_vit.verdict.work import cost_of, discard, prepare
from ssl_vit.views.evaluation import eval_images

LOOKED = 128
"""Test images that networks are looked at with."""
_LINES, _SECONDS, _MOST, _TIMES = 6, 1.5, 60, 3
"""Parts that measured steps are timed in, how long they should take, how many they are and how often at most."""


@lru_cache(maxsize=2)
def labelled(data: PoolConfig, judged_on: LabelledDataConfig) -> Labelled:
    """The labelled images, without training images that show test images; opened once in every process.

    Args:
        data: ``--data``.
        judged_on: ``--eval.data``.
    """
    return guard_labelled(open_labelled(data, judged_on), on_leak(data, judged_on), data.workers)[0]


@lru_cache(maxsize=2)
def _held(data: PoolConfig, judged_on: LabelledDataConfig, size: int) -> Labelled:
    """The same as the ViT has them, in memory."""
    found = on_canvas(labelled(data, judged_on), data.canvas, size, None)
    return found._replace(train=in_memory(found.train), test=in_memory(found.test))


@lru_cache(maxsize=2)
def _permuted(
    data: PoolConfig, judged_on: LabelledDataConfig, kind: Images, side: int, patch: int, seed: int
) -> Labelled:
    """The same as squares, permuted."""
    found = _held(data, judged_on, side)
    train, test = (in_memory(permuted(part, kind, side, patch, seed)) for part in (found.train, found.test))
    return found._replace(train=train, test=test)


def opened(study: Study, images: Images | None = None) -> Labelled:
    """The labelled images of a study.

    Args:
        study: Of whose options.
        images: How their squares are permuted; None for images that are not made squares.
    """
    cfg, scope = study.recipe, study.scope
    if images is None:
        return _held(cfg.data, cfg.eval.data, scope.img_size)
    return _permuted(cfg.data, cfg.eval.data, images, scope.img_size, scope.patch, cfg.seed)


@lru_cache(maxsize=2)
def _measured(data: PoolConfig, judged_on: LabelledDataConfig, size: int) -> PixelScale:
    """Statistics of all training images, as every network from scratch has them; a permutation changes none."""
    return measure_scale(_held(data, judged_on, size).train)


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
    found = opened(study, training.images if training.plain or training.images != "whole" else None)
    found = found._replace(train=labelled_draw(found.train, training.labels, training.draw))
    return on_canvas(found, None, size, None)


def _begun(
    study: Study, training: Training, asked: SupervisedRecipe | FinetuneRecipe
) -> tuple[Backbone, PixelScale, Any, int]:
    """Network, pixel statistics, resolved options and input size of a training."""
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
    return (
        build_backbone(model, opened(study).train.form.channels),
        _measured(study.recipe.data, study.recipe.eval.data, side),
        cfg,
        model.img_size,
    )


def _train(study: Study, training: Training, folder: Path, steps: int, *, keep: bool) -> dict[str, Any]:
    accelerator = launch.join("fp32", study.recipe.seed + training.draw)
    asked = study.trains(training, folder, steps)
    backbone, scale, cfg, size = _begun(study, training, asked)
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


def _network(study: Study, training: Training) -> tuple[Backbone, PixelScale, Pool, int] | None:
    """A network to look at: trained, pre-trained, or with random weights; None where there is none."""
    before = training.pretraining
    if training.labels or before is not None:
        place = study.network(training) if before is None else study.run(before)
        if not (place / "backbone" / "config.json").exists():
            return None
        exported = load_backbone(str(place))
        return exported.backbone.eval(), exported.scale, "mean", exported.size
    whole = replace(training, labels=study.scope.labels[-1])
    backbone, scale, _, size = _begun(study, whole, study.trains(whole, study.folder / "work", 1))
    return backbone.eval(), scale, "mean", size


def looked_at(test: ImageSet) -> np.ndarray:
    """Positions of the test images that networks are looked at with.

    Args:
        test: All of them.
    """
    return evenly(len(test), LOOKED)


def look(study: Study, wanted: Look) -> dict[str, Any]:
    """Reads something off a network, and keeps it.

    Args:
        study: What it is about.
        wanted: What, and of which network.

    Returns:
        ``files``, or ``failed``: why.
    """
    accelerator = launch.join("fp32", study.recipe.seed + wanted.of.draw)
    found = _network(study, wanted.of)
    if found is None:
        return {"failed": "there is no such network"}
    backbone, scale, pool, size = found
    launch.use_cores(accelerator, size)
    backbone = backbone.to(accelerator.device)
    scope, test = study.scope, opened(study, "whole").test
    batch, _ = chosen_images(test, looked_at(test), accelerator.device)
    with torch.inference_mode():
        if wanted.what == "shifts":
            try:
                arrays = _shifts(backbone, batch, scale, pool, size, scope.patch)
            except ValueError as error:  # a network that has collapsed
                return {"failed": str(error)}
        elif wanted.what == "blocks":
            arrays = _blocks(cast(ViTBackbone, backbone), eval_images(batch, scale, size, torch.float32))
        else:
            arrays = _positions(backbone, scope.grid)
    name = f"looks/{wanted.key}.npz"
    (study.folder / "looks").mkdir(parents=True, exist_ok=True)
    save_answers((study.folder / name).with_suffix(".json"), arrays)
    return {"files": [name]}


def _shifts(
    backbone: Backbone, batch: Batch, scale: PixelScale, pool: Pool, size: int, patch: int
) -> dict[str, np.ndarray]:
    """``change`` [1 + patch, images] under shifts of 0 to one patch."""

    def features(images: Tensor) -> Tensor:
        seen = eval_images(replace(batch, images=images), scale, size, torch.float32)
        return backbone.forward_pooled(seen, pool=pool).cpu()

    still = features(batch.images)
    rows = [torch.zeros(len(still), dtype=torch.float64)]
    for pixels in range(1, patch + 1):
        moved = tuple(features(images) for images in shifted(batch.images, pixels))
        rows.append(relative_change(still, moved))
    return {"change": torch.stack(rows).numpy()}


def _blocks(backbone: ViTBackbone, images: Tensor) -> dict[str, np.ndarray]:
    """Distance, information and amplitude [blocks, images], the means over heads."""
    maps: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _, __, out: maps.append(out.cpu())) for block in backbone.vit.blocks]
    try:
        backbone.forward_tokens(images)
    finally:
        for hook in hooks:
            hook.remove()
    grid, patch, prefix = backbone.grid, backbone.patch_size, backbone.prefix_tokens
    squares = [one[:, prefix:].transpose(1, 2).unflatten(2, grid) for one in maps]
    attended = [one.cpu() for one in backbone.attentions(images)]  # in double precision, which not every device has
    found = {
        "distance": [attention_distance(one, grid, patch, prefix=prefix).mean(dim=1) for one in attended],
        "information": [attention_information(one, prefix=prefix).mean(dim=1) for one in attended],
        "amplitude": [amplitudes(one)[:, -1] for one in squares],
    }
    return {name: torch.stack(rows).numpy() for name, rows in found.items()}


def _positions(backbone: Backbone, grid: int) -> dict[str, np.ndarray]:
    """``similarity`` [M, grid, grid] of the shown patches with all; nothing for a network that has no such table."""
    places = [row * grid + column for row, column in shown(grid)]
    table = backbone.patch_positions() if isinstance(backbone, TokenBackbone) else None
    if table is not None:
        unit = torch.nn.functional.normalize(table.cpu().double(), dim=1)
        alike = unit @ unit.T
    else:
        biases = [part for part in backbone.modules() if callable(getattr(part, "get_bias", None))]
        if not biases:
            return {}
        bias = cast(Any, biases[0]).get_bias().cpu().double()[0].mean(dim=0)
        bias = bias[-grid * grid :, -grid * grid :]
        alike = bias / bias.abs().amax().clamp_min(1e-12)
    return {"similarity": alike[places].reshape(len(places), grid, grid).numpy()}


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
        timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
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
