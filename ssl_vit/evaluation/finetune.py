"""Training on labels, from scratch or from a backbone, and judging the last step on the test images."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs.networks import check_pool
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.targets import measure_targets
from ssl_vit.evaluation.answers import Answers, answers_of
from ssl_vit.evaluation.features import Features, answers_to
from ssl_vit.evaluation.metrics import headline, judge
from ssl_vit.exports.classifier import Labelling, export_classifier
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.supervised import ResolvedFinetuneRecipe, ResolvedSupervised, ResolvedSupervisedRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.supervised import Supervised, supervised_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.health import Health
from ssl_vit.training.launch import DTYPES, count_steps, micro_batch_size, summarise
from ssl_vit.training.loop import fit
from ssl_vit.views.randaugment import notice


class Trained(NamedTuple):
    """A network that was trained on labels, after the last step."""

    objective: Supervised
    metrics: dict[str, Any]
    """On the test images."""
    answers: Answers
    """For every test image."""


def train_on_labels(
    backbone: Backbone,
    data: Labelled,
    scale: PixelScale,
    cfg: ResolvedSupervisedRecipe | ResolvedFinetuneRecipe,
    *,
    size: int,
    run: RunDir,
    accelerator: Accelerator,
    metric: str | None = None,
    quiet: bool = False,
) -> Trained:
    """The one code for the labelled baseline and for fine-tuning.

    Args:
        backbone: Random for the baseline, pre-trained for fine-tuning; trained in place.
        data: Labelled training and test images.
        scale: Pixel statistics.
        cfg: All options; none is open.
        size: Side of the input in pixels.
        run: Where metrics and checkpoints go.
        accelerator: Made by ``launch.start``.
        metric: What results lead with, for the answers; default: the headline of the test labels.
        quiet: Print nothing.
    """
    labelling = labelling_of(data.train)
    kind, names = labelling.kind, labelling.names
    supervised, augment = cfg.supervised, cfg.augment
    check_pool(supervised.pool, backbone.class_token, "--supervised.pool")
    micro = micro_batch_size(cfg.fit, accelerator.num_processes)
    if (supervised.mixup or supervised.cutmix) and micro % 2:
        raise UserError(f"mixup and CutMix pair neighbours: --fit.micro_batch {micro} must be even")
    torch.manual_seed(cfg.seed)
    objective = Supervised(backbone, len(names), supervised, kind)
    loader = Loader(
        data.train, batch_size=cfg.fit.batch_size, micro_batch=micro, seed=cfg.seed, device=accelerator.device,
        cache=cfg.data.cache, workers=cfg.data.workers, crops=file_crops(cfg.data, data.train, augment, size),
    )  # fmt: skip
    view = supervised_view(
        scale, augment, supervised, size=size, drop_rates=backbone.drop_rates(supervised.drop_path),
        classes=len(names), kind=kind, target_scale=labelling.scale, dtype=DTYPES.get(cfg.fit.precision, torch.float32),
    )  # fmt: skip
    if not quiet:
        summarise(objective, loader, cfg.fit, cfg.optim, f"{len(names)} {_IN_WORDS[kind]}", accelerator)
        left_out = notice(data.train.form.channels, scale.bits) if augment.policy == "randaugment" else ""
        if left_out and accelerator.is_main_process:
            print(left_out, flush=True)
    health = Health(loader, scale, exported_pool(supervised))
    fit(
        objective, loader, view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=health,
    )  # fmt: skip
    found = predict(objective, data.test, scale, size=size, device=accelerator.device)
    scores = found.x if labelling.scale is None else labelling.scale.restore(found.x)
    metrics = judge(kind, scores, found.labels, names)
    metrics |= {"steps": count_steps(cfg.fit, loader), "unreadable_test_images": list(found.left_out)}
    groups = None if data.test.groups is None else data.test.groups[found.index]
    answers = answers_of(
        kind, metric or headline(kind, found.labels), scores, found.labels, names, groups, positions=found.index
    )
    return Trained(objective, metrics, answers)


_IN_WORDS = {"class": "classes", "multilabel": "labels, any number per image", "regression": "number(s) per image"}


def labelling_of(images: ImageSet) -> Labelling:
    """What a classifier trained on these images answers; numbers are standardised by their mean and deviation.

    Args:
        images: The labelled training images.
    """
    scale = measure_targets(images.truth) if images.kind == "regression" else None
    return Labelling(images.kind, images.classes, scale)


def exported_pool(cfg: ResolvedSupervised) -> Literal["cls", "mean"]:
    """What represents an image in evaluation, after training on labels."""
    return "cls" if cfg.pool == "cls" else "mean"


def leave(
    objective: Supervised,
    run: RunDir,
    scale: PixelScale,
    train: ImageSet,
    cfg: ResolvedSupervised,
    recorded: dict[str, Any],
) -> str:
    """Writes RUN/backbone and, for a head that timm's model has a place for, RUN/classifier.

    Args:
        objective: Trained.
        run: Where to.
        scale: Pixel statistics it was trained with.
        train: The labelled training images.
        cfg: Resolved options of the loss.
        recorded: What the folders remember of how they came about.

    Returns:
        What was written, in words.
    """
    recorded = {k: v for k, v in recorded.items() if k != "classifier"}
    export_backbone(objective.exported(), run.backbone, scale, exported_pool(cfg), recorded)
    if export_classifier(objective.classifier(), run.path / "classifier", scale, labelling_of(train), recorded):
        return f"Backbone: {run.backbone}   Classifier: {run.path / 'classifier'}"
    return f"Backbone: {run.backbone} (no classifier is exported: timm's model has no place for this head)"


def predict(objective: Supervised, images: ImageSet, scale: PixelScale, *, size: int, device: torch.device) -> Features:
    """Outputs for every readable image, in the order of the set."""
    net = objective.classifier().to(device).eval()
    dtype = next(net.parameters()).dtype
    return answers_to(net, images, scale, size=size, dtype=dtype, device=device)
