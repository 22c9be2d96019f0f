"""LeJEPA (Balestriero and LeCun 2025): options, presets and what open options become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ssl_vit.configs.data import CropsConfig, ResolvedCrops
from ssl_vit.configs.facts import Range
from ssl_vit.configs.fit import FitConfig, OptimConfig
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.recipes import PretrainingRecipe, ResolvedPretraining
from ssl_vit.configs.settled import OPEN, Resolved, fill
from ssl_vit.methods import dino
from ssl_vit.methods.method import BUDGET, Facts, Method, listing, settle_recipe


@dataclass(frozen=True)
class LeJEPAConfig:
    """Agreement of views whose embeddings are kept Gaussian (Balestriero and LeCun 2025, arXiv 2511.08544)."""

    weight: Annotated[float, Range(0, 1)] = 0.02
    """Share of SIGReg in the loss, in [0, 1]; the rest is agreement. The authors' smallest example has 0.02."""
    out_dim: Annotated[int, Range(1, ceiling=1 << 20)] = 16
    """Numbers in an embedding; the authors' smallest example has 16."""
    head_hidden: Annotated[int | None, Range(1, ceiling=1 << 20)] = None
    """Width of the projector's hidden layers; default: the authors' 2,048, less for narrow networks."""
    head_layers: Annotated[int, Range(1, ceiling=100)] = 3
    """Linear layers of the projector, at least 1."""
    slices: Annotated[int, Range(1, ceiling=1 << 20)] = 256
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


_PAPER = (
    "The authors' smallest example (arXiv 2511.08544 and its code): weight 0.02, 16 numbers, 256 directions, base lr "
    "2e-3, weight decay .05. Crops, budget and batch are DINO's."
)
PRESETS = {
    name: replace(preset, base_lr=2e-3, source="As px224.", expected="Not measured here.")
    for name, preset in dino.PRESETS.items()
}
"""By the name of the preset; crops, budget and batch are DINO's but for px32-cpu."""
PRESETS["digits"] = replace(
    PRESETS["digits"], base_lr=4e-3, source="As px224 and DINO's digits.",
    expected="240 epochs, three seeds: linear probe with 10 labels 71.4, k-NN with all 1,438 99.2; raw pixels 54.0 and "
    "99.4 (benchmarks/results/league_digits.md).",
)  # fmt: skip
PRESETS["px32-cpu"] = replace(
    PRESETS["px32-cpu"], images=1_200_000, batch=128, base_lr=4e-3, global_scale=(0.2, 1.0), global_share=0.75,
    source="The best that was tried for an hour on two cores (benchmarks/results/league.md): a ResNet, two crops of "
    "three quarters of the side. Reasoned: the budget, which is that hour.",
    expected="CIFAR-10, its copy in JPEG, three seeds: linear probe with 500 labels 62.8, k-NN with all 71.6 "
    "(benchmarks/results/league.md).",
)  # fmt: skip
PRESETS["px224"] = replace(
    PRESETS["px224"], source=_PAPER,
    expected="Not measured here. Elsewhere: Imagenette, ViT-S/16, 200 epochs, linear 87.1 (stable-pretraining).",
)  # fmt: skip


def resolve(cfg: LeJEPARecipe, facts: Facts, preset: Preset) -> ResolvedLeJEPARecipe:
    """Crops, projector and stochastic depth; length, batch and rate. UserError as ``dino.resolve_crops``."""
    own = PRESETS[preset.name]
    lejepa = fill(ResolvedLeJEPA, cfg.lejepa, head_hidden=dino.hidden_width(facts), drop_path=own.drop_path)
    lejepa = replace(lejepa, drop_path=facts.drop_path(lejepa.drop_path, "--lejepa.drop_path"))
    crops = dino.resolve_crops(cfg.crops, own, facts)
    return settle_recipe(ResolvedLeJEPARecipe, cfg, facts, preset, own, crops=crops, lejepa=lejepa)


def _globals(p: dino.DINOPreset) -> str:
    return f"{p.global_share:.2g} of {p.global_scale[0]:g}-{p.global_scale[1]:g}"


def table() -> str:
    """LeJEPA's part of all presets."""
    return listing(
        "LeJEPA's part, for recipes/lejepa.py; local crops and colours are DINO's, px32-cpu trains resnet_mini",
        PRESETS,
        {**BUDGET, "global crops": _globals},
        "\nglobal crops: side as a share of the input's, of which share of the image's area.\n",
    )


METHOD = Method(
    name="lejepa",
    title="LeJEPA",
    paper="Balestriero and LeCun 2025, agreement of views with Gaussian embeddings",
    recipe=LeJEPARecipe,
    needs="pooled",
    resolve=resolve,
    presets=table,
    build="ssl_vit.objectives.lejepa:build",
    networks=(("px32-cpu", "resnet_mini"),),
    positions="learnable",
    unasked_elsewhere=True,
)
