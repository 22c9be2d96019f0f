"""Everything that trains all weights on labels: the labelled baseline and fine-tuning are one code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs import DataConfig, ResolvedModel, networks, presets, to_dict
from ssl_vit.configs.presets import Preset
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.core.started import typed
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import chosen_metric, headline
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.sources.told import label_lines, print_lines
from ssl_vit.data.targets import Kind, measure_targets
from ssl_vit.evaluation.answers import Answers, answered
from ssl_vit.evaluation.features import Features, answers_to
from ssl_vit.evaluation.judging import Evaluated, Judged, finish
from ssl_vit.evaluation.metrics import judge
from ssl_vit.evaluation.session import Session, labelled_for, on_canvas, result_of, warn_unlearnable
from ssl_vit.exports.classifier import Labelling, TrainedClassifier, export_classifier, load_classifier
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import Exported, export_backbone
from ssl_vit.methods import Facts, supervised, taught
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe
from ssl_vit.methods.taught import TaughtRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.models.build import ModelFacts, adapt, build_backbone, facts_of
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.distill import fits_channels
from ssl_vit.objectives.supervised import Supervised, supervised_view
from ssl_vit.objectives.taught import Taught, order_of_classes, taught_view
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.runs.identity import digest, identity
from ssl_vit.training import launch
from ssl_vit.training.health import Health
from ssl_vit.training.loop import fit
from ssl_vit.training.trackers import follow
from ssl_vit.views.training import left_out

_Resolved = supervised.ResolvedSupervisedRecipe | supervised.ResolvedFinetuneRecipe
_GROUPS = ("model", "supervised", "taught", "augment", "optim", "fit")
_IN_WORDS = {"class": "classes", "multilabel": "labels, any number per image", "regression": "number(s) per image"}


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
    teacher: TrainedClassifier | None = None
    """What is learnt from beside the labels."""


class Trained(NamedTuple):
    """A network that was trained on labels, after the last step; metrics and answers are of the test images."""

    objective: Supervised
    metrics: dict[str, Any]
    answers: Answers


def from_scratch(cfg: SupervisedRecipe) -> Evaluated:
    """The labelled baseline: opens images, builds a network with random weights, trains and judges it.

    A ``TaughtRecipe`` adds a teacher to the labels.

    Raises:
        UserError: For images, labels and options that cannot be used.
    """
    if cfg.model.name is not None:
        facts_of(cfg.model)
    accelerator = launch.join(cfg.fit.precision, cfg.seed, cfg.fit.products)
    if cfg.eval.data.path is None and cfg.eval.data.split is None:
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, split=cfg.data.split)))
    data, omission = labelled_for(cfg.data, cfg.eval, accelerator.device)
    metric = chosen_metric(cfg.eval.metric, data.test.kind, data.test.truth)
    if accelerator.is_main_process:
        warn_unlearnable(data)
    teacher = _teacher(cfg, data.train) if isinstance(cfg, TaughtRecipe) else None
    short = cfg.data.window or data.train.sizes.short_side
    shape = facts_of(cfg.model, short, cfg.preset)
    model = networks.resolve_model(cfg.model, short, shape, cfg.preset)
    on_cpu = accelerator.device.type == "cpu"
    size, preset = model.img_size, presets.preset_for(cfg.preset, model.img_size, cpu=on_cpu)
    train, data = data.train, on_canvas(data, cfg.data.canvas, size, cfg.data.window)
    if teacher is not None and teacher.exported.size > size:
        data = data._replace(train=train.on_canvas(cfg.data.canvas, teacher.exported.size, cfg.data.window))
    launch.use_cores(accelerator, size)
    if accelerator.is_main_process:
        print_lines([
            *label_lines(data, metric),
            ("network", f"{networks.words_of(model)}; random weights"), ("input", f"{size} px"),
        ])  # fmt: skip
    script = "supervised" if teacher is None else "taught"
    recorded: dict[str, Any] = {"objective": script, "seed": cfg.seed, "preset": preset.name}
    recorded |= {"positions": model.positions, "init": model.init} if shape.plain else {}
    recorded |= recorded_data(cfg.data, cfg.eval.data)
    facts = Facts(len(data.train), model, shape, data.train.kind)
    title, made_of, resolve = "from scratch", (data.train.fingerprint,), supervised.resolve
    if teacher is not None:
        about, known, net = teacher.exported.about, teacher.exported.weights_hash, teacher.exported.backbone
        name = networks.short_name(net.architecture, net.model_args) or net.architecture
        title, made_of, resolve = f"taught by {name}", (known, *made_of), taught.resolve
        network = networks.in_words(net.architecture, net.model_args, teacher.exported.size)
        recorded["teacher"] = {"architecture": net.architecture, "network": network, "weights": known}
        recorded["teacher"] |= {key: about[key] for key in ("objective", "data", "labels", "images") if key in about}
        if about.get("transductive"):  # what it saw of test images, the student sees
            recorded["transductive"] = True
        if accelerator.is_main_process:
            labels = f", trained on {about['images']:,} labelled images" if "images" in about else ""
            print_lines([("teacher", f"{name} {known}{labels}")])
    given = Ingredients(
        title, build_backbone(model, data.train.form.channels), data, None, metric, facts, preset, made_of, recorded,
        teacher=teacher,
    )  # fmt: skip
    judged, run = train_and_judge(script, cfg, resolve, given, accelerator)
    options = judged.options | {"preset": {"asked": cfg.preset}}
    result = result_of(
        script, judged.rows, options, data=data, size=size, metric=metric, cfg=cfg.eval, seed=cfg.seed,
        omission=omission,
    )  # fmt: skip
    return finish(judged, result, data.test, metric, run, script, omission)


def _teacher(cfg: TaughtRecipe, train: ImageSet) -> TrainedClassifier:
    """The classifier that ``--teacher`` names, for images of these channels and classes.

    Raises:
        UserError: Where there is none, or it is for others.
    """
    given = cfg.taught.teacher
    found = load_classifier(given, "--teacher")
    order_of_classes(found.labelling, train.classes, train.kind, given)
    fits_channels(found.exported, train.form.channels, given)
    return found


def fine_tuned(cfg: FinetuneRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocol finetune; sizes that the backbone cannot take are a ``UserError``.

    Options left open come from the preset that the backbone was pre-trained with, as the labelled baseline's do.
    """
    exported, data = session.exported, session.data
    backbone = adapt(exported.backbone, img_size=cfg.model.img_size, patch_size=cfg.model.patch_size)
    facts = facts_of_backbone(backbone, exported, cfg.model.img_size, len(data.train), data.train.kind)
    preset, objective = exported.preset(facts.model.img_size), str(exported.about.get("objective", "backbone"))
    recorded = exported.about | {"objective": f"{objective} fine-tuned", "preset": preset.name}
    recorded |= {"eval_data": recorded_data(DataConfig(), session.judged_on)["eval_data"]}
    given = Ingredients(
        f"{objective}, fine-tuned", backbone, data, exported.scale, session.metric, facts, preset,
        (exported.weights_hash, data.train.fingerprint), recorded, exported.place / "finetune",
    )  # fmt: skip
    return train_and_judge("finetune", cfg, supervised.resolve_finetuning, given, accelerator)[0]


def facts_of_backbone(backbone: Backbone, exported: Exported, size: int | None, images: int, kind: Kind) -> Facts:
    """What open options of training on labels are resolved by.

    Args:
        backbone: Adapted to its input.
        exported: What it was made of.
        size: Side of the input in pixels, if not the exported one's.
        images: To train on.
        kind: Of their labels.
    """
    size, width = size or exported.size, backbone.embed_dim
    patch = backbone.patch_size if isinstance(backbone, ViTBackbone) else None
    shape = ModelFacts(
        size, patch or 1, width, backbone.depth, 1, backbone.class_token, plain=patch is not None,
        drop_path=backbone.draws_drop_path,
    )  # fmt: skip
    pool = "mean" if exported.pool == "mean" else "cls"
    return Facts(images, ResolvedModel(backbone.architecture, size, patch, width, pool=pool), shape, kind)


def train_and_judge(
    script: Literal["supervised", "taught", "finetune"],
    asked: SupervisedRecipe | FinetuneRecipe,
    resolved: Callable[[Any, Facts, Preset], _Resolved],
    given: Ingredients,
    accelerator: Accelerator,
) -> tuple[Judged, RunDir]:
    """Fills the options left open, trains in a run directory, judges the last step and leaves backbone and classifier.

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
        parts = f"in patches of {facts.patch} px" if facts.network.plain else f"for {facts.model.name}"
        print(f"preset          {given.preset.name}, {size} px {parts}")
    run = open_run(
        script, cfg, data=train.name, fingerprint="-".join(given.made_of), writes=main,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    follow(run, cfg)
    scale = given.scale or measure_scale(train)
    trained = train_on_labels(
        given.backbone, given.data, scale, cfg, size=size, run=run, accelerator=accelerator, metric=given.metric,
        teacher=given.teacher,
    )  # fmt: skip
    left = ""
    if main:  # a head that timm's model has a place for makes a classifier
        objective, recorded = trained.objective, {k: v for k, v in given.recorded.items() if k != "classifier"}
        recorded |= {"labels": given.data.labels, "images": len(train)}
        export_backbone(objective.exported(), run.backbone, scale, _pool(cfg), recorded)
        classifier = run.path / "classifier"
        written = export_classifier(objective.classifier(), classifier, scale, _labelling(train), recorded)
        missing = "(no classifier is exported: timm's model has no place for this head)"
        left = f"Backbone: {run.backbone} {f'  Classifier: {classifier}' if written else missing}"
        if written:
            apply = f"{typed('eval/predict.py')} --classifier {quote(str(run.path))}"
            left += f"\nWhat it says of images without a label, or of others with --data.path FOLDER:\n  {apply}"
    protocol, came_to = (
        {k: to_dict(getattr(options, k)) for k in _GROUPS if hasattr(options, k)} for options in (asked, cfg)
    )
    row = {"method": given.method, "labels": len(train), "trained_with": came_to, **trained.metrics}
    if taken:
        protocol["batch_statistics"] = {"of": asked.fit.given_micro_batch or "the whole batch"}
    what = {"supervised": "labelled baseline", "taught": "labels and a teacher", "finetune": "fine-tuning"}[script]
    title, headings = f"{what}, {len(given.data.test):,} test images", {"method": "method", "labels": "labels"}
    selection = "none: fixed options, last step"
    return Judged([row], protocol, title, trained.answers, headings, selection, run, size, left), run


def train_on_labels(
    backbone: Backbone,
    data: Labelled,
    scale: PixelScale,
    cfg: _Resolved,
    *,
    size: int,
    run: RunDir,
    accelerator: Accelerator,
    metric: str | None = None,
    quiet: bool = False,
    teacher: TrainedClassifier | None = None,
) -> Trained:
    """Trains a backbone in place, at an input of ``size`` pixels, and judges the last step on the test images.

    ``metric`` is what results lead with, for the answers; default: the headline of the test labels. ``teacher`` is
    learnt from beside the labels.
    """
    labelling = _labelling(data.train)
    kind, names = labelling.kind, labelling.names
    loss, augment = cfg.supervised, cfg.augment
    networks.check_pool(loss.pool, backbone.class_token, "--supervised.pool")
    micro = launch.micro_batch_size(cfg.fit, accelerator.num_processes)
    if (loss.mixup or loss.cutmix) and micro % 2:
        raise UserError(f"mixup and CutMix pair neighbours: --fit.micro_batch {micro} must be even")
    if (loss.mixup or loss.cutmix) and 2 * augment.repeats > cfg.fit.batch_size:
        raise UserError(
            f"mixup and CutMix pair different images: --augment.repeats {augment.repeats} may be half of "
            f"--fit.batch_size {cfg.fit.batch_size} at most"
        )
    torch.manual_seed(cfg.seed)
    cut = size
    if teacher is not None and isinstance(cfg, taught.ResolvedTaughtRecipe):
        order = order_of_classes(teacher.labelling, names, kind, cfg.taught.teacher)
        cut = max(size, teacher.exported.size)
        objective = Taught(backbone, len(names), loss, cfg.taught, teacher, order)
    else:
        objective = Supervised(backbone, len(names), loss, kind)
    learnt = data.train if labelling.scale is None else data.train.standardised(labelling.scale)
    loader = Loader(
        learnt, batch_size=cfg.fit.batch_size, micro_batch=micro, seed=cfg.seed, device=accelerator.device,
        cache=cfg.data.cache, workers=cfg.data.workers, crops=file_crops(cfg.data, data.train, augment, cut),
        repeats=augment.repeats,
    )  # fmt: skip
    dtype = launch.DTYPES.get(cfg.fit.precision, torch.float32)
    view = supervised_view(
        scale, augment, loss, size=cut, drop_rates=backbone.drop_rates(loss.drop_path),
        classes=len(names), kind=kind, dtype=dtype,
    )  # fmt: skip
    if teacher is not None:
        view = taught_view(view, scale, teacher, size=size)
    if not quiet:
        launch.summarise(objective, loader, cfg.fit, cfg.optim, f"{len(names)} {_IN_WORDS[kind]}", accelerator)
        for note in left_out(augment, data.train.form.channels, scale.bits):
            say_once(note)
    objective = fit(
        objective, loader, view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=Health(loader, scale, _pool(cfg)),
    )  # fmt: skip
    found = predict(objective, data.test, scale, size=size, device=accelerator.device)
    scores = found.x if labelling.scale is None else labelling.scale.restore(found.x)
    metrics = judge(kind, scores, found.labels, names)
    metrics |= {"steps": launch.count_steps(cfg.fit, loader), "unreadable_test_images": list(found.left_out)}
    answers = answered(data.test, metric or headline(kind, found.labels), scores, found)
    return Trained(objective, metrics, answers)


def predict(objective: Supervised, images: ImageSet, scale: PixelScale, *, size: int, device: torch.device) -> Features:
    """Outputs for every readable image, in the order of the set."""
    net = objective.classifier().to(device).eval()
    dtype = next(net.parameters()).dtype
    return answers_to(net, images, scale, size=size, dtype=dtype, device=device)


def _labelling(images: ImageSet) -> Labelling:
    """What a classifier trained on these images answers; numbers are standardised by their mean and deviation."""
    scale = measure_targets(images.truth) if images.kind == "regression" else None
    return Labelling(images.kind, images.classes, scale)


def _pool(cfg: _Resolved) -> Literal["cls", "mean"]:
    """What represents an image in evaluation, after training on labels."""
    return "cls" if cfg.supervised.pool == "cls" else "mean"
