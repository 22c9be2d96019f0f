"""Tables of ways to use labels, where the truth is known: is the advice right, and what does it take?

    nice python benchmarks/statistics_advice.py        # about ten minutes on one core

Thirteen ways (two methods, raw pixels and random features by k-NN and linear probe; the methods, the baseline, the
baseline for longer and a CNN by training) at five numbers of labels are made up as in bench_statistics.py: on test
image u a network is right with the probability of a probit in which image, start, way, pre-training seed and draw have
spreads of their own. Tables differ in how far ways are apart. A truth is over new seeds, draws and images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reports import RESULTS, about, made_by, write

LABELS = (10, 20, 50, 100, 1000)
METHODS = ("mae", "dino")
WAYS = (
    *((start, use) for start in (*METHODS, "pixels", "random") for use in ("knn", "linear")),
    *((start, "train") for start in (*METHODS, "scratch", "scratch+", "cnn")),
)
COST = {"mae": 1.0, "dino": 3.0, "scratch+": 1.0}
RISE = {"knn": (-0.2, 0.1, 0.5, 0.7, 1.0), "linear": (-0.2, 0.1, 0.5, 0.8, 1.3), "train": (-0.7, -0.3, 0.3, 0.8, 1.7)}
"""The usual probit of a use over the numbers of labels, in standard deviations of everything."""
SHARE = {"advice": 1.0, "looks": 0.2, "recorded": 0.2, "attribution": 2.0}
"""Of the tables of a row."""
GUESS = 10.0
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
GIVEN_UP = "highest mean"


@dataclass(frozen=True)
class Tables:
    """What is simulated; spreads are on the scale of a probit."""

    name: str
    apart: float = 0.3
    """Of ways around the usual curve of their use, in standard deviations of everything."""
    level: float | None = None
    """Of all ways, with any number of labels, in standard deviations of everything; None where it is their use's."""
    images: int = 366
    groups: int = 0
    draws: int = 10
    seeds: int = 3
    seed: float = 0.08
    draw: float = 0.12
    both_draw: float = 0.2
    image: float = 1.0
    own_image: float = 0.4
    group: float = 0.0
    largest: float = 0.0
    """Share of the images that the first group has."""
    failing: float = 0.0
    """Of trainings that learn nothing."""

    @property
    def spread(self) -> float:
        """Standard deviation of everything, one network's noise included."""
        parts = (self.seed, self.draw, self.both_draw, self.image, self.own_image, self.group, 1.0)
        return float(np.sqrt(np.square(parts).sum()))

    @property
    def clusters(self) -> Ints | None:
        """The group of every image."""
        if not self.groups:
            return None
        first, place = int(self.images * self.largest), np.arange(self.images)
        if not first:
            return place * self.groups // self.images
        return np.where(place < first, 0, 1 + (place - first) * (self.groups - 1) // (self.images - first))


TABLES = [
    Tables("apart"),
    Tables("hardly apart", apart=0.08),
    Tables("all alike", apart=0.0, level=0.5),
    Tables("apart, few images", images=60),
    Tables("apart, many images", images=2000),
    Tables("apart, groups", images=720, groups=36, group=0.5),
    Tables("seeds", seed=0.25),
    Tables("hardly apart, seeds", apart=0.08, seed=0.25),
    Tables("draws", draw=0.3),
    Tables("test images", seed=0.0, draw=0.0, own_image=0.8),
    Tables("apart, 15 % fail", failing=0.15),
    Tables("hardly apart, 15 % fail", apart=0.08, failing=0.15),
    Tables("hardly apart, 20 images", apart=0.08, images=20),
    Tables("hardly apart, 50 images", apart=0.08, images=50),
    Tables("around 98 %", apart=0.08, level=2.05),
    Tables("around 99.5 %", apart=0.08, level=2.58),
    Tables("one group of 60 %", images=720, groups=36, group=0.5, largest=0.6),
    Tables("hardly apart, one group of 60 %", apart=0.08, images=720, groups=36, group=0.5, largest=0.6),
]


def simulate(world: Tables, rng: np.random.Generator) -> tuple[dict[int, list[Any]], dict[int, dict[Any, float]], Any]:
    """What every way answered, its true accuracy (failed trainings apart), and the groups of the images."""
    from scipy.stats import norm
    from ssl_vit.statistics.advice import Tried, Way

    clusters = world.clusters

    def some(sd: float, *shape: int) -> np.ndarray:
        return np.float32(sd) * rng.standard_normal(shape, dtype=np.float32)

    common = some(world.image, world.images)
    if clusters is not None:
        common = common + some(world.group, world.groups)[clusters]
    own = {start: some(world.own_image, world.images) for start, _ in WAYS}
    begun = {start: some(world.seed, world.seeds) for start in METHODS}
    offsets = {way: world.apart * rng.standard_normal() for way in WAYS}
    # Two networks of one start that are used otherwise are not the same, but alike.
    seeds, draws = np.arange(world.draws) % world.seeds, np.arange(world.draws)
    table: dict[int, list[Any]] = {}
    truth: dict[int, dict[Any, float]] = {}
    for k, labels in enumerate(LABELS):
        drawn = some(world.both_draw, world.draws, 1)
        table[labels], truth[labels] = [], {}
        for start, use in WAYS:
            usual = RISE[use][k] if world.level is None else world.level
            level = (usual + offsets[start, use] + 0.5 * world.apart * rng.standard_normal()) * world.spread
            seed = begun[start][seeds, None] if start in METHODS else some(world.seed, world.draws, 1)
            ability = level + common + own[start] + seed + drawn + some(world.draw, world.draws, 1)
            hits = rng.standard_normal((world.draws, world.images), dtype=np.float32) < ability
            if use == "train" and world.failing:
                lost = rng.random(world.draws) < world.failing
                hits[lost] = rng.random((int(lost.sum()), world.images)) < GUESS / 100
            way = Way(start, use)
            own_seeds = seeds if start in METHODS else None
            table[labels].append(Tried(way, 100.0 * hits, draws, own_seeds, COST.get(start, 0.0)))
            truth[labels][way] = 100 * float(norm.cdf(level / world.spread))
    return table, truth, clusters


def judge(world: Tables, made: int, rng: np.random.Generator, times: int) -> dict[str, Any]:
    """Advice after so many draws: how good it is, by which rule, and whether its intervals hold the truth."""
    from dataclasses import replace

    from ssl_vit.statistics.advice import ALPHA, advise
    from ssl_vit.statistics.paired import interval

    kept: dict[str, list[float]] = {}
    lost = []

    def add(name: str, value: float) -> None:
        kept.setdefault(name, []).append(value)

    for _ in range(times):
        table, truth, clusters = simulate(replace(world, draws=made), rng)
        wrong = False
        for labels, tried in table.items():
            found = advise(labels, tried, clusters, guess=GUESS, alpha=ALPHA / len(LABELS), span=100.0)
            true = truth[labels]
            top, by_way = max(true, key=true.__getitem__), {one.way: one for one in tried}
            wrong |= top in found.worse
            learned = {way: one.units.mean(1) for way, one in by_way.items()}
            mean = {way: float(v[v > 25].mean()) if (v > 25).any() else float(v.mean()) for way, v in learned.items()}
            rules = {
                "advice": found.advised,
                GIVEN_UP: max(mean, key=mean.__getitem__),
                "cheapest of all that are among": min(found.among, key=lambda way: by_way[way].effort),
            }
            for name, way in rules.items():
                add(f"regret, {name}", true[top] - true[way])
                add(f"near, {name}", 100.0 * (true[top] - true[way] <= 1))
            plain = interval(_learned(by_way[found.advised]), _seeds(by_way[found.advised]), clusters)
            at = true[found.advised]
            if found.low is not None and found.high is not None and plain.low is not None and plain.high is not None:
                add("covered, crossed", 100.0 * (found.low <= at <= found.high))
                add("covered, plain", 100.0 * (plain.low <= at <= plain.high))
                add("bias, crossed", found.expected - at)
                add("bias, plain", plain.estimate - at)
                add("width", (found.high - found.low) / 2)
            add("among", len(found.among))
            add("named failed", sum(failed for _, failed, _ in found.failed))
            add("trainings", made * len(tried))
        lost.append(wrong)
    counts = {name: int(sum(kept.pop(name))) for name in ("named failed", "trainings")}
    means = {name: float(np.mean(values)) for name, values in kept.items()} | counts
    return {"name": world.name, "draws": made, "best told to be worse": 100 * float(np.mean(lost)), **means}


def _kept(one: Any) -> np.ndarray:
    from ssl_vit.statistics.advice import failures

    return ~failures(one.units.mean(1), GUESS)


def _learned(one: Any) -> np.ndarray:
    return one.units[_kept(one)]


def _seeds(one: Any) -> np.ndarray | None:
    return None if one.seeds is None else one.seeds[_kept(one)]


def look(world: Tables, most: int, rng: np.random.Generator, times: int) -> dict[str, Any]:
    """Draws until the advice is settled: how many trainings it takes, and how often what is said is false."""
    from dataclasses import replace

    followed = [follow(*simulate(replace(world, draws=most), rng), most) for _ in range(times)]
    return {"name": world.name, "most": most, **summed(followed)}


def follow(table: dict[int, list[Any]], truth: dict[int, dict[Any, float]], clusters: Any, most: int) -> dict[str, Any]:
    """One table, looked at after every draw."""
    from ssl_vit.statistics.advice import ALPHA, DRAWS, advise
    from ssl_vit.statistics.looks import undecided

    alpha = ALPHA / len(table)
    has: dict[tuple[int, Any], int] = {}
    said: dict[int, Any] = {}
    for labels, tried in table.items():
        wanted, now = frozenset(one.way for one in tried), tried
        for draw in range(most):
            has |= {(labels, way): draw + 1 for way in wanted}
            if draw + 1 >= DRAWS:
                now = [one.at(np.arange(has[labels, one.way])) for one in tried]
                said[labels] = advise(labels, now, clusters, guess=GUESS, alpha=alpha, most=most)
                wanted = undecided(said[labels]) & wanted
            if not wanted:
                break
    told: dict[str, Any] = {name: [] for name in ("near", "near, all draws", "settled", "called best")}
    told |= {"false": False, "lost": False}
    for labels, one in said.items():
        true = truth[labels]
        whole = advise(labels, table[labels], clusters, guess=GUESS, alpha=alpha)
        top = max(true, key=true.__getitem__)
        # Called the best: nothing is left beside it, or all others are at most a point better.
        best = one.proven or len(one.among) == 1
        told["false"] |= best and true[top] - true[one.advised] > 1
        told["lost"] |= top in one.worse and true[top] - max(true[way] for way in one.among) > 1
        told["near"].append(true[top] - true[one.advised] <= 1)
        told["near, all draws"].append(true[top] - true[whole.advised] <= 1)
        told["settled"].append(one.settled)
        told["called best"].append(best)
    trained = {key: n for key, n in has.items() if key[1].use == "train"}
    return told | {"compute": sum(trained.values()) / (len(trained) * most)}


def summed(followed: list[dict[str, Any]]) -> dict[str, float]:
    """Means of many tables, in percent."""
    return {name: 100 * float(np.mean([one[name] for one in followed])) for name in followed[0]}


def recorded(times: int) -> dict[str, Any]:
    """The same on draws of real classifiers of scikit-learn's digits, ten of forty in another order every time.

    The truth is the mean over all forty draws on the same test images.
    """
    from ssl_vit.statistics.advice import Tried

    rng, table, made = np.random.default_rng(0), digits_draws(40), 10
    truth = {n: {one.way: one.mean for one in tried} for n, tried in table.items()}
    followed = []
    for _ in range(times):
        some = rng.permutation(40)[:made]
        now = {
            n: [Tried(o.way, o.units[some], np.arange(made), None, o.cost) for o in tried] for n, tried in table.items()
        }
        followed.append(follow(now, truth, None, made))
    return {"name": "digits, scikit-learn", "most": made, **summed(followed)}


def digits_draws(draws: int) -> dict[int, list[Any]]:
    """Pixels, random features and patches of k-means by k-NN and a linear probe, a kernel machine and a network."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC
    from ssl_vit.statistics.advice import Tried, Way

    digits: Any = load_digits()
    split = train_test_split(digits.data / 16, digits.target, test_size=0.2, stratify=digits.target, random_state=0)
    rest, test, y_rest, y_test = (np.asarray(part) for part in split)
    features: dict[str, tuple[Floats, Floats]] = {"pixels": (rest, test)}
    weights = np.random.default_rng(0).standard_normal((64, 200))
    features["random"] = (np.maximum(rest @ weights, 0), np.maximum(test @ weights, 0))
    options: dict[str, Any] = {"random_state": 0, "n_init": 3}
    centres = MiniBatchKMeans(100, **options).fit(rest)
    features["mae"] = (centres.transform(rest), centres.transform(test))
    hits: dict[tuple[int, Any], list[np.ndarray]] = {}
    for labels in (10, 20, 50, 100, 500):
        for draw in range(draws):
            some = np.asarray(
                train_test_split(
                    np.arange(len(rest)), train_size=labels, stratify=y_rest, random_state=1000 * labels + draw
                )[0]
            )
            for start, (own, judged) in features.items():
                spread = own.std(0) + 1e-6
                for use, model in (("knn", KNeighborsClassifier(1)), ("linear", LogisticRegression(max_iter=3000))):
                    said = model.fit(own[some] / spread, y_rest[some]).predict(judged / spread)
                    hits.setdefault((labels, Way(start, use)), []).append(said == y_test)
            for start, model in (
                ("cnn", SVC(C=10)), ("scratch", MLPClassifier((64,), max_iter=60, random_state=draw, solver="lbfgs")),
            ):  # fmt: skip
                said = model.fit(rest[some], y_rest[some]).predict(test)
                hits.setdefault((labels, Way(start, "train")), []).append(said == y_test)
    table: dict[int, list[Any]] = {}
    for (labels, way), found in hits.items():
        table.setdefault(labels, []).append(
            Tried(way, 100.0 * np.array(found), np.arange(draws), None, float(way.start == "mae"))
        )
    return table


def attributed(world: Tables, made: int, ours: int, rng: np.random.Generator, times: int) -> dict[str, Any]:
    """Attribution, of so many ways with pre-training, against choosing on the images and draws that are judged."""
    from dataclasses import replace

    from ssl_vit.statistics.advice import attribute
    from ssl_vit.statistics.paired import interval

    kept: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        kept.setdefault(name, []).append(value)

    for _ in range(times):
        table, truth, clusters = simulate(replace(world, draws=made), rng)
        for labels, tried in table.items():
            true, trained = truth[labels], [one for one in tried if one.way.start in METHODS][:ours]
            others = [one for one in tried if one.way.start not in METHODS]
            found = attribute(labels, trained, others, clusters, guess=GUESS, span=100.0)
            add("told", 100.0 * (found.gain is not None))
            if found.gain is None or found.low is None or found.high is None or not found.way or not found.against:
                continue
            gap = max(true[one.way] for one in trained) - max(true[one.way] for one in others)
            named = true[found.way] - true[found.against]
            add("covered", 100.0 * (found.low <= gap <= found.high))
            add("covered, named", 100.0 * (found.low <= named <= found.high))
            add("claims", 100.0 * (found.low > 0 or found.high < 0))
            add("false", 100.0 * ((found.low > 0 and gap <= 0) or (found.high < 0 and gap >= 0)))
            add("bias", found.gain - gap)
            add("width", (found.high - found.low) / 2)
            if not world.failing:
                first, second = (max(side, key=lambda one: one.mean) for side in (trained, others))
                plain = interval(first.units - second.units, first.seeds, clusters, 100.0)
                add("bias, plain", plain.estimate - gap)
                if plain.low is not None and plain.high is not None:
                    add("covered, plain", 100.0 * (plain.low <= gap <= plain.high))
    return {"name": world.name, "draws": made, "ways": ours, **{k: float(np.mean(v)) for k, v in kept.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="tables of every row")
    parser.add_argument("--out", default=str(RESULTS))
    options = parser.parse_args()
    began, times = time.perf_counter(), options.times
    parts: dict[str, Any] = {"about": about("python benchmarks/statistics_advice.py"), "times": times}
    parts |= {name: [one(int(SHARE[name] * times)) for one in rows] for name, rows in tasks().items()}
    parts["about"]["seconds"] = round(time.perf_counter() - began)
    lines = report(parts)
    write(Path(options.out), "statistics_advice", parts, lines)
    print("\n".join(lines))


def tasks() -> dict[str, list[Callable[[int], dict[str, Any]]]]:
    """Every row of every table, to be made from how many tables of ways it should stand on."""
    numbers = iter(np.random.default_rng(0).spawn(6 * len(TABLES)))
    attribution = [(world, made, 6) for world in TABLES for made in (3, 5)]
    attribution += [(Tables("all alike", apart=0.0, level=0.5), 5, 1), (TABLES[0], 2, 6)]
    attribution += [(Tables("apart, two seeds", seeds=2), 5, 6)]
    return {
        "attribution": [partial(attributed, *row, next(numbers)) for row in attribution],
        "looks": [partial(look, world, 10, next(numbers)) for world in TABLES],
        "recorded": [recorded],
        "advice": [partial(judge, world, made, next(numbers)) for world in TABLES for made in (3, 5)],
    }


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table of Markdown, numbers to the right."""
    cells = [headings, ("---", *["---:"] * (len(headings) - 1)), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def number(value: float | None) -> str:
    """With one decimal; empty where there is none."""
    return "" if value is None else f"{value:.1f}"


def short(parts: dict[str, Any]) -> list[tuple[str, ...]]:
    """The ends of every column that matters; docs/statistics.md has these rows."""

    def ends(part: str, name: str, sign: str = "") -> str:
        values = [row[name] for row in parts[part] if name in row]
        return " to ".join(f"{round(end, 1) + 0:{sign}.1f}" for end in (min(values), max(values)))

    def most(name: str, *some: str) -> str:
        worst = max(row[name] for part in some for row in parts[part])
        return f"{worst:.1f} % or fewer" if worst else "none"

    one = next(row for row in parts["attribution"] if row["ways"] == 1)
    told = max(row["told"] for row in parts["attribution"] if "two seeds" in row["name"] or row["draws"] == 2)
    made = [row["compute"] for row in parts["looks"]]
    near, whole = (np.mean([row[name] for row in parts["looks"]]) for name in ("near", "near, all draws"))
    real = parts["recorded"][0]
    sound = [row for row in parts["advice"] if "fail" not in row["name"]]
    named, all_made = (sum(row[name] for row in sound) for name in ("named failed", "trainings"))
    return [
        ("tables of 13 ways at five numbers of labels in which the best is told to be worse anywhere",
         most("best told to be worse", "advice")),
        ("advice within one point of the best, three or five draws",
         f"{ends('advice', 'near, advice')} % of cases (the highest mean {ends('advice', f'near, {GIVEN_UP}')} %)"),
        ("trainings and probes that are called failed where none failed", f"{named:,} of {all_made:,}"),
        ("how often the interval of what to expect holds the truth",
         f"{ends('advice', 'covered, crossed')} % (by its own mean and spread {ends('advice', 'covered, plain')} %)"),
        ("what to expect less the truth, on average",
         f"{ends('advice', 'bias, crossed', '+')} points (its own mean {ends('advice', 'bias, plain', '+')})"),
        ("how often the interval of an attribution holds the truth", f"{ends('attribution', 'covered')} %"),
        ("an attribution less the truth, on average", f"{ends('attribution', 'bias', '+')} points"),
        ("the same, one way with pre-training against seven equal ones",
         f"{one['bias']:+.1f} points (chosen where it is judged {one['bias, plain']:+.1f})"),
        ("attributions that claim a gain or a loss where there is none or its opposite, and that claim any",
         f"{ends('attribution', 'false')} % of cases, {ends('attribution', 'claims')} %"),
        ("attributions of two draws or two pre-training seeds that claim anything", f"{told:.0f} %"),
        ("looking after every draw: tables with a way called the best that is more than a point worse",
         most("false", "looks", "recorded")),
        ("the same: tables in which the best is told to be worse by more than a point",
         most("lost", "looks", "recorded")),
        ("trainings made of a plan of ten draws",
         f"{np.mean(made):.0f} % on average ({min(made):.0f} to {max(made):.0f} %)"),
        ("advice within one point of the best after them, on average", f"{near:.0f} % (after all draws {whole:.0f} %)"),
        ("the same with recorded draws of real classifiers of digits",
         f"{real['compute']:.0f} % made, {real['near']:.0f} % within a point (after all draws "
         f"{real['near, all draws']:.0f} %)"),
    ]  # fmt: skip


def report(parts: dict[str, Any]) -> list[str]:
    """The tables of the result file."""
    rules, followed = ("advice", GIVEN_UP, "cheapest of all that are among"), (*parts["looks"], *parts["recorded"])
    return [
        "# Is the advice right?", "", *(__doc__ or "").strip().split("\n\n", 2)[2].splitlines(), "",
        f"{parts['times']:,} tables a row (a fifth where it is looked after every draw, twice as many of "
        "attribution), five numbers of labels each. Numbers are percent or points.", "",
        "## In short", "", *table(("question", "result"), short(parts)), "",
        "## Advice", "",
        "\"Best lost\": tables in which the best way is told to be worse at any number of labels. \"Within 1\": advice "
        "that is at most a point behind the best, by the rule of the package, by the highest mean, and by the "
        "cheapest of all that cannot be told from the best. \"Covered\": how often the 95 % interval of what to expect "
        "holds the truth, cross-fitted and plain; \"bias\": what is expected less the truth.", "",
        *table(
            ("tables", "draws", "best lost", "among", *(f"within 1, {r}" for r in rules),
             *(f"regret, {r}" for r in rules), "covered", "covered, plain", "bias", "bias, plain", "±"),
            [(r["name"], str(r["draws"]), number(r["best told to be worse"]), number(r["among"]),
              *(number(r[f"near, {k}"]) for k in rules), *(number(r[f"regret, {k}"]) for k in rules),
              f"**{r['covered, crossed']:.1f}**", number(r["covered, plain"]), number(r["bias, crossed"]),
              number(r["bias, plain"]), number(r["width"])) for r in parts["advice"]],
        ), "",
        "## Looking after every draw", "",
        "Trainings made, in percent of a plan of ten draws of everything; tables in which a way is called the best "
        "that is more than a point behind (\"false\"), or the best is told to be worse by more than a point "
        "(\"lost\"); and single numbers of labels. Last, draws of real classifiers, in other orders.", "",
        *table(
            ("tables", "plan", "made", "false", "lost", "within 1", "within 1, all draws", "settled", "called best"),
            [(r["name"], str(r["most"]), f"**{r['compute']:.0f}**", number(r["false"]), number(r["lost"]),
              *(f"{r[k]:.0f}" for k in ("near", "near, all draws", "settled", "called best"))) for r in followed],
        ), "",
        "## Attribution", "",
        "The best of six ways with pre-training (or of one) less the best of seven without. \"Told\": numbers of "
        "labels at which anything is claimed. \"Covered\": how often the 95 % interval holds what the best is truly "
        "better by; \"named\": what the two named ways truly differ by. \"Claims\": how often it leaves 0 out; "
        "\"false\": and the truth is 0 or on its other side. Plain is the interval of the two that lead, chosen on "
        "what they are judged on.", "",
        *table(
            ("tables", "draws", "ways", "told", "covered", "covered, named", "claims", "false", "bias", "±",
             "covered, plain", "bias, plain"),
            [(r["name"], str(r["draws"]), str(r["ways"]), f"{r['told']:.0f}",
              f"**{r['covered']:.1f}**" if "covered" in r else "",
              *(number(r.get(k)) for k in ("covered, named", "claims", "false", "bias", "width", "covered, plain",
                                           "bias, plain")))
             for r in parts["attribution"]],
        ), "",
        made_by(parts["about"], ("numpy", "scipy")),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
