"""What a study takes: from a few measured steps to seconds of every kind of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ssl_vit.configs import LinearConfig
from ssl_vit.methods.starts import BASELINE, start_called
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import nearest

FULL = 0.9
"""Share of the budget that a plan may fill, because measuring a few steps is no more exact than that."""
END = 20.0
"""Seconds for pictures and the report."""
_PROBE = 0.2
"""Seconds of a k-NN and a linear probe at one number of labels, beside the arithmetic of linear heads."""
_THIN = 2.0
"""How much slower than a network's the arithmetic of linear heads is."""
_FORWARD = 3.0
"""How much faster images pass a network forwards only."""
_LENGTHS = 1.7
"""Length that tuning chooses, of 0.5, 1 and 2: where training is short, mostly the longest."""

FIRST, _PROBES, _TUNED, _TRIALS = ": pre-training", ": k-NN and linear probe", ", fine-tuned", ": trials"
DONE = (FIRST, _PROBES)
"""How lines of work end that comes before any training on labels."""


class Pace(NamedTuple):
    """What a few steps have shown."""

    images_per_second: float
    overhead: float
    """Seconds of a run beside its steps."""
    flops_per_image: float
    batch: float


class Line(NamedTuple):
    """One kind of work."""

    what: str
    units: int
    seconds: float
    """Of one task."""


@dataclass(frozen=True)
class Terms:
    """What a plan is made by."""

    paces: Mapping[str, Pace]
    """By start: of methods of pre-training, else of training on labels; fine-tuning goes at the pace of training the
    same network from scratch."""
    pool: int
    """Images to pre-train on."""
    budget: float | None
    """Seconds; None for no limit."""
    jobs: int
    """Tasks at a time."""
    known: Mapping[str, float]
    """FLOPs of one pre-training run, where it is there."""
    spent: float
    """Seconds that opening, looking for leaks and measuring took."""
    begun: bool = False
    """Whether pre-training and probes are done, so that only training on labels is still open."""

    def seconds(self, study: Study) -> float:
        """Of the whole verdict."""
        lines = self.lines(study)
        return (
            self.spent + END + (sum(line.units * line.seconds for line in lines) + idle(lines, self.jobs)) / self.jobs
        )

    def lines(self, study: Study) -> list[Line]:
        """Tasks that are still to be done."""
        lines = estimate(study, self.paces, self.pool, self.known)
        return [line for line in lines if not (self.begun and line.what.endswith(DONE))]

    def fits(self, study: Study) -> bool:
        """Whether it keeps the budget."""
        return self.budget is None or self.seconds(study) <= FULL * self.budget


def estimate(study: Study, paces: Mapping[str, Pace], pool: int, known: Mapping[str, float]) -> list[Line]:
    """Tasks and seconds of every kind of work, in the order in which it is done."""
    v, flops, first = study.recipe.verdict, dict(known), list[Line]()
    for start in (s for s in study.starts if start_called(s).made and s in paces and s not in known):
        images, pace = study.epochs[start] * study.length(start) * pool, paces[start]
        flops[start] = images * pace.flops_per_image
        title = start_called(start).title
        first.append(Line(f"{title}{FIRST}", v.seeds, images / pace.images_per_second + pace.overhead))
    probes, trials, draws = list[Line](), list[Line](), list[Line]()
    for start in study.starts:
        title, pace = start_called(start).title, paces.get(study.baseline(start), paces[BASELINE])
        if "linear" in study.uses(start):
            seconds = sum(_linear(study, start, pace, n) for n in study.labels)
            networks = {"random": v.probe_draws, "pixels": 0}.get(start, len(study.runs(start)))
            seconds += (networks + 1) * study.judged / (_FORWARD * pace.images_per_second) / v.probe_draws
            probes.append(Line(f"{title}{_PROBES}", v.probe_draws, seconds))
        if "train" not in study.uses(start):
            continue
        each = {n: _training(study, pace, n) for n in study.labels}
        name = title + (_TUNED if start_called(start).pretrained else "")
        if study.tuned:
            tuned = [0.7 * each[n] for n in study.tuned]
            trials.append(Line(f"{name}{_TRIALS}", v.trials * len(tuned), sum(tuned) / len(tuned)))
        draws.append(Line(name, v.train_draws * len(each), sum(each.values()) / len(each)))
        own = [of for other, of in flops.items() if study.baseline(other) == start and start != other]
        if own and v.matched_draws and study.matched:
            rate = pace.images_per_second * pace.flops_per_image
            more = max(own) / rate if rate else 0.0
            whole, what = [each[n] + more for n in study.matched], f"{name} at the FLOPs of pre-training"
            draws.append(Line(what, min(v.matched_draws, v.train_draws) * len(whole), sum(whole) / len(whole)))
    return [*first, *probes, *trials, *draws]


def _linear(study: Study, start: str, pace: Pace, labels: int) -> float:
    """Seconds of a probe at one number of labels, with its share of choosing options once."""
    usual = LinearConfig()
    steps = max(usual.min_steps, usual.passes * labels / usual.batch_size)
    flops = 4.0 * steps * min(labels, usual.batch_size) * study.heads[start == "pixels"]
    chosen = len(usual.rates) * len(usual.decays) * (usual.folds + 1) / study.recipe.verdict.probe_draws
    rate = pace.images_per_second * pace.flops_per_image
    return _PROBE + (flops * (1.0 + chosen) * _THIN / rate if rate else 0.0)


def _training(study: Study, pace: Pace, labels: int) -> float:
    tuned = nearest(labels, study.tuned) is not None
    images = study.steps(labels) * study.batch(labels) * (_LENGTHS if tuned else 1.0)
    return images / pace.images_per_second + pace.overhead


def idle(lines: Sequence[Line], jobs: int) -> float:
    """Seconds that processes, taken together, wait for the last pre-training run."""
    first = [line for line in lines if line.what.endswith(FIRST)]
    runs = sorted((line.seconds for line in first for _ in range(line.units)), reverse=True)
    until = [0.0] * jobs
    for run in runs:  # as processes take them: the longest first, each by the one that is free first
        until[until.index(min(until))] += run
    return jobs * max(until) - sum(runs)
