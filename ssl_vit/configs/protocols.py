"""Every way to judge a backbone by labels, in one table; results of different protocols are not comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ssl_vit.configs.metrics import Kind
from ssl_vit.core.errors import UserError, did_you_mean


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
    Protocol("knn", "knn", "knn", f"{_HERE}.neighbours:judge", ("knn",), seeded=False),
    Protocol("cached", "linear-cached", "linear", f"{_HERE}.frozen:judge", _linear(*_CACHED)),
    Protocol("logistic", "logistic", "linear", f"{_HERE}.frozen:judge",
             _linear("grid", "folds", "default", "max_iter"), kinds=("class",)),
    Protocol("aug-mae", "linear-aug (MAE)", "linear", f"{_HERE}.augmented:judge", (*_linear(), *_TRAINED),
             "linear-aug-mae"),
    Protocol("aug-dino", "linear-aug (DINO)", "linear", f"{_HERE}.augmented:judge", (*_linear(), *_TRAINED),
             "linear-aug-dino"),
    Protocol("attentive", "attentive", "linear", f"{_HERE}.augmented:judge", (*_linear("heads"), *_TRAINED)),
    Protocol("finetune", "finetune", "train", f"{_HERE}.finetuning:judge"),
    Protocol("supervised", "supervised", "train", ""),  # the labelled baseline begins with no backbone
]  # fmt: skip
PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS}
"""By name; of several linear probes a report takes the first."""


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
    return next((one for one in PROTOCOLS.values() if one.method == method), None)
