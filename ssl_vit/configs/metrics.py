"""Everything that is known of a metric, in one table; how it is computed is in ``evaluation.metrics``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["class", "multilabel", "regression"]
"""``class``: Int[n], a class number each. ``multilabel``: Float[n K] of 0 and 1. ``regression``: Float[n R]."""
KINDS: dict[Kind, str] = {"class": "one class", "multilabel": "several labels", "regression": "numbers"}
"""What an image has, in words."""

Leading = Literal["top1", "balanced", "average_precision", "auroc", "macro_f1", "r2", "mean_absolute_error"]
"""Names of the metrics that a table may lead with, for ``--eval.metric``: those of ``METRICS`` that lead somewhere."""


@dataclass(frozen=True)
class Metric:
    """What tables, sentences, charts and tests need to know; the defaults are those of a percentage."""

    name: str
    """Its key in results, and the value of ``--eval.metric``."""
    heading: str
    """What columns and axes call it."""
    words: str
    """What sentences call it."""
    leads: tuple[Kind, ...]
    """Kinds of labels whose tables may lead with it, and whose verdict may be about it."""
    shown: tuple[Kind, ...]
    """Kinds of labels whose tables show it whatever they lead with."""
    unit: Literal["points", "", "units of the labels"] = "points"
    """What differences are counted in."""
    larger_is_better: bool = True
    bounds: tuple[float, float] = (0.0, 100.0)
    """The least and the largest value it can have."""
    form: str = ".1f"
    """As many digits as its unit deserves, as ``format`` takes them."""
    needs_variety: bool = False
    """Whether it is undefined where the test labels are all alike."""
    per_image: bool = False
    """Whether it is a mean over test images, so that each of them contributes a number of its own."""

    mean_over_labels: tuple[Kind, ...] = ()
    """Kinds for which it is a mean over labels (numbers; classes, each against the rest), so that intervals are too."""

    @property
    def percent(self) -> bool:
        """Whether values are in percent."""
        return self.unit == "points"

    @property
    def sign(self) -> float:
        """1 where a larger value is better, -1 where a smaller one is."""
        return 1.0 if self.larger_is_better else -1.0


_METRICS = [
    Metric("top1", "top-1 %", "accuracy", ("class",), ("class",), per_image=True),
    Metric("top5", "top-5 %", "top-5 accuracy", (), ("class",), per_image=True),
    Metric("balanced", "balanced %", "balanced accuracy", ("class",), ("class",), per_image=True),
    Metric("average_precision", "mean AP %", "mean average precision", ("class", "multilabel"), ("multilabel",),
           needs_variety=True, mean_over_labels=("class", "multilabel")),
    Metric("auroc", "AUROC %", "AUROC", ("class", "multilabel"), ("class", "multilabel"), needs_variety=True,
           mean_over_labels=("class", "multilabel")),
    Metric("macro_f1", "macro-F1 %", "macro-F1", ("class", "multilabel"), ("multilabel",),
           mean_over_labels=("multilabel",)),
    Metric("r2", "R2", "R2", ("regression",), ("regression",), "", bounds=(-math.inf, 1.0), form=".3f",
           needs_variety=True, mean_over_labels=("regression",)),
    Metric("mean_absolute_error", "mean abs. error", "mean absolute error", ("regression",), ("regression",),
           "units of the labels", larger_is_better=False, bounds=(0.0, math.inf), form=".4g",
           mean_over_labels=("regression",)),
]  # fmt: skip
METRICS = {metric.name: metric for metric in _METRICS}
"""By name; of those that lead with a kind of labels the first is the usual one."""


def leading(kind: Kind) -> tuple[str, ...]:
    """Names of the metrics that a table about this kind of labels may lead with, the usual one first."""
    return tuple(metric.name for metric in METRICS.values() if kind in metric.leads)


def defined_on_any(kind: Kind) -> str:
    """The first metric of a kind of labels that needs no labels which vary."""
    return next(name for name in leading(kind) if not METRICS[name].needs_variety)


def shown(metric: str, value: float) -> str:
    """A value with as many digits as its unit deserves; what is no metric has one."""
    return format(value, METRICS[metric].form if metric in METRICS else Metric.form)
