"""Training on labels, from scratch or from a backbone: options and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from ssl_vit.configs.data import AugmentConfig, GuardedConfig, LoadingConfig, ResolvedAugment
from ssl_vit.configs.evaluation import LabelsConfig, SoupConfig
from ssl_vit.configs.facts import NO_EFFECT, SAME_RUN, Range
from ssl_vit.configs.fit import FitConfig, OptimConfig, ResolvedFit, ResolvedOptim, RunConfig
from ssl_vit.configs.model import AdaptConfig, ModelConfig, ResolvedModel
from ssl_vit.configs.presets import NARROW, LabelledStart, Preset, Scratch
from ssl_vit.configs.recipes import BackboneRecipe
from ssl_vit.configs.resolve import LARGEST_RATE, labelled_augment, labelled_batch, least_steps
from ssl_vit.configs.settled import OPEN, Resolved, fill, settle
from ssl_vit.core.errors import UserError
from ssl_vit.methods.method import Facts


@dataclass(frozen=True)
class SupervisedConfig:
    """Training on labels: the labelled baseline and fine-tuning alike.

    Cross-entropy on classes, binary cross-entropy on several labels per image, squared error on numbers (standardised
    by the training labels' mean and deviation).
    """

    pool: Literal["cls", "mean", "mean_prenorm"] | None = None
    """What the classifier reads: class token or mean of patches after the final norm, or the mean of patches before
    it with a fresh LayerNorm (MAE's fine-tuning); default: the model's pool, with mean read as mean_prenorm. Models
    that are no plain ViT have mean alone, their own pooled feature."""
    label_smoothing: Annotated[float, Range(0, 0.999)] = 0.1
    """Probability mass moved from the label to all classes, in [0, 1), MAE's value; with several labels per image 0 and
    1 each move towards the other by half of it; numbers are not smoothed."""
    mixup: Annotated[float | None, Range(0, 100)] = None
    """Beta parameter of mixup, 0 for off; default: 0.8 above 16 pixels where training sees a million images or
    more of at least 2,000 labels that are no numbers, else 0."""
    cutmix: Annotated[float | None, Range(0, 100)] = None
    """Beta parameter of CutMix, 0 for off; default: 1 above 16 pixels where training sees a million images or
    more of at least 2,000 labels that are no numbers, else 0."""
    drop_path: Annotated[float, Range(0, 0.999)] = 0.1
    """Stochastic depth: rate at the last block, growing linearly from 0 at the first (timm says where, of other
    families). 0.1 is MAE's for ViT-B; it takes 0.2 for ViT-L and 0.3 for ViT-H."""
    ema_decay: Annotated[float | None, Range(0, 0.999999)] = None
    """Decay of the weight average that is evaluated and exported; 0 for off, as in MAE's fine-tuning. Default: 0.999,
    and 0.9995 where the preset trains long from scratch."""
    head_hidden: Annotated[int, Range(0, ceiling=1 << 20)] = 0
    """Width of a hidden layer with tanh before the classifier (ViT, section 3.1); 0 for a linear classifier, the only
    kind that is exported for timm and eval/predict.py."""


@dataclass(frozen=True)
class ResolvedSupervised(SupervisedConfig, Resolved):
    """What is read and mixed, without open values."""

    pool: Literal["cls", "mean", "mean_prenorm"] = OPEN
    mixup: float = OPEN
    cutmix: float = OPEN
    ema_decay: float = 0.999


_OPTIM = OptimConfig(betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1)


@dataclass(frozen=True)
class LabelledRecipe:
    """What training from scratch and from a backbone have in common."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    dry_run: Annotated[bool, NO_EFFECT] = False
    """Print what every option comes to, beside the paper's value with a paper's --config, and stop. No images are
    opened: --data.facts says how many and how large."""
    run: RunConfig = field(default_factory=RunConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    supervised: SupervisedConfig = field(default_factory=SupervisedConfig)
    optim: OptimConfig = field(default_factory=lambda: _OPTIM)
    fit: FitConfig = field(default_factory=lambda: FitConfig(clip_grad=1.0))
    eval: LabelsConfig = field(default_factory=LabelsConfig)


@dataclass(frozen=True)
class SupervisedRecipe(LabelledRecipe):
    """Options of recipes/supervised.py."""

    BARE: ClassVar[tuple[str, ...]] = ("data.path",)
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px32-cpu, px64, px96, px128, px224; default: chosen by the
    images' size, and px32-cpu instead of px32 on a CPU. Without a value: prints all of them."""
    data: GuardedConfig = field(default_factory=GuardedConfig)
    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass(frozen=True)
class FinetuneRecipe(BackboneRecipe, LabelledRecipe):
    """Options of eval/finetune.py.

    As MAE fine-tunes: betas, smallest rate, weight decay, epochs, smoothing, drop path and, where training sees a
    million images or more, RandAugment, erasing, mixing.
    Otherwise than MAE, made for hundreds to thousands of labels: batches of 64 with clipped gradients and at least
    1,000 steps, a tenth of them warm-up (MAE: batches of 1,024, 5 of 100 epochs), averaged weights, larger crops, and
    one layer decay of 0.75 for every network (MAE: 0.65 and a base rate of 5e-4 for ViT-B, 50 epochs for larger ones).
    MAE reads the mean of patches (--supervised.pool mean_prenorm); here the backbone's own pooling counts.
    """

    data: LoadingConfig = field(default_factory=LoadingConfig)
    model: AdaptConfig = field(default_factory=AdaptConfig)
    optim: OptimConfig = field(default_factory=lambda: replace(_OPTIM, layer_decay=0.75))


@dataclass(frozen=True)
class SoupRecipe(FinetuneRecipe):
    """Several fine-tunings whose weights are averaged: what a transfer suite hands to each of its sets."""

    soup: SoupConfig = field(default_factory=SoupConfig)


@dataclass(frozen=True)
class ResolvedLabelled(LabelledRecipe, Resolved):
    """Training on labels without open values."""

    supervised: ResolvedSupervised = OPEN
    augment: ResolvedAugment = OPEN
    optim: ResolvedOptim = OPEN
    fit: ResolvedFit = OPEN


@dataclass(frozen=True)
class ResolvedSupervisedRecipe(ResolvedLabelled, SupervisedRecipe):
    """Training from scratch without open values."""

    preset: str = OPEN
    model: ResolvedModel = OPEN


@dataclass(frozen=True)
class ResolvedFinetuneRecipe(ResolvedLabelled, FinetuneRecipe):
    """Fine-tuning without open values."""


def resolve(cfg: SupervisedRecipe, facts: Facts, preset: Preset) -> ResolvedSupervisedRecipe:
    """Pooling, mixing, augmentation, length and rate of training from scratch; UserError as ``resolve_supervised``."""
    taken = labelled_groups(cfg, facts, preset, "scratch")
    return settle(ResolvedSupervisedRecipe, cfg, preset=preset.name, model=facts.model, **taken)


def resolve_finetuning(cfg: FinetuneRecipe, facts: Facts, preset: Preset) -> ResolvedFinetuneRecipe:
    """The same of fine-tuning: ``facts`` tell size and patch of the backbone, the preset is that of its run."""
    model = AdaptConfig(facts.model.img_size, facts.model.patch_size)
    return settle(ResolvedFinetuneRecipe, cfg, model=model, **labelled_groups(cfg, facts, preset, "finetune"))


def labelled_groups(
    cfg: SupervisedRecipe | FinetuneRecipe, facts: Facts, preset: Preset, start: LabelledStart
) -> dict[str, Any]:
    """The groups that both have, resolved alike but for the learning rate."""
    batch, steps = labelled_batch(facts.images, preset.labelled_batch), least_steps(cfg.fit)
    scratch, rate = preset.scratch if start == "scratch" else Scratch(), labelled_rate(preset, facts.width, start)
    epochs = float(scratch.epochs if start == "scratch" else preset.labelled_epochs)
    least = steps if cfg.fit.min_steps is None else cfg.fit.min_steps
    preset = preset.seeing(max((cfg.fit.epochs or epochs) * facts.images, least * (cfg.fit.batch_size or batch)))
    return {
        "supervised": resolve_supervised(cfg.supervised, facts, preset, scratch),
        "augment": labelled_augment(cfg.augment, preset, scratch.crop, from_files=cfg.data.crop_from == "file"),
        "optim": fill(ResolvedOptim, cfg.optim, base_lr=min(rate, LARGEST_RATE * 256 / batch)),
        "fit": fill(ResolvedFit, cfg.fit, batch_size=batch, epochs=epochs, min_steps=steps),
    }


def labelled_rate(preset: Preset, width: int, start: LabelledStart) -> float:
    """The base learning rate of training a network of width D on labels."""
    return (preset.narrow_lr if width < NARROW else None) or preset.base_lr[start]


def resolve_supervised(
    cfg: SupervisedConfig, facts: Facts, preset: Preset, scratch: Scratch | None = None
) -> ResolvedSupervised:
    """Pooling, mixing and stochastic depth as definite values; UserError for a pooling that the model does not have."""
    scratch = scratch or Scratch()
    usual = "mean_prenorm" if "mean" in (facts.model.pool, scratch.pool) else "cls"
    if not facts.network.plain:
        usual = "mean"
        if cfg.pool not in (None, usual):
            raise UserError(f"--supervised.pool {cfg.pool} needs the tokens of a plain ViT; this model has mean alone")
    cfg = replace(cfg, drop_path=facts.drop_path(cfg.drop_path, "--supervised.drop_path"))
    return fill(
        ResolvedSupervised, cfg, pool=usual, ema_decay=scratch.average, **mixing(preset, facts.images, facts.kind)
    )


def mixing(preset: Preset, labels: int, kind: str) -> dict[str, float]:
    """Mixup and cutmix: few labels, and numbers, are not mixed."""
    mixed = labels >= preset.mixed_from and kind != "regression"
    return {"mixup": preset.mixup if mixed else 0.0, "cutmix": preset.cutmix if mixed else 0.0}
