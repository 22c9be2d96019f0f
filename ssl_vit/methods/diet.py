"""DIET, datum index as target (Ibrahim et al. 2024): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.fit import OptimConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.methods.method import BUDGET, CROP, Facts, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class DIETConfig:
    """Every image is a class of its own (Ibrahim et al. 2024, arXiv 2406.10743)."""

    label_smoothing: Annotated[float, Range(0, 0.999)] = 0.8
    """Probability mass moved from an image's own class to all classes, in [0, 1); the paper's 0.8."""
    classes: Annotated[int | None, Range(2)] = None
    """Classes that images are told apart by; default, and the method: as many as images. The classifier takes 16 bytes
    x classes x width with its gradient and AdamW's averages, on every device, which is for pools of up to a few million
    images. Fewer classes take less: image i is then of class i modulo so many, with images that have nothing to do with
    it; nobody has published what that costs."""


@dataclass(frozen=True)
class ResolvedDIET(DIETConfig, Resolved):
    """The same without open values."""

    classes: int = OPEN


@dataclass(frozen=True)
class DIETRecipe(PretrainingRecipe):
    """Options of recipes/diet.py.

    AdamW with its usual betas and weight decay 0.05; a tenth of the steps warm-up.
    """

    augment: AugmentConfig = field(default_factory=AugmentConfig)
    diet: DIETConfig = field(default_factory=DIETConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1, weight_decay=0.05)
    )


@dataclass(frozen=True)
class ResolvedDIETRecipe(ResolvedPretraining, DIETRecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN
    diet: ResolvedDIET = OPEN


_PAPER = (
    "DIET (arXiv 2302.10260 and 2406.10743): smoothing 0.8, AdamW, base lr 1e-3, weight decay 0.05; crops of 0.08-1, "
    "mirror, colours jittered in 0.3, grey in 0.2, blurred in 0.2, erased in 0.25 of the images. Reasoned: the budget; "
    "the paper trains small sets for thousands of epochs."
)
_USUAL = MethodPreset(source="As px224.", epochs=(100, 2000), crop=(0.08, 1.0))
PRESETS = {
    "digits": replace(
        _USUAL, images=200_000, batch=128, base_lr=4e-3, crop=(0.6, 1.0), epochs=(20, 800),
        source="As DINO's, which is measured on scikit-learn's 8x8 digits: crops, budget and rate; no box is erased.",
    ),
    "px32": _USUAL,
    "px32-cpu": _USUAL,
    "px64": _USUAL,
    "px96": _USUAL,
    "px128": _USUAL,
    "px224": replace(
        _USUAL, source=_PAPER, expected="Not measured here. Published numbers are of ResNets on sets of up to some "
        "100,000 images.",
    ),
}  # fmt: skip
"""By the name of the preset."""


def resolve(cfg: DIETRecipe, facts: Facts, preset: Preset) -> ResolvedDIETRecipe:
    """Classes and variation of images; length, batch and rate. UserError for more classes than images."""
    own = PRESETS[preset.name]
    diet = fill(ResolvedDIET, cfg.diet, classes=max(2, facts.images))
    if diet.classes > max(2, facts.images):
        raise UserError(
            f"--diet.classes {diet.classes} are more than the {facts.images} images; leave it out, then every image is "
            "a class of its own"
        )
    if diet.classes < facts.images:
        say_once(f"note: --diet.classes {diet.classes:,} are fewer than the {facts.images:,} images, which share them")
    # Colours and boxes as though on labels: that is what the method learns from.
    augment = replace(cfg.augment, policy=cfg.augment.policy or "jitter")
    augment = resolve_augment(augment, preset, own.crop, labelled=True)
    return settle_recipe(ResolvedDIETRecipe, cfg, facts, preset, own, diet=diet, augment=augment)


def table() -> str:
    """DIET's part of all presets."""
    return listing("DIET's part, for recipes/diet.py", PRESETS, {**BUDGET, **CROP})


METHOD = Method(
    name="diet",
    title="DIET",
    paper="Ibrahim et al. 2024, every image a class of its own",
    recipe=DIETRecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.diet:build",
)
