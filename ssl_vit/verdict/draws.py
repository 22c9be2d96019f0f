"""All weights trained on one draw of labels after another, as long as there is time; probes of frozen features."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

from scipy.optimize import nnls

from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import object_in
from ssl_vit.methods.starts import BASELINE
from ssl_vit.statistics.advice import Way
from ssl_vit.verdict import probing, work
from ssl_vit.verdict.estimate import END
from ssl_vit.verdict.runner import Runner, Task
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate

_LEAST = 3
"""Draws without which nothing can be recommended."""
_LOOKS = "looks.json"
"""After how many draws this verdict was looked at, so that whoever goes on decides the same."""

Wanted = Mapping[int, frozenset[Way]]
"""Ways of which another draw could change what is advised, by number of labels."""


class Tuned(NamedTuple):
    """What is the same for every draw."""

    chosen: Mapping[tuple[str, int], Candidate]
    """Options of training, by start and number of labels."""
    flops: Mapping[str, float]
    """Of one pre-training run, by start."""
    flops_per_image: Mapping[str, float]
    """Of training a network from scratch, by start."""


def make_draws(
    study: Study, tuned: Tuned, runner: Runner, budget: float | None, total: int,
    worth: Callable[[int], Wanted] | None = None,
) -> tuple[int, list[str]]:  # fmt: skip
    """Trains on every draw; those that would end after the budget (in seconds) are left out, unless begun.

    At most ``total``, even if fewer were planned: a plan leaves room, and its work may take less than expected.
    ``worth`` looks at what so many draws have shown: what cannot change the advice is trained on no more of them, also
    if a later look would have it again.
    Where several tasks run at the same time, as many draws do: what takes long in one runs beside the rest of another.
    Looks of earlier sessions are repeated after as many draws as then, and there is none among draws that were begun:
    what such a look gave up would have results beyond its last draw.

    Returns:
        How many draws were made, and what is to be said about them.
    """
    at_once, notes = max(1, runner.jobs), list[str]()
    tasks = [_training_tasks(study, draw, tuned) for draw in range(total)]
    first_look = max(_LEAST, study.recipe.verdict.matched_draws if study.matched else 0)  # a claim needs all of these
    # What was begun before an interruption has left results, and half a draw is none.
    begun = max((draw + 1 for draw, group in enumerate(tasks) if any(map(runner.is_done, group))), default=0)
    made, must, wanted = 0, min(total, max(_LEAST, begun)), dict[int, frozenset[Way]]()
    looks = _looks(runner)
    while made < total:
        left = math.inf if budget is None else budget - END - runner.agreed()
        most = at_once if made else min(at_once, must)  # of the first ones nobody knows how long they take
        groups = {size: [*chain(*tasks[made : made + size])] for size in range(min(most, total - made), 0, -1)}
        before = [*chain(*tasks[:made])]
        size = next((size for size, group in groups.items() if _expected(group, before, runner) <= left), 0)
        size = size or max(0, min(at_once, must - made))
        size = next((look - made for look in looks if made < look <= total), max(size, min(begun, total) - made))
        if not size:
            which = f"draw {total}" if made + 1 == total else f"draws {made + 1} to {total}"
            verb = "was" if made + 1 == total else "were"
            notes.append(f"{which} of training all weights {verb} left out to keep the budget")
            break
        now = [*chain(*tasks[made : made + size])]
        returned = runner.run(sorted(now, key=lambda task: -task.seconds))
        notes += [told["note"] for told in returned.values() if "note" in told]
        made += size
        runner.say(f"draw {made} of {'at most ' * (worth is not None)}{total}")
        if worth is not None and first_look <= made < total:
            # What was left out once stays so: else its draws would have gaps, and more false words could be said.
            wanted = {n: ways & wanted.get(n, ways) for n, ways in worth(made).items()}
            if runner.main and made not in looks:
                looks = sorted({*looks, made})
                write_atomically(runner.folder / _LOOKS, json.dumps({"draws": looks}) + "\n")
            tasks = [*tasks[:made], *(_training_tasks(study, draw, tuned, wanted) for draw in range(made, total))]
            if not any(tasks[made:]):
                open_ones = any(wanted.values())
                runner.say(
                    "what is still open needs no more training of all weights"
                    if open_ones
                    else "settled: more draws would hardly change the advice"
                )
                break
    return made, notes


def _looks(runner: Runner) -> list[int]:
    """After how many draws earlier sessions looked."""
    told = (object_in(runner.folder / _LOOKS) or {}).get("draws")
    return sorted(each for each in told if isinstance(each, int)) if isinstance(told, list) else []


def _expected(tasks: Sequence[Task], before: Sequence[Task], runner: Runner) -> float:
    """Seconds that the tasks will take at the pace of earlier ones; what is done fits into any budget."""
    todo = [task.seconds for task in tasks if not runner.is_done(task)]
    if not todo:
        return -math.inf
    if not before:
        return 0.0
    # A task takes some seconds by itself, and others for every image.
    (each, pace), _ = nnls([[1.0, task.seconds] for task in before], [runner.took(task) for task in before])
    expected = [float(each + pace * work) for work in todo]
    return max(max(expected), sum(expected) / max(1, runner.jobs))


def _training_tasks(study: Study, draw: int, tuned: Tuned, wanted: Wanted | None = None) -> list[Task]:
    """All weights trained on one draw, with every method and number of labels, or those that are still ``wanted``."""
    tasks, longer = list[Task](), study.matched_starts()
    for start, n in product(study.starts, study.labels):
        if "train" in study.uses(start) and (wanted is None or Way(start, "train") in wanted.get(n, ())):
            own = tuned.chosen[start, n]
            args = (study, start, n, draw, own)
            seen = study.steps(n) * own.length * study.batch(n)
            tasks.append(Task(work.key_of(start, "train", n, draw), work.training, args, seen))
            matched = start in longer and n in study.matched and draw < study.recipe.verdict.matched_draws
            if matched and tuned.flops_per_image.get(start) and any(tuned.flops.values()):
                steps = matched_steps(study, n, tuned, start)
                key = work.key_of(start, "train", n, draw, matched=True)
                tasks.append(Task(key, work.training, (*args, steps), float(steps * study.batch(n))))
    return tasks


def matched_steps(study: Study, labels: int, tuned: Tuned, start: str = BASELINE) -> int:
    """Steps of a network from scratch that take no fewer FLOPs than any method's pre-training and fine-tuning of it."""
    usual, per_step = study.steps(labels), tuned.flops_per_image[start] * study.batch(labels)
    own = {other: flops for other, flops in tuned.flops.items() if study.baseline(other) == start}
    # Of what is not fine-tuned nothing was chosen for that, and pre-training is all that it took.
    length = {other: tuned.chosen[other, labels].length for other in own if "train" in study.uses(other)}
    each = [of / per_step + usual * length.get(other, 0.0) for other, of in own.items()]
    return math.ceil(max(usual * tuned.chosen[start, labels].length, *each))


def probe_tasks(study: Study, swept: Mapping[str, dict[str, Any]]) -> list[Task]:
    """k-NN and linear probes of all draws, by set of features, of those whose options are chosen."""
    tasks, draws = list[Task](), range(study.recipe.verdict.probe_draws)
    for start in (s for s in study.starts if s in swept):
        own = {"random": len(draws), "pixels": 1}.get(start, len(study.runs(start)))
        for k in range(min(own, len(draws))):
            args = (study, start, k, tuple(draws[k::own]), swept[start])
            tasks.append(Task(f"probe-{start}-{k}", probing.probe, args, 1e9 * len(draws[k::own])))
    return tasks
