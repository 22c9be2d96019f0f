"""Test images among the images to pre-train on: how much they can change, and whether a verdict stands all the same.

Whatever a pre-trained network answers to one test image, the leading metric changes by no more than that image weighs.
What pre-training saw changes no answer of the labelled baseline, so the sum of the weights is the most by which this
leak changes a difference. A verdict stands where that is little beside the interval's width and no interval of a gain
or a loss would reach zero with it. (A copy among the training images is another leak, which both sides have.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ssl_vit.methods import METHODS
from ssl_vit.report.findings.comparisons import Difference
from ssl_vit.report.findings.contract import pool_leaks
from ssl_vit.report.findings.records import Verdict

LITTLE = 0.1
"""Share of an interval's width that changes nothing of what is said."""


def most(verdict: Verdict) -> float | None:
    """Points of the leading metric by which test images in the pool can change a difference.

    Returns:
        None where no such bound is known: a single image may change a ranking or a squared error by any amount.
    """
    leaked = {position for one in pool_leaks(verdict) for position in one.get("test", [])}
    test, metric = verdict.told("test"), verdict.about["metric"]
    labels = test.get("labels")
    if verdict.about["kind"] != "class" or not labels or metric not in ("top1", "balanced"):
        return None
    # Images that could not be read were not judged.
    judged = zip(test.get("positions") or range(len(labels)), labels, strict=True)
    seen, counts = [label for position, label in judged if position in leaked], Counter(labels)
    if metric == "top1":
        return 100.0 * len(seen) / len(labels)
    return sum(100.0 / (len(counts) * counts[label]) for label in seen)


def reason(verdict: Verdict, one: Difference, said: Sequence[Difference]) -> str:
    """Why there is no verdict on a start because of test images in the pool; empty where there is one.

    Args:
        verdict: All numbers.
        one: The start against the labelled baseline.
        said: What else is said of it: the same at single numbers of labels, and its probes.
    """
    if one.start not in METHODS or verdict.about.get("transductive") or not pool_leaks(verdict):
        return ""
    words, bound = "test images are among the images to pre-train on", most(verdict)
    low, high = one.interval.low, one.interval.high
    if bound is None or low is None or high is None:
        return words
    clear = [d for d in (one, *said) if d.sign]
    margins = [(d.interval.low or 0.0) if d.sign > 0 else -(d.interval.high or 0.0) for d in clear]
    return "" if bound <= LITTLE * (high - low) and all(margin > bound for margin in margins) else words


def bound_sentence(verdict: Verdict, primary: Sequence[Difference], judged: Sequence[str]) -> str:
    """How much a leak can change of the primary comparisons that are judged; empty where there is none of both."""
    names = " and ".join(verdict.name(one.start) for one in primary if one.start in METHODS and one.start in judged)
    bound = most(verdict)
    # What relatives in the pool change has no bound.
    related = any(one["kind"] == "group" and one["between"] == "test-pool" for one in verdict.leaking)
    if not names or not bound or related or verdict.about.get("transductive"):
        return ""
    points = f"{math.ceil(10 * bound - 1e-9) / 10:.1f}"
    return (
        f"Those among the images to pre-train on can change a difference of {names} by at most {points} points, less "
        "than a tenth of its interval's width."
    )
