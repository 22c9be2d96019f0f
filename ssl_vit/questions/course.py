"""The course of the questions: open, measure, plan, pre-train, train, look, judge, write the page."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accelerate import Accelerator

from ssl_vit.configs import ModelConfig, as_command, networks, presets
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.machine import usable_cores
from ssl_vit.core.reading import read_object
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import chosen_metric
from ssl_vit.data.sources.opening import Labelled, open_pool
from ssl_vit.data.sources.told import label_lines, print_lines
from ssl_vit.methods import METHODS as ALL_METHODS
from ssl_vit.models.build import model_facts
from ssl_vit.questions import looking, work
from ssl_vit.questions.images import labelled, looked_at
from ssl_vit.questions.numbers import Numbers
from ssl_vit.questions.options import BUDGET, Questions, asked_for
from ssl_vit.questions.page import MEASURED
from ssl_vit.questions.plan import (
    Pace,
    Plan,
    Terms,
    label_counts,
    make_plan,
    plan_as_json,
    read_plan,
    tried,
)
from ssl_vit.questions.scope import METHODS, NETS, Pretraining, Scope, Training
from ssl_vit.questions.study import RATES, Study
from ssl_vit.questions.table import QUESTIONS, looks, pretrainings, trainings
from ssl_vit.runs.arrays import read_arrays
from ssl_vit.runs.directory import open_run
from ssl_vit.runs.provenance import commit, hardware, versions
from ssl_vit.training import launch
from ssl_vit.training.forecast import network_of
from ssl_vit.verdict.options import seconds_of
from ssl_vit.verdict.runner import Runner, Task, clock

_EPOCHS, _STEPS = 100, 1000
"""Of training on labels where time allows it: so many epochs of all labels, and at least so many steps."""
_AGAIN = "remove it and type the command again, which makes it anew"
_BATCH = 32
"""Images per step on a CPU; four times as many on a GPU, which has room for them."""


class Opened(NamedTuple):
    """Everything that was asked for, and the images it is about."""

    study: Study
    pool: ImageSet
    data: Labelled
    budget: float | None
    """Seconds."""
    whole: dict[str, float]
    """Epochs of pre-training at its whole length, by method."""
    batches: dict[str, float]
    """Images per step of it."""


def answer(cfg: Questions, began: float | None = None) -> Path | None:
    """Makes what is not there yet, and writes measured.json.

    Args:
        cfg: As given.
        began: When the program began (``time.monotonic()``), because importing libraries counts; None for now.

    Returns:
        The folder of the page; None where only the plan was asked for.
    """
    began = time.monotonic() if began is None else began
    accelerator = launch.join("fp32", cfg.seed)
    jobs = _jobs(cfg, accelerator)
    pool, _ = open_pool(cfg.data, cfg.eval.data)
    data = labelled(cfg.data, cfg.eval.data)
    run = open_run(
        "questions", cfg, data=data.test.name,
        fingerprint=f"{pool.fingerprint}-{data.whole}-{data.test.fingerprint}", writes=True,
        accelerator=launch.describe(accelerator),
    )  # fmt: skip
    runner = Runner(run.path, jobs, True, began)
    try:
        opened = _opened(cfg, run.path, pool, data, accelerator)
        scope = opened.study.scope
        print_lines([
            *label_lines(data, opened.study.metric),
            ("network", f"ViT of {scope.depth} blocks of width {scope.width}, patches of {scope.patch} px, and others "
                        "of its size"),
            ("input", f"{scope.img_size} px"),
        ])  # fmt: skip
        plan = _plan(opened, runner, max(1, jobs))
        print(describe(plan, opened, jobs), flush=True)
        if cfg.questions.plan_only:
            return None
        study = replace(opened.study, scope=plan.scope)
        returned = make(study, runner)
        seconds, sessions = runner.taken()
        measured = judge(study, data, returned)
        measured["about"] |= {
            "seconds": seconds, "sessions": sessions, "jobs": max(1, jobs), "notes": list(plan.notes),
            "plan": {
                "expected": plan.seconds, "budget": opened.budget, "lines": [line._asdict() for line in plan.lines],
            },
        }  # fmt: skip
        if not runner.worked and (run.path / MEASURED).exists():  # drawn again: trained by what it was trained by
            before = read_object(run.path / MEASURED, _AGAIN)["about"]
            measured["about"] |= {name: before[name] for name in _MADE_BY if name in before}
        write_atomically(run.path / MEASURED, json.dumps(measured, indent=1) + "\n")
    finally:
        runner.close()
    return run.path


_MADE_BY = ("command", "commit", "versions", "hardware", "jobs")


def _jobs(cfg: Questions, accelerator: Accelerator) -> int:
    """Tasks at a time; 0: one after the other, here. UserError under a launcher of several processes."""
    if accelerator.num_processes > 1:
        raise UserError("the questions run in one process, which starts others by itself; leave the launcher out")
    if accelerator.device.type != "cpu":
        return 0
    return usable_cores() if cfg.questions.jobs is None else cfg.questions.jobs


def _opened(cfg: Questions, folder: Path, pool: ImageSet, data: Labelled, accelerator: Accelerator) -> Opened:
    """Everything that was asked for, before anything is cut."""
    train, test = data.train, data.test
    if pool.form != test.form:
        raise UserError("the pool has images of other channels or another bit depth than the labelled ones")
    asked, side = cfg.questions, pool.sizes.short_side
    metric = chosen_metric(cfg.eval.metric, test.kind, test.truth)
    given = networks.NETWORKS[f"vit_{asked.size}"]
    model = networks.resolve_model(
        ModelConfig(given.name, pool="mean", positions="learnable"), side, model_facts(given.timm_name), None
    )
    classes = len(np.unique(train.truth)) if train.kind == "class" else None
    labels = label_counts(len(train), classes, asked.labels)
    assert model.patch_size and model.width and model.depth
    on_cpu = accelerator.device.type == "cpu"
    preset = presets.for_side(model.img_size, cpu=on_cpu)
    batch = _BATCH if on_cpu else 4 * _BATCH
    steps = max(2, round(asked.length * max(_STEPS, _EPOCHS * len(train) // batch)))
    augmented = preset.labelled_crop != (1.0, 1.0) or preset.flip
    scope = Scope(
        asked_for(asked), labels, asked.draws, steps, math.inf, asked.doublings,
        size=asked.size, img_size=model.img_size, patch=model.patch_size, width=model.width, depth=model.depth,
        batch=batch, augmented=augmented,
    )  # fmt: skip
    study = Study(folder, cfg, scope, train.kind, metric, preset.name)
    whole, batches = dict[str, float](), dict[str, float]()
    for name in METHODS:
        method, own = ALL_METHODS[name], study.pretrains(Pretraining(name, 0))
        facts, filled = network_of(method, own, len(pool), side, cpu=on_cpu)
        resolved = method.resolve(own, facts, filled)
        whole[name], batches[name] = asked.length * float(resolved.fit.epochs), float(resolved.fit.batch_size)
    budget = asked.budget or (BUDGET if on_cpu else None)
    return Opened(
        study, pool, data, None if budget is None else seconds_of(budget, "--questions.budget"), whole, batches
    )


def _plan(opened: Opened, runner: Runner, jobs: int) -> Plan:
    """The plan that is there, or a new one."""
    study, path = opened.study, opened.study.folder / "plan.json"
    told = _planned(path, opened, runner)
    if told is not None:
        return read_plan(told)
    paces: dict[str, Pace] = {}
    tasks = {
        name: Task(f"measure-{name}", work.measure, (study, one), 10.0) for name, one in tried(study.scope).items()
    }
    found = runner.run([*tasks.values()])
    paces |= {name: Pace(**found[task.key]) for name, task in tasks.items()}
    runner.say(f"measured the pace of {len(paces)} kinds of training")
    terms = Terms(paces, len(opened.pool), opened.whole, opened.batches, opened.budget, jobs, runner.elapsed())
    plan = make_plan(study.scope, terms, named=study.recipe.questions.only is not None)
    told = plan_as_json(plan, terms) | {"asked": list(study.scope.questions)}
    write_atomically(path, json.dumps(told, indent=1) + "\n")
    return plan


def _planned(path: Path, opened: Opened, runner: Runner) -> dict[str, Any] | None:
    """The plan that is there; None where there is none, or nothing was done by it and something else is asked now.

    Raises:
        UserError: Where work was done by a plan for another budget, or other questions.
    """
    if not path.exists():
        return None
    told = read_object(path, "give --run.dir another folder")
    asked = {"budget": opened.budget, "asked": list(opened.study.scope.questions)}
    if all(told.get(name) == value for name, value in asked.items()):
        return told
    half = [folder.name for room in ("runs", "work") for folder in (path.parent / room).glob("*")]
    if any(not key.startswith("measure-") for key in (*runner.begun(), *half)):
        before, now = (clock(one) if one else "no limit" for one in (told.get("budget"), opened.budget))
        raise UserError(
            f"{path.parent} holds questions ({', '.join(told.get('asked', []))}) planned for a budget of {before}, not "
            f"{', '.join(asked['asked'])} for {now}, and some of it is done; continue as it was begun, or give "
            "--run.dir another folder"
        )
    return None


def describe(plan: Plan, opened: Opened, jobs: int) -> str:
    """The plan as text.

    Args:
        plan: The plan.
        opened: What was asked for.
        jobs: Trainings at a time.
    """
    width = max(len(line.what) for line in plan.lines)
    limit = "" if opened.budget is None else f" of {clock(opened.budget)}"
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    return "\n".join([
        f"questions {', '.join(QUESTIONS[name].title for name in plan.scope.questions)}",
        f"labels    {', '.join(f'{n:,}' for n in plan.scope.labels)}; {plan.scope.draws} draws; judged on "
        f"{len(opened.data.test):,} test images: {opened.data.split}",
        f"plan      {clock(plan.seconds)}{limit}{at_once}, from measured steps of each kind",
        *(f"  {line.what:<{width}}  {line.units:>4} x {line.seconds:7.1f} s" for line in plan.lines),
        *(f"cut       {note}" for note in plan.notes),
    ])  # fmt: skip


def make(study: Study, runner: Runner) -> dict[str, dict[str, Any]]:
    """Every training and look of a scope, each once, whatever interrupts it.

    Args:
        study: With the scope that was planned.
        runner: What remembers which are done.

    Returns:
        What the tasks returned, by the keys of trainings, pre-training runs and looks.
    """
    scope = study.scope
    before = [Task(one.key, work.pretrain, (study, one), 2.0) for one in pretrainings(scope)]
    on_labels = trainings(scope)
    at_once = [Task(one.key, work.train, (study, one), 1.0) for one in on_labels if one.pretraining is None]
    later = [Task(one.key, work.train, (study, one), 1.0) for one in on_labels if one.pretraining is not None]
    # The dearest come first, and what needs no pre-training fills processes that would wait for the last run.
    found = runner.run([*_largest_first(before), *at_once])
    runner.say(f"pre-trained {len(before)} networks, trained {len(at_once)} from scratch")
    found |= runner.run(later)
    runner.say(f"fine-tuned {len(later)}")
    seen = [Task(one.key, looking.look, (study, one), 1.0) for one in looks(scope)]
    found |= runner.run(seen)
    runner.say(f"looked at {len(seen)} networks")
    return found


def _largest_first(tasks: list[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: -max(task.args[1].width, 8 * task.args[1].depth))


def judge(study: Study, data: Labelled, returned: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers to what is drawn and said, with what is known of images and networks.

    Args:
        study: With the scope that was planned.
        data: The labelled images.
        returned: Of all tasks.
    """
    scope, test = study.scope, data.test
    scores, seen = dict[str, np.ndarray](), dict[str, dict[str, np.ndarray]]()
    clusters: np.ndarray | None = None
    for training in trainings(scope):
        if "files" in returned[training.key]:
            kept = read_arrays(study.folder / "results" / f"{training.key}.npz", _AGAIN)
            if "units" in kept:
                scores[training.key] = kept["units"].astype(np.float64)
            clusters = kept.get("clusters", clusters)
    for look in looks(scope):
        if "files" in returned[look.key]:
            seen[look.key] = read_arrays(study.folder / "looks" / f"{look.key}.npz", _AGAIN)
    costs = {key: one["cost"] for key, one in returned.items() if "cost" in one}
    numbers = Numbers(study.metric, scores, costs, seen, clusters, _groups(test, seen))
    found = {name: QUESTIONS[name].judge(scope, numbers) for name in scope.questions}
    failed = {key: one["failed"] for key, one in returned.items() if "failed" in one}
    told = versions()
    about = {
        "data": test.name, "test_images": len(test), "metric": study.metric, "labels": list(scope.labels),
        "draws": scope.draws, "steps": scope.steps, "batch": scope.batch, "rates": RATES,
        "networks": _networks(scope, returned), "failed": failed,
        "command": as_command("eval/questions.py", study.recipe), "commit": str(commit()),
        "versions": ", ".join(f"{name} {told[name]}" for name in ("ssl_vit", "torch", "timm") if name in told),
        "hardware": ", ".join(f"{name} {value}" for name, value in hardware().items()),
    }  # fmt: skip
    return {"about": about, "questions": found}


def _groups(test: ImageSet, seen: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray | None:
    """Of the images that networks were looked at with: those that cannot be read are the same for every network."""
    if test.groups is None:
        return None
    chosen = looked_at(test)
    read = next((arrays["index"] for arrays in seen.values() if "index" in arrays), np.arange(len(chosen)))
    return test.groups[chosen[read]]


def _networks(scope: Scope, returned: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every network that was trained from scratch on all labels, counted."""
    found: list[dict[str, Any]] = []
    for net in NETS:
        training: Training = scope.training(net)
        own = returned.get(training.key) or returned.get(replace(training, plain=True).key) or {}
        if "cost" in own:
            model = scope.model(training)
            found.append({
                "net": net, "model": model.name, "img_size": model.img_size, "parameters": own["parameters"],
                "flops_per_image": (own["cost"]["flops"] or 0.0) / own["cost"]["images"],
            })  # fmt: skip
    return found
