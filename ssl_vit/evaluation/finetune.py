"""Training on labels, from scratch or from a backbone, and judging the last step on the test images."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs import LoadingConfig, ResolvedAugment, ResolvedFit, ResolvedOptim, to_dict
from ssl_vit.configs.resolve import check_pool
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.targets import measure_targets
from ssl_vit.evaluation.answers import Answers, answers_of
from ssl_vit.evaluation.features import Features, extract_features, images_at_once
from ssl_vit.evaluation.metrics import headline, judge
from ssl_vit.exports.classifier import Labelling, export_classifier
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.supervised import FinetuneRecipe, ResolvedSupervised, SupervisedRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.objectives.supervised import Supervised, supervised_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.launch import DTYPES, count_steps, micro_batch_size, summarise
from ssl_vit.training.loop import fit
from ssl_vit.views.evaluation import eval_images
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
    *,
    size: int,
    supervised: ResolvedSupervised,
    augment: ResolvedAugment,
    optim: ResolvedOptim,
    fit_cfg: ResolvedFit,
    loading: LoadingConfig | None = None,
    run: RunDir,
    accelerator: Accelerator,
    seed: int,
    metric: str | None = None,
    quiet: bool = False,
) -> Trained:
    """The one code for the labelled baseline and for fine-tuning.

    Args:
        backbone: Random for the baseline, pre-trained for fine-tuning; trained in place.
        data: Labelled training and test images.
        scale: Pixel statistics.
        size: Side of the input in pixels.
        supervised: Resolved options of the loss.
        augment: Resolved augmentation.
        optim: Options of the optimiser.
        fit_cfg: Resolved options of the loop.
        loading: How images are loaded; None for the defaults.
        run: Where metrics and checkpoints go.
        accelerator: Made by ``train.start``.
        seed: Seed of everything drawn.
        metric: What results lead with, for the answers; default: the headline of the test labels.
        quiet: Print nothing.
    """
    labelling = labelling_of(data.train)
    kind, names = labelling.kind, labelling.names
    check_pool(supervised.pool, backbone.class_token, "--supervised.pool")
    micro = micro_batch_size(fit_cfg, accelerator.num_processes)
    if (supervised.mixup or supervised.cutmix) and micro % 2:
        raise UserError(f"mixup and CutMix pair neighbours: --fit.micro_batch {micro} must be even")
    loading = loading or LoadingConfig()
    torch.manual_seed(seed)
    objective = Supervised(backbone, len(names), supervised, kind)
    loader = Loader(
        data.train,
        batch_size=fit_cfg.batch_size,
        micro_batch=micro,
        seed=seed,
        device=accelerator.device,
        cache=loading.cache,
        workers=loading.workers,
        crops=file_crops(loading, data.train, augment, size),
    )
    view = supervised_view(
        scale, augment, supervised, size=size, depth=backbone.depth, classes=len(names), kind=kind,
        target_scale=labelling.scale, dtype=DTYPES.get(fit_cfg.precision, torch.float32),
    )  # fmt: skip
    if not quiet:
        summarise(objective, loader, fit_cfg, optim, f"{len(names)} {_IN_WORDS[kind]}", accelerator)
        left_out = notice(data.train.form.channels, scale.bits) if augment.policy == "randaugment" else ""
        if left_out and accelerator.is_main_process:
            print(left_out, flush=True)
    fit(objective, loader, view, fit=fit_cfg, optim=optim, run=run, accelerator=accelerator, seed=seed)
    found = predict(objective, data.test, scale, size=size, device=accelerator.device)
    scores = found.x if labelling.scale is None else labelling.scale.restore(found.x)
    metrics = judge(kind, scores, found.labels, names)
    metrics |= {"steps": count_steps(fit_cfg, loader), "unreadable_test_images": list(found.left_out)}
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
    pool = "cls" if cfg.pool == "cls" else "mean"
    recorded = {k: v for k, v in recorded.items() if k != "classifier"}
    export_backbone(objective.exported(), run.backbone, scale, pool, recorded)
    if export_classifier(objective.classifier(), run.classifier, scale, labelling_of(train), recorded):
        return f"Backbone: {run.backbone}   Classifier: {run.classifier}"
    return f"Backbone: {run.backbone} (no classifier is exported: timm's model has no place for this head)"


def trained_row(
    method: str, labels: int, cfg: SupervisedRecipe | FinetuneRecipe, metrics: dict[str, Any]
) -> dict[str, Any]:
    """A result's row, with what its options came to."""
    groups = ("model", "supervised", "augment", "optim", "fit")
    return {
        "method": method, "labels": labels, "trained_with": {k: to_dict(getattr(cfg, k)) for k in groups}, **metrics,
    }  # fmt: skip


def predict(objective: Supervised, images: ImageSet, scale: PixelScale, *, size: int, device: torch.device) -> Features:
    """Outputs for every readable image, in the order of the set."""
    net = objective.classifier().to(device).eval()
    dtype = next(net.parameters()).dtype

    def logits(batch: Any) -> torch.Tensor:
        with torch.inference_mode():
            return net(eval_images(batch, scale, size, dtype))

    at_once = images_at_once(None, size, device)
    return extract_features(logits, images, batch_size=at_once, device=device, may_be_constant=True)
