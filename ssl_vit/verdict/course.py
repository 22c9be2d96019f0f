"""The course of a verdict: look for leaks, measure, plan, pre-train, tune, train draw by draw, write it all down."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from accelerate import Accelerator

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import starts, titles
from ssl_vit.runs.directory import open_run
from ssl_vit.training import launch
from ssl_vit.verdict import probing, work
from ssl_vit.verdict.draws import Tuned, make_draws
from ssl_vit.verdict.leaks import look_for_leaks
from ssl_vit.verdict.opening import Opened, open_images, open_study
from ssl_vit.verdict.options import Comparison, VerdictConfig
from ssl_vit.verdict.pictures import draw_pictures
from ssl_vit.verdict.plan import Pace, Plan, make_plan, plan_as_json, read_plan
from ssl_vit.verdict.record import Made, write_about
from ssl_vit.verdict.runner import Runner, Task, clock
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate, best, candidates, nearest


def give_verdict(cfg: Comparison, began: float | None = None) -> Path | None:
    """Makes what is not there yet, and writes everything that the report stands on.

    Args:
        cfg: As given.
        began: When the program began (``time.monotonic()``): importing libraries counts; None for now.

    Returns:
        The verdict's folder; None where only the plan was asked for, and on processes other than the main one.
    """
    began = time.monotonic() if began is None else began
    accelerator = launch.start("fp32", cfg.seed)
    pool, note, data = open_images(cfg)
    run = open_run(
        "verdict", cfg, data=data.test.name, fingerprint=f"{pool.fingerprint}-{data.whole}-{data.test.fingerprint}",
        writes=accelerator.is_main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    look_for_leaks(cfg.data, run, pool, data, accelerator.device)
    opened = open_study(cfg, run.path, pool, data)
    jobs = _jobs(cfg.verdict, accelerator)
    runner = Runner(run.path, jobs, accelerator.is_main_process, began)
    try:
        plan = _plan(opened, runner, jobs)
        if accelerator.is_main_process:
            print(describe(plan, opened, jobs), flush=True)
        if cfg.verdict.plan_only:
            return None
        made = _make(opened, plan, runner)
        runner.run([Task("pictures", draw_pictures, (made.plan.study,), 0.0)])
        if accelerator.is_main_process:
            write_about(opened, made, note, run, *runner.taken(), jobs)
    finally:
        runner.close()
    if not accelerator.is_main_process:
        return None
    return run.path


def _jobs(cfg: VerdictConfig, accelerator: Accelerator) -> int:
    """Tasks at the same time; 0: here, by all processes together."""
    if accelerator.device.type != "cpu" or accelerator.num_processes > 1:
        return 0
    return (psutil.cpu_count(logical=False) or os.cpu_count() or 1) if cfg.jobs is None else cfg.jobs


def _plan(opened: Opened, runner: Runner, jobs: int) -> Plan:
    """The plan that is there, or a new one."""
    study, path = opened.study, opened.study.folder / "plan.json"
    planned = _planned(path, opened.budget, runner)
    tried = [s for s in study.starts if "train" in starts()[s].uses and s not in study.given]
    found = runner.run([Task(f"measure-{s}", work.measure, (study, s), 10.0) for s in tried])
    if planned is not None:
        return read_plan(study, planned)
    paces = {
        s: Pace(p["images_per_second"], p["overhead"], p["flops_per_image"], p["batch"])
        for s in tried for p in (found[f"measure-{s}"],)
    }  # fmt: skip
    given = {start: [work.cost_of(run)["flops"] or 0.0 for run in study.runs(start)] for start in study.given}
    known = {start: sum(flops) / len(flops) for start, flops in given.items()}
    plan = make_plan(study, paces, len(opened.pool), opened.budget, max(1, jobs), known, runner.agreed())
    if runner.main:
        write_atomically(path, json.dumps(plan_as_json(plan, paces, opened.budget), indent=1) + "\n")
    runner.run([])  # nobody reads the plan before it is there
    return plan


def _planned(path: Path, budget: float | None, runner: Runner) -> dict[str, Any] | None:
    """The plan that is there; None where there is none, or nothing was done by it and the budget is another now.

    Raises:
        UserError: Where work was done by a plan for another budget.
    """
    if not path.exists():
        return None
    told = json.loads(path.read_text())
    if told.get("budget") == budget:
        return told
    if any(not key.startswith("measure-") for key in runner.begun()) or any(path.parent.glob("runs/*-0")):
        before, now = (clock(seconds) if seconds else "no limit" for seconds in (told.get("budget"), budget))
        raise UserError(
            f"{path.parent} is a verdict planned for a budget of {before}, not {now}, and some of it is done; continue "
            "with the budget it had, or give --run.dir another folder"
        )
    return None


def describe(plan: Plan, opened: Opened, jobs: int) -> str:
    """The plan as text."""
    study = plan.study
    width = max(len(line.what) for line in plan.lines)
    rows = [f"  {line.what:<{width}}  {line.units:>4} x {line.seconds:7.1f} s" for line in plan.lines]
    limit = "" if opened.budget is None else f" of {clock(opened.budget)}"
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    about = [
        f"labels    {', '.join(f'{n:,}' for n in study.labels)}; judged on {len(opened.data.test):,} test images: "
        f"{opened.data.split}",
        *(f"note      {note}" for note in opened.notes),
        *(f"left out  {titles()[start]}: {why}" for start, why in opened.left_out.items()),
        f"plan      {clock(plan.seconds)}{limit}{at_once}, from measured steps of each kind",
        *rows,
        *(f"cut       {note}" for note in plan.notes),
    ]
    return "\n".join(about)


def _make(opened: Opened, plan: Plan, runner: Runner) -> Made:
    study, notes = plan.study, list(plan.notes)
    left_out = dict(opened.left_out)
    pretraining, study = _pretrain(study, runner, left_out)
    runner.say("pre-trained")
    chosen, studies, swept = _tune(study, runner)
    runner.say("tuned")
    flops = {start: max(cost["flops"] or 0.0 for cost in costs) for start, costs in pretraining.items()}
    tuned = Tuned(chosen, swept, flops, _scratch_flops(study))
    draws, more = make_draws(study, tuned, runner, opened.budget)
    return Made(replace(plan, study=study), pretraining, studies, left_out, [*notes, *more], draws)


def _pretrain(study: Study, runner: Runner, left_out: dict[str, str]) -> tuple[dict[str, list[dict[str, Any]]], Study]:
    """Every pre-training run; a method of which one failed is left out."""
    tasks = {
        (start, k): Task(f"pretrain-{start}-{k}", work.pretrain, (study, start, k), 0.0)
        for start in reversed(METHODS) if start in study.starts and start not in study.given
        for k in range(len(study.runs(start)))
    }  # fmt: skip
    first = {start: _tuning_tasks(study, start) for start in study.starts if start not in METHODS}
    returned = runner.run([*tasks.values(), *(task for group in first.values() for task in group.values())])
    costs: dict[str, list[dict[str, Any]]] = {}
    for start in METHODS:
        if start in study.given:
            costs[start] = [work.cost_of(run) for run in study.runs(start)]
        elif start in study.starts:
            costs[start] = [returned[task.key] for (s, _), task in tasks.items() if s == start]
        failed = [cost["failed"] for cost in costs.get(start, []) if "failed" in cost]
        if failed:
            left_out[start] = failed[0]
            sys.stderr.write(f"warning: {titles()[start]} is left out: {failed[0]}\n")
            costs.pop(start)
            study = replace(study, starts=tuple(s for s in study.starts if s != start))
    return costs, study


def _tuning_tasks(study: Study, start: str) -> dict[tuple[Any, ...], Task]:
    """Trials of training, and the choice of the linear probe's options."""
    found: dict[tuple[Any, ...], Task] = {}
    if "train" in starts()[start].uses:
        for n in study.tuned:
            for j, candidate in enumerate(_candidates(study, start, n)):
                args = (study, start, n, j, candidate)
                found["trial", n, j] = Task(f"trial-{start}-{n}-{j}", work.trial, args, float(n))
    if "linear" in starts()[start].uses:
        found["sweep",] = Task(f"sweep-{start}", probing.sweep, (study, start), float("inf"))
    return found


def _candidates(study: Study, start: str, labels: int) -> list[Candidate]:
    return candidates(study.usual(start, labels), study.recipe.verdict.trials, seed=labels)


def _tune(
    study: Study, runner: Runner
) -> tuple[dict[tuple[str, int], Candidate], list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """What was chosen for every method: options of training by number of labels, those of the linear probe."""
    tasks = {start: _tuning_tasks(study, start) for start in study.starts}
    flat = [task for group in tasks.values() for task in group.values()]
    returned = runner.run(sorted(flat, key=lambda task: -task.seconds))
    won: dict[tuple[str, int], Candidate] = {}
    swept: dict[str, dict[str, Any]] = {}
    studies: list[dict[str, Any]] = []
    for start, group in tasks.items():
        if "train" in starts()[start].uses:
            for n in study.tuned:
                tried = _candidates(study, start, n)
                scores = [returned[group["trial", n, j].key]["score"] for j in range(len(tried))]
                winner = best(scores)
                won[start, n] = tried[winner]
                studies.append({
                    "start": start, "use": "train", "labels": n, "chosen": winner,
                    "selection": "best of the trials on a held-out fifth of the first draw's labels",
                    "trials": [{"lr": c.lr, "weight_decay": c.weight_decay, "layer_decay": c.layer_decay,
                                "steps": max(1, round(study.steps(n) * c.length)), "score": score}
                               for c, score in zip(tried, scores, strict=True)],
                })  # fmt: skip
        if "linear" in starts()[start].uses:
            swept[start] = returned[group["sweep",].key]
            studies += [
                {"start": start, "use": "linear", "labels": int(n), "chosen": 0, "selection": own["selection"],
                 "trials": [{k: own[k] for k in ("pool", "rate", "decay", "score")}]}
                for n, own in swept[start].items()
            ]  # fmt: skip
    for start in study.starts:
        for n in study.labels if "train" in starts()[start].uses else ():
            at = nearest(n, study.tuned)
            won.setdefault((start, n), study.usual(start, n) if at is None else won[start, at])
    return won, studies, swept


def _scratch_flops(study: Study) -> float:
    """FLOPs per image of training the baseline, as its first run counted them."""
    path = study.folder / "plan.json"
    return float(json.loads(path.read_text())["paces"]["scratch"]["flops_per_image"])
