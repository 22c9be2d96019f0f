"""How much of a difference between two methods is chance: intervals, tests, labels saved. Needs no torch.

Everything stands on one matrix of paired differences, D[r, u]: replicate r is a draw of labels with its own seed of
training, nested in a pre-training seed; unit u is what one test image adds to the metric (the mean of the units is the
metric's value). The question is about *new* pre-training seeds, *new* draws and *new* test images, so both ways count:

    V = V(replicates) + max(0, V(test images) - V(both))

V(replicates) is the variance of the mean between pre-training seeds (with fewer than three of them: between draws
within seeds, and the answer is conditional on those backbones), V(test images) the one between clusters of test
images, and V(both) what of it is noise of single networks on single images, which the first term holds already. This
is the analysis of several readers and several cases (Dorfman, Berbaum & Metz 1992; Obuchowski & Rockette 1995; Hillis
2007), with cluster sums corrected for unequal sizes (CR2: Bell & McCaffrey 2002). Degrees of freedom follow
Satterthwaite (1946), with one change: he weights both sources' 1/df by their squared shares of V, which is too hopeful
where the share itself is an estimate from three seeds (intervals then cover down to 92 %); the share of the replicates
is raised to the power of 5/4 instead. benchmarks/bench_statistics.py measures what that covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats as _untyped_stats  # pyright: ignore[reportMissingTypeStubs]
from statsmodels.stats import contingency_tables as _untyped_tables  # pyright: ignore[reportMissingTypeStubs]
from statsmodels.stats import multitest as _untyped_multitest  # pyright: ignore[reportMissingTypeStubs]

SEEDS = 3
"""Pre-training seeds from which on the spread between them can be measured."""
LEVEL = 0.95
"""Coverage of all intervals."""
BLOCKS = 50
"""Most blocks of a jackknife: each costs one evaluation of the metric."""
_POWER = 1.25
"""Of the replicates' share of the variance, in the degrees of freedom; Satterthwaite's is 2."""
_STEPS = 65
"""Points between two label counts at which labels saved are tested."""

_stats, _tables, _multitest = (cast("Any", m) for m in (_untyped_stats, _untyped_tables, _untyped_multitest))


class Interval(NamedTuple):
    """A mean difference, how far chance may have moved it, and why."""

    estimate: float
    low: float | None
    """95 %; None where nothing measures chance."""
    high: float | None
    p: float | None
    """Two-sided, of no difference."""
    df: float | None
    shares: dict[str, float]
    """What of the squared standard error comes from where, in percent."""
    note: str
    """What the interval leaves out; empty where nothing."""


class Estimates(NamedTuple):
    """Mean differences with their standard errors, for many matrices at once."""

    estimate: Float[np.ndarray, " N"]
    error: Float[np.ndarray, " N"]
    """Standard error; NaN where nothing measures it."""
    df: Float[np.ndarray, " N"]
    replicates: Float[np.ndarray, " N"]
    """Share of seeds and draws in the squared standard error, 0 to 1."""

    @property
    def margin(self) -> Float[np.ndarray, " N"]:
        """Half the width of the interval."""
        return self.error * _stats.t.ppf((1 + LEVEL) / 2, self.df)


class Needed(NamedTuple):
    """How many labels a method needs for a level that another one reaches."""

    labels: float | None
    """Fewest at which its curve is there; None where it never is."""
    at_once: bool
    """Whether that is the smallest count there is: fewer might do."""
    low: float | None
    """End of the 95 % confidence set; None where it reaches below the smallest count."""
    high: float | None
    """End of the 95 % confidence set; None where it reaches beyond the largest count."""
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
) -> Interval:
    """The mean of paired differences, with a 95 % interval and a p-value.

    Args:
        differences: One method's units less the other's, paired by draw; one column where only values are known.
        seeds: The pre-training seed of every replicate; None where nothing was pre-trained (all are independent).
        clusters: The group of every unit; None where each is its own.
    """
    found = estimate_many(differences[None], seeds, clusters)
    estimate, error = float(found.estimate[0]), float(found.error[0])
    groups = differences.shape[1] if clusters is None else len(np.unique(clusters))
    words = "draws" if conditional(seeds) or seeds is None else "pre-training seeds and draws"
    images = "test images" if clusters is None else "groups of test images"
    note = "" if groups > 1 else "Chance in the choice of test images is not in it."
    if np.isnan(error):
        return Interval(estimate, None, None, None, None, {}, "One draw: nothing says how much of it is chance.")
    if error <= 1e-12 * abs(estimate):  # also 0 <= 0
        if estimate:
            return Interval(estimate, None, None, None, None, {}, "It is the same in every draw: no interval.")
        alike = "Nothing differs in any draw, on any test image; that is no proof that nothing ever would."
        return Interval(0.0, None, None, 1.0, None, {}, alike)
    margin, df, share = float(found.margin[0]), float(found.df[0]), 100 * float(found.replicates[0])
    p = 2 * float(_stats.t.sf(abs(estimate) / error, df))
    shares = {words: share} | ({images: 100 - share} if groups > 1 else {})
    return Interval(estimate, estimate - margin, estimate + margin, p, df, shares, note)


def conditional(seeds: Int[np.ndarray, " R"] | None) -> bool:
    """Whether there are too few pre-training seeds to say anything about others."""
    return seeds is not None and len(np.unique(seeds)) < SEEDS


def estimate_many(
    differences: Float[np.ndarray, "N R U"],
    seeds: Int[np.ndarray, " R"] | None = None,
    clusters: Int[np.ndarray, " U"] | None = None,
) -> Estimates:
    """As ``interval``, for many matrices of one design at once, without words.

    Args:
        differences: As there.
        seeds: As there.
        clusters: As there.
    """
    _, replicates, units = differences.shape
    design = _designed(replicates, units, seeds, clusters)
    return _estimates(*_moments(differences, design), design)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for being several (Holm 1979); None stays None and counts as no test.

    Args:
        p: Of the tests.
    """
    known = [value for value in p if value is not None]
    adjusted = iter([float(v) for v in _multitest.multipletests(known, method="holm")[1]] if known else [])
    return [None if value is None else next(adjusted) for value in p]


def mcnemar(first: Bool[np.ndarray, " I"], second: Bool[np.ndarray, " I"]) -> McNemar:
    """McNemar's exact test of two checkpoints. It says nothing about the methods that made them.

    Between single checkpoints of two equal methods it finds a difference far more often than in 5 % of cases, because
    another seed would have made another checkpoint.

    Args:
        first: Which test images one checkpoint has right.
        second: Which the other.
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

    Between label counts the curve is a straight line over the logarithm of the labels, image by image. The confidence
    set is the test turned round: from the smallest to the largest number of labels at which the interval of method less
    level holds 0. Where a curve is flat that is much, as it should be.

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
    reached = None if first is None else float(counts[0])
    if first:
        weight = means[first - 1] / (means[first - 1] - means[first])
        reached = counts[first - 1] * (counts[first] / counts[first - 1]) ** weight
    design = _designed(len(level), level.shape[1], seeds, clusters)
    if not design.df:
        return Needed(reached, first == 0, None, None, "One draw: nothing says how much of it is chance.")
    inside: list[float] = [] if reached is None else [reached]
    weights = np.linspace(0, 1, _STEPS)
    # Means and variances are polynomials of the second degree between two counts: three points say everything.
    basis = np.stack([(2 * weights - 1) * (weights - 1), 4 * weights * (1 - weights), weights * (2 * weights - 1)])
    steps = [*pairwise(zip(counts, gaps, strict=True))] or [((counts[0], gaps[0]), (counts[0], gaps[0]))]
    for (a, left), (b, right) in steps:
        moments = _moments(np.stack([left, (left + right) / 2, right]), design)
        found = _estimates(moments[0] @ basis, moments[1] @ basis, moments[2] @ basis, design)
        hold = np.abs(found.estimate) <= np.nan_to_num(found.margin)
        inside += [float(v) for v in a * (b / a) ** weights[hold]]
    if not inside:
        return Needed(None, False, float(counts[-1]), None, "")
    low, high = min(inside), max(inside)
    if first == 0 and len(inside) == 1:  # clearly better from the first count on
        return Needed(reached, True, None, high, "")
    return Needed(
        reached, first == 0, None if low <= counts[0] else low, None if high >= counts[-1] * (1 - 1e-12) else high, ""
    )


def accuracy_units(hits: Bool[np.ndarray, " I"]) -> Float[np.ndarray, " I"]:
    """What every test image adds to top-1 accuracy, in percent.

    Args:
        hits: Which images are right.
    """
    return 100.0 * hits


def balanced_units(hits: Bool[np.ndarray, " I"], labels: Int[np.ndarray, " I"]) -> Float[np.ndarray, " I"]:
    """What every test image adds to balanced accuracy (mean recall of the classes that occur), in percent.

    An image moves the recall of its own class away from what that is; how many images a class has in the test set is
    not a question of chance here.

    Args:
        hits: Which images are right.
        labels: True classes.
    """
    occurring, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    recall = np.bincount(place, weights=hits) / sizes
    # A recall is known less well than the spread around itself says: n/(n-1), as in every variance.
    wider = np.sqrt(sizes / np.maximum(sizes - 1, 1))
    moved = (hits - recall[place]) * (wider * len(labels) / (sizes * len(occurring)))[place]
    return 100.0 * (recall.mean() + moved)


def blocks_of(images: int, clusters: Int[np.ndarray, " I"] | None = None) -> Int[np.ndarray, " I"]:
    """Test images in at most 50 blocks of about one size; images of one group stay together.

    Args:
        images: How many.
        clusters: Groups; None where each image is its own.
    """
    names, place = np.unique(np.arange(images) if clusters is None else clusters, return_inverse=True)
    # Files are often sorted by class: neighbours must not end up together.
    shuffled = np.random.default_rng(0).permutation(len(names))
    return (shuffled % min(BLOCKS, len(names)))[place].astype(np.int64)


def pseudo_values(
    metric: Callable[[Int[np.ndarray, " kept"]], float | None], blocks: Int[np.ndarray, " I"]
) -> Float[np.ndarray, " B"]:
    """Units of any metric: delete-a-block jackknife (Tukey; Busing and others 1999 for unequal blocks).

    Their mean is the metric's value, not the jackknife's bias-corrected one: a table must show one number. The bias,
    of the order of one over the number of images, is common to both sides of a difference. For a mean over images they
    are the means of blocks. Blocks are clusters already: give ``interval`` no others.

    Args:
        metric: Its value for these test images (positions in the whole test set, ascending); None or NaN where it is
            undefined without a block, which then counts as a block without influence.
        blocks: The block of every image, as ``blocks_of`` makes them.
    """
    names, sizes = np.unique(blocks, return_counts=True)
    images, count = len(blocks), len(names)
    whole = metric(np.arange(images))
    assert whole is not None, "a metric that is undefined has no units"
    if count < 2:
        return np.array([float(whole)])
    without = [metric(np.flatnonzero(blocks != name)) for name in names]
    rest = np.array([whole if value is None or np.isnan(value) else value for value in without], dtype=np.float64)
    units = whole + count / images * (images - sizes) * (whole - rest)
    return units - units.mean() + whole


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


def _moments(differences: Float[np.ndarray, "N R U"], design: _Design) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance by replicates, variance by test images that is not in it (may be negative)."""
    sums = np.add.reduceat(differences[..., design.order].astype(np.float64), design.starts, axis=-1)  # [N R G]
    units = design.sizes.sum()
    rows = sums.sum(-1) / units  # [N R]
    replicates = ((rows @ design.contrasts.T) ** 2).sum(-1)
    if len(design.sizes) < 2:
        return rows.mean(-1), replicates, np.zeros_like(replicates)
    moved = sums - rows[..., None] * design.sizes
    scale = 1 / ((1 - design.sizes / units) * units**2)  # CR2
    both = ((design.contrasts @ moved) ** 2).sum(-2)
    return rows.mean(-1), replicates, ((moved.mean(-2) ** 2 - both) * scale).sum(-1)


def _estimates(mean: np.ndarray, replicates: np.ndarray, test: np.ndarray, design: _Design) -> Estimates:
    if not design.df:
        unknown = np.full(mean.shape, np.nan)
        return Estimates(mean, unknown, unknown, unknown)
    replicates = np.maximum(replicates, 0)
    variance = replicates + np.maximum(test, 0)
    share = np.divide(replicates, variance, out=np.ones(mean.shape), where=variance > 0)
    # Clusters of unequal sizes are worth fewer.
    clusters = max(1.0, float(design.sizes.sum() ** 2 / (design.sizes**2).sum()) - 1)
    return Estimates(mean, np.sqrt(variance), 1 / (share**_POWER / design.df + (1 - share) ** 2 / clusters), share)
