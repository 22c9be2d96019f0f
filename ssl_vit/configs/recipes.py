"""The whole option tree of what judges and shows, and what those of all methods have in common (``methods``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from ssl_vit.configs.continued import ContinuedConfig
from ssl_vit.configs.data import AugmentConfig, DataConfig, LoadingConfig, PoolConfig, ResolvedAugment
from ssl_vit.configs.evaluation import (
    AtlasConfig,
    EmbedConfig,
    EvalConfig,
    FiguresConfig,
    JudgedConfig,
    PredictConfig,
    SoupConfig,
    TransferConfig,
)
from ssl_vit.configs.facts import NO_EFFECT, SAME_RUN, Range
from ssl_vit.configs.fit import FitConfig, OptimConfig, ResolvedFit, ResolvedOptim, RunConfig
from ssl_vit.configs.model import ModelConfig, ResolvedModel
from ssl_vit.configs.protocols import KNNConfig, LinearConfig, ProbeOptimConfig, ResolvedProbe
from ssl_vit.configs.settled import OPEN, Resolved


@dataclass(frozen=True)
class PretrainingRecipe:
    """What the options of every method have in common; each adds a group of its name and how images are varied."""

    BARE: ClassVar[tuple[str, ...]] = ("data.path",)
    """The options that words without a name mean, in their order; as in the recipes below."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of every random number of the run."""
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px32-cpu, px64, px96, px128, px224; default: chosen by the
    images' size, and px32-cpu instead of px32 on a CPU. Without a value: prints all of them."""
    dry_run: Annotated[bool, NO_EFFECT] = False
    """Print what every option comes to, beside the paper's value with a paper's --config, and stop. No images are
    opened: --data.facts says how many and how large."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    continued: ContinuedConfig = field(default_factory=ContinuedConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    eval: JudgedConfig = field(default_factory=JudgedConfig)


@dataclass(frozen=True)
class ResolvedPretraining(PretrainingRecipe, Resolved):
    """The same without open values; ``preset`` is the one that filled them."""

    preset: str = OPEN
    model: ResolvedModel = OPEN
    optim: ResolvedOptim = OPEN
    fit: ResolvedFit = OPEN


@dataclass(frozen=True)
class BackboneRecipe:
    """What every command on a trained network begins with."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone", "eval.data.path")
    backbone: str = ""
    """RUN, the folder of a run that trained a network, or RUN/backbone in it; any folder that timm saved, a ViT or
    ViTMAE folder of transformers, a file of MAE, DINO, DINOv2 or DINOv3, or a name of timm's
    (vit_small_patch14_dinov2.lvd142m). With @PIXELS behind it, another side of the input."""


@dataclass(frozen=True)
class KNNRecipe(BackboneRecipe):
    """Options of eval/knn.py."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the random-weights baseline."""
    run: RunConfig = field(default_factory=RunConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    knn: KNNConfig = field(default_factory=KNNConfig)


@dataclass(frozen=True)
class LinearRecipe(BackboneRecipe):
    """Options of eval/linear_probe.py."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the folds, of every draw in training and of the random-weights baseline."""
    dry_run: Annotated[bool, NO_EFFECT] = False
    """Print what every option comes to, beside the paper's value with a paper's --config, and stop. No images are
    opened: --data.facts says how many and how large."""
    run: RunConfig = field(default_factory=RunConfig)
    data: LoadingConfig = field(default_factory=LoadingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    linear: LinearConfig = field(default_factory=LinearConfig)
    optim: ProbeOptimConfig = field(default_factory=ProbeOptimConfig)
    fit: FitConfig = field(default_factory=FitConfig)


@dataclass(frozen=True)
class ResolvedLinear(LinearRecipe, Resolved):
    """A probe that is trained on augmented images, without open values."""

    augment: ResolvedAugment = OPEN
    linear: ResolvedProbe = OPEN
    fit: ResolvedFit = OPEN


@dataclass(frozen=True)
class TransferRecipe(BackboneRecipe):
    """Options of eval/transfer.py."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone", "suite")
    suite: str = ""
    """What to judge on: a folder that holds a labelled set in each of its folders and tables, a YAML file that tells of
    sets, or names joined by commas: of sets (cifar10, pets, ...), of suites (small, vtab, vtab-natural, ...), paths, or
    owner/name on the Hugging Face Hub."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of everything that a protocol draws, but of the labels."""
    run: RunConfig = field(default_factory=RunConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    soup: SoupConfig = field(default_factory=SoupConfig)


@dataclass(frozen=True)
class FiguresRecipe(BackboneRecipe):
    """Options of eval/figures.py."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone", "images")
    images: str | None = None
    """Images to look at: whatever --data.path of the recipes accepts, of the kind that the backbone was built for; no
    labels are read. Default: those of its own run."""
    out: str | None = None
    """The folder to write pictures into; default: RUN/figures."""
    figures: FiguresConfig = field(default_factory=FiguresConfig)


def _own_images() -> DataConfig:
    return DataConfig(path="")  # those of the network's run


@dataclass(frozen=True)
class PredictRecipe:
    """Options of eval/predict.py."""

    BARE: ClassVar[tuple[str, ...]] = ("classifier", "data.path")
    classifier: str = ""
    """The run of eval/finetune.py or recipes/supervised.py (or its folder classifier), or a pre-training run that was
    fine-tuned once."""
    out: str = "predictions.csv"
    """The table to write: .csv or .parquet. A page of its name (.html) shows the images to label next."""
    data: DataConfig = field(default_factory=_own_images)
    predict: PredictConfig = field(default_factory=PredictConfig)


@dataclass(frozen=True)
class EmbedRecipe(BackboneRecipe):
    """Options of eval/embed.py."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone", "data.path")
    out: str = "features.parquet"
    """The table to write: .parquet, .csv or .npz."""
    data: DataConfig = field(default_factory=_own_images)
    embed: EmbedConfig = field(default_factory=EmbedConfig)


@dataclass(frozen=True)
class AtlasRecipe(BackboneRecipe):
    """Options of eval/atlas.py."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone", "data.path")
    out: str = "atlas.html"
    """The page to write."""
    data: DataConfig = field(default_factory=_own_images)
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    atlas: AtlasConfig = field(default_factory=AtlasConfig)


@dataclass(frozen=True)
class ExportRecipe:
    """Options of eval/export.py."""

    BARE: ClassVar[tuple[str, ...]] = ("backbone",)
    backbone: str = ""
    """The run of pre-training (or its folder backbone): what makes one vector of an image."""
    classifier: str = ""
    """Instead: the run of eval/finetune.py or recipes/supervised.py (or its folder classifier), which answers."""
    format: Literal["timm", "hf", "onnx", "torchscript"] = "timm"
    """timm and hf: a folder that timm, and transformers, load; onnx: one file for onnxruntime and others; torchscript:
    one file for torch alone. Each is loaded by that library, and its outputs compared, before it counts as done."""
    out: str | None = None
    """The folder to write; default: RUN/export-FORMAT, in the network's own folder where no run is around it."""
    half: bool = False
    """Store weights as 16-bit numbers, half as large. Only for timm and hf. Outputs may differ by 1 %, else by 1e-5."""
    push: str | None = None
    """Also send the folder to the Hugging Face hub, as OWNER/NAME; log in before with `hf auth login`."""
