"""How much is done: from a few measured steps to trainings and seconds that keep a budget. Needs no torch.

A plan begins with the least that answers all questions (``LEAST``), and adds to it in the order of ``MORE`` what still
fits. Where not even the least fits, questions are left out from the last on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from ssl_vit.core.errors import UserError
from ssl_vit.core.text import duration
from ssl_vit.questions.scope import DOUBLINGS, VIT, Pretraining, Scope, Training
from ssl_vit.questions.table import looks, pretrainings, trainings
from ssl_vit.verdict.estimate import Line

FULL, END, LOOK = 0.8, 15.0, 0.3
"""Share of the budget that a plan may fill: cores that work for minutes are up to a fifth slower than the seconds that
were measured. Seconds for the page, and for one look at a network."""
LEAST: Mapping[str, Any] = {"steps": 50, "seconds": 2.0, "doublings": 2}
"""The least plan, beside three numbers of labels."""
_NUMBERS = 3
MORE: tuple[tuple[str, float], ...] = (
    ("doublings", 3), ("doublings", 4), ("steps", 100), ("seconds", 15.0), ("steps", 200), ("seconds", 30.0),
    ("labels", 4), ("steps", 300), ("labels", 5), ("steps", 500), ("seconds", 60.0), ("steps", 1000),
    ("seconds", math.inf), ("labels", 10), ("steps", math.inf),
)  # fmt: skip
"""What is added, in this order, where it fits. ``steps``: of training on labels. ``seconds``: of one pre-training run,
up to its whole length. ``doublings``: of width and depth. ``labels``: numbers of them."""
_FINER = 0.9
"""From one length that is tried to the next shorter one."""


class Pace(NamedTuple):
    """What a few steps have shown."""

    images_per_second: float
    overhead: float
    """Seconds of a run beside its steps."""


@dataclass(frozen=True)
class Terms:
    """What a plan is made by."""

    paces: Mapping[str, Pace]
    """By what ``tried`` named; of networks of sizes between two that were measured, between theirs."""
    pool: int
    """Images to pre-train on."""
    whole: Mapping[str, float]
    """Epochs of pre-training at its whole length, by method."""
    batches: Mapping[str, float]
    """Images per step of pre-training, by method: no run is shorter than one."""
    budget: float | None
    """Seconds; None for no limit."""
    jobs: int
    """Tasks at a time."""
    spent: float = 0.0
    """Seconds that opening and measuring took."""

    def fits(self, scope: Scope) -> bool:
        """Whether a scope keeps the budget.

        Args:
            scope: How much is done.
        """
        return self.budget is None or self.seconds(scope) <= FULL * self.budget

    def seconds(self, scope: Scope) -> float:
        """Of the whole.

        Args:
            scope: How much is done.
        """
        made = lines(scope, self)
        longest = max((line.seconds for line in made), default=0.0)
        idle = longest * (1 - 1 / max(1, self.jobs))  # at the end one process works alone
        return self.spent + END + math.fsum(line.units * line.seconds for line in made) / max(1, self.jobs) + idle


def tried(scope: Scope) -> dict[str, Training | Pretraining]:
    """What is measured, by name: every network, the ends of both axes of sizes, and every method, on its own.

    Args:
        scope: Everything that was asked for.
    """
    found: dict[str, Training | Pretraining] = {}
    for training in trainings(scope):
        if not (training.width or training.depth):
            found.setdefault(f"train-{training.net}", Training(training.net, scope.labels[-1]))
    for one in pretrainings(scope):
        if not (one.width or one.depth):
            found.setdefault(f"pretrain-{one.method}", Pretraining(one.method, 0))
    if "scale" in scope.questions:
        for axis in ("width", "depth"):
            for size in _ends(axis, scope):
                one = scope.sized(**{axis: size})
                if one.width or one.depth:
                    found[_named(f"train-{VIT}", axis, size)] = replace(one, positions="learnable")
                    found[_named("pretrain-mae", axis, size)] = Pretraining("mae", 0, one.width, one.depth)
        found.setdefault(f"train-{VIT}", Training(VIT, scope.labels[-1]))
        found.setdefault("pretrain-mae", Pretraining("mae", 0))
    return found


def pace_of(work: Training | Pretraining, scope: Scope, paces: Mapping[str, Pace]) -> Pace:
    """The pace of a network of any size: measured, or between the two next to it that were.

    Args:
        work: Which.
        scope: Whose usual size, and whose smallest and largest ones, were measured.
        paces: By what ``tried`` named.
    """
    name = f"train-{work.net}" if isinstance(work, Training) else f"pretrain-{work.method}"
    axis, own = ("depth", work.depth) if work.depth else ("width", work.width or scope.width)
    known = {size: paces[_named(name, axis, size)] for size in _ends(axis, scope) if _named(name, axis, size) in paces}
    if axis == "width":
        known[scope.width] = paces[name]
    below, above = max((s for s in known if s <= own), default=None), min((s for s in known if s >= own), default=None)
    if below is None or above is None or below == above:
        return known[below or above or scope.width] if known else paces[name]
    share = math.log(own / below) / math.log(above / below)
    fast, slow = known[below], known[above]
    pace = fast.images_per_second ** (1 - share) * slow.images_per_second**share
    return Pace(pace, max(fast.overhead, slow.overhead))


def _named(name: str, axis: str, size: int) -> str:
    return f"{name}-{axis}-{size}"


def _ends(axis: str, scope: Scope) -> tuple[int, int]:
    """The smallest and the largest size of an axis, whatever number of doublings is planned."""
    whole = replace(scope, doublings=DOUBLINGS)
    sizes = whole.widths() if axis == "width" else whole.depths()
    return sizes[0], sizes[-1]


def with_epochs(scope: Scope, terms: Terms) -> Scope:
    """A scope whose pre-training runs are as long as its ``seconds`` say, at most whole.

    Args:
        scope: How much is done.
        terms: Paces and whole lengths.
    """
    found: list[tuple[str, float]] = []
    for method in dict.fromkeys(one.method for one in _work(scope)[0]):
        pace = terms.paces[f"pretrain-{method}"]
        epochs = min(terms.whole[method], scope.seconds * pace.images_per_second / terms.pool)
        least = terms.batches[method] / terms.pool  # one step
        found.append((method, float(f"{max(least, epochs):.3g}")))
    return replace(scope, epochs=tuple(found))


def lines(scope: Scope, terms: Terms) -> list[Line]:
    """Tasks and seconds of every kind of work, in the order in which it is done.

    Args:
        scope: How much is done.
        terms: Paces and whole lengths.
    """
    epochs, found = dict(with_epochs(scope, terms).epochs), dict[str, list[float]]()
    before, on_labels, seen = _work(scope)
    for one in before:
        pace = pace_of(one, scope, terms.paces)
        size = f", depth {one.depth}" if one.depth else f", width {one.width}" if one.width else ""
        took = epochs[one.method] * terms.pool / pace.images_per_second + pace.overhead
        found.setdefault(f"pre-training, {one.method}{size}", []).append(took)
    for training in on_labels:
        pace = pace_of(training, scope, terms.paces)
        size = ", other sizes" if training.width or training.depth else ""
        took = scope.steps * scope.batch / pace.images_per_second + pace.overhead
        found.setdefault(f"training on labels, {training.net}{size}", []).append(took)
    made = [Line(what, len(took), math.fsum(took) / len(took)) for what, took in found.items()]
    return [*made, *([Line("looking at networks", seen, LOOK)] if seen else [])]


def _work(scope: Scope) -> tuple[list[Pretraining], list[Training], int]:
    """Pre-training runs, trainings and the number of looks."""
    return _work_of_any_length(replace(scope, steps=0, seconds=0.0, epochs=()))


@lru_cache(maxsize=16)
def _work_of_any_length(scope: Scope) -> tuple[list[Pretraining], list[Training], int]:
    """The same, kept: a plan tries hundreds of lengths, and the work is that of all."""
    return pretrainings(scope), trainings(scope), len(looks(scope))


@dataclass(frozen=True)
class Plan:
    """A scope and what it will take."""

    scope: Scope
    lines: tuple[Line, ...]
    seconds: float
    notes: tuple[str, ...]
    """What was cut, in words."""


def make_plan(asked: Scope, terms: Terms, *, named: bool) -> Plan:
    """The plan for everything that was asked for, or as much of it as the budget allows.

    Args:
        asked: Everything: all numbers of labels, the most steps, whole pre-training.
        terms: What a plan is made by.
        named: Whether the questions were named: then none is left out.

    Raises:
        UserError: Where not even the least fits, with a budget that would do.
    """
    made = asked
    if not terms.fits(asked):
        made = least(asked)
        while not named and len(made.questions) > 1 and not terms.fits(made):
            made = replace(made, questions=made.questions[:-1])
        if not terms.fits(made):
            raise UserError(_refusal(made, terms))
        for step, value in MORE:
            made = _wider(made, asked, step, value, terms)
    made = with_epochs(made, terms)
    return Plan(made, tuple(lines(made, terms)), terms.seconds(made), tuple(_notes(asked, made, terms)))


def least(asked: Scope) -> Scope:
    """The least that answers: short training, few numbers of labels, few doublings.

    Args:
        asked: Everything.
    """
    cut = {name: min(getattr(asked, name), value) for name, value in LEAST.items()}
    return replace(asked, **cut, labels=numbers_of(asked.labels, _NUMBERS))


def numbers_of(labels: Sequence[int], count: int) -> tuple[int, ...]:
    """So many numbers of labels: the fewest and all, and others as evenly between them as can be.

    Args:
        labels: All that were asked for.
        count: How many.
    """
    last, count = len(labels) - 1, min(count, len(labels))
    return tuple(labels[round(last * i / max(1, count - 1))] for i in range(count))


def _wider(made: Scope, asked: Scope, step: str, value: float, terms: Terms) -> Scope:
    """With one step more of what was asked for, as far as it fits."""
    if step == "labels":
        wider = replace(made, labels=numbers_of(asked.labels, int(value)))
        return wider if len(wider.labels) > len(made.labels) and terms.fits(wider) else made
    most, now = min(getattr(asked, step), value), getattr(made, step)
    if step == "doublings":
        wider = replace(made, doublings=int(most))
        return wider if most > now and terms.fits(wider) else made
    if math.isinf(most):  # as long as the longest run at its whole length
        used = [one.method for one in pretrainings(made)]
        most = max((terms.whole[m] * terms.pool / terms.paces[f"pretrain-{m}"].images_per_second for m in used),
                   default=now)  # fmt: skip
    for i in range(40):
        tried_now = most * _FINER**i
        if tried_now <= now:
            break
        wider = replace(made, **{step: int(tried_now) if step == "steps" else float(f"{tried_now:.3g}")})
        if terms.fits(wider):
            return wider
    return made


def _refusal(scope: Scope, terms: Terms) -> str:
    took, budget = terms.seconds(scope), terms.budget or 0.0
    return (
        f"--questions.budget: {duration(budget)} is too short; the least that answers {', '.join(scope.questions)} "
        f"takes about {duration(took)} here; give --questions.budget {math.ceil(took / FULL / 60)}m"
    )


def _notes(asked: Scope, made: Scope, terms: Terms) -> list[str]:
    notes: list[str] = []
    lost = [name for name in asked.questions if name not in made.questions]
    if lost:
        notes.append(f"no answer to {', '.join(lost)}: the budget is too short")
    if made.steps < asked.steps:
        notes.append(f"training on labels has {made.steps:,} steps; with the whole time it would have {asked.steps:,}")
    for method, epochs in made.epochs:
        if epochs < 0.995 * terms.whole[method]:
            share = epochs / terms.whole[method]
            notes.append(f"{method}: {epochs:.3g} epochs of pre-training, {share:.2g} times as many as usual")
    if made.doublings < asked.doublings and "scale" in made.questions:
        notes.append(f"width and depth are doubled {made.doublings} times instead of {asked.doublings}")
    gone = [n for n in asked.labels if n not in made.labels]
    if gone:
        notes.append(f"no numbers with {', '.join(f'{n:,}' for n in gone)} labels")
    return notes


def plan_as_json(plan: Plan, terms: Terms) -> dict[str, Any]:
    """A plan and what it was made from, as plan.json holds it.

    Args:
        plan: The plan.
        terms: What it was made by.
    """
    shared = None if math.isinf(plan.scope.seconds) else plan.scope.seconds
    return {
        "scope": {field.name: getattr(plan.scope, field.name) for field in fields(Scope)} | {"seconds": shared},
        "budget": terms.budget,
        "lines": plan.lines, "seconds": plan.seconds, "notes": plan.notes,
        "paces": {name: pace._asdict() for name, pace in terms.paces.items()},
    }  # fmt: skip


def read_plan(told: Mapping[str, Any]) -> Plan:
    """The plan that plan.json tells of.

    Args:
        told: Its content.
    """
    scope: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told["scope"].items()
    }
    scope["seconds"] = math.inf if scope["seconds"] is None else scope["seconds"]
    scope["epochs"] = tuple((name, float(epochs)) for name, epochs in scope["epochs"])
    return Plan(Scope(**scope), tuple(Line(*one) for one in told["lines"]), told["seconds"], tuple(told["notes"]))


def label_counts(labels: int, classes: int | None, given: Sequence[int] | None) -> tuple[int, ...]:
    """The numbers of labels to judge at, ascending, all of them at the end.

    Args:
        labels: How many there are.
        classes: How many classes; None where labels are something else. Fewer labels than classes tell nothing.
        given: ``--questions.labels``.

    Raises:
        UserError: For more than there are.
    """
    fewest = max(2, classes or 2)
    if given is not None:
        if max(given) > labels:
            raise UserError(
                f"--questions.labels {max(given):,} are asked for, but there are {labels:,} training labels; give at "
                f"most {labels:,}"
            )
        if min(given) < fewest:
            why = f"fewer than one for each of the {classes} classes" if classes else "too few; give at least 2"
            raise UserError(f"--questions.labels {min(given)} are {why}")
        return tuple(sorted({*given, labels}))
    usual = (2 * fewest, 10 * fewest, 30 * fewest, 100 * fewest, 500 * fewest, 2000 * fewest)
    return tuple(sorted({*(n for n in usual if n <= labels / 2), labels}))
