"""SimMIM (Xie et al. 2022): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.core.errors import UserError
from ssl_vit.methods.method import BUDGET, CROP, Facts, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class SimMIMConfig:
    """Prediction of hidden pixels by any network (Xie et al. 2022)."""

    mask_ratio: float = 0.6
    """Share of squares hidden from the network, in (0, 1); the paper's 0.6."""
    mask_side: Annotated[int | None, Range(1)] = None
    """Side of the squares that are hidden, in pixels; divides the input. Default: near the paper's 32 of 224, in whole
    patches, at least four squares along a side."""


@dataclass(frozen=True)
class ResolvedSimMIM(SimMIMConfig, Resolved):
    """Masking without open values."""

    mask_side: int = OPEN


@dataclass(frozen=True)
class SimMIMRecipe(PretrainingRecipe):
    """Options of recipes/simmim.py."""

    augment: AugmentConfig = field(default_factory=AugmentConfig)
    simmim: SimMIMConfig = field(default_factory=SimMIMConfig)


@dataclass(frozen=True)
class ResolvedSimMIMRecipe(ResolvedPretraining, SimMIMRecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN
    simmim: ResolvedSimMIM = OPEN


_PAPER = (
    "SimMIM (arXiv 2111.09886, section 4.1): masking 0.6 in squares of a seventh of the side, crops of 0.67-1, mirror, "
    "weight decay 0.05. Reasoned: budget and rate, which are MAE's."
)
_USUAL = MethodPreset(source="As px224.", crop=(0.67, 1.0))
PRESETS = {
    "digits": MethodPreset(
        images=200_000, batch=128, base_lr=3e-3,
        source="As MAE's, which is measured on scikit-learn's 8x8 digits; masking is the paper's.",
    ),
    "px32": _USUAL,
    "px32-cpu": _USUAL,
    "px64": _USUAL,
    "px96": _USUAL,
    "px128": replace(_USUAL, epochs=(100, 800)),
    "px224": replace(
        _USUAL, epochs=(100, 800), source=_PAPER,
        expected="Not measured here, and published numbers are of other settings; little is linear in its features.",
    ),
}  # fmt: skip
"""By the name of the preset."""

_SHARE = 32 / 224
"""Side of the paper's squares as a share of the image's."""


def side_of_hidden(size: int, stride: int) -> int:
    """Side in pixels of the hidden squares: near the paper's share, at least four squares along a side.

    They are made of whole patches (or places of the last feature map, ``stride`` pixels), or of whole parts of one.
    """
    fitting = [n for n in range(1, max(1, size // 4) + 1) if size % n == 0 and (n % stride == 0 or stride % n == 0)]
    return min(fitting, key=lambda n: (abs(n - max(stride, _SHARE * size)), n))


def resolve(cfg: SimMIMRecipe, facts: Facts, preset: Preset) -> ResolvedSimMIMRecipe:
    """Masking; length, batch and rate. UserError for squares that do not divide the input."""
    own, size = PRESETS[preset.name], facts.model.img_size
    simmim = fill(ResolvedSimMIM, cfg.simmim, mask_side=side_of_hidden(size, facts.patch))
    if size % simmim.mask_side:
        near = ", ".join(str(n) for n in range(1, size) if size % n == 0)
        raise UserError(
            f"--simmim.mask_side {simmim.mask_side} does not divide the input of {size} pixels; use one of {near}"
        )
    augment = resolve_augment(cfg.augment, preset, own.crop, labelled=False)
    return settle_recipe(ResolvedSimMIMRecipe, cfg, facts, preset, own, simmim=simmim, augment=augment)


def table() -> str:
    """SimMIM's part of all presets."""
    return listing("SimMIM's part, for recipes/simmim.py", PRESETS, {**BUDGET, **CROP})


METHOD = Method(
    name="simmim",
    title="SimMIM",
    paper="Xie et al. 2022, prediction of hidden pixels by any network",
    recipe=SimMIMRecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.simmim:build",
)
