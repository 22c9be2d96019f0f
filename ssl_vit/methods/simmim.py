"""SimMIM (Xie et al. 2022): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment, resolve_budget, resolve_rate
from ssl_vit.configs.settled import OPEN, Resolved, settle
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import aligned, note, short
from ssl_vit.methods.method import Facts, Method


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


@dataclass(frozen=True)
class SimMIMPreset:
    """SimMIM's part of a preset."""

    source: str
    expected: str = "Not measured here."
    """Result to expect, or that nobody measured it."""
    images: int = 4_000_000
    """Budget: images seen, epochs x images."""
    epochs: tuple[int, int] = (20, 800)
    """Fewest and most epochs that the budget may come to."""
    batch: int = 256
    """Effective batch, where there are images enough for four steps an epoch."""
    base_lr: float = 1e-3
    """Per 256 images of effective batch."""
    crop: tuple[float, float] = (0.67, 1.0)
    """Area of the crop as a share of the image; (1, 1): no crop."""


_PAPER = (
    "SimMIM (arXiv 2111.09886, section 4.1): masking 0.6 in squares of a seventh of the side, crops of 0.67-1, mirror, "
    "weight decay 0.05. Reasoned: budget and rate, which are MAE's."
)
_AS = "As px224."

PRESETS = {
    "digits": SimMIMPreset(
        images=200_000, batch=128, base_lr=3e-3, crop=(1.0, 1.0),
        source="As MAE's, which is measured on scikit-learn's 8x8 digits; masking is the paper's.",
    ),
    "px32": SimMIMPreset(source=_AS),
    "px64": SimMIMPreset(source=_AS),
    "px96": SimMIMPreset(source=_AS),
    "px128": SimMIMPreset(epochs=(100, 800), source=_AS),
    "px224": SimMIMPreset(
        epochs=(100, 800), source=_PAPER,
        expected="Not measured here. Elsewhere: ImageNet-1k, ViT-B/16, 800 epochs, fine-tuned 83.8 (the authors). "
        "Imagenette, ViT-S/16, 200 epochs, linear 22.5 (stable-pretraining): little is linear in its features.",
    ),
}  # fmt: skip
"""By the name of the preset."""

_SHARE = 32 / 224
"""Side of the paper's squares as a share of the image's."""


def side_of_hidden(size: int, stride: int) -> int:
    """Side of the squares that are hidden, in pixels: near the paper's share of the image, and at least four to a side.

    Args:
        size: Side of the image in pixels.
        stride: Side of a patch, or of what a place of the last feature map stands for: squares are made of whole ones,
            or whole parts of one.
    """
    fitting = [n for n in range(1, max(1, size // 4) + 1) if size % n == 0 and (n % stride == 0 or stride % n == 0)]
    return min(fitting, key=lambda n: (abs(n - max(stride, _SHARE * size)), n))


def resolve(cfg: SimMIMRecipe, facts: Facts, preset: Preset) -> ResolvedSimMIMRecipe:
    """Masking; length, batch and rate.

    Args:
        cfg: As given.
        facts: Of images and network.
        preset: Of the images.

    Raises:
        UserError: For squares that do not divide the input.
    """
    own, size = PRESETS[preset.name], facts.model.img_size
    side = cfg.simmim.mask_side or side_of_hidden(size, facts.patch)
    if size % side:
        near = ", ".join(str(n) for n in range(1, size) if size % n == 0)
        raise UserError(f"--simmim.mask_side {side} does not divide the input of {size} pixels; use one of {near}")
    return settle(
        ResolvedSimMIMRecipe,
        cfg,
        preset=preset.name,
        model=facts.model,
        simmim=settle(ResolvedSimMIM, cfg.simmim, mask_side=side),
        optim=resolve_rate(cfg.optim, own.base_lr),
        augment=resolve_augment(cfg.augment, preset, own.crop, labelled=False),
        fit=resolve_budget(cfg.fit, facts.images, budget=own.images, epochs=own.epochs, batch=own.batch),
    )


def table() -> str:
    """SimMIM's part of all presets as text of at most 120 columns."""
    head = ("preset", "images", "epochs", "batch", "lr", "crop")
    rows = [
        (name, f"{p.images / 1e6:g} M", f"{p.epochs[0]}-{p.epochs[1]}", f"{p.batch}", short(p.base_lr),
         "none" if p.crop == (1.0, 1.0) else f"{p.crop[0]:g}-{p.crop[1]:g}")
        for name, p in PRESETS.items()
    ]  # fmt: skip
    notes = [
        note(name, f"Source: {p.source}") + "\n" + note("", f"Expected: {p.expected}") for name, p in PRESETS.items()
    ]
    return "\n".join(["SimMIM's part, for recipes/simmim.py:\n", aligned([head, *rows]), "", *notes])


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
