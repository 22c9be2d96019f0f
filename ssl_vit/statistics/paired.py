"""How much of a difference between two methods is chance: intervals, tests, labels saved (docs/statistics.md).

Everything stands on one matrix of paired differences, D[r, u]: replicate r is a draw of labels with its own seed of
training, nested in a pre-training seed; unit u is what one test image adds to the metric (the mean of the units is the
metric's value). For *new* pre-training seeds, *new* draws and *new* test images both ways count:

    V = V(replicates) + max(0, V(test images) - V(both))

V(replicates) is the variance of the mean between pre-training seeds (fewer than three: between draws within seeds),
V(test images) the one between clusters of test images, V(both) what of it is noise of single networks on single images,
which the first term holds already (Dorfman, Berbaum & Metz 1992; Obuchowski & Rockette 1995; Hillis 2007). Cluster sums
are corrected for unequal sizes (CR2: Bell & McCaffrey 2002). Degrees of freedom are Satterthwaite's (1946), but for the
power of the replicates' share, which is an estimate itself. Interval and p-value come from this one variance, and from
the floor under both: three seeds lie close together by luck, and nothing is surer than chance in the test images alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats as _untyped_stats  # pyright: ignore[reportMissingTypeStubs]
from statsmodels.stats import contingency_tables as _untyped_tables  # pyright: ignore[reportMissingTypeStubs]

SEEDS = 3
"""Pre-training seeds from which on the spread between them can be measured."""
LEVEL = 0.95
"""Coverage of all intervals."""
_POWER, _POWER_OF_ONE = 1.25, 0.6
"""Of the replicates' share of the variance, in the degrees of freedom, Satterthwaite's is 2; and with one degree."""
_NOISE = 0.15
"""Part of the common noise that is not counted to that share, with more than one degree of freedom."""
_RARE = 0.25
"""Test images that are taken to have gone the other way, where that is rare (as Agresti & Coull 1998 add some)."""
_STEPS = 65
"""Points between two label counts at which labels saved are tested."""
APART = 4.0
"""Factor between two label counts above which nothing is said of what lies between: no line is straight so far."""
_ONE_DRAW = "One draw: nothing says how much of it is chance."
_SAME = "It is the same in every draw: no interval."
_ALIKE = "Nothing differs in any draw, on any test image; that is no proof that nothing ever would."

_stats, _tables = (cast("Any", m) for m in (_untyped_stats, _untyped_tables))


class Estimates(NamedTuple):
    """Mean differences and variances of these means, for many matrices at once; NaN where nothing measures them."""

    estimate: Float[np.ndarray, " N"]
    replicates: Float[np.ndarray, " N"]
    """Variance by seeds and draws."""
    draws: Float[np.ndarray, " N"]
    """The same as though every draw had a pre-training seed of its own, as the baseline's have."""
    fixed: Float[np.ndarray, " N"]
    """Variance by test images where the networks are taken as they are."""
    both: Float[np.ndarray, " N"]
    """What the two hold in common: the noise of single networks on single images."""
    df: Float[np.ndarray, " N"]
    """Of the variance by replicates."""
    clusters: Float[np.ndarray, " N"]
    """Degrees of freedom of the variances by test images; clusters of unequal sizes are worth fewer."""
    floor: Float[np.ndarray, " N"]
    """Degrees of freedom of the floor: clusters less one."""

    @property
    def images(self) -> Float[np.ndarray, " N"]:
        """Variance by test images that is not in the one by replicates."""
        return np.maximum(self.fixed - self.both, 0)

    @property
    def error(self) -> Float[np.ndarray, " N"]:
        """Standard error, replicates and test images together."""
        return np.sqrt(self.replicates + self.images)

    @property
    def share(self) -> Float[np.ndarray, " N"]:
        """Of replicates in the squared standard error, 0 to 1."""
        return self._of_error(self.replicates)

    def _of_error(self, part: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        whole = self.replicates + self.images
        return np.divide(part, whole, out=np.ones_like(whole), where=whole != 0)

    @property
    def freedom(self) -> Float[np.ndarray, " N"]:
        """Degrees of freedom of the standard error."""
        one = self.df <= 1
        own = self._of_error(np.maximum(self.replicates - np.where(one, 0, _NOISE) * self.both, 0))
        return 1 / (own ** np.where(one, _POWER_OF_ONE, _POWER) / self.df + (1 - own) ** 2 / self.clusters)

    @property
    def margin(self) -> Float[np.ndarray, " N"]:
        """Half the width of the interval."""
        level = (1 + LEVEL) / 2
        return np.maximum(
            self.error * _stats.t.ppf(level, self.freedom), np.sqrt(self.fixed) * _stats.t.ppf(level, self.floor)
        )

    @property
    def p(self) -> Float[np.ndarray, " N"]:
        """Two-sided, of no difference: below 0.05 where the interval does not hold 0."""
        return 2 * self.beyond(np.abs(self.estimate))

    def beyond(self, gap: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """One-sided p-values of estimates that lie so far above what is asked."""
        return np.maximum(_upper_tail(gap, self.error, self.freedom), _upper_tail(gap, np.sqrt(self.fixed), self.floor))


def _upper_tail(
    gap: Float[np.ndarray, " N"], error: Float[np.ndarray, " N"], df: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gap == 0, 0.0, gap / error)  # certain where nothing varies
    return _stats.t.sf(ratio, df)


class Interval(NamedTuple):
    """A mean difference, how far chance may have moved it, and why."""

    estimate: float
    low: float | None
    """95 %; None where nothing measures chance."""
    high: float | None
    p: float | None
    """Two-sided, of no difference."""
    df: float | None
    """Of the standard error that replicates and test images have together."""
    shares: dict[str, float]
    """What of the squared standard error comes from where, in percent."""
    note: str
    """What the interval leaves out; empty where nothing."""
    estimates: Estimates | None = None
    """The variances, of this one difference; None where there is no interval."""


class Needed(NamedTuple):
    """How many labels a method needs for a level that another one reaches."""

    labels: float | None
    """Fewest at which its curve is there; None where it never is."""
    at_once: bool
    """Whether fewer might do, because nothing was tried between that and a quarter of it."""
    low: float | None
    """Of the 95 % confidence set; None where it reaches below the smallest count."""
    high: float | None
    """The same, beyond the largest count."""
    note: str
    """Why there is no confidence set (both ends are None then); empty where there is one."""


class McNemar(NamedTuple):
    """Two named checkpoints on the same test images."""

    only_first: int
    """Images that the first alone has right."""
    only_second: int
    p: float
    note: str


class _Design(NamedTuple):
    """What the matrices of one comparison have in common."""

    contrasts: Float[np.ndarray, "K R"]
    """Squares of these contrasts of the replicates add up to the variance of their mean."""
    df: float
    """Of the replicates; 0 where there is nothing to compare."""
    order: Int[np.ndarray, " U"]
    starts: Int[np.ndarray, " G"]
    """Where clusters begin among units in order."""
    sizes: Float[np.ndarray, " G"]


def interval(
    differences: Float[np.ndarray, "R U"],
    seeds: Int[np.ndarray, " R"] | None = None,
    clusters: Int[np.ndarray, " U"] | None = None,
    span: float = 0.0,
) -> Interval:
    """The mean of paired differences, with a 95 % interval and a p-value.

    Args:
        differences: One method's units less the other's, paired by draw; one column where only values are known.
        seeds: The pre-training seed of every replicate; None where nothing was pre-trained (all are independent).
        clusters: The group of every unit; None where each is its own.
        span: How much a single unit can differ, 100 where units are right and wrong answers in percent; 0 where
            nobody knows. Near 0 and 100 % few test images say how much chance is in all of them.
    """
    found = estimate_many(differences[None], seeds, clusters, span)
    estimate, margin = float(found.estimate[0]), float(found.margin[0])
    groups = differences.shape[1] if clusters is None else len(np.unique(clusters))
    words = "draws" if conditional(seeds) or seeds is None else "pre-training seeds and draws"
    images = "test images" if clusters is None else "groups of test images"
    note = "" if groups > 1 else "Chance in the choice of test images is not in it."
    if np.isnan(margin) or margin <= 1e-12 * abs(estimate):  # also 0 <= 0
        why = _ONE_DRAW if np.isnan(margin) else _SAME if estimate else _ALIKE
        return Interval(estimate or 0.0, None, None, 1.0 if why == _ALIKE else None, None, {}, why)
    df, p, share = (float(v[0]) for v in (found.freedom, found.p, 100 * found.share))
    shares = {words: share} | ({images: 100 - share} if groups > 1 else {})
    return Interval(estimate, estimate - margin, estimate + margin, p, df, shares, note, found)


def conditional(seeds: Int[np.ndarray, " R"] | None) -> bool:
    """Whether there are too few pre-training seeds to say anything about others."""
    return seeds is not None and len(np.unique(seeds)) < SEEDS


def estimate_many(
    differences: Float[np.ndarray, "N R U"],
    seeds: Int[np.ndarray, " R"] | None = None,
    clusters: Int[np.ndarray, " U"] | None = None,
    span: float = 0.0,
) -> Estimates:
    """As ``interval``, for many matrices of one design at once, without words."""
    _, replicates, units = differences.shape
    design = _designed(replicates, units, seeds, clusters)
    mean, between, draws, fixed, both = _moments(differences, design)
    return _estimates(design, mean, between, draws, fixed + _RARE * (span / units) ** 2 * (units > 1), both)


def mcnemar(first: Bool[np.ndarray, " I"], second: Bool[np.ndarray, " I"]) -> McNemar:
    """McNemar's exact test of the test images that two checkpoints have right, not of the methods that made them.

    Between single checkpoints of two equal methods it finds a difference far more often than in 5 % of cases, because
    another seed would have made another checkpoint.
    """
    table = [[int((a & b).sum()) for b in (second, ~second)] for a in (first, ~first)]
    p = float(_tables.mcnemar(np.array(table), exact=True).pvalue)
    return McNemar(table[0][1], table[1][0], p, "These two checkpoints only; another seed makes another checkpoint.")


def labels_needed(
    curve: Mapping[int, Float[np.ndarray, "R U"]],
    level: Float[np.ndarray, "R U"],
    seeds: Int[np.ndarray, " R"] | None = None,
    clusters: Int[np.ndarray, " U"] | None = None,
) -> Needed:
    """The fewest labels with which a method reaches another one's level, with a 95 % confidence set.

    Between label counts at most a factor 4 apart the curve is a straight line over the logarithm of the labels, image
    by image; between others nothing is read off, and the larger count is what is reached. The confidence set is the
    test turned round: below its lower end the interval of method less level lies under 0 at every number of labels,
    above its upper end over 0 up to the last one. So an end is open where the first or the last count says nothing
    clear, or the wrong thing. Where a curve is flat that is much, as it should be.

    Args:
        curve: Units of the method by number of labels; larger is better.
        level: Units of the other one, paired by draw.
        seeds: As in ``interval``.
        clusters: As in ``interval``.
    """
    counts = sorted(curve)
    gaps = [curve[count] - level for count in counts]
    means = [float(gap.mean()) for gap in gaps]
    first = next((i for i, mean in enumerate(means) if mean >= 0), None)
    reached = None if first is None else float(counts[first])
    at_once = first == 0 or (first is not None and counts[first] > APART * counts[first - 1])
    if first and not at_once:
        weight = means[first - 1] / (means[first - 1] - means[first])
        reached = counts[first - 1] * (counts[first] / counts[first - 1]) ** weight
    design = _designed(len(level), level.shape[1], seeds, clusters)
    if not design.df:
        return Needed(reached, at_once, None, None, _ONE_DRAW)
    places, signs = list[float](), list[float]()
    steps = [*pairwise(zip(counts, gaps, strict=True))] or [((counts[0], gaps[0]), (counts[0], gaps[0]))]
    for (a, left), (b, right) in steps:
        weights = np.linspace(0, 1, 2 if b > APART * a else _STEPS)
        # Means and variances are polynomials of the second degree between two counts: three points say everything.
        basis = np.stack([(2 * weights - 1) * (weights - 1), 4 * weights * (1 - weights), weights * (2 * weights - 1)])
        moments = _moments(np.stack([left, (left + right) / 2, right]), design)
        found = _estimates(design, *(moment @ basis for moment in moments))
        places += [float(v) for v in a * (b / a) ** weights]
        signs += [float(v) for v in np.sign(found.estimate) * (np.abs(found.estimate) > found.margin)]
    # A line that crosses without any doubt may do so between two points: the crossing itself is always inside, and all
    # between two counts that are far apart.
    inside = [] if reached is None else [reached]
    below = next((i for i, sign in enumerate(signs) if sign >= 0), None)
    above = next((i for i in reversed(range(len(signs))) if signs[i] <= 0), None)
    low = float(counts[-1]) if below is None else min([_outside(places, below, -1), *inside]) if below else None
    high = float(counts[0]) if above is None else None
    if above is not None and signs[-1] > 0:
        high = max([_outside(places, above, 1), *inside])
    return Needed(reached, at_once, low, high, "")


def _outside(places: Sequence[float], at: int, step: int) -> float:
    """The place there, or the next one where nothing was tried between."""
    near, far = places[at], places[at + step]
    return far if max(near, far) > APART * min(near, far) else near


def _designed(
    replicates: int, units: int, seeds: Int[np.ndarray, " R"] | None, clusters: Int[np.ndarray, " U"] | None
) -> _Design:
    contrasts, df = _contrasts(np.arange(replicates) if seeds is None else seeds, seeds is None)
    groups = np.arange(units) if clusters is None else clusters
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    return _Design(contrasts, df, order, starts, sizes.astype(np.float64))


def _contrasts(seeds: Int[np.ndarray, " R"], independent: bool) -> tuple[Float[np.ndarray, "K R"], float]:
    """Contrasts whose squares add up to an unbiased variance of the mean over all replicates, and their degrees."""
    names, place, draws = np.unique(seeds, return_inverse=True, return_counts=True)
    total, member = len(seeds), (np.arange(len(names))[:, None] == place) / draws[:, None]  # [S R]: means of seeds
    if len(names) >= SEEDS or independent:
        if len(names) < 2:
            return np.zeros((1, total)), 0.0
        # Between seeds; with unequal numbers of draws as in an analysis of variance of one way, random effects.
        effective = (total - (draws**2).sum() / total) / (len(names) - 1)
        share = (draws**2).sum() / total**2 / effective
        scale = np.sqrt(share * draws / (len(names) - 1))
        return scale[:, None] * (member - 1 / total), float(len(names) - 1)
    if total > len(names):  # between draws within seeds
        within = (np.eye(total) - member[place]) / np.sqrt(total * (total - len(names)))
        return within, float(total - len(names))
    return _contrasts(np.arange(total), True)  # one draw for each of two seeds


def _moments(differences: Float[np.ndarray, "N R U"], design: _Design) -> tuple[np.ndarray, ...]:
    """Mean; variances by replicates, by draws, by test images; what the first and the last have in common, noise."""
    sums = np.add.reduceat(differences[..., design.order].astype(np.float64), design.starts, axis=-1)  # [N R G]
    units = design.sizes.sum()
    rows = sums.sum(-1) / units  # [N R]
    replicates = ((rows @ design.contrasts.T) ** 2).sum(-1)
    draws = rows.var(-1) / max(1, rows.shape[1] - 1)
    if len(design.sizes) < 2:
        return rows.mean(-1), replicates, draws, np.zeros_like(draws), np.zeros_like(draws)
    moved = sums - rows[..., None] * design.sizes
    scale = 1 / ((1 - design.sizes / units) * units**2)  # CR2
    both, fixed = ((design.contrasts @ moved) ** 2).sum(-2), moved.mean(-2) ** 2
    return rows.mean(-1), replicates, draws, (fixed * scale).sum(-1), (both * scale).sum(-1)


def _estimates(
    design: _Design, mean: np.ndarray, replicates: np.ndarray, draws: np.ndarray, fixed: np.ndarray, both: np.ndarray
) -> Estimates:
    if not design.df:
        return Estimates(mean, *(np.full(mean.shape, np.nan) for _ in range(7)))
    # Clusters of unequal sizes are worth fewer.
    clusters = max(1.0, float(design.sizes.sum() ** 2 / (design.sizes**2).sum()) - 1)
    replicates, draws, fixed = (np.maximum(variance, 0) for variance in (replicates, draws, fixed))
    floor = max(1.0, len(design.sizes) - 1.0)
    df, others, floors = (np.full(mean.shape, value) for value in (design.df, clusters, floor))
    return Estimates(mean, replicates, draws, fixed, both, df, others, floors)
