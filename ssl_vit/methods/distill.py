"""Distillation: a network learns the features of one that is trained already; options and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment
from ssl_vit.configs.settled import OPEN
from ssl_vit.core.errors import UserError
from ssl_vit.methods.method import BUDGET, CROP, Facts, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class DistillConfig:
    """Learning of what a trained network, the teacher, makes of the same view of an image.

    Cosine distance behind a linear layer, which is not exported: of pooled features and, where both networks have one,
    of every place of the feature map.
    """

    teacher: str = ""
    """The network to learn from: RUN, the folder of a run that trained one, RUN/backbone in it, or anything else that
    --model.weights takes. Also written --teacher. It stays as it is, and reads views at its own input size, with its
    own pixel statistics."""
    pooled_weight: Annotated[float, Range(0)] = 1.0
    """Weight of the distance of pooled features, each network's own (class token or mean of patches)."""
    map_weight: Annotated[float, Range(0)] = 1.0
    """Weight of the distance of feature maps, the teacher's resized to the student's places; 0 leaves it out."""
    teacher_weights: str | None = None
    """Not for typing: a hash of the teacher's weights. A run goes on with no others."""


@dataclass(frozen=True)
class DistillRecipe(PretrainingRecipe):
    """Options of recipes/distill.py."""

    BARE: ClassVar[tuple[str, ...]] = ("distill.teacher", "data.path")
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)


@dataclass(frozen=True)
class ResolvedDistillRecipe(ResolvedPretraining, DistillRecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN


_USUAL = MethodPreset(
    source="Reasoned: budget and rate are MAE's, crops those of training on labels.", crop=(0.35, 1.0)
)
PRESETS = {
    "digits": replace(
        _USUAL, images=200_000, batch=128, base_lr=3e-3, crop=(0.6, 1.0),
        source="Reasoned: budget and rate are MAE's, crops DINO's.",
    ),
    "px32": _USUAL,
    "px32-cpu": _USUAL,
    "px64": _USUAL,
    "px96": _USUAL,
    "px128": replace(_USUAL, epochs=(100, 800)),
    "px224": replace(_USUAL, epochs=(100, 800)),
}  # fmt: skip
"""By the name of the preset."""


def resolve(cfg: DistillRecipe, facts: Facts, preset: Preset) -> ResolvedDistillRecipe:
    """Variation of images; length, batch and rate. UserError where both weights are 0."""
    if cfg.distill.pooled_weight == cfg.distill.map_weight == 0:
        raise UserError("--distill.pooled_weight and --distill.map_weight are both 0; give one of them a weight")
    own = PRESETS[preset.name]
    augment = resolve_augment(cfg.augment, preset, own.crop, labelled=False)
    return settle_recipe(ResolvedDistillRecipe, cfg, facts, preset, own, augment=augment, distill=cfg.distill)


def table() -> str:
    """Distillation's part of all presets."""
    return listing("Distillation's part, for recipes/distill.py", PRESETS, {**BUDGET, **CROP})


METHOD = Method(
    name="distill",
    title="Distillation",
    paper="features of a trained network, learnt by another",
    recipe=DistillRecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.distill:build",
)
