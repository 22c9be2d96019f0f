"""Comparisons that are made together: Holm's adjustment, and spreads that know of each other. Needs no torch.

An adjustment reads p-values as small as 0.05 divided by the number of comparisons. So far out, a spread that three
seeds gave is believed too easily. Comparisons with the same number of labels tell of each other, though: there the
variance by replicates is the larger of those between pre-training seeds and between draws, counts as no less than its
mean over those comparisons, and as known with more degrees of freedom: 1.5 times as many where there are two, twice
where there are three, up to three times where there are five or more. A comparison that stands alone gets the fewest
degrees of freedom that any of its variances has. benchmarks/statistics_advice.py measures what this holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int
from statsmodels.stats import multitest as _untyped_multitest  # pyright: ignore[reportMissingTypeStubs]

from ssl_vit.statistics.paired import Estimates

_multitest = cast("Any", _untyped_multitest)


def holm(p: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for being several (Holm 1979); None stays None and counts as no test."""
    known = [value for value in p if value is not None]
    adjusted = iter([float(v) for v in _multitest.multipletests(known, method="holm")[1]] if known else [])
    return [None if value is None else next(adjusted) for value in p]


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
        clusters=np.where(several, found.clusters, np.minimum(found.df, found.clusters)),
    )
