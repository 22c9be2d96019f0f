"""Do the statistics of a verdict hold? Coverage and false alarms where the truth is known.

    nice python benchmarks/bench_statistics.py        # about five minutes on one core

Networks are made up: on test image u network r of a method is right with the probability that a probit gives to the
method's accuracy, the image, its group, the pre-training seed and the draw of labels, each with a standard deviation
of its own (images, groups and draws have a part that both methods share and one for each). The baseline's networks
each begin from a seed of their own, as in a verdict. The truth is over new seeds, draws, groups and images; with one
pre-training seed it is that backbone's own. Every row of a table is simulated thousands of times.

Beside the interval of ssl_vit.statistics.paired stands what it was before it was never narrower than chance in the test
images alone ("before"), and what is often done instead: a t interval over the seeds' means that takes the test images
as given, the interval that forgets groups or that draws share backbones, the one that averages failed trainings, the
percentile bootstrap over seeds, and McNemar's test of two single networks.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reports import RESULTS, about
from statistics_report import report

BATCH = 100
"""Simulations at once."""
RANDOM = 40
"""Worlds drawn at random."""
LABELS = (10, 30, 100, 300)
Gains = tuple[float, ...]
Hits = np.ndarray
"""Bool[times, draws, images]."""


@dataclass(frozen=True)
class World:
    """What is simulated; standard deviations are on the scale of a probit."""

    name: str
    accuracy: float = 0.8
    draws: int = 5
    seeds: int = 3
    images: int = 366
    groups: int = 0
    seed: float = 0.05
    draw: float = 0.05
    both_draw: float = 0.2
    """Of draws, shared by the methods."""
    image: float = 1.0
    """Of images, shared by the methods."""
    own_image: float = 0.4
    uneven: bool = False
    """Whether the largest group has a sixth of the images and more."""
    group: float = 0.0
    own_group: float = 0.0
    gain: float = 0.0
    """Of the method, on the scale of a probit."""
    largest: float = 0.0
    """Share of the images that the first group has."""
    failing: float = 0.0
    """Of trainings that learn nothing: one in ten of their answers is right."""

    @property
    def spread(self) -> float:
        """Standard deviation of everything, one network's noise included."""
        parts = (self.seed, self.draw, self.both_draw, self.image, self.own_image, self.group, self.own_group, 1.0)
        return float(np.sqrt(np.square(parts).sum()))

    @property
    def level(self) -> float:
        """The probit that gives the baseline its accuracy."""
        from scipy.stats import norm

        return float(norm.ppf(self.accuracy)) * self.spread

    @property
    def nesting(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Pre-training seed of every draw; group of every image."""
        place = (np.arange(self.images) / self.images) ** (2 if self.uneven else 1)
        clusters = (place * self.groups).astype(np.int64) if self.groups else None
        if clusters is not None and self.largest:
            first = int(self.images * self.largest)
            rest = np.arange(self.images - first) * (self.groups - 1) // (self.images - first) + 1
            clusters = np.concatenate([np.zeros(first, dtype=np.int64), rest])
        return np.arange(self.draws) % self.seeds, clusters


MIXES: dict[str, dict[str, Any]] = {
    "test images": {"seed": 0.0, "draw": 0.0, "own_image": 0.8},
    "networks' noise": {"seed": 0.0, "draw": 0.0, "own_image": 0.0},
    "draws": {"seed": 0.0, "draw": 0.25},
    "seeds": {"seed": 0.25, "draw": 0.05},
    "all": {"seed": 0.08, "draw": 0.08},
}
WORLDS = [
    *(World(name, **mix) for name, mix in MIXES.items()),
    *(World(name, accuracy=0.6, **MIXES[name]) for name in ("all", "seeds")),
    *(World(name, accuracy=0.95, **MIXES[name]) for name in ("all", "draws", "seeds")),
    *(World(name, accuracy=0.98, **MIXES[name]) for name in MIXES),
    *(World(name, draws=10, **MIXES[name]) for name in ("all", "test images", "seeds")),
    *(World(name, draws=5, seeds=5, **MIXES[name]) for name in ("all", "seeds")),
    *(World(name, draws=10, seeds=10, **MIXES[name]) for name in ("all", "networks' noise")),
    *(World(name, accuracy=0.9, images=2000, **MIXES[name]) for name in ("all", "seeds")),
    World("groups, large", images=720, groups=36, group=0.7, own_group=0.4, **MIXES["all"]),
    World("groups, small", images=720, groups=180, group=0.7, own_group=0.4, **MIXES["all"]),
    World("groups, few", images=720, groups=12, group=0.7, own_group=0.4, **MIXES["all"]),
    World("groups, uneven", images=720, groups=36, uneven=True, group=0.7, own_group=0.4, **MIXES["all"]),
    World("groups, seeds", draws=10, images=720, groups=36, group=0.7, own_group=0.4, **MIXES["seeds"]),
    World("one backbone", seeds=1, **MIXES["seeds"]),
    World("two backbones", seeds=2, draws=6, **MIXES["seeds"]),
    World("a gain", gain=0.2, **MIXES["all"]),
    World("a gain", accuracy=0.95, gain=0.5, **MIXES["seeds"]),
]
CURVES = [
    World("steep curve", accuracy=0.85, **MIXES["all"]),
    World("steep curve, 10 seeds and draws", accuracy=0.85, seeds=10, draws=10, **MIXES["all"]),
    World("steep curve, groups", accuracy=0.85, images=720, groups=36, group=0.7, own_group=0.4, **MIXES["all"]),
    World("steep curve, seeds", accuracy=0.85, **MIXES["seeds"]),
    World("flat above", accuracy=0.97, **MIXES["all"]),
]
_GROUPS: dict[str, Any] = {"images": 720, "group": 0.7, "own_group": 0.4}
NEW = [
    *(World(name, draws=draws, seeds=seeds, **MIXES[name])
      for draws, seeds in ((3, 3), (3, 2), (3, 1), (2, 2), (2, 1)) for name in MIXES),
    *(World(name, images=images, **MIXES[name]) for images in (20, 50) for name in MIXES),
    *(World(name, accuracy=accuracy, **MIXES[name]) for accuracy in (0.99, 0.995) for name in MIXES),
    World("all", accuracy=0.98, images=50, **MIXES["all"]),
    *(World("one group of 60 %", largest=0.6, groups=groups, draws=draws, **_GROUPS, **MIXES["all"])
      for groups in (10, 40) for draws in (5, 10)),
    *(World(f"{name}, 15 % fail", failing=0.15, draws=draws, **MIXES[name])
      for draws in (5, 10) for name in ("all", "draws", "seeds")),
]  # fmt: skip
"""Where an outside simulation found intervals short."""
RISES = {"steep": (-1.2, -0.6, 0.2, 0.6), "flat": (-0.8, 0.1, 0.2, 0.25)}
"""The method's probit less the level to reach, over the standard deviation of everything, at each number of labels."""


def at_random(rng: np.random.Generator) -> World:
    """A world that nobody chose: the rule for the degrees of freedom was chosen by looking at those above."""
    draws, seeds, groups = (int(rng.choice(some)) for some in ((5, 6, 8, 10), (1, 3, 3, 3, 5), (0, 0, 15, 40, 120)))
    most = {
        "seed": 0.25,
        "draw": 0.25,
        "both_draw": 0.3,
        "image": 1.2,
        "own_image": 0.8,
        "group": 0.8,
        "own_group": 0.6,
    }
    spreads = {name: float(rng.uniform(0, limit)) for name, limit in most.items()}
    accuracy, images, uneven = float(rng.uniform(0.55, 0.98)), int(rng.integers(300, 1200)), bool(rng.random() < 0.5)
    name = "one backbone" if seeds == 1 else "uneven groups" if groups and uneven else ""
    return World(name, accuracy, draws, seeds, images, groups, uneven=uneven, **spreads)


def simulate(
    world: World, times: int, rng: np.random.Generator, gains: Gains = (), others: Gains = (0.0,)
) -> tuple[list[Hits], list[Hits], np.ndarray]:
    """Which images every network has right.

    Args:
        world: What is simulated.
        times: How often.
        rng: Random numbers.
        gains: Of the method at every number of labels, in probits above the level; else the world's, once.
        others: Of the baseline.

    Returns:
        Hits of the method at every number of labels, those of the baseline, and the expected difference at the first in
        points for every time (the same for all, but for the one or two backbones that it is conditional on).
    """
    from scipy.stats import norm

    seeds, clusters = world.nesting

    def some(sd: float, *shape: int) -> np.ndarray:
        return np.float32(sd) * rng.standard_normal((times, *shape), dtype=np.float32)

    def images(sd: float, group: float) -> np.ndarray:
        found = some(sd, 1, world.images)
        return found if clusters is None else found + some(group, 1, world.groups)[..., clusters]

    common = world.level + images(world.image, world.group)
    shared = [some(world.both_draw, world.draws, 1) for _ in range(max(len(gains), len(others), 1))]

    def networks(gains: Gains, begun: np.ndarray) -> list[Hits]:
        fixed = common + images(world.own_image, world.own_group) + begun
        found: list[Hits] = []
        for gain, drawn in zip(gains, shared, strict=False):
            ability = fixed + (gain + drawn + some(world.draw, world.draws, 1))
            found.append(rng.standard_normal(ability.shape, dtype=np.float32) < ability)
        return found

    begun, gains = some(world.seed, world.seeds, 1), gains or (world.gain,)
    ours, theirs = networks(gains, begun[:, seeds]), networks(others, some(world.seed, world.draws, 1))
    for hits in (*ours, *theirs) if world.failing else ():
        lost = rng.random((times, world.draws)) < world.failing
        hits[lost] = rng.random((int(lost.sum()), world.images)) < 0.1
    if world.seeds > 2:
        return ours, theirs, np.full(times, 100 * (norm.cdf((world.level + gains[0]) / world.spread) - world.accuracy))
    known = begun[:, :, 0].astype(np.float64)
    own = norm.cdf((world.level + gains[0] + known) / np.sqrt(world.spread**2 - world.seed**2))
    return ours, theirs, 100 * (own @ (np.bincount(seeds) / world.draws) - world.accuracy)


def cover(world: World, times: int, rng: np.random.Generator) -> dict[str, Any]:
    """Coverage in percent of every kind of interval."""
    from scipy.stats import t
    from ssl_vit.statistics.paired import Estimates, estimate_many

    seeds, clusters = world.nesting
    covered: dict[str, list[Any]] = {}
    widths: list[Any] = []
    for _ in range(max(1, times // BATCH)):
        (ours,), (theirs,), truth = simulate(world, BATCH, rng)
        matrices = 100.0 * (ours.astype(np.float64) - theirs)

        def add(name: str, found: Estimates, margin: Any = None, truth: Any = truth) -> None:
            margin = found.margin if margin is None else margin
            covered.setdefault(name, []).append(np.abs(found.estimate - truth) <= margin * (1 + 1e-12))

        found = estimate_many(matrices, seeds, clusters)
        if world.failing:
            add("failures averaged", found)
            found = _learned(ours, theirs, seeds, clusters)
            truth = truth[: len(found.estimate)]
        add("ours", found, truth=truth)
        widths.append(found.margin)
        if world.failing:
            continue
        plain = estimate_many(matrices, seeds, clusters)
        images = np.maximum(plain.fixed - plain.both, 0)
        whole = np.maximum(plain.replicates + images, 1e-300)
        df = 1 / ((plain.replicates / whole) ** 1.25 / plain.df + (images / whole) ** 2 / plain.clusters)
        add("before", plain, np.sqrt(plain.replicates + images) * t.ppf(0.975, df))
        rows = matrices.mean(-1, keepdims=True)
        add("test images as given", estimate_many(rows, seeds, None))
        if clusters is not None:
            add("groups forgotten", estimate_many(matrices, seeds, None))
        if world.seeds > 2:
            if world.seeds < world.draws:
                add("nesting forgotten", estimate_many(matrices, None, clusters))
            means = np.stack([rows[:, seeds == s, 0].mean(1) for s in range(world.seeds)], axis=1)
            covered.setdefault("bootstrap over seeds", []).append(_bootstrap(means, truth, rng))
        if not world.gain:
            covered.setdefault("McNemar", []).append(_mcnemar(ours[:, 0], theirs[:, 0]) >= 0.05)
    rates = {name: 100 * float(np.concatenate(parts).mean()) for name, parts in covered.items()}
    return {"world": world.name, **_told(world), "width": float(np.median(np.concatenate(widths))), "coverage": rates}


def _learned(ours: Hits, theirs: Hits, seeds: np.ndarray, clusters: np.ndarray | None) -> Any:
    """Estimates without failed trainings, where three draws and seeds are left; others say that they are few."""
    from ssl_vit.statistics.advice import DRAWS, failures
    from ssl_vit.statistics.paired import SEEDS, Estimates, estimate_many

    found = []
    for one, other in zip(ours, theirs, strict=True):
        kept = ~(failures(100.0 * one.mean(1), 10.0) | failures(100.0 * other.mean(1), 10.0))
        if kept.sum() >= DRAWS and len(np.unique(seeds[kept])) >= SEEDS:
            gap = 100.0 * (one[kept].astype(np.float64) - other[kept])
            found.append(estimate_many(gap[None], seeds[kept], clusters))
    return Estimates(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _told(world: World) -> dict[str, Any]:
    keys = ("accuracy", "seeds", "draws", "images", "groups", "gain", "largest", "failing")
    return {key: getattr(world, key) for key in keys}


def _bootstrap(means: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whether the percentile interval holds the truth: all resamples of up to four seeds, else 1,000."""
    count = means.shape[1]
    chosen = list(itertools.product(range(count), repeat=count)) if count < 5 else rng.integers(0, count, (1000, count))
    low, high = np.percentile(means[:, np.asarray(chosen)].mean(-1), (2.5, 97.5), axis=1, method="inverted_cdf")
    return (low <= truth) & (truth <= high)


def _mcnemar(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Exact p-values, as statsmodels' (a test compares the two)."""
    from scipy.stats import binom

    one, two = (first & ~second).sum(-1), (second & ~first).sum(-1)
    return np.minimum(1, 2 * binom.cdf(np.minimum(one, two), one + two, 0.5))


def whole_curve(world: World, times: int, rng: np.random.Generator) -> dict[str, Any]:
    """Coverage of the difference averaged over numbers of labels, the method equal to the baseline."""
    from ssl_vit.statistics.paired import estimate_many

    seeds, clusters = world.nesting
    inside, widths = [], []
    rises = tuple(float(rise * world.spread) for rise in RISES["steep"])
    for _ in range(max(1, times // BATCH)):
        ours, theirs, _ = simulate(world, BATCH, rng, rises, rises)
        matrices = 100.0 * (np.mean(ours, axis=0) - np.mean(theirs, axis=0))
        found = estimate_many(matrices, seeds, clusters)
        inside.append(np.abs(found.estimate) <= found.margin)
        widths.append(found.margin)
    covered = 100 * float(np.concatenate(inside).mean())
    return {"world": world.name, **_told(world), "width": float(np.median(np.concatenate(widths))), "covered": covered}


def save_labels(world: World, times: int, rng: np.random.Generator) -> dict[str, Any]:
    """How often the confidence set of the labels needed holds the true number."""
    from scipy.stats import norm
    from ssl_vit.statistics.paired import labels_needed

    seeds, clusters = world.nesting
    rise = RISES["flat" if "flat" in world.name else "steep"]
    probits = np.array(rise) * world.spread
    gaps = norm.cdf((world.level + probits) / world.spread) - world.accuracy
    first = int(np.argmax(gaps >= 0))
    weight = gaps[first - 1] / (gaps[first - 1] - gaps[first])
    truth = float(LABELS[first - 1] * (LABELS[first] / LABELS[first - 1]) ** weight)
    inside, bounded, ratios, guesses = [], [], [], []
    for _ in range(max(1, times // BATCH)):
        ours, (theirs,), _ = simulate(world, BATCH, rng, tuple(float(p) for p in probits))
        for i in range(BATCH):
            curve = {n: 100.0 * hits[i].astype(np.float64) for n, hits in zip(LABELS, ours, strict=True)}
            found = labels_needed(curve, 100.0 * theirs[i].astype(np.float64), seeds, clusters)
            low, high = found.low or 0, found.high or np.inf
            inside.append(low <= truth * (1 + 1e-9) and truth <= high * (1 + 1e-9))
            bounded.append(found.low is not None and found.high is not None)
            guesses.append(found.labels or np.inf)
            if bounded[-1]:
                ratios.append(high / low)
    return {
        "world": world.name, **_told(world), "truth": truth, "median": float(np.median(guesses)),
        "covered": 100 * float(np.mean(inside)), "bounded": 100 * float(np.mean(bounded)),
        "ratio": float(np.median(ratios)) if ratios else None,
    }  # fmt: skip


def other_metrics(times: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Equal methods judged by balanced accuracy (uneven classes) and, through the jackknife, by AUROC and macro-F1."""
    from scipy.stats import rankdata
    from ssl_vit.statistics.contributions import balanced_units, blocks_of, pseudo_values
    from ssl_vit.statistics.paired import estimate_many

    world = World("", images=366, own_image=0.5, seed=0.1, draw=0.1, both_draw=0.1)
    seeds, _ = world.nesting
    blocks = blocks_of(world.images)

    def units(metric: str, labels: Any, right: Any, score: Any) -> Any:
        if metric == "balanced accuracy":
            return balanced_units(right, labels)
        if metric == "AUROC":
            ranks, positive = score, labels > 0

            def auroc(kept: Any) -> float:
                order, has = rankdata(ranks[kept]), positive[kept]
                n = int(has.sum())
                return 100 * float((order[has].sum() - n * (n + 1) / 2) / (n * (len(has) - n)))

            return pseudo_values(auroc, blocks)
        said = np.where(right, labels, 1 - labels)

        def macro_f1(kept: Any) -> float:
            true, told, both = (np.bincount(v[kept], minlength=2) for v in (labels, said, np.where(right, labels, 2)))
            return 100 * float((2 * both[:2] / (true + told)).mean())

        return pseudo_values(macro_f1, blocks)

    rows = []
    for metric in ("balanced accuracy", "AUROC", "macro-F1"):
        matrices = []
        for _ in range(times):
            labels = (rng.random(world.images) < 0.2).astype(np.int64)
            easy = rng.standard_normal(world.images)
            sides = []
            for method in range(2):
                begun = 0.1 * rng.standard_normal(world.draws)[np.arange(world.draws) if method else seeds]
                own = 0.5 * rng.standard_normal(world.images)
                score = 0.9 + 0.1 * rng.standard_normal((world.draws, 1)) + begun[:, None] + easy + own
                score = score + rng.standard_normal((world.draws, world.images))
                signed = np.where(labels, 1, -1) * score
                sides.append([units(metric, labels, score[r] > 0, signed[r]) for r in range(world.draws)])
            matrices.append(np.array(sides[0]) - np.array(sides[1]))
        found = estimate_many(np.array(matrices), seeds, None)
        covered = 100 * float((np.abs(found.estimate) <= found.margin).mean())
        rows.append({"metric": metric, "times": times, "width": float(np.median(found.margin)), "covered": covered})
    return rows


def seeds_only(times: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Coverage over values of which seeds are the only chance, as in many papers."""
    from ssl_vit.statistics.paired import estimate_many

    rows = []
    for count in (3, 5, 10):
        values = rng.standard_normal((times, count, 1))
        found = estimate_many(values, None, None)
        ours = 100 * float((np.abs(found.estimate) <= found.margin).mean())
        rows.append({"seeds": count, "ours": ours,
                     "bootstrap": 100 * float(_bootstrap(values[..., 0], np.zeros(times), rng).mean())})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=4000, help="simulations of every row of the first table")
    parser.add_argument("--out", default=str(RESULTS))
    options = parser.parse_args()
    began, times = time.perf_counter(), options.times
    numbers = iter(np.random.default_rng(0).spawn(len(WORLDS) + len(NEW) + RANDOM + 2 * len(CURVES) + 1))
    parts: dict[str, Any] = {
        "about": about("python benchmarks/bench_statistics.py"),
        "times": times,
        "worlds": [cover(world, times, next(numbers)) for world in WORLDS],
        "new": [cover(world, times, next(numbers)) for world in NEW],
        "random": [cover(at_random(rng), times // 2, rng) for rng in (next(numbers) for _ in range(RANDOM))],
        "curves": [whole_curve(world, times, next(numbers)) for world in CURVES[:4]],
        "savings": [save_labels(world, times // 5, next(numbers)) for world in CURVES],
        "metrics": other_metrics(times // 3, next(numbers)),
        "seeds": seeds_only(times, next(numbers)),
    }
    parts["about"]["seconds"] = round(time.perf_counter() - began)
    report(parts, Path(options.out), __doc__)


if __name__ == "__main__":
    main()
