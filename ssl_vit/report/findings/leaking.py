"""Test images among the images to pre-train on: how much they can change, and whether a claim stands all the same.

Whatever a pre-trained network answers to one test image, the leading metric changes by no more than that image weighs.
What pre-training saw changes no answer of a network trained on labels alone, so the sum of the weights is the most by
which this leak changes a difference. A claim stands where that is little beside the interval's width and the interval
of a gain or a loss would not reach zero with it. (A copy among the training images is another leak, which both have.)
"""

from __future__ import annotations

import math
from collections import Counter

from ssl_vit.methods import METHODS
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


def reason(verdict: Verdict, start: str, low: float | None, high: float | None) -> str:
    """Why nothing is claimed of a pre-trained start because of test images in the pool; empty where it may be.

    Args:
        verdict: All numbers.
        start: That of the difference.
        low: Of the difference's interval.
        high: Of the same.
    """
    made = start.partition("@")[0] in METHODS
    if not made or verdict.about.get("transductive") or not pool_leaks(verdict):
        return ""
    words, bound = "test images are among the images to pre-train on", most(verdict)
    if bound is None or low is None or high is None or bound > LITTLE * (high - low):
        return words
    return words if 0 < low <= bound or -bound <= high < 0 else ""


def bound_sentence(verdict: Verdict) -> str:
    """How much leaks can change of what pre-trained networks reach; empty where nothing can be said."""
    bound = most(verdict)
    # What relatives in the pool change has no bound.
    related = any(one["kind"] == "group" and one["between"] == "test-pool" for one in verdict.leaking)
    if not bound or related or verdict.about.get("transductive"):
        return ""
    points = f"{math.ceil(10 * bound - 1e-9) / 10:.1f}"
    return f"Those among the images to pre-train on can change what is said of pre-training by at most {points} points."
