"""p-values of comparisons that are made together. Needs no torch.

Holm (1979) reads p-values as small as 0.05 divided by the number of comparisons. So far out, a spread that three seeds
gave is believed too easily. Comparisons with the same number of labels tell of each other, though, so for adjusted
p-values the variance by replicates is the larger of those between pre-training seeds and between draws, counts as no
less than its mean over those comparisons, and as known with more degrees of freedom: 1.5 times as many where there are
two, twice where there are three, up to three times where there are five or more. A comparison that stands alone gets
the fewest degrees of freedom that any of its variances has. None is below that over test images with the networks as
they are. benchmarks/bench_statistics.py measures what this holds and what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from statsmodels.stats import multitest as _untyped_multitest  # pyright: ignore[reportMissingTypeStubs]

from ssl_vit.statistics.paired import Estimates, Interval, two_sided

_multitest = cast("Any", _untyped_multitest)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for being several (Holm 1979); None stays None and counts as no test."""
    known = [value for value in p if value is not None]
    adjusted = iter([float(v) for v in _multitest.multipletests(known, method="holm")[1]] if known else [])
    return [None if value is None else next(adjusted) for value in p]


def adjusted(family: Sequence[Interval], labels: Sequence[int | None]) -> list[float | None]:
    """Holm's p-values of a family of comparisons; none is below the comparison's own.

    Args:
        family: What was found, each by itself.
        labels: The number of labels of each, None for a whole curve: those that are the same know of each other.
    """
    p = [one.p for one in family]
    known = [(i, one.estimates) for i, one in enumerate(family) if one.estimates is not None]
    if sum(value is not None for value in p) > 1 and known:
        stacked = Estimates(*(np.concatenate(parts) for parts in zip(*(e for _, e in known), strict=True)))
        groups = np.unique([labels[i] or 0 for i, _ in known], return_inverse=True)[1]
        for (i, _), value in zip(known, sheltered(stacked, groups), strict=True):
            p[i] = float(value)
    pairs = zip(holm(p), family, strict=True)
    return [None if value is None or one.p is None else max(value, one.p) for value, one in pairs]


def shared_spread(found: Estimates, groups: Int[np.ndarray, " N"] | None = None) -> Estimates:
    """The same comparisons, with no spread by replicates below what is usual in its group.

    Args:
        found: Comparisons.
        groups: Which of them know of each other; None for all.
    """
    if groups is None:
        groups = np.zeros(len(found.estimate), dtype=np.int64)
    sizes = np.bincount(groups)
    spread = np.maximum(found.replicates, found.draws)
    usual = np.bincount(groups, weights=spread) / np.maximum(sizes, 1)
    several = sizes[groups] > 1
    return found._replace(
        replicates=np.where(several, np.maximum(spread, usual[groups]), found.replicates),
        df=found.df * np.where(several, np.minimum(sizes[groups] + 1, 6) / 2, 1.0),
    )


def sheltered(found: Estimates, groups: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """p-values, not yet adjusted, in which no spread counts as less than is usual in its group of comparisons."""
    together = shared_spread(found, groups)
    fewest = np.where(found.fixed > 0, np.minimum(found.df, found.clusters), found.df)
    alone = two_sided(found.estimate, found.error, fewest)
    return np.where(np.bincount(groups)[groups] > 1, together.p, alone)
