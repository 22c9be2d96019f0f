"""The whole option tree of each script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from ssl_vit.configs.crops import CropsConfig
from ssl_vit.configs.data import AugmentConfig, DataConfig, LoadingConfig, PoolConfig
from ssl_vit.configs.evaluation import (
    EvalConfig,
    FiguresConfig,
    JudgedConfig,
    JudgedMetricConfig,
    KNNConfig,
    LabelsConfig,
    LinearConfig,
    PredictConfig,
    ProbeOptimConfig,
)
from ssl_vit.configs.facts import SAME_RUN, Range
from ssl_vit.configs.fit import FitConfig, OptimConfig, RunConfig
from ssl_vit.configs.model import AdaptConfig, ModelConfig
from ssl_vit.configs.objectives import DINOConfig, MAEConfig, SupervisedConfig
from ssl_vit.configs.verdict import VerdictConfig


@dataclass(frozen=True)
class MAERecipe:
    """Options of recipes/mae.py."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px64, px96, px128, px224; default: chosen by the images' size.
    Without a value: prints all of them."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    mae: MAEConfig = field(default_factory=MAEConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    eval: JudgedConfig = field(default_factory=JudgedConfig)


@dataclass(frozen=True)
class DINORecipe:
    """Options of recipes/dino.py.

    As DINO's code trains ViTs: AdamW with its usual betas, a tenth of the steps warm-up, weight decay growing from 0.04
    to 0.4, every parameter's gradient clipped by itself.
    """

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px64, px96, px128, px224; default: chosen by the images' size.
    Without a value: prints all of them."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    crops: CropsConfig = field(default_factory=CropsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    dino: DINOConfig = field(default_factory=DINOConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1, schedule="dino", weight_decay=0.04, weight_decay_end=0.4
        )
    )
    fit: FitConfig = field(default_factory=lambda: FitConfig(clip_each=3.0))
    eval: JudgedConfig = field(default_factory=JudgedConfig)


_LABELLED_OPTIM = OptimConfig(betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1)
_LABELLED_FIT = FitConfig(clip_grad=1.0)


@dataclass(frozen=True)
class SupervisedRecipe:
    """Options of recipes/supervised.py."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px64, px96, px128, px224; default: chosen by the images' size.
    Without a value: prints all of them."""
    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    supervised: SupervisedConfig = field(default_factory=SupervisedConfig)
    optim: OptimConfig = field(default_factory=lambda: _LABELLED_OPTIM)
    fit: FitConfig = field(default_factory=lambda: _LABELLED_FIT)
    eval: LabelsConfig = field(default_factory=LabelsConfig)


@dataclass(frozen=True)
class FinetuneRecipe:
    """Options of eval/finetune.py.

    As MAE fine-tunes: betas, smallest rate, weight decay, epochs, smoothing, drop path, RandAugment, erasing, mixing.
    Otherwise than MAE, made for hundreds to thousands of labels: batches of 64 with clipped gradients and at least
    1,000 steps, a tenth of them warm-up (MAE: batches of 1,024, 5 of 100 epochs), averaged weights, larger crops, and
    one layer decay of 0.75 for every network (MAE: 0.65 and a base rate of 5e-4 for ViT-B, 50 epochs for larger ones).
    MAE reads the mean of patches (--supervised.pool mean_prenorm); here the backbone's own pooling counts.
    """

    backbone: str = ""
    """The folder RUN/backbone of a pre-training run (or RUN)."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    run: RunConfig = field(default_factory=RunConfig)
    data: LoadingConfig = field(default_factory=LoadingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: AdaptConfig = field(default_factory=AdaptConfig)
    supervised: SupervisedConfig = field(default_factory=SupervisedConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(betas=(0.9, 0.999), min_lr=1e-6, warmup=0.1, layer_decay=0.75)
    )
    fit: FitConfig = field(default_factory=lambda: _LABELLED_FIT)
    eval: LabelsConfig = field(default_factory=LabelsConfig)


@dataclass(frozen=True)
class KNNRecipe:
    """Options of eval/knn.py."""

    backbone: str = ""
    """The folder RUN/backbone of a pre-training run (or RUN)."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the random-weights baseline."""
    run: RunConfig = field(default_factory=RunConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    knn: KNNConfig = field(default_factory=KNNConfig)


@dataclass(frozen=True)
class LinearRecipe:
    """Options of eval/linear_probe.py."""

    backbone: str = ""
    """The folder RUN/backbone of a pre-training run (or RUN)."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the folds, of every draw in training and of the random-weights baseline."""
    run: RunConfig = field(default_factory=RunConfig)
    data: LoadingConfig = field(default_factory=LoadingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    linear: LinearConfig = field(default_factory=LinearConfig)
    optim: ProbeOptimConfig = field(default_factory=ProbeOptimConfig)
    fit: FitConfig = field(default_factory=FitConfig)


@dataclass(frozen=True)
class FiguresRecipe:
    """Options of eval/figures.py."""

    backbone: str = ""
    """The folder RUN/backbone of a pre-training run (or RUN)."""
    images: str | None = None
    """Images to look at: whatever --data.path of the recipes accepts, of the kind that the backbone was built for; no
    labels are read. Default: those of its own run."""
    out: str | None = None
    """The folder to write pictures into; default: RUN/figures."""
    figures: FiguresConfig = field(default_factory=FiguresConfig)


@dataclass(frozen=True)
class PredictRecipe:
    """Options of eval/predict.py."""

    classifier: str = ""
    """The run of eval/finetune.py or recipes/supervised.py (or its folder classifier)."""
    out: str = "predictions.csv"
    """The table to write: .csv or .parquet."""
    data: DataConfig = field(default_factory=DataConfig)
    predict: PredictConfig = field(default_factory=PredictConfig)


@dataclass(frozen=True)
class VerdictRecipe:
    """Options of eval/verdict.py."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the first pre-training run; the others follow. Draws of labels are counted from 0 for every seed."""
    preset: str | None = None
    """What fills the options left open: digits, px32, px64, px96, px128, px224; default: chosen by the images' size.
    Without a value: prints all of them."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    eval: JudgedMetricConfig = field(default_factory=JudgedMetricConfig)
    verdict: VerdictConfig = field(default_factory=VerdictConfig)


def known_recipes() -> tuple[type[Any], ...]:
    """Every recipe there is: files of runs are read by what is declared beside their options."""
    return (
        MAERecipe, DINORecipe, SupervisedRecipe, FinetuneRecipe, KNNRecipe, LinearRecipe, PredictRecipe, FiguresRecipe,
        VerdictRecipe,
    )  # fmt: skip
