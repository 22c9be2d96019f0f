"""Options of the evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ssl_vit.configs.data import LabelledDataConfig
from ssl_vit.configs.facts import NO_EFFECT, POSITIVE, SAME_RUN, Range
from ssl_vit.configs.metrics import Leading


@dataclass(frozen=True)
class JudgedConfig:
    """What a backbone will be judged on; pre-training keeps its test images out."""

    data: LabelledDataConfig = field(default_factory=LabelledDataConfig)


@dataclass(frozen=True)
class JudgedMetricConfig(JudgedConfig):
    """What everything is judged on, and by what."""

    metric: Literal["auto", Leading] = "auto"
    """What the verdict is about; all that fit are in the result files. auto: top1 for classes (balanced where the
    largest test class has three times the images of the smallest), average_precision for several labels, r2 for
    numbers."""


@dataclass(frozen=True)
class DrawConfig(JudgedConfig):
    """What to judge on."""

    labels: Annotated[int | None, Range(1)] = None
    """Use only this many training labels, as evenly over the classes (or the rarest label of an image, or tenths of a
    number's range) as they allow; default: all."""
    draw: Annotated[int, Range(0)] = 0
    """Which draw of that many labels; draws of one number are nested (20 labels contain the 10 of the same draw)."""
    metric: Annotated[Literal["auto", Leading], NO_EFFECT] = "auto"
    """What tables lead with; all that fit are in the result file. auto: top1 for classes (balanced where the largest
    test class has three times the images of the smallest), average_precision for several labels, r2 for numbers."""


@dataclass(frozen=True)
class LabelsConfig(DrawConfig):
    """What to train on and to judge on."""

    held_out: bool = False
    """Judge on a fifth of the labels instead of the test images, and train on the others: for choosing options without
    looking at the test images."""


@dataclass(frozen=True)
class EvalConfig(LabelsConfig):
    """What to judge on."""

    batch_size: Annotated[int | None, Range(1, ceiling=1 << 22), NO_EFFECT] = None
    """Images per process and forward pass when features are extracted, halved where memory does not suffice; default:
    on a CPU 16 for each thread (256 of up to 16 pixels), on a GPU 334 of 224 pixels and up to 4,096 smaller ones."""
    precision: Annotated[Literal["auto", "fp32", "bf16"], SAME_RUN] = "auto"
    """Arithmetic of feature extraction; auto: bf16 on GPUs that have it and on CPUs with matrix units (AMX), else fp32.
    bf16 is part of the protocol."""
    compile: Annotated[bool | None, SAME_RUN] = None
    """Compile the network that features are extracted with; default: on a GPU, for more than 500,000 images."""
    keep_features: Annotated[bool, SAME_RUN] = True
    """Keep extracted features in RUN/features, up to 512 MB of each network and source, for other draws of labels,
    other protocols and later commands."""
    baselines: Annotated[bool, NO_EFFECT] = True
    """Also score the same network with random weights, and raw pixels."""


@dataclass(frozen=True)
class PredictConfig:
    """Applying a classifier."""

    batch_size: Annotated[int, Range(1, ceiling=1 << 22)] = 256
    """Images per process and forward pass."""
    which: Literal["auto", "unlabelled", "all"] = "auto"
    """Images without a label, or all. auto: all that --data.path names; without it those images of the classifier's run
    that have no label."""
    order: Literal["certainty", "source"] = "certainty"
    """Rows of the table: least certain first, or as the source has them. Numbers have no certainty and stay."""
    pictures: Annotated[int, Range(0, 2000)] = 60
    """Least certain images that the page beside the table shows; 0: no page."""


@dataclass(frozen=True)
class EmbedConfig:
    """How vectors are computed."""

    batch_size: Annotated[int | None, Range(1, ceiling=1 << 22)] = None
    """Images per process and forward pass, halved where memory does not suffice; default: as --eval.batch_size."""
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    """Arithmetic of the network; auto: bf16 where the device computes in it, else fp32."""
    keep_features: bool = True
    """Keep vectors in RUN/features, up to 512 MB of each network and source, so that a later command finds them."""


@dataclass(frozen=True)
class AtlasConfig:
    """What an atlas shows."""

    map: Literal["auto", "umap", "tsne", "pca"] = "auto"
    """How vectors become places: UMAP (needs ssl_vit[umap]), t-SNE, or two principal components. t-SNE arranges up to
    3,000 images and puts all others between the nearest of them. auto: umap where it is installed, else tsne."""
    clusters: Annotated[int | None, Range(2, 100)] = None
    """Clusters of k-means; default: what separates best, where anything separates clearly, else 2 to 20 by the number
    of images."""
    pictures: Annotated[int, Range(1, 50_000)] = 4000
    """Most images that the page holds as pictures. Where there are more, the map is a density of all, and the pictures
    are those that stand out and a sample of the others. 4,000 are about 10 MB."""
    neighbours: Annotated[int, Range(1, 60)] = 18
    """Neighbours shown of an image."""


@dataclass(frozen=True)
class TransferConfig:
    """How the sets of a suite are judged; a suite file may say it for each set."""

    protocol: str = "cached"
    """knn, a linear probe (cached, logistic, aug-mae, aug-dino, attentive), finetune, or soup: a weight average of
    several fine-tunings."""
    labels: Annotated[int | None, Range(1)] = None
    """Use at most so many training labels of each set, one draw of them; default: all, and 1,000 in the suites of
    VTAB."""
    options: dict[str, Any] | None = None
    """Further options of the protocols as their own commands have them, such as '{"linear.folds": 3,
    "eval.precision": "fp32"}'. Each reaches the sets whose protocol has it."""
    real: str | None = None
    """Several right answers for each test image of the set imagenet (Beyer et al. 2020): their real.json, or a file of
    that form. An answer counts where it is among them; images without any are left out."""


@dataclass(frozen=True)
class SoupConfig:
    """A weight average of several fine-tunings (Wortsman et al. 2022), chosen by held-out labels."""

    kind: Literal["uniform", "greedy"] = "greedy"
    """uniform: the average of all; greedy: beginning with the best, each is taken in that does not make the average
    worse on the held-out labels. Where an average is worse there than the best single network, that one is taken."""
    rates: Annotated[tuple[float, ...], POSITIVE] = (0.5, 1.0, 2.0)
    """One fine-tuning for each: multiples of the learning rate that fine-tuning alone would have. Each has a seed of
    its own, too, so that [1, 1, 1] averages over seeds."""


@dataclass(frozen=True)
class FiguresConfig:
    """What pictures of a network show."""

    img_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side in pixels at which the backbone sees the images, a multiple of its patch size: larger ones give finer maps,
    with resampled positions. Default: the backbone's own."""
    count: Annotated[int, Range(1, 12)] = 6
    """How many images, evenly spaced in their set."""
