"""Every way to judge a backbone by labels, in one table, and their options; results of two are not comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ssl_vit.configs.facts import POSITIVE, Range
from ssl_vit.configs.metrics import Kind
from ssl_vit.configs.settled import OPEN, Resolved
from ssl_vit.core.errors import UserError, did_you_mean


@dataclass(frozen=True)
class KNNConfig:
    """Weighted k-nearest neighbours, exactly as DINO evaluates."""

    k: Annotated[int, Range(1)] = 20
    """The headline's number of neighbours."""
    also: Annotated[tuple[int, ...], Range(1)] = (10, 100, 200)
    """Further numbers of neighbours, reported beside it."""
    temperature: Annotated[float, Range(0.02)] = 0.07
    """Votes are weighted by exp(cosine similarity / temperature)."""


@dataclass(frozen=True)
class LinearConfig:
    """A classifier on frozen features."""

    protocol: str = "cached"
    """cached: features once, then learning rate, weight decay and pooling by cross-validation inside the labels;
    logistic: scikit-learn's regression; aug-mae and aug-dino: the papers' training on augmented images (batch norm and
    LARS; SGD); attentive: patch tokens pooled by learned queries, on augmented images."""
    pool: Literal["cls", "mean", "cls4", "cls+mean"] | None = None
    """What the classifier reads: class token, mean of patches, class tokens of the last four blocks, class token and
    mean; default: cached chooses, logistic the backbone's own, aug-mae the class token, aug-dino cls4 below width 768
    and cls+mean from there on. Without class token: mean."""
    rates: Annotated[tuple[float, ...], POSITIVE] = (0.1, 1.0, 10.0, 100.0)
    """cached: candidates for SGD's learning rate; features have zero mean and unit squared length on average."""
    decays: Annotated[tuple[float, ...], Range(0)] = (1e-5, 1e-4, 1e-3)
    """cached: candidates for the weight decay."""
    default_rate: Annotated[float, POSITIVE] = 1.0
    """cached: learning rate when the labels are too few to choose."""
    default_decay: Annotated[float, Range(0)] = 1e-4
    """cached: weight decay when the labels are too few to choose."""
    passes: Annotated[float, Range(1e-9)] = 20.0
    """cached: passes over the features."""
    min_steps: Annotated[int, Range(1)] = 1000
    """cached: at least this many steps."""
    batch_size: Annotated[int, Range(1, ceiling=1 << 22)] = 256
    """cached: features per step; all of them where there are fewer."""
    folds: Annotated[int, Range(2, ceiling=1000)] = 5
    """cached, logistic: folds of the cross-validation; classes with fewer labels than this switch it off."""
    grid: Annotated[tuple[float, ...], POSITIVE] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    """logistic: candidates for C, the inverse regularisation strength."""
    default: Annotated[float, POSITIVE] = 0.1
    """logistic: C when a class has fewer labels than folds."""
    max_iter: Annotated[int, Range(1)] = 2000
    """logistic: iterations of the solver."""
    heads: Annotated[int | None, Range(1)] = None
    """attentive: learned queries, a divisor of the width; default: one per 64 dimensions."""


@dataclass(frozen=True)
class ResolvedProbe(LinearConfig, Resolved):
    """A classifier that is trained on augmented images, without open values."""

    heads: int = OPEN


@dataclass(frozen=True)
class ProbeOptimConfig:
    """The optimiser of aug-mae, aug-dino and attentive; every None is the protocol's own and printed."""

    name: Literal["adamw", "sgd", "lars"] | None = None
    """Default: LARS for aug-mae, SGD with momentum 0.9 for aug-dino, AdamW for attentive."""
    lr: Annotated[float | None, POSITIVE] = None
    """Peak learning rate; default: base_lr x effective batch size / 256. Where images are too few for the protocol's
    batch it is that of the whole batch (aug-mae 6.4 for 16,384 images, aug-dino 4e-3 for 1,024), for attentive at least
    1e-3."""
    base_lr: Annotated[float | None, POSITIVE] = None
    """Learning rate per 256 images; default: 0.1 for aug-mae, 1e-3 for aug-dino and attentive."""
    warmup: Annotated[float | None, Range(0, 0.999)] = None
    """Share of all steps that warms up linearly; default: 1/9 for aug-mae (10 of 90 epochs), 0 for aug-dino, 0.05 for
    attentive."""
    weight_decay: Annotated[float | None, Range(0)] = None
    """On matrices only; default: 0, for attentive 0.05."""
    warmup_epochs: Annotated[float | None, Range(0)] = None
    """Epochs that warm up linearly, instead of a share of all steps."""


@dataclass(frozen=True)
class Protocol:
    """What scripts, result files and reports need to know before anything heavy is imported."""

    name: str
    """Of the table below; for linear probes also the value of ``--linear.protocol``."""
    method: str
    """What tables, result files and reports call it."""
    use: Literal["knn", "linear", "train"]
    """What becomes of the backbone: neighbours of its features vote, a head is trained on it, or all of it is."""
    run: str
    """``module:function`` of ``(cfg, session, accelerator) -> evaluation.judging.Judged``, imported when it runs."""
    reads: tuple[str, ...] = ()
    """Options, and whole groups of them, that change its numbers; others of these groups are refused."""
    file: str = ""
    """Name of its result files, where that is not ``method``."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    """Labels that it can learn."""
    seeded: bool = True
    """Whether the backbone's number depends on the seed."""

    @property
    def result(self) -> str:
        """Name of its result files, without what tells draws and seeds apart."""
        return self.file or self.method


_HERE = "ssl_vit.evaluation.protocols"
_CACHED = ("rates", "decays", "default_rate", "default_decay", "passes", "min_steps", "batch_size", "folds")
_TRAINED = ("optim", "fit", "augment")


def _linear(*own: str) -> tuple[str, ...]:
    return tuple(f"linear.{option}" for option in ("protocol", "pool", *own))


_PROTOCOLS = [
    Protocol("knn", "knn", "knn", f"{_HERE}.frozen:neighbours", ("knn",), seeded=False),
    Protocol("cached", "linear-cached", "linear", f"{_HERE}.frozen:judge", _linear(*_CACHED)),
    Protocol("logistic", "logistic", "linear", f"{_HERE}.frozen:judge",
             _linear("grid", "folds", "default", "max_iter"), kinds=("class",)),
    Protocol("aug-mae", "linear-aug (MAE)", "linear", f"{_HERE}.augmented:judge", (*_linear(), *_TRAINED),
             "linear-aug-mae"),
    Protocol("aug-dino", "linear-aug (DINO)", "linear", f"{_HERE}.augmented:judge", (*_linear(), *_TRAINED),
             "linear-aug-dino"),
    Protocol("attentive", "attentive", "linear", f"{_HERE}.augmented:judge", (*_linear("heads"), *_TRAINED)),
    Protocol("finetune", "finetune", "train", "ssl_vit.evaluation.labelled_run:fine_tuned"),
    Protocol("supervised", "supervised", "train", ""),  # the labelled baseline begins with no backbone
    Protocol("taught", "taught", "train", ""),  # nor does what a teacher is added to
]  # fmt: skip
PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS}
"""By name; of several linear probes a report takes the first."""

SOUP = Protocol("soup", "soup", "train", "ssl_vit.evaluation.transfer.soup:judge")
"""A weight average of fine-tunings: a protocol of transfer suites alone, which give it the folder for its runs."""


def suite_protocol(name: str, option: str = "--transfer.protocol") -> Protocol:
    """The protocol that a transfer suite names.

    Args:
        name: As given.
        option: What named it.

    Raises:
        UserError: For a name that is none.
    """
    known = {one.name: one for one in (*PROTOCOLS.values(), SOUP) if one.run}
    if name not in known:
        raise UserError(f"{option} {name} is none of {', '.join(known)}{did_you_mean(name, known)}")
    return known[name]


def probe_named(name: str) -> Protocol:
    """The protocol that ``--linear.protocol`` names.

    Raises:
        UserError: For a name that is none.
    """
    names = [one.name for one in PROTOCOLS.values() if one.use == "linear"]
    if name not in names:
        raise UserError(f"--linear.protocol {name} is none of {', '.join(names)}{did_you_mean(name, names)}")
    return PROTOCOLS[name]


def by_method(method: str) -> Protocol | None:
    """The protocol behind a result's ``method``; None for what this table does not know."""
    return next((one for one in (*PROTOCOLS.values(), SOUP) if one.method == method), None)
