"""How much is done: from a few measured steps to a table of tasks and seconds, cut to a budget where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from ssl_vit.configs import LinearConfig, to_dict
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import BASELINE, pretrained, starts, titles
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import nearest

FULL = 0.9
"""Share of the budget that a plan may fill: measuring a few steps is no more exact than that."""
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
_EPOCHS = 20
"""Of pre-training, at least."""

_CUTS: tuple[tuple[str, Any], ...] = (
    ("trials", 5), ("length", 0.7), ("pretraining", 0.7), ("trials", 4), ("length", 0.5), ("labels", 5),
    ("tuned", None), ("length", 0.42), ("trials", 3), ("length", 0.35), ("pretraining", 0.6), ("length", 0.3),
    ("unasked", "methods"), ("length", 0.25), ("matched_draws", 3), ("unasked", "cnn"), ("length", 0.21),
    ("pretraining", 0.5), ("length", 0.18), ("train_draws", 3), ("length", 0.15), ("pretraining", 0.42),
    ("length", 0.12), ("pretraining", 0.35), ("length", 0.1), ("labels", 3), ("pretraining", 0.3),
    ("pretraining", 0.25), ("matched", None), ("pretraining", 0.18), ("pretraining", 0.12), ("pretraining", 0.08),
    ("matched_draws", 2), ("pretraining", 0.05), ("pretraining", 0.025), ("cnn", None), ("methods", None),
    ("probe_draws", 5), ("seeds", 1), ("labels", 2), ("length", 0.05), ("matched_draws", 0), ("train_draws", 2),
)  # fmt: skip
"""What is cut, in this order, until a plan fits. Pre-training is what is judged, so most else is cut first; methods
behind the first of the table are left out before it is trained too short to be judged, unless they were asked for.
Draws of training come down to those of the longer baseline, which the verdict stands on anyway; fewer, and fewer seeds,
come last."""

_WORDS: dict[str, Callable[[Any], str]] = {
    "length": lambda v: f"training on labels is {v:.2g} times as long as usual",
    "pretraining": lambda v: f"pre-training is {v:.2g} times as long as usual",
    "matched_draws": lambda v: f"{v} draws of the baseline at the FLOPs of pre-training" if v
    else "no baseline at the FLOPs of pre-training, so no gain can be claimed",
    "trials": lambda v: f"{v} tuning trials for every method",
    "probe_draws": lambda v: f"{v} draws for probes",
    "train_draws": lambda v: f"{v} draws where all weights are trained",
    "seeds": lambda v: f"{v} pre-training seed",
}  # fmt: skip


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
class Plan:
    """A study and what it will take."""

    study: Study
    lines: tuple[Line, ...]
    seconds: float
    """Of the whole verdict."""
    notes: tuple[str, ...]
    """What was cut, in words."""


def make_plan(
    study: Study, paces: Mapping[str, Pace], pool: int, budget: float | None, jobs: int,
    known: Mapping[str, float] | None = None, spent: float = 0.0,
) -> Plan:  # fmt: skip
    """The plan for a study, cut until it fits.

    ``paces`` are by start: of methods of pre-training, else of training on labels; fine-tuning goes at the pace of
    training from scratch. There are ``pool`` images to pre-train on; ``known`` are FLOPs of one pre-training run, where
    runs were there before; opening, looking for leaks and measuring took the seconds ``spent`` of the ``budget``.
    """

    def seconds(cut: Study) -> float:
        lines = estimate(cut, paces, pool, known or {})
        return spent + END + (sum(line.units * line.seconds for line in lines) + _idle(lines, jobs)) / jobs

    limit, taken = math.inf if budget is None else budget, list[tuple[str, Any]]()
    for step in _CUTS:
        if seconds(_cut(study, taken)) > FULL * limit:
            taken.append(step)
    # A coarse step may have made finer ones before it needless.
    for step in taken[::-1]:
        without = [other for other in taken if other is not step]
        if seconds(_cut(study, without)) <= FULL * limit:
            taken = without
    final = _cut(study, taken)
    least = ["the budget is too short even for the least that can be done"] if seconds(final) > limit else []
    lines = tuple(estimate(final, paces, pool, known or {}))
    return Plan(final, lines, seconds(final), (*_differences(study, final), *_light(final), *least))


def _idle(lines: Sequence[Line], jobs: int) -> float:
    """Seconds that processes, taken together, wait for the last pre-training run.

    Trials that need no pre-training run meanwhile.
    """
    first = [line for line in lines if line.what.endswith(_FIRST)]
    until = max((math.ceil(line.units / jobs) * line.seconds for line in first), default=0.0)
    beside = {f"{titles()[start]}{_TRIALS}" for start in (BASELINE, "cnn")}
    busy = sum(line.units * line.seconds for line in lines if line in first or line.what in beside)
    return max(0.0, jobs * until - busy)


_FIRST, _TRIALS = ": pre-training", ": trials"


def _cut(study: Study, steps: Sequence[tuple[str, Any]]) -> Study:
    return reduce(_smaller, steps, study)


def _differences(asked: Study, cut: Study) -> list[str]:
    """What was cut, in words."""
    before, after = vars(asked.recipe.verdict), vars(cut.recipe.verdict)
    notes = [words(after[name]) for name, words in _WORDS.items() if name in after and before[name] != after[name]]
    lost = [n for n in asked.labels if n not in cut.labels]
    notes += [f"no numbers with {', '.join(f'{n:,}' for n in lost)} labels"] if lost else []
    notes += [f"no {titles()[start]}" for start in asked.starts if start not in cut.starts]
    for name, words in (("matched", "the baseline gets the FLOPs of pre-training"), ("tuned", "options are tuned")):
        kept = getattr(cut, name)
        if kept != tuple(n for n in getattr(asked, name) if n in cut.labels):
            notes.append(f"{words} with {', '.join(f'{n:,}' for n in kept)} labels only")
    return notes


def _light(study: Study) -> list[str]:
    """Whether short training is spared augmentation that long training has."""
    whole = replace(study, recipe=replace(study.recipe, verdict=replace(study.recipe.verdict, length=1.0)))
    if all(study.augmentation(n) == whole.augmentation(n) for n in study.labels):
        return []
    return ["training so short has crops and mirror images alone, no RandAugment, erasing, mixup or CutMix"]


def _smaller(study: Study, step: tuple[str, Any]) -> Study:
    """The study with one thing cut, or as it is where that is not more than there is."""
    (name, value), verdict = step, study.recipe.verdict
    own = [start for start in study.starts if start in METHODS]
    if name == "unasked":
        name = value if verdict.methods is None and own else "asked"
    if name in ("methods", "cnn", "asked"):
        left = {"methods": [start for start in own[1:] if start not in study.given], "cnn": ["cnn"], "asked": []}[name]
        return replace(study, starts=tuple(s for s in study.starts if s not in left))
    if name == "labels":
        kept = study.labels[::-1][::2][::-1] if len(study.labels) > value else study.labels
        tuned, matched = (tuple(n for n in numbers if n in kept) for numbers in (study.tuned, study.matched))
        return replace(study, labels=kept, tuned=tuned, matched=matched)
    if name in ("matched", "tuned"):
        return replace(study, **{name: getattr(study, name)[-1:]})
    if name == "pretraining":
        value = max(value, _EPOCHS / min(study.epochs.values(), default=_EPOCHS))
    least = min(value, getattr(verdict, name))
    return replace(study, recipe=replace(study.recipe, verdict=replace(verdict, **{name: least})))


def estimate(study: Study, paces: Mapping[str, Pace], pool: int, known: Mapping[str, float]) -> list[Line]:
    """Tasks and seconds of every kind of work."""
    v, lines = study.recipe.verdict, []
    flops = dict(known)
    for start in (s for s in study.starts if s in METHODS and s in paces and s not in known):
        images, pace = study.epochs[start] * v.pretraining * pool, paces[start]
        flops[start] = images * pace.flops_per_image
        lines.append(Line(f"{titles()[start]}{_FIRST}", v.seeds, images / pace.images_per_second + pace.overhead))
    for start in study.starts:
        if "train" in starts()[start].uses:
            pace = paces.get(start if start in ("scratch", "cnn", "public") else "scratch", paces["scratch"])
            each = {n: _training(study, pace, n) for n in study.labels}
            tuned = [0.7 * each[n] for n in study.tuned]
            name = titles()[start] + (", fine-tuned" if start in pretrained() else "")
            if tuned:
                lines.append(Line(f"{name}{_TRIALS}", v.trials * len(tuned), sum(tuned) / len(tuned)))
            lines.append(Line(name, v.train_draws * len(each), sum(each.values()) / len(each)))
            if start == "scratch" and flops and v.matched_draws:
                rate = pace.images_per_second * pace.flops_per_image
                more = max(flops.values()) / rate if rate else 0.0
                whole, what = [each[n] + more for n in study.matched], f"{name} at the FLOPs of pre-training"
                lines.append(Line(what, min(v.matched_draws, v.train_draws) * len(whole), sum(whole) / len(whole)))
        if "linear" in starts()[start].uses:
            pace = paces.get(start if start == "public" else "scratch", paces["scratch"])
            seconds = sum(_linear(study, start, pace, n) for n in study.labels)
            networks = {"random": v.probe_draws, "pixels": 0}.get(start, len(study.runs(start)))
            seconds += (networks + 1) * study.judged / (_FORWARD * pace.images_per_second) / v.probe_draws
            lines.append(Line(f"{titles()[start]}: k-NN and linear probe", v.probe_draws, seconds))
    return lines


def _linear(study: Study, start: str, pace: Pace, labels: int) -> float:
    """Seconds of a probe at one number of labels, with its share of choosing options once."""
    usual = LinearConfig()
    steps = max(usual.min_steps, usual.passes * labels / usual.batch_size)
    flops = 4.0 * steps * min(labels, usual.batch_size) * study.heads[start == "pixels"]
    chosen = len(usual.rates) * len(usual.decays) * (usual.folds + 1) / study.recipe.verdict.probe_draws
    rate = pace.images_per_second * pace.flops_per_image
    return _PROBE + (flops * (1.0 + chosen) * _THIN / rate if rate else 0.0)


def _training(study: Study, pace: Pace, labels: int) -> float:
    images = study.steps(labels) * study.batch(labels) * (_LENGTHS if nearest(labels, study.tuned) else 1.0)
    return images / pace.images_per_second + pace.overhead


_COUNTS = ("starts", "labels", "tuned", "matched")


def plan_as_json(plan: Plan, paces: Mapping[str, Pace], budget: float | None) -> dict[str, Any]:
    """A plan and what it was made from, as plan.json holds it."""
    study = plan.study
    return {
        "verdict": to_dict(study.recipe.verdict), **{name: getattr(study, name) for name in _COUNTS},
        "budget": budget, "lines": plan.lines, "seconds": plan.seconds, "notes": plan.notes,
        "paces": {start: pace._asdict() for start, pace in paces.items()},
    }  # fmt: skip


def read_plan(study: Study, told: dict[str, Any]) -> Plan:
    """The plan that plan.json tells of, for a study as it is asked for now: what was cut once stays cut."""
    cut = {name: told["verdict"][name] for name in _WORDS}
    recipe = replace(study.recipe, verdict=replace(study.recipe.verdict, **cut))
    study = replace(study, recipe=recipe, **{name: tuple(told[name]) for name in _COUNTS})
    return Plan(study, tuple(Line(*line) for line in told["lines"]), told["seconds"], tuple(told["notes"]))
