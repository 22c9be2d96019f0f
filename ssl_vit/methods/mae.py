"""Masked autoencoder (He et al. 2022): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.core.text import note, short
from ssl_vit.methods.method import BUDGET, CROP, Facts, Look, Method, MethodPreset, listing, settle_recipe


@dataclass(frozen=True)
class MAEConfig:
    """Masked autoencoder (He et al. 2022)."""

    mask_ratio: float | None = None
    """Share of patches hidden from the encoder, in (0, 1); default: the paper's 0.75, up to 16 pixels 0.5."""
    norm_pix: bool | None = None
    """Reconstruct pixels normalised by each patch's own mean and variance (the paper's better targets); default: only
    above 16 pixels, where patches are large enough to have a shape of their own."""
    decoder_width: Annotated[int | None, Range(4, ceiling=1 << 16)] = None
    """Decoder dimension; default: 512 for ViT-B and larger, else half the encoder's, at least 32."""
    decoder_depth: Annotated[int | None, Range(1, ceiling=1000)] = None
    """Decoder blocks; default: 8 for ViT-B and larger, 4 for ViT-Ti and ViT-S, 2 below."""
    decoder_heads: Annotated[int | None, Range(1, ceiling=1024)] = None
    """Decoder attention heads; default: 16 for ViT-B and larger, else the decoder's width / 32, at least 2."""


@dataclass(frozen=True)
class ResolvedMAE(MAEConfig, Resolved):
    """Masking and decoder without open values."""

    mask_ratio: float = OPEN
    norm_pix: bool = OPEN
    decoder_width: int = OPEN
    decoder_depth: int = OPEN
    decoder_heads: int = OPEN


@dataclass(frozen=True)
class MAERecipe(PretrainingRecipe):
    """Options of recipes/mae.py."""

    augment: AugmentConfig = field(default_factory=AugmentConfig)
    mae: MAEConfig = field(default_factory=MAEConfig)


@dataclass(frozen=True)
class ResolvedMAERecipe(ResolvedPretraining, MAERecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN
    mae: ResolvedMAE = OPEN


@dataclass(frozen=True, kw_only=True)
class MAEPreset(MethodPreset):
    """The defaults are the paper's; ``base_lr`` is that of networks narrower than ViT-B."""

    crop: tuple[float, float] = (0.2, 1.0)
    mask_ratio: float = 0.75
    norm_pix: bool = True


_RECIPE = (
    "MAE's pre-training (arXiv 2111.06377, appendix A.1): masking 0.75, crops of 0.2-1, mirror, normalised targets; "
    "base lr 1e-3 is its code's default."
)
_CIFAR10 = (
    "a smaller network (128 x 6, 1.2 M parameters), 1.8 M images, top-1 % with 500 and 2,500 labels: linear-cached "
    "44.0 and 54.2, fine-tuned 46.3 and 60.0; from scratch, as long, 36.9 and 49.0 (benchmarks/results/cifar10.md)"
)
_SMALL = "As px32, and reasoned: the same cost and budget (40 epochs of 100,000 images)."
_UNKNOWN = "Not measured here, and no published MAE of a plain ViT at this size found."
_LARGE = (
    "As px32, and reasoned: a budget inside the 1.9-7.6 M images of published Imagenette runs; never under 100 epochs, "
    "the shortest MAE of ImageNet whose result is known (lightly)."
)

PRESETS = {
    "digits": MAEPreset(
        images=200_000, batch=128, base_lr=3e-3, crop=(1.0, 1.0), mask_ratio=0.5, norm_pix=False,
        source="Measured on scikit-learn's 8x8 digits: masking, targets, batch, rate and budget.",
        expected="1,438 labelled digits, top-1 %: k-NN 93.6, logistic regression 95.1, fine-tuned 98.7; from scratch "
        "97.8. 20 labels: 74.8, 74.6, 71.8; 42.7. Training on labels there searched its learning rate "
        "(benchmarks/results/digits_labels.md).",
    ),
    "px32": MAEPreset(
        images=40_000_000, source=f"{_RECIPE} Reasoned, for GPUs: a budget of 800 epochs of 50,000 images."
    ),
    "px32-cpu": MAEPreset(
        source=f"{_RECIPE} Reasoned: a budget of 80 epochs of 50,000 images.",
        expected=f"CIFAR-10: {_CIFAR10}.",
    ),
    "px64": MAEPreset(source=_SMALL, expected=_UNKNOWN),
    "px96": MAEPreset(source=_SMALL, expected=_UNKNOWN),
    "px128": MAEPreset(epochs=(100, 800), source=_LARGE),
    "px224": MAEPreset(
        epochs=(100, 800),
        source=f"{_LARGE} The paper trains for 800 epochs of ImageNet-1k (1,000 M images) and more.",
        expected="Not measured here. Published numbers are of other settings: --config mae_vitb16_1600 (fine-tuned "
        "83.6 on ImageNet-1k) is the authors'.",
    ),
}  # fmt: skip
"""By the name of the preset."""


class _Decoder(NamedTuple):
    """The decoder for encoders from some width on.

    None: half the encoder's width in whole heads of 32, one head for each of them and at least 2, the preset's rate.
    """

    least: int
    depth: int
    width: int | None = None
    heads: int | None = None
    base_lr: float | None = None


_DECODERS = (_Decoder(768, 8, 512, 16, 1.5e-4), _Decoder(192, 4), _Decoder(0, 2))
"""ViT-B's and larger are the paper's (section 4 and appendix A.1); the others are reasoned: heads of 32 and a lighter
network than the encoder, as the paper's is for ViT-L."""


def resolve(cfg: MAERecipe, facts: Facts, preset: Preset) -> ResolvedMAERecipe:
    """Masking, targets and decoder; length, batch and rate."""
    own = PRESETS[preset.name]
    decoder = next(d for d in _DECODERS if facts.width >= d.least)
    width = cfg.mae.decoder_width or decoder.width or max(32, facts.width // 2 // 32 * 32)
    mae = fill(
        ResolvedMAE, cfg.mae, mask_ratio=own.mask_ratio, norm_pix=own.norm_pix and facts.patch > 1, decoder_width=width,
        decoder_depth=decoder.depth, decoder_heads=decoder.heads or max(2, width // 32),
    )  # fmt: skip
    augment = resolve_augment(cfg.augment, preset, own.crop, labelled=False)
    own = replace(own, base_lr=decoder.base_lr or own.base_lr)
    return settle_recipe(ResolvedMAERecipe, cfg, facts, preset, own, mae=mae, augment=augment)


def table() -> str:
    """MAE's part of all presets."""
    decoders = "; ".join(
        f"from width {d.least}: {d.depth} blocks of {d.width or 'half the width'}"
        f"{f', lr {short(d.base_lr)}' if d.base_lr else ''}"
        for d in _DECODERS
    )
    return listing(
        "MAE's part, for recipes/mae.py",
        PRESETS,
        {
            **BUDGET,
            **CROP,
            "mask": lambda p: f"{p.mask_ratio:g}",
            "targets": lambda p: "normalised" if p.norm_pix else "pixels",
        },
        "\nimages: the budget, which keeps between the least and most epochs. lr: per 256 images.\n"
        f"{note('Decoders:', decoders)}.\n",
    )


METHOD = Method(
    name="mae",
    title="MAE",
    paper="He et al. 2022, masked autoencoder",
    recipe=MAERecipe,
    needs="dropping",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.mae:build",
    picture="ssl_vit.figures.reconstructions:save_reconstructions",
    look=Look("#0072b2", "#5fb6ec", "o"),
    unasked=True,
)
