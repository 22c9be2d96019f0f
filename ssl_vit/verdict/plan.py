"""How much is done: from a few measured steps to a table of tasks and seconds that keeps a budget.

A plan begins with the least that can recommend anything (``least``), and adds to it in the order of ``MORE`` what still
fits. Network and input were chosen before, by counting (``fitting``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ssl_vit.configs import to_dict
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import duration
from ssl_vit.methods.starts import PUBLIC, WORTH, start_called
from ssl_vit.verdict.estimate import END, FIRST, FULL, Line, Terms
from ssl_vit.verdict.study import Study

PRETRAINING = 0.5
"""Share of the budget that pre-training may take."""
LEAST_EPOCHS, LEAST_SHARE = 20.0, 0.1
"""Of pre-training, at least: the larger of both, but never more than all of it."""
_LEAST: Mapping[str, Any] = {"length": 0.2, "trials": 1, "probe_draws": 5, "train_draws": 3, "matched_draws": 0}
"""Options of the least plan; what is asked for smaller stays so. Fewer than three draws recommend nothing."""
_LEAST_LENGTH, _NUMBERS = 0.1, 3
"""Of training on labels where a plan goes wrong; numbers of labels to begin with."""
_FINER, _CLAIMED = 0.93, 0.35
"""From one length of training that is tried to the next, and the shortest for which a first claim may be made."""
MORE: tuple[tuple[str, float], ...] = (
    ("start", 1), ("labels", 5), ("pretraining", PRETRAINING), ("probe_draws", 10), ("length", 0.35),
    ("start", 1), ("labels", 10), ("frozen", 0), ("length", 0.5),
    ("claim", 3), ("pretraining", PRETRAINING),
    ("start", 1), ("length", 1.0), ("claim", 6),
    ("start", 1), ("train_draws", 5),
    ("start", 1), ("start", 1), ("pretraining", 1.0), ("all", 1),
)  # fmt: skip
"""What is added, in this order, where it fits. ``start``: the next of ``Study.worth``. ``pretraining``: as long as it
fills at most that share of the budget, each run as many seconds as every other, up to its whole length. ``labels``: so
many numbers of them. ``frozen``: public weights are fine-tuned, too. ``claim``: what an attribution needs, so many
trials of options for everything that is trained, and as many draws of baselines at the FLOPs of pre-training; the first
of it may shorten training on labels. ``all``: whatever was asked for beyond that."""

_WORDS: dict[str, Callable[[Any], str]] = {
    "length": lambda v: f"training on labels is {v:.2g} times as long as usual",
    "matched_draws": lambda v: f"{v} draws of the baseline at the FLOPs of pre-training" if v
    else "no baseline at the FLOPs of pre-training, so no gain can be claimed",
    "trials": lambda v: f"{v} tuning trials for every method" if v > 1 else "options are not tuned",
    "probe_draws": lambda v: f"{v} draws for probes",
    "train_draws": lambda v: f"{v} draws or more where all weights are trained",
}  # fmt: skip


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
    study: Study, terms: Terms, asked: Sequence[str] = (), lighter: Callable[[], Mapping[str, float]] = dict,
    whole: Study | None = None,
) -> Plan:  # fmt: skip
    """The plan for a study: all of it where that fits, else the least, and more in the order of ``MORE``.

    ``asked`` are starts that stay whatever they take; ``lighter`` are networks by their share of this one's time, asked
    where a plan is refused; ``whole`` is what was asked for before a first plan, for what is said of cuts.

    Raises:
        UserError: Where not even the least fits, with a budget that would do, or a network.
    """
    made = study
    if not terms.fits(study):
        made = least(study, asked, terms)
        if not terms.fits(made) and not terms.begun:
            raise UserError(_refusal(made, terms, lighter()))
        for step, value in MORE:
            wider = _wider(made, study, step, value, terms)
            made = wider if terms.fits(wider) else made
    short = () if terms.fits(made) else (f"the budget is too short: it takes about {duration(terms.seconds(made))}",)
    notes = (*short, *_differences(whole or study, made), *_light(made))
    return Plan(made, tuple(terms.lines(made)), terms.seconds(made), notes)


def least(study: Study, asked: Sequence[str], terms: Terms) -> Study:
    """The least that can recommend: one method, untrained features and baselines, at three numbers of labels.

    The method is the first of ``Study.worth`` that fits, or where none does, the one that takes the least.
    """
    v = study.recipe.verdict
    small = dict(_LEAST, length=_LEAST_LENGTH) if terms.begun else _LEAST
    cut = _with(study, **{name: min(getattr(v, name), value) for name, value in small.items()})
    if terms.begun:
        return _untuned(cut)
    firsts = [s for s in _firsts(study, asked) if s in terms.paces or s in terms.known] or [""]
    made = [_only(cut, study, asked, first, terms) for first in firsts]
    return next((one for one in made if terms.fits(one)), min(made, key=terms.seconds))


def _only(cut: Study, study: Study, asked: Sequence[str], first: str, terms: Terms) -> Study:
    """With one method beside those that were asked for, and the baselines of all of these."""
    kept = {*asked, first, *(study.baseline(s) for s in (*asked, first) if s in study.starts)}
    more = [s for s in study.starts if s not in kept and (start_called(s).made or s in study.worth)]
    frozen = tuple(s for s in study.starts if start_called(s).network == PUBLIC and s not in more)
    cut = replace(cut, starts=tuple(s for s in study.starts if s not in more), frozen=frozen)
    return _untuned(_numbers(_with_lengths(cut, 0.0, terms), study, _NUMBERS))


def _firsts(study: Study, asked: Sequence[str]) -> list[str]:
    """Methods that a plan may have as its only one beside those asked for; several where a preset puts one first."""
    methods = [s for s in study.starts if start_called(s).made]
    named = [s for s in asked if s in methods]
    found = [s for s in dict.fromkeys((*study.worth, *methods)) if s in methods]
    return named[:1] or (found[:1] if study.worth == WORTH else found)


def could_be_left_out(study: Study, asked: Sequence[str]) -> tuple[str, ...]:
    """Pre-training that a plan can do without: all that was not asked for but the first of it."""
    kept = (*asked, *_firsts(study, asked)[:1])
    return tuple(s for s in study.starts if start_called(s).made and s not in kept)


def _untuned(study: Study) -> Study:
    return replace(study, tuned=()) if study.recipe.verdict.trials == 1 else study


def _wider(made: Study, study: Study, step: str, value: float, terms: Terms) -> Study:
    """The plan with one step more of what was asked for; the same where there is no more."""
    asked, now = study.recipe.verdict, made.recipe.verdict
    if step in ("labels", "pretraining", "start") and terms.begun:
        return made
    if step == "labels":
        return _numbers(made, study, int(value))
    if step == "pretraining":
        return _longest(made, value, terms)
    if step == "start":
        return _another(made, study, terms)
    if step == "frozen":
        return replace(made, frozen=study.frozen)
    if step == "length":
        tried = (_with(made, length=float(f"{min(asked.length, value) * _FINER**i:.3g}")) for i in range(20))
        longer = (one for one in tried if one.recipe.verdict.length > now.length)
        return next((one for one in longer if terms.fits(one)), made)
    if step == "claim":
        more = {"trials": min(asked.trials, int(value)), "matched_draws": min(asked.matched_draws, now.train_draws)}
        if not (now.matched_draws or made.tuned):  # it is worth more than some longer training
            tried = [one for i in range(20) if (one := now.length * _FINER**i) >= min(now.length, _CLAIMED)]
            claims = [_grown(_with(made, length=float(f"{one:.3g}")), study, more) for one in tried]
            return next((claim for claim in claims if terms.fits(claim)), claims[0])
    elif step == "all":
        more = {name: getattr(asked, name) for name in _LEAST}
    else:
        more = {step: min(getattr(asked, step), int(value))}
    return _grown(made, study, more)


def _grown(made: Study, study: Study, more: Mapping[str, int | float]) -> Study:
    """With as much of some options, or what it has of them where that is more."""
    now = made.recipe.verdict
    wider = _with(made, **{name: max(getattr(now, name), most) for name, most in more.items()})
    tuned = tuple(n for n in study.tuned if n in made.labels)
    return replace(wider, tuned=tuned if wider.recipe.verdict.trials > 1 else ())


def _with(study: Study, **options: float) -> Study:
    """With other options of the verdict."""
    return replace(study, recipe=replace(study.recipe, verdict=replace(study.recipe.verdict, **options)))


def _numbers(made: Study, study: Study, count: int) -> Study:
    """With so many numbers of labels: the fewest and all of them, and others as evenly between them as can be."""
    last, count = len(study.labels) - 1, min(count, len(study.labels))
    labels = tuple(study.labels[round(last * i / max(1, count - 1))] for i in range(count))
    tuned, matched = (tuple(n for n in numbers if n in labels) for numbers in (study.tuned, study.matched))
    return replace(made, labels=labels, matched=matched, tuned=tuned if made.recipe.verdict.trials > 1 else ())


def _another(made: Study, study: Study, terms: Terms) -> Study:
    """With the first of ``Study.worth`` that still fits, fine-tuned where that fits too."""
    for start in (
        s for s in dict.fromkeys((*study.worth, *study.starts)) if s in study.starts and s not in made.starts
    ):
        begun = max((_run(made, s, terms) for s in made.starts if s in made.lengths), default=0.0)
        wider = replace(made, starts=tuple(s for s in study.starts if s in (*made.starts, start)))
        own = _with_lengths(wider, begun, terms).lengths
        wider = replace(wider, lengths={**own, **made.lengths})
        for found in (wider, replace(wider, frozen=(*wider.frozen, start))):
            if terms.fits(found) and (found is wider or "linear" in start_called(start).uses):
                return found
    return made


def _run(study: Study, start: str, terms: Terms) -> float:
    """Seconds of one pre-training run's steps."""
    return study.epochs[start] * study.length(start) * terms.pool / terms.paces[start].images_per_second


def _with_lengths(study: Study, seconds: float, terms: Terms) -> Study:
    """With so many seconds of steps for each pre-training run, but at least the least and at most its whole length."""
    found, most = dict[str, float](), study.recipe.verdict.pretraining
    for start in (s for s in study.starts if start_called(s).made and s in terms.paces and s not in terms.known):
        whole = _run(replace(study, lengths={start: 1.0}), start, terms)
        fewest = max(LEAST_SHARE, LEAST_EPOCHS / study.epochs[start])
        found[start] = float(f"{min(most, max(fewest, seconds / whole)):.3g}")
    return replace(study, lengths=found)


def _longest(made: Study, share: float, terms: Terms) -> Study:
    """With pre-training as long as it may be where it fills at most that share of the budget, and everything fits."""
    if terms.budget is None:
        return made
    low, high = 0.0, max((_run(replace(made, lengths={s: 1.0}), s, terms) for s in made.lengths), default=0.0)
    for wanted in (high, *[None] * 9):
        middle = (low + high) / 2 if wanted is None else wanted
        longer = _with_lengths(made, middle, terms)
        first = [line for line in terms.lines(longer) if line.what.endswith(FIRST)]
        fits = sum(line.units * line.seconds for line in first) <= share * terms.budget * terms.jobs
        if any(longer.lengths[s] < length for s, length in made.lengths.items()):
            low = middle
        elif fits and terms.fits(longer):
            made, low = longer, middle
        else:
            high = middle
    return made


def _refusal(study: Study, terms: Terms, lighter: Mapping[str, float]) -> str:
    """Why nothing is begun, and what would do."""
    took, budget, fixed = terms.seconds(study), terms.budget or 0.0, terms.spent + END
    enough = [name for name, share in lighter.items() if fixed + share * (took - fixed) <= FULL * budget]
    network = f", or a network that fits: --model.name {enough[0]}" if enough else ""
    minutes = math.ceil(took / FULL / 60)
    return (
        f"--verdict.budget: {duration(budget)} is too short to recommend anything; the least that can takes about "
        f"{duration(took)} here (three draws at {len(study.labels)} numbers of labels), and a plan fills {FULL:.0%} of "
        f"a budget at most; give --verdict.budget {minutes}m{network}"
    )


def _differences(asked: Study, cut: Study) -> list[str]:
    """What was cut, in words."""
    before, after = vars(asked.recipe.verdict), vars(cut.recipe.verdict)
    notes = [words(after[name]) for name, words in _WORDS.items() if before[name] != after[name]]
    notes += [
        f"{start_called(s).title}: pre-training is {share:.2g} times as long as usual"
        for s, share in cut.lengths.items() if share < asked.recipe.verdict.pretraining
    ]  # fmt: skip
    lost = [n for n in asked.labels if n not in cut.labels]
    notes += [f"no numbers with {', '.join(f'{n:,}' for n in lost)} labels"] if lost else []
    notes += [f"no {start_called(start).title}" for start in asked.starts if start not in cut.starts]
    return notes + [f"{start_called(start).title}: not fine-tuned" for start in cut.frozen if start not in asked.frozen]


def _light(study: Study) -> list[str]:
    """Whether short training is spared augmentation that long training has."""
    whole = replace(study, recipe=replace(study.recipe, verdict=replace(study.recipe.verdict, length=1.0)))
    if all(study.augmentation(n) == whole.augmentation(n) for n in study.labels):
        return []
    return ["training so short has crops and mirror images alone, no RandAugment, erasing, mixup or CutMix"]


_COUNTS = ("starts", "labels", "tuned", "matched", "frozen")


def plan_as_json(plan: Plan, terms: Terms) -> dict[str, Any]:
    """A plan and what it was made from, as plan.json holds it."""
    study = plan.study
    return {
        "verdict": to_dict(study.recipe.verdict), **{name: getattr(study, name) for name in _COUNTS},
        "lengths": study.lengths, "model": to_dict(study.recipe.model), "preset": study.preset, "budget": terms.budget,
        "lines": plan.lines, "seconds": plan.seconds, "notes": plan.notes, "begun": terms.begun,
        "paces": {start: pace._asdict() for start, pace in terms.paces.items()},
    }  # fmt: skip


def read_plan(study: Study, told: dict[str, Any]) -> Plan:
    """The plan that plan.json tells of, for a study as it is asked for now: what was cut once stays cut."""
    cut = {name: told["verdict"][name] for name in _WORDS}
    recipe = replace(study.recipe, verdict=replace(study.recipe.verdict, **cut))
    study = replace(study, recipe=recipe, lengths=told["lengths"], **{name: tuple(told[name]) for name in _COUNTS})
    return Plan(study, tuple(Line(*line) for line in told["lines"]), told["seconds"], tuple(told["notes"]))
