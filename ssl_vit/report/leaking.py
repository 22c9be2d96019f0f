"""Test images among the images to pre-train on: how much they can change, and whether a verdict stands all the same.

Whatever a pre-trained network answers to one test image, the leading metric changes by no more than that image weighs.
The labelled baseline has seen none of them, so the sum of the weights is the most that a leak adds to a difference. A
verdict stands where this is little beside the interval's width and no gain would be lost with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ssl_vit.report.comparisons import Difference
from ssl_vit.report.contract import OWN, pool_leaks
from ssl_vit.report.records import Verdict

LITTLE = 0.1
"""Share of an interval's width that changes nothing of what is said."""


def most(verdict: Verdict) -> float | None:
    """Points of the leading metric that test images in the pool can add to a difference.

    Args:
        verdict: All numbers.

    Returns:
        None where no such bound is known: a single image may change a ranking or a squared error by any amount.
    """
    leaked = {position for one in pool_leaks(verdict) for position in one.get("test", [])}
    labels, metric = verdict.told("test").get("labels"), verdict.about["metric"]
    if verdict.about["kind"] != "class" or not labels:
        return None
    # Images that could not be read were not judged.
    judged = verdict.told("test").get("positions") or range(len(labels))
    seen = [label for position, label in zip(judged, labels, strict=True) if position in leaked]
    counts = Counter(labels)
    if metric == "top1":
        return 100.0 * len(seen) / len(labels)
    if metric == "balanced":
        return sum(100.0 / (len(counts) * counts[label]) for label in seen)
    return None


def reason(verdict: Verdict, one: Difference, curve: Sequence[Difference]) -> str:
    """Why there is no verdict on a pre-trained start because of test images in the pool; empty where there is one.

    Args:
        verdict: All numbers.
        one: The start against the labelled baseline, over the whole curve.
        curve: The same at every number of labels.
    """
    if one.start not in OWN or verdict.about.get("transductive") or not pool_leaks(verdict):
        return ""
    words, bound = "test images are among the images to pre-train on", most(verdict)
    low, high = one.interval.low, one.interval.high
    if bound is None or low is None or high is None:
        return words
    gains = [d.interval.low or 0.0 for d in (one, *curve) if d.sign > 0]
    if bound <= LITTLE * (high - low) and all(gain > bound for gain in gains):
        return ""
    return words


def bound_sentence(verdict: Verdict, primary: Sequence[Difference], judged: Sequence[str]) -> str:
    """How much a leak can change of a verdict that stands; empty where there is none of both.

    Args:
        verdict: All numbers.
        primary: Every pre-trained start against the labelled baseline.
        judged: Starts on which a verdict is given.
    """
    names = " and ".join(verdict.name(one.start) for one in primary if one.start in OWN and one.start in judged)
    bound = most(verdict)
    if not names or not bound or verdict.about.get("transductive"):
        return ""
    points = f"{math.ceil(10 * bound - 1e-9) / 10:.1f}"
    return (
        f"Those among the images to pre-train on can add at most {points} points to a difference of {names}, which "
        "changes nothing of what is said."
    )
