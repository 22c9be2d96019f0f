"""BEiT (Bao et al. 2022): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.methods.method import BUDGET, CROP, Facts, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class BEiTConfig:
    """Prediction of the visual words of hidden patches (Bao et al. 2022, BEiT).

    The paper takes its words from a network that was trained on 250 million images. Here they are the centres of a
    k-means clustering of patches of the images themselves, found before the first step and kept in RUN.
    """

    mask_ratio: float = 0.4
    """Share of patches hidden from the network, in (0, 1), in blocks; every image hides as many. The paper's 0.4."""
    words: Annotated[int | None, Range(2)] = None
    """Visual words that patches are told apart by; default: 64 for digits, 256 at 32 pixels, else 512 (the paper's
    network has 8,192)."""
    norm_pix: bool | None = None
    """Find words of patches that are normalised by their own mean and variance; default: only above 16 pixels, where
    patches are large enough to have a shape of their own."""


@dataclass(frozen=True)
class ResolvedBEiT(BEiTConfig, Resolved):
    """Words without open values."""

    words: int = OPEN
    norm_pix: bool = OPEN


@dataclass(frozen=True)
class BEiTRecipe(PretrainingRecipe):
    """Options of recipes/beit.py."""

    augment: AugmentConfig = field(default_factory=AugmentConfig)
    beit: BEiTConfig = field(default_factory=BEiTConfig)


@dataclass(frozen=True)
class ResolvedBEiTRecipe(ResolvedPretraining, BEiTRecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN
    beit: ResolvedBEiT = OPEN


@dataclass(frozen=True, kw_only=True)
class BEiTPreset(MethodPreset):
    """The defaults are for photographs."""

    crop: tuple[float, float] = (0.2, 1.0)
    words: int = 512
    norm_pix: bool = True


_PAPER = (
    "BEiT (arXiv 2106.08254, section 2.3 and appendix D): 0.4 of the patches hidden in blocks, mirror. Reasoned: words "
    "by k-means and their number; budget, rate and crops, which are MAE's."
)
_USUAL = BEiTPreset(source="As px224.")
PRESETS = {
    "digits": BEiTPreset(
        images=200_000, batch=128, base_lr=3e-3, crop=(1.0, 1.0), words=64, norm_pix=False,
        source="Reasoned: budget and rate as MAE's, which are measured on scikit-learn's 8x8 digits; masking is the "
        "paper's.",
    ),
    "px32": replace(_USUAL, words=256),
    "px32-cpu": replace(_USUAL, words=256),
    "px64": _USUAL,
    "px96": _USUAL,
    "px128": replace(_USUAL, epochs=(100, 800)),
    "px224": replace(
        _USUAL, epochs=(100, 800), source=_PAPER,
        expected="Not measured here, and published numbers are of words from a network trained on other images.",
    ),
}  # fmt: skip
"""By the name of the preset."""


def resolve(cfg: BEiTRecipe, facts: Facts, preset: Preset) -> ResolvedBEiTRecipe:
    """Words; length, batch and rate."""
    own = PRESETS[preset.name]
    beit = fill(ResolvedBEiT, cfg.beit, words=own.words, norm_pix=own.norm_pix and facts.patch > 1)
    augment = resolve_augment(cfg.augment, preset, own.crop, labelled=False)
    return settle_recipe(ResolvedBEiTRecipe, cfg, facts, preset, own, beit=beit, augment=augment)


def table() -> str:
    """BEiT's part of all presets."""
    return listing(
        "BEiT's part, for recipes/beit.py",
        PRESETS,
        {
            **BUDGET,
            **CROP,
            "words": lambda p: f"{p.words}",
            "of patches": lambda p: "normalised" if p.norm_pix else "as they are",
        },
    )


METHOD = Method(
    name="beit",
    title="BEiT",
    paper="Bao et al. 2022, visual words of hidden patches",
    recipe=BEiTRecipe,
    needs="dropping",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.beit:build",
)
