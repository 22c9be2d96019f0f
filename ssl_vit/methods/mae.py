"""Masked autoencoder (He et al. 2022): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from ssl_vit.configs.data import AugmentConfig, ResolvedAugment
from ssl_vit.configs.facts import Range
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_augment, resolve_budget, resolve_rate
from ssl_vit.configs.settled import OPEN, Resolved, settle
from ssl_vit.core.text import aligned, note, short
from ssl_vit.methods.method import Facts, Look, Method


@dataclass(frozen=True)
class MAEConfig:
    """Masked autoencoder (He et al. 2022)."""

    mask_ratio: float | None = None
    """Share of patches hidden from the encoder, in (0, 1); default: the paper's 0.75, up to 16 pixels 0.5."""
    norm_pix: bool | None = None
    """Reconstruct pixels normalised by each patch's own mean and variance (the paper's better targets); default: only
    above 16 pixels, where patches are large enough to have a shape of their own."""
    decoder_width: Annotated[int | None, Range(4)] = None
    """Decoder dimension; default: 512 for ViT-B and larger, else half the encoder's, at least 32."""
    decoder_depth: Annotated[int | None, Range(1)] = None
    """Decoder blocks; default: 8 for ViT-B and larger, 4 for ViT-Ti and ViT-S, 2 below."""
    decoder_heads: Annotated[int | None, Range(1)] = None
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


@dataclass(frozen=True)
class MAEPreset:
    """MAE's part of a preset; the defaults below are the paper's, for photographs."""

    images: int
    """Budget: images seen, epochs x images."""
    source: str
    expected: str
    """Result to expect, or that nobody measured it."""
    epochs: tuple[int, int] = (20, 800)
    """Fewest and most epochs that the budget may come to."""
    batch: int = 256
    """Effective batch, where there are images enough for four steps an epoch."""
    base_lr: float = 1e-3
    """Per 256 images of effective batch, of networks narrower than ViT-B."""
    crop: tuple[float, float] = (0.2, 1.0)
    """Area of the crop as a share of the image; (1, 1): no crop."""
    mask_ratio: float = 0.75
    norm_pix: bool = True


_RECIPE = (
    "MAE's pre-training (arXiv 2111.06377, appendix A.1): masking 0.75, crops of 0.2-1, mirror, normalised targets; "
    "base lr 1e-3 is its code's default."
)
_CIFAR10 = (
    "a smaller network (128 x 6, 1.2 M parameters), 1.8 M images, top-1 % with 500 and 2,500 labels: linear-cached "
    "45.4 and 53.0, fine-tuned 43.2 and 48.6; from scratch, as long, 31.6 and 33.3 (benchmarks/results/cifar10.md)"
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
        expected="1,438 labelled digits, top-1 %: k-NN 94.5, logistic regression 96.1, fine-tuned 98.3; from scratch "
        "97.8. 20 labels: 75.1, 75.8, 71.1; 41.7. Training on labels there searched its learning rate "
        "(benchmarks/results/digits_labels.md).",
    ),
    "px32": MAEPreset(
        images=4_000_000, source=f"{_RECIPE} Reasoned: a budget of 80 epochs of 50,000 images.",
        expected=f"CIFAR-10: {_CIFAR10}. Elsewhere: ViT-Ti/2, MAE for 2,000 epochs (100 M images), fine-tuned 89.8; "
        "74.1 from scratch without augmentation (IcarusWizard/MAE).",
    ),
    "px64": MAEPreset(images=4_000_000, source=_SMALL, expected=_UNKNOWN),
    "px96": MAEPreset(images=4_000_000, source=_SMALL, expected=_UNKNOWN),
    "px128": MAEPreset(images=4_000_000, epochs=(100, 800), source=_LARGE, expected="Not measured here."),
    "px224": MAEPreset(
        images=4_000_000, epochs=(100, 800),
        source=f"{_LARGE} The paper trains for 800 epochs of ImageNet-1k (1,000 M images) and more.",
        expected="Not measured here. Elsewhere: Imagenette, ViT-S, k-NN 45.4 after 1.9 M images and 61.0 after 7.6 M "
        "(lightly). ImageNet-1k, ViT-B/16, fine-tuned: 81.3 after 100 epochs (lightly), 83.6 after 1,600 (paper).",
    ),
}  # fmt: skip
"""By the name of the preset."""


class _Decoder(NamedTuple):
    """The decoder for encoders from some width on."""

    least: int
    depth: int
    width: int | None = None
    """None: half the encoder's, in whole heads of 32, at least one."""
    heads: int | None = None
    """None: one per 32 of the decoder's width, at least 2."""
    base_lr: float | None = None
    """None: the preset's."""


_DECODERS = (_Decoder(768, 8, 512, 16, 1.5e-4), _Decoder(192, 4), _Decoder(0, 2))
"""ViT-B's and larger are the paper's (section 4 and appendix A.1); the others are reasoned: heads of 32 and a lighter
network than the encoder, as the paper's is for ViT-L."""


def resolve(cfg: MAERecipe, facts: Facts, preset: Preset) -> ResolvedMAERecipe:
    """Masking, targets and decoder; length, batch and rate.

    Args:
        cfg: As given.
        facts: Of images and network.
        preset: Of the images.
    """
    own, width, given = PRESETS[preset.name], facts.width, cfg.mae
    decoder = next(d for d in _DECODERS if width >= d.least)
    inner = given.decoder_width or decoder.width or max(32, width // 2 // 32 * 32)
    return settle(
        ResolvedMAERecipe,
        cfg,
        preset=preset.name,
        model=facts.model,
        mae=settle(
            ResolvedMAE,
            given,
            mask_ratio=own.mask_ratio if given.mask_ratio is None else given.mask_ratio,
            norm_pix=own.norm_pix if given.norm_pix is None else given.norm_pix,
            decoder_width=inner,
            decoder_depth=given.decoder_depth or decoder.depth,
            decoder_heads=given.decoder_heads or decoder.heads or max(2, inner // 32),
        ),
        optim=resolve_rate(cfg.optim, decoder.base_lr or own.base_lr),
        augment=resolve_augment(cfg.augment, preset, own.crop, labelled=False),
        fit=resolve_budget(cfg.fit, facts.images, budget=own.images, epochs=own.epochs, batch=own.batch),
    )


def table() -> str:
    """MAE's part of all presets as text of at most 120 columns."""
    head = ("preset", "images", "epochs", "batch", "lr", "crop", "mask", "targets")
    rows = [
        (name, f"{p.images / 1e6:g} M", f"{p.epochs[0]}-{p.epochs[1]}", f"{p.batch}", short(p.base_lr),
         "none" if p.crop == (1.0, 1.0) else f"{p.crop[0]:g}-{p.crop[1]:g}", f"{p.mask_ratio:g}",
         "normalised" if p.norm_pix else "pixels")
        for name, p in PRESETS.items()
    ]  # fmt: skip
    decoders = "; ".join(
        f"from width {d.least}: {d.depth} blocks of {d.width or 'half the width'}"
        f"{f', lr {short(d.base_lr)}' if d.base_lr else ''}"
        for d in _DECODERS
    )
    notes = [
        note(name, f"Source: {p.source}") + "\n" + note("", f"Expected: {p.expected}") for name, p in PRESETS.items()
    ]
    return "\n".join(
        [
            "MAE's part, for recipes/mae.py:\n",
            aligned([head, *rows]),
            "\nimages: the budget, which keeps between the least and most epochs. lr: per 256 images.",
            f"{note('Decoders:', decoders)}.\n",
            *notes,
        ]
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
