"""The course of a verdict: look for leaks, measure, plan, pre-train, tune, train draw by draw, write it all down."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
from accelerate import Accelerator

from ssl_vit.configs import networks
from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.data.sources.told import label_lines, print_lines
from ssl_vit.engines.elsewhere import elsewhere
from ssl_vit.engines.unit import Engine
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import BASELINE, starts, titles
from ssl_vit.runs.directory import open_run
from ssl_vit.training import launch
from ssl_vit.verdict import probing, work
from ssl_vit.verdict.draws import Tuned, make_draws
from ssl_vit.verdict.leaks import keep_apart, look_for_leaks
from ssl_vit.verdict.opening import Opened, open_images, open_study
from ssl_vit.verdict.options import Comparison, VerdictConfig
from ssl_vit.verdict.pictures import draw_pictures
from ssl_vit.verdict.plan import Pace, Plan, make_plan, plan_as_json, read_plan
from ssl_vit.verdict.record import Made, write_about
from ssl_vit.verdict.runner import Runner, Task, clock
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate, best, candidates, nearest

_LONG = 86400.0  # seconds of a plan without a budget above which one is proposed


def give_verdict(cfg: Comparison, began: float | None = None) -> Path | None:
    """Makes what is not there yet, and writes everything that the report stands on.

    ``began`` is when the program began (``time.monotonic()``), because importing libraries counts; None for now.

    Returns:
        The verdict's folder; None where only the plan was asked for, and on processes other than the main one.
    """
    began = time.monotonic() if began is None else began
    accelerator = launch.join("fp32", cfg.seed)
    pool, note, data = open_images(cfg)
    pool, data, omissions = keep_apart(cfg, pool, data, accelerator.device)
    if cfg.data.on_leak != "drop":  # what evaluation does on its own must be the same
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, on_leak=cfg.data.on_leak)))
    run = open_run(
        "verdict", cfg, data=data.test.name, fingerprint=f"{pool.fingerprint}-{data.whole}-{data.test.fingerprint}",
        writes=accelerator.is_main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    look_for_leaks(cfg.data, run, pool, data, accelerator.device, omissions)
    opened = open_study(cfg, run.path, pool, data)
    if accelerator.is_main_process:
        model = opened.study.model
        print_lines([
            *label_lines(data, opened.study.metric), ("network", networks.words_of(model)),
            ("input", f"{model.img_size} px"),
        ])  # fmt: skip
    jobs, engine = _engine(cfg.verdict, accelerator, run.path)
    runner = Runner(run.path, jobs, accelerator.is_main_process, began, engine)
    try:
        plan = _plan(opened, runner, jobs)
        if accelerator.is_main_process:
            print(describe(plan, opened, jobs), flush=True)
        if cfg.verdict.plan_only:
            return None
        made = _make(opened, plan, runner)
        runner.run([Task("pictures", draw_pictures, (made.plan.study,), 0.0)])
        if accelerator.is_main_process:
            write_about(opened, made, note, *runner.taken(), jobs)
    finally:
        runner.close()
    return run.path if accelerator.is_main_process else None


def _engine(cfg: VerdictConfig, accelerator: Accelerator, folder: Path) -> tuple[int, Engine | None]:
    """Tasks at the same time (0: here, by all processes together), and where they run if not on this machine."""
    if cfg.executor != "local":
        engine = elsewhere(cfg.executor, cfg.job, folder / "jobs", cfg.jobs or None)
        return engine.at_once, engine
    if accelerator.device.type != "cpu" or accelerator.num_processes > 1:
        return 0, None
    return (psutil.cpu_count(logical=False) or os.cpu_count() or 1) if cfg.jobs is None else cfg.jobs, None


def _plan(opened: Opened, runner: Runner, jobs: int) -> Plan:
    """The plan that is there, or a new one."""
    study, path = opened.study, opened.study.folder / "plan.json"
    planned = _planned(path, opened.budget, runner)
    tried = [s for s in study.starts if "train" in starts()[s].uses and s not in study.given]
    found = runner.run([Task(f"measure-{s}", work.measure, (study, s), 10.0) for s in tried])
    if planned is not None:
        return read_plan(study, planned)
    paces = {s: Pace(**found[f"measure-{s}"]) for s in tried}
    known = {s: mean(work.cost_of(run)["flops"] or 0.0 for run in study.runs(s)) for s in study.given}
    plan = make_plan(study, paces, len(opened.pool), opened.budget, max(1, jobs), known, runner.agreed())
    if runner.main:
        write_atomically(path, json.dumps(plan_as_json(plan, paces, opened.budget), indent=1) + "\n")
    dist.meet()  # nobody reads the plan before it is there
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
    long = opened.budget is None and plan.seconds > _LONG
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    return "\n".join([
        f"labels    {', '.join(f'{n:,}' for n in study.labels)}; judged on {len(opened.data.test):,} test images: "
        f"{opened.data.split}",
        *(f"note      {note}" for note in opened.notes),
        *(f"left out  {titles()[start]}: {why}" for start, why in opened.left_out.items()),
        f"plan      {clock(plan.seconds)}{limit}{at_once}, from measured steps of each kind",
        *["note      --verdict.budget 2h fits a plan into two hours, and says what it leaves out"] * long,
        *rows,
        *(f"cut       {note}" for note in plan.notes),
    ])  # fmt: skip


def _make(opened: Opened, plan: Plan, runner: Runner) -> Made:
    left_out = dict(opened.left_out)
    pretraining, study = _pretrain(plan.study, runner, left_out)
    runner.say("pre-trained")
    chosen, studies, swept = _tune(study, runner)
    runner.say("tuned")
    flops = {start: max(cost["flops"] or 0.0 for cost in costs) for start, costs in pretraining.items()}
    pace = json.loads((study.folder / "plan.json").read_text())["paces"][BASELINE]
    tuned = Tuned(chosen, swept, flops, float(pace["flops_per_image"]))
    draws, more = make_draws(study, tuned, runner, opened.budget)
    return Made(replace(plan, study=study), pretraining, studies, left_out, [*plan.notes, *more], draws)


def _pretrain(study: Study, runner: Runner, left_out: dict[str, str]) -> tuple[dict[str, list[dict[str, Any]]], Study]:
    """What every pre-training run took, by method; one of which a run failed is left out."""
    keys = {
        start: [f"pretrain-{start}-{k}" for k in range(len(study.runs(start)))]
        for start in reversed(METHODS) if start in study.starts and start not in study.given
    }  # fmt: skip
    tasks = [Task(key, work.pretrain, (study, s, k), 0.0) for s, own in keys.items() for k, key in enumerate(own)]
    tasks += [task for start in study.starts if start not in METHODS for task in _tuning_tasks(study, start)]
    returned = runner.run(tasks)
    costs = {
        start: [returned[key] for key in keys[start]] if start in keys else [*map(work.cost_of, study.runs(start))]
        for start in METHODS if start in study.starts
    }  # fmt: skip
    for start, failed in {s: [c["failed"] for c in own if "failed" in c] for s, own in costs.items()}.items():
        if failed:
            left_out[start] = failed[0]
            sys.stderr.write(f"warning: {titles()[start]} is left out: {failed[0]}\n")
            del costs[start]
    return costs, replace(study, starts=tuple(s for s in study.starts if s not in left_out))


def _tuning_tasks(study: Study, start: str) -> list[Task]:
    """Trials of training, and the choice of the linear probe's options."""
    found: list[Task] = []
    if "train" in starts()[start].uses:
        found += [
            Task(f"trial-{start}-{n}-{j}", work.trial, (study, start, n, j, candidate), float(n))
            for n in study.tuned for j, candidate in enumerate(_candidates(study, start, n))
        ]  # fmt: skip
    if "linear" in starts()[start].uses:
        found.append(Task(f"sweep-{start}", probing.sweep, (study, start), float("inf")))
    return found


def _candidates(study: Study, start: str, labels: int) -> list[Candidate]:
    return candidates(study.usual(start, labels), study.recipe.verdict.trials, seed=labels)


def _tune(
    study: Study, runner: Runner
) -> tuple[dict[tuple[str, int], Candidate], list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """What was chosen for every method: options of training by number of labels, those of the linear probe."""
    tasks = [task for start in study.starts for task in _tuning_tasks(study, start)]
    returned = runner.run(sorted(tasks, key=lambda task: -task.seconds))
    won: dict[tuple[str, int], Candidate] = {}
    swept: dict[str, dict[str, Any]] = {}
    studies: list[dict[str, Any]] = []
    for start in study.starts:
        trained = "train" in starts()[start].uses
        for n in study.tuned if trained else ():
            tried = _candidates(study, start, n)
            scores = [returned[f"trial-{start}-{n}-{j}"]["score"] for j in range(len(tried))]
            winner = best(scores)
            won[start, n] = tried[winner]
            studies.append({
                "start": start, "use": "train", "labels": n, "chosen": winner,
                "selection": "best of the trials on a held-out fifth of the first draw's labels",
                "trials": [{"lr": c.lr, "weight_decay": c.weight_decay, "layer_decay": c.layer_decay,
                            "steps": max(1, round(study.steps(n) * c.length)), "score": score}
                           for c, score in zip(tried, scores, strict=True)],
            })  # fmt: skip
        for n in study.labels if trained else ():
            at = nearest(n, study.tuned)
            won.setdefault((start, n), study.usual(start, n) if at is None else won[start, at])
        if "linear" in starts()[start].uses:
            swept[start] = returned[f"sweep-{start}"]
            studies += [
                {"start": start, "use": "linear", "labels": int(n), "chosen": 0, "selection": own["selection"],
                 "trials": [{k: own[k] for k in ("pool", "rate", "decay", "score")}]}
                for n, own in swept[start].items()
            ]  # fmt: skip
    return won, studies, swept
