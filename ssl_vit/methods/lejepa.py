"""LeJEPA (Balestriero and LeCun 2025): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ssl_vit.configs.crops import CropsConfig, ResolvedCrops
from ssl_vit.configs.facts import Range
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.resolve import resolve_budget, resolve_rate
from ssl_vit.configs.settled import OPEN, Resolved, settle
from ssl_vit.core.text import aligned, note, short
from ssl_vit.methods import dino
from ssl_vit.methods.method import Facts, Method


@dataclass(frozen=True)
class LeJEPAConfig:
    """Agreement of views whose embeddings are kept Gaussian (Balestriero and LeCun 2025, arXiv 2511.08544)."""

    weight: Annotated[float, Range(0, 1)] = 0.02
    """Share of SIGReg in the loss, in [0, 1]; the rest is agreement. The authors' smallest example has 0.02."""
    out_dim: Annotated[int, Range(1)] = 16
    """Numbers in an embedding; the authors' smallest example has 16."""
    head_hidden: Annotated[int | None, Range(1)] = None
    """Width of the projector's hidden layers; default: the authors' 2,048, less for narrow networks."""
    head_layers: Annotated[int, Range(1)] = 3
    """Linear layers of the projector, at least 1."""
    slices: Annotated[int, Range(1)] = 256
    """Directions along which embeddings are compared with a normal, drawn anew in every step."""
    drop_path: Annotated[float | None, Range(0, 0.999)] = None
    """Stochastic depth: rate at the last block, growing linearly from 0 at the first. Default: as DINO's."""


@dataclass(frozen=True)
class ResolvedLeJEPA(LeJEPAConfig, Resolved):
    """Projector and stochastic depth without open values."""

    head_hidden: int = OPEN
    drop_path: float = OPEN


@dataclass(frozen=True)
class LeJEPARecipe(PretrainingRecipe):
    """Options of recipes/lejepa.py.

    AdamW with its usual betas and weight decay 0.05, a tenth of the steps warm-up, every parameter's gradient clipped
    by itself as DINO has it.
    """

    crops: CropsConfig = field(default_factory=CropsConfig)
    lejepa: LeJEPAConfig = field(default_factory=LeJEPAConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1, weight_decay=0.05)
    )
    fit: FitConfig = field(default_factory=lambda: FitConfig(clip_each=3.0))


@dataclass(frozen=True)
class ResolvedLeJEPARecipe(ResolvedPretraining, LeJEPARecipe):
    """The same without open values."""

    crops: ResolvedCrops = OPEN
    lejepa: ResolvedLeJEPA = OPEN


@dataclass(frozen=True)
class LeJEPAPreset:
    """LeJEPA's part of a preset; crops, budget and batch are DINO's."""

    source: str
    base_lr: float = 2e-3
    """Per 256 images of effective batch."""
    expected: str = "Not measured here."
    """Result to expect, or that nobody measured it."""


_PAPER = (
    "The authors' smallest example (arXiv 2511.08544 and its code): weight 0.02, 16 numbers, 256 directions, base lr "
    "2e-3, weight decay .05. Crops, budget and batch are DINO's."
)
_AS = "As px224."

PRESETS = {
    "digits": LeJEPAPreset(
        base_lr=4e-3, source="As px224 and DINO's digits.",
        expected="Not measured to the end here.",
    ),
    "px32": LeJEPAPreset(source=_AS),
    "px64": LeJEPAPreset(source=_AS),
    "px96": LeJEPAPreset(source=_AS),
    "px128": LeJEPAPreset(source=_AS),
    "px224": LeJEPAPreset(
        source=_PAPER,
        expected="Not measured here. Elsewhere: Imagenette, ViT-S/16, 200 epochs, linear 87.1 (stable-pretraining).",
    ),
}  # fmt: skip
"""By the name of the preset."""

_WIDE = 192
"""D of ViT-Ti, the narrowest network that gets the authors' projector."""


def resolve(cfg: LeJEPARecipe, facts: Facts, preset: Preset) -> ResolvedLeJEPARecipe:
    """Crops, projector and stochastic depth; length, batch and rate.

    Args:
        cfg: As given.
        facts: Of images and network.
        preset: Of the images.

    Raises:
        UserError: For a local crop that is not made of whole patches, or ranges the wrong way round.
    """
    views, given = dino.PRESETS[preset.name], cfg.lejepa
    rate = views.drop_path if given.drop_path is None else given.drop_path
    return settle(
        ResolvedLeJEPARecipe,
        cfg,
        preset=preset.name,
        model=facts.model,
        crops=dino.resolve_crops(cfg.crops, views, facts),
        lejepa=settle(
            ResolvedLeJEPA,
            given,
            head_hidden=given.head_hidden or (2048 if facts.width >= _WIDE else 8 * facts.width),
            drop_path=facts.drop_path(rate, "--lejepa.drop_path"),
        ),
        optim=resolve_rate(cfg.optim, PRESETS[preset.name].base_lr),
        fit=resolve_budget(cfg.fit, facts.images, budget=views.images, epochs=views.epochs, batch=views.batch),
    )


def table() -> str:
    """LeJEPA's part of all presets as text of at most 120 columns."""
    rows = [("preset", "lr"), *((name, short(p.base_lr)) for name, p in PRESETS.items())]
    notes = [
        note(name, f"Source: {p.source}") + "\n" + note("", f"Expected: {p.expected}") for name, p in PRESETS.items()
    ]
    title = "LeJEPA's part, for recipes/lejepa.py; images, epochs, batch and crops are DINO's:\n"
    return "\n".join([title, aligned(rows), "", *notes])


METHOD = Method(
    name="lejepa",
    title="LeJEPA",
    paper="Balestriero and LeCun 2025, agreement of views with Gaussian embeddings",
    recipe=LeJEPARecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.lejepa:build",
    positions="learnable",
)
