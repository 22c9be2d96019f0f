"""Options of the evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ssl_vit.configs.data import LabelledDataConfig

Metric = Literal["auto", "top1", "balanced", "auroc", "average_precision", "macro_f1", "mae", "r2"]


@dataclass(frozen=True)
class JudgedConfig:
    """What a backbone will be judged on; pre-training keeps its test images out."""

    data: LabelledDataConfig = field(default_factory=LabelledDataConfig)


@dataclass(frozen=True)
class LabelsConfig:
    """What to train on and to judge on."""

    data: LabelledDataConfig = field(default_factory=LabelledDataConfig)
    labels: int | None = None
    """Use only this many training labels, as evenly over the classes (or the rarest label of an image, or tenths of a
    number's range) as they allow; default: all."""
    draw: int = 0
    """Which draw of that many labels; draws of one number are nested (20 labels contain the 10 of the same draw)."""
    metric: Metric = "auto"
    """What tables lead with; all that fit are in the result file. auto: top1 for classes (balanced where the largest
    test class has three times the images of the smallest), average_precision for several labels, r2 for numbers."""


@dataclass(frozen=True)
class EvalConfig:
    """What to judge on."""

    data: LabelledDataConfig = field(default_factory=LabelledDataConfig)
    labels: int | None = None
    """Use only this many training labels, as evenly over the classes (or the rarest label of an image, or tenths of a
    number's range) as they allow; default: all."""
    draw: int = 0
    """Which draw of that many labels; draws of one number are nested (20 labels contain the 10 of the same draw)."""
    metric: Metric = "auto"
    """What tables lead with; all that fit are in the result file. auto: top1 for classes (balanced where the largest
    test class has three times the images of the smallest), average_precision for several labels, r2 for numbers."""
    batch_size: int = 256
    """Images per process and forward pass when features are extracted."""
    baselines: bool = True
    """Also score the same network with random weights, and raw pixels."""


@dataclass(frozen=True)
class KNNConfig:
    """Weighted k-nearest neighbours, exactly as DINO evaluates."""

    k: int = 20
    """The headline's number of neighbours."""
    also: tuple[int, ...] = (10, 100, 200)
    """Further numbers of neighbours, reported beside it."""
    temperature: float = 0.07
    """Votes are weighted by exp(cosine similarity / temperature)."""


@dataclass(frozen=True)
class LinearConfig:
    """Logistic regression on standardised features."""

    grid: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    """Candidates for C, the inverse regularisation strength, chosen by cross-validation inside the given labels."""
    folds: int = 5
    """Folds of that cross-validation; classes with fewer labels than this switch it off."""
    default: float = 0.1
    """C when a class has fewer labels than folds."""
    max_iter: int = 2000
    """Iterations of the solver."""


@dataclass(frozen=True)
class PredictConfig:
    """Applying a classifier."""

    batch_size: int = 256
    """Images per process and forward pass."""
