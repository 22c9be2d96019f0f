"""Numbers of trainings and of looks at networks, and what may be said of their differences. Needs no torch.

Differences are paired: by draw (labels, order and seeds are the same on both sides as far as they can be) and by test
image. All differences that one question tells of are one family: their p-values are adjusted (Holm), and spreads of one
claim know of each other (``statistics.families``). That there is no difference belongs to no such family: it is shown
by an interval that holds none of a size that matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.configs.metrics import METRICS
from ssl_vit.questions.scope import Look, Training
from ssl_vit.statistics.families import holm, shared_spread
from ssl_vit.statistics.paired import Estimates, estimate_many, interval

ALPHA = 0.05
"""Adjusted p-value below which a difference is seen."""
ALIKE: Mapping[str, float] = {"points": 3.0}
"""Where no difference is expected: how large one may be, by its unit. An interval within it shows that there is no
larger one; a wide interval shows nothing."""
Outcome = Literal["seen", "not seen", "opposite", "unknown"]
Finding = dict[str, Any]
"""What a question came to, as measured.json holds it: numbers for its figures, and ``comparisons``."""


@dataclass(frozen=True)
class Numbers:
    """What was measured; keys are those of trainings and looks."""

    metric: str
    scores: Mapping[str, Float[np.ndarray, " U"]]
    """What every test image adds to the metric; a training that diverged has none."""
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {})
    """Of trainings and pre-training runs: seconds, flops, images."""
    looks: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=lambda: {})
    clusters: Int[np.ndarray, " U"] | None = None
    """The group of every unit of the scores; None where each is its own."""
    looked_clusters: Int[np.ndarray, " I"] | None = None
    """The same of the images that are looked at."""

    def units(self, trainings: Sequence[Training]) -> Float[np.ndarray, "R U"] | None:
        """Scores of one training on every draw.

        Args:
            trainings: One for each draw.

        Returns:
            None where one of them diverged.
        """
        found = [self.scores.get(training.key) for training in trainings]
        rows = [one for one in found if one is not None]
        return np.array(rows, dtype=np.float64) if rows and len(rows) == len(found) else None

    def read(self, looks: Sequence[Look], name: str) -> Float[np.ndarray, "R *S I"] | None:
        """An array of the same look at every draw's network.

        Args:
            looks: One for each draw.
            name: Of the array.

        Returns:
            None where one is missing.
        """
        found = [self.looks.get(look.key) for look in looks]
        rows = [one[name] for one in found if one is not None and name in one]
        return np.array(rows, dtype=np.float64) if rows and len(rows) == len(found) else None

    def cost(self, trainings: Sequence[Training], what: str) -> float | None:
        """The mean cost of trainings with what was made before them; None where it is not known.

        Args:
            trainings: One for each draw.
            what: ``seconds`` or ``flops``.
        """
        found: list[float] = []
        for training in trainings:
            before = training.pretraining
            keys = [training.key, *([before.key] if before else [])]
            parts = [self.costs.get(key, {}).get(what) for key in keys]
            if any(part is None for part in parts):
                return None
            found.append(math.fsum(part for part in parts if part is not None))
        return float(np.mean(found)) if found else None

    @property
    def sign(self) -> float:
        """1 where a larger value of the metric is better, else -1."""
        return METRICS[self.metric].sign

    @property
    def unit(self) -> str:
        """What differences of the metric are counted in."""
        return METRICS[self.metric].unit or METRICS[self.metric].heading

    @property
    def span(self) -> float:
        """How much one test image can differ; 0 where nobody knows."""
        return 100.0 if self.metric == "top1" else 0.0


class Contrast(NamedTuple):
    """One difference that a question asks about."""

    claim: str
    """What several of them have in common, as a key of the question."""
    name: str
    """Of whom it is told."""
    matrix: Float[np.ndarray, "R U"] | None
    """Positive where the claim holds; None where a training is missing."""
    expected: Literal[1, 0] = 1
    """1: positive by what the literature says; 0: no difference."""
    unit: str = "points"
    span: float = 0.0
    group: int = 0
    """Differences of one claim and one group know of each other's spread: those with as many labels."""
    clusters: Int[np.ndarray, " U"] | None = None


def weighted(numbers: Numbers, terms: Sequence[tuple[float, Sequence[Training]]]) -> Float[np.ndarray, "R U"] | None:
    """A weighted sum of scores, draw by draw and image by image; larger is better.

    Args:
        numbers: What was measured.
        terms: Weights, and one training for each draw.

    Returns:
        None where a training is missing.
    """
    found = [(weight, numbers.units(trainings)) for weight, trainings in terms]
    known = [weight * rows for weight, rows in found if rows is not None]
    return numbers.sign * np.sum(known, axis=0) if len(known) == len(found) else None


def contrast(
    numbers: Numbers, claim: str, name: str, terms: Sequence[tuple[float, Sequence[Training]]], *,
    expected: Literal[1, 0] = 1, group: int = 0, unit: str | None = None,
) -> Contrast:  # fmt: skip
    """A difference of scores.

    Args:
        numbers: What was measured.
        claim: As in ``Contrast``.
        name: As there.
        terms: As ``weighted``; their weights sum to 0.
        expected: As there.
        group: As there.
        unit: Default: the metric's.
    """
    reach = numbers.span * sum(abs(weight) for weight, _ in terms) / 2
    matrix = weighted(numbers, terms)
    return Contrast(claim, name, matrix, expected, unit or numbers.unit, reach, group, numbers.clusters)


def judged(contrasts: Sequence[Contrast]) -> list[dict[str, Any]]:
    """All differences of one question as a family, in their order, ready for JSON.

    Args:
        contrasts: With as many draws each.

    Returns:
        Of each: claim, name, estimate, low, high (95 %), p, adjusted (Holm), outcome and unit. What could not be
        trained has an ``estimate`` of None; without an interval the outcome is ``unknown``.
    """
    known = [one for one in contrasts if one.matrix is not None]
    found: list[dict[str, Any]] = []
    told = iter(_estimated(known))
    for one in contrasts:
        if one.matrix is None:
            nothing = dict.fromkeys(("estimate", "low", "high", "p"))
            found.append({**_named(one), **nothing})
        else:
            found.append({**_named(one), **next(told)})
    for expected in (1, 0):  # whether there is a difference, and whether there is none, are two families
        rows = [row for row in found if row["expected"] == expected]
        for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row["adjusted"] = adjusted
            row["outcome"] = outcome(row)
    return found


def _named(one: Contrast) -> dict[str, Any]:
    return {"claim": one.claim, "name": one.name, "expected": one.expected, "unit": one.unit}


def _estimated(contrasts: Sequence[Contrast]) -> list[dict[str, Any]]:
    if not contrasts:
        return []
    each = [
        estimate_many(one.matrix[None], None, one.clusters, one.span) for one in contrasts if one.matrix is not None
    ]
    together = Estimates(*(np.concatenate(part) for part in zip(*each, strict=True)))
    # Spreads are compared where they are those of one claim: a difference of differences has a larger one.
    kinds = [f"{one.group} {one.claim} {one.unit}" for one in contrasts]
    with np.errstate(invalid="ignore"):
        found = shared_spread(together, np.unique(kinds, return_inverse=True)[1])
        margins, p = found.margin, found.p
    rows: list[dict[str, Any]] = []
    for estimate, margin, value in zip(found.estimate.tolist(), margins.tolist(), p.tolist(), strict=True):
        # Where all numbers are equal, nothing says what chance does.
        certain = margin > 1e-9 * max(1.0, abs(estimate))
        ends = (estimate - margin, estimate + margin) if certain else (None, None)
        rows.append({"estimate": estimate, "low": ends[0], "high": ends[1], "p": value if certain else None})
    return rows


def outcome(row: Mapping[str, Any]) -> Outcome:
    """What may be said of a difference.

    Args:
        row: ``estimate`` (None where it was not measured), ``low`` and ``high``, ``adjusted`` (its p-value; None where
            nothing measures chance), ``unit``, and ``expected``: 1 where it is expected to be positive, 0 where none is
            expected.

    Returns:
        ``seen``: as expected, and clearly (where none is expected: the interval holds none larger than ``ALIKE``).
        ``opposite``: clearly the other way. ``not seen``: not clear. ``unknown``: nothing measures chance, or, where
        none is expected, the interval is too wide to tell.
    """
    if row["estimate"] is None or row["adjusted"] is None:
        return "unknown"
    clear = row["adjusted"] < ALPHA
    if row["expected"] == 0:
        most = ALIKE.get(row["unit"], 0.0)
        if -most < row["low"] and row["high"] < most:
            return "seen"
        return "opposite" if clear else "unknown"
    if not clear:
        return "not seen"
    return "seen" if row["estimate"] > 0 else "opposite"


def log_odds(numbers: Numbers, terms: Sequence[tuple[float, Sequence[Training]]]) -> Float[np.ndarray, "R U"] | None:
    """A weighted sum of the log odds of a right answer, as contributions of draws and images whose mean it is.

    Near 100 % every lead in points is small, whoever has it; one in log odds is not. Contributions are those of the
    delta method: the sum itself, and how far each image moves it.

    Args:
        numbers: What was measured; a metric that is a share of right answers.
        terms: As ``weighted``.

    Returns:
        None where a training is missing.
    """
    whole: Float[np.ndarray, "R U"] | float = 0.0
    for weight, trainings in terms:
        rows = numbers.units(trainings)
        if rows is None:
            return None
        right = rows / 100.0
        least = 0.5 / right.size
        share = float(np.clip(right.mean(), least, 1.0 - least))
        whole = whole + weight * (math.log(share / (1 - share)) + (right - right.mean()) / (share * (1 - share)))
    return np.asarray(whole, dtype=np.float64)


def mean_of(matrix: Float[np.ndarray, "R U"] | None, clusters: Int[np.ndarray, " U"] | None = None) -> dict[str, Any]:
    """A mean over draws and images with its 95 % interval, as JSON holds it; all None where nothing was measured.

    Args:
        matrix: A row for each draw.
        clusters: The group of every column.
    """
    if matrix is None:
        return {"value": None, "low": None, "high": None}
    found = interval(matrix, None, clusters)
    return {"value": found.estimate, "low": found.low, "high": found.high}


def of_claim(finding: Finding, claim: str) -> list[dict[str, Any]]:
    """The comparisons of one claim, in their order.

    Args:
        finding: A question's.
        claim: Its key.
    """
    return [one for one in finding["comparisons"] if one["claim"] == claim]
