"""The course of a verdict: count, look for leaks, measure, plan, pre-train, tune, train draw by draw, write it down."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from accelerate import Accelerator

from ssl_vit.configs import networks
from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.machine import usable_cores
from ssl_vit.core.reading import read_object
from ssl_vit.data.sources.told import label_lines, print_lines
from ssl_vit.engines.elsewhere import elsewhere
from ssl_vit.engines.unit import Engine
from ssl_vit.methods.starts import PUBLIC, start_called
from ssl_vit.runs.directory import open_run
from ssl_vit.statistics.advice import Way
from ssl_vit.training import launch
from ssl_vit.verdict import probing, work
from ssl_vit.verdict.counting import may_go_on, refuse_by_counting
from ssl_vit.verdict.draws import Tuned, make_draws, probe_tasks
from ssl_vit.verdict.estimate import DONE, Pace, Terms
from ssl_vit.verdict.fitting import guesses, lighter, pace_of_public
from ssl_vit.verdict.leaks import keep_apart, look_for_leaks
from ssl_vit.verdict.looking import worth_more
from ssl_vit.verdict.opening import Opened, decided, open_images, open_study
from ssl_vit.verdict.options import Comparison, VerdictConfig
from ssl_vit.verdict.pictures import draw_pictures
from ssl_vit.verdict.plan import Plan, could_be_left_out, least, make_plan, plan_as_json, read_plan
from ssl_vit.verdict.record import Made, judged_images, write_about
from ssl_vit.verdict.runner import Runner, Task, clock
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate, best, candidates, nearest

_PLAN = "plan.json"
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
    here = cfg.verdict.executor == "local" and accelerator.device.type == "cpu" and accelerator.num_processes == 1
    if here and not may_go_on(cfg):
        refuse_by_counting(cfg, pool, data, _at_once(cfg.verdict), time.monotonic() - began)
    pool, data, omissions = keep_apart(cfg, pool, data, accelerator.device)
    if cfg.data.on_leak != "drop":  # what evaluation does on its own must be the same
        cfg = replace(cfg, eval=replace(cfg.eval, data=replace(cfg.eval.data, on_leak=cfg.data.on_leak)))
    run = open_run(
        "verdict", cfg, data=data.test.name, fingerprint=f"{pool.fingerprint}-{data.whole}-{data.test.fingerprint}",
        writes=accelerator.is_main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    look_for_leaks(cfg.data, run, pool, data, accelerator.device, omissions)
    jobs, engine = _engine(cfg.verdict, accelerator, run.path)
    runner = Runner(run.path, jobs, accelerator.is_main_process, began, engine)
    try:
        counted = jobs if here else None
        opened = decided(cfg, run.path, pool, data, counted)
        planned = _planned(opened, runner)
        opened = open_study(opened, counted)
        if accelerator.is_main_process:
            model = opened.study.model
            print_lines([
                *label_lines(data, opened.study.metric), ("network", networks.words_of(model)),
                ("input", f"{model.img_size} px"),
            ])  # fmt: skip
        plan = _plan(opened, planned, runner, jobs)
        if accelerator.is_main_process:
            print(describe(plan, opened, jobs), flush=True)
        if cfg.verdict.plan_only:
            return None
        made = _make(opened, plan, runner, max(1, jobs))
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
    return _at_once(cfg), None


def _at_once(cfg: VerdictConfig) -> int:
    return usable_cores() if cfg.jobs is None else cfg.jobs


def _plan(opened: Opened, planned: dict[str, Any] | None, runner: Runner, jobs: int) -> Plan:
    """The plan that is there, or a new one."""
    study, path = opened.study, opened.study.folder / _PLAN
    if planned is not None:
        return read_plan(study, planned)
    runner.start_over()
    known = {s: mean(work.cost_of(run)["flops"] or 0.0 for run in study.runs(s)) for s in study.given}
    terms = Terms({}, len(opened.pool), opened.budget, max(1, jobs), known, 0.0)
    first = [s for s in study.starts if "train" in study.uses(s) and s not in study.given and s != PUBLIC]
    later = [s for s in could_be_left_out(study, opened.asked) if s in first and opened.costs[s].cost is not None]
    paces = _measured(study, [s for s in first if s not in later], runner, terms.jobs)
    if PUBLIC in study.starts:
        paces[PUBLIC] = pace_of_public(study)
    if later and opened.budget is not None:  # what would not be kept even if it were rather fast is not tried
        guessed = replace(terms, paces={**guesses(opened.costs, paces, later), **paces}, spent=runner.agreed())
        try:
            kept = make_plan(study, guessed, opened.asked).study.starts
        except UserError:  # what the least has is measured, and then it fits or is refused
            kept = least(study, opened.asked, guessed).starts
        study = replace(study, starts=tuple(s for s in study.starts if s in kept or s not in later))
    paces |= _measured(study, [s for s in later if s in study.starts], runner, terms.jobs)
    terms = replace(terms, paces=paces, spent=runner.agreed())

    def others() -> dict[str, float]:
        return lighter(study.recipe, len(opened.pool), opened.side, opened.pool.form)

    return _written(make_plan(study, terms, opened.asked, others, opened.study), terms, path, runner)


def _measured(study: Study, tried: Sequence[str], runner: Runner, jobs: int) -> dict[str, Pace]:
    """The paces of some starts, told as they come."""
    paces = dict[str, Pace]()
    for group in (tried[i : i + jobs] for i in range(0, len(tried), jobs)):
        found = runner.run([Task(f"measure-{s}", work.measure, (study, s), 10.0) for s in group])
        paces |= {s: Pace(**found[f"measure-{s}"]) for s in group}
        told = [f"{start_called(s).title} {paces[s].images_per_second:,.0f}" for s in group]
        runner.say(f"measured, images per second: {', '.join(told)}")
    return paces


def _written(plan: Plan, terms: Terms, path: Path, runner: Runner) -> Plan:
    if runner.main:
        write_atomically(path, json.dumps(plan_as_json(plan, terms), indent=1) + "\n")
    dist.meet()  # nobody reads the plan before it is there
    return plan


def _again(opened: Opened, plan: Plan, runner: Runner, jobs: int, flops: Mapping[str, float]) -> Plan:
    """The plan once pre-training and probes are done: training gets the time that is left, at the pace seen so far."""
    path, study = plan.study.folder / _PLAN, plan.study
    told = read_object(path, "give --run.dir another folder")
    if told["begun"] or opened.budget is None:
        return plan
    paces = {start: Pace(**pace) for start, pace in told["paces"].items()}
    own = [s for s in flops if s in paces and s not in study.given]
    took = sum(work.cost_of(run)["seconds"] for s in own for run in study.runs(s))
    images = {s: study.epochs[s] * study.length(s) * len(opened.pool) * len(study.runs(s)) for s in own}
    slower = took / sum(images[s] / paces[s].images_per_second for s in own) if own else 1.0
    paces = {s: pace._replace(images_per_second=pace.images_per_second / slower) for s, pace in paces.items()}
    terms = Terms(paces, len(opened.pool), opened.budget, jobs, flops, runner.agreed(), begun=True)
    asked = replace(opened.study.recipe.verdict, probe_draws=study.recipe.verdict.probe_draws)
    tuned = tuple(n for n in opened.study.tuned if n in study.labels)
    study = replace(study, recipe=replace(study.recipe, verdict=asked), tuned=tuned)
    again = make_plan(study, terms, whole=opened.study)
    done = [line for line in plan.lines if line.what.endswith(DONE)]
    return _written(replace(again, lines=(*done, *again.lines)), terms, path, runner)


def _planned(opened: Opened, runner: Runner) -> dict[str, Any] | None:
    """The plan that is there; None where there is none, or nothing was done by it and the budget is another now.

    Raises:
        UserError: Where work was done by a plan for another budget, or for machines that get another network.
    """
    study, path, budget = opened.study, opened.study.folder / _PLAN, opened.budget
    if not path.exists():
        return None
    told = read_object(path, "give --run.dir another folder")
    if told.get("budget") == budget:
        model = study.recipe.model
        here = told.get("preset", study.preset), told["model"]["name"], told["model"]["img_size"]
        if here == (study.preset, model.name, model.img_size):
            return told
        if any(not key.startswith("measure-") for key in runner.begun()):
            raise UserError(
                f"{path.parent} is a verdict planned for the preset {here[0]} and the network {here[1] or 'of it'}, "
                f"which these machines would not get ({study.preset}); continue it with the --verdict.executor and "
                "the kind of machine that it began with, or give --run.dir another folder"
            )
        return None
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
        *(f"left out  {start_called(start).title}: {why}" for start, why in opened.left_out.items()),
        f"plan      {clock(plan.seconds)}{limit}{at_once}, from measured steps of each kind",
        *["note      --verdict.budget 2h fits a plan into two hours, and says what it leaves out"] * long,
        *rows,
        *(f"cut       {note}" for note in plan.notes),
    ])  # fmt: skip


def _make(opened: Opened, plan: Plan, runner: Runner, jobs: int) -> Made:
    left_out = dict(opened.left_out)
    pretraining, study = _pretrain(plan.study, runner, left_out)
    runner.say("pre-trained")
    studies = _probe(study, runner)
    runner.say("probed")
    flops = {start: max(cost["flops"] or 0.0 for cost in costs) for start, costs in pretraining.items()}
    plan = _again(opened, replace(plan, study=study), runner, jobs, flops)
    study = plan.study
    chosen, trials = _tune(study, runner)
    studies += trials
    if trials:
        runner.say("tuned")
    paces = read_object(study.folder / "plan.json", "give --run.dir another folder")["paces"]
    tuned = Tuned(chosen, flops, {start: float(pace["flops_per_image"]) for start, pace in paces.items()})
    most = opened.study.recipe.verdict.train_draws

    def worth(made: int) -> dict[int, frozenset[Way]]:
        return worth_more(study, made, most, flops, judged_images(study, opened.data.test))

    draws, more = make_draws(study, tuned, runner, opened.budget, most, worth)
    return Made(replace(plan, study=study), pretraining, studies, left_out, [*plan.notes, *more], draws, most)


def _pretrain(study: Study, runner: Runner, left_out: dict[str, str]) -> tuple[dict[str, list[dict[str, Any]]], Study]:
    """What every pre-training run took, by method; one of which a run failed is left out."""
    methods = [start for start in study.starts if start_called(start).made]
    keys = {s: [f"pretrain-{s}-{k}" for k in range(len(study.runs(s)))] for s in methods if s not in study.given}
    tasks = [Task(key, work.pretrain, (study, s, k), 0.0) for s in keys for k, key in enumerate(keys[s])][::-1]
    # What needs no pre-training fills processes that would wait for the last run.
    tasks += [task for start in study.starts if start not in methods for task in _sweeps(study, start)]
    returned = runner.run(tasks)
    costs = {
        start: [returned[key] for key in keys[start]] if start in keys else [*map(work.cost_of, study.runs(start))]
        for start in methods
    }  # fmt: skip
    for start, failed in {s: [c["failed"] for c in own if "failed" in c] for s, own in costs.items()}.items():
        if failed:
            left_out[start] = failed[0]
            sys.stderr.write(f"warning: {start_called(start).title} is left out: {failed[0]}\n")
            del costs[start]
    return costs, replace(study, starts=tuple(s for s in study.starts if s not in left_out))


def _sweeps(study: Study, start: str) -> list[Task]:
    """The choice of the linear probe's options."""
    return [Task(f"sweep-{start}", probing.sweep, (study, start), 1.0)] if "linear" in study.uses(start) else []


def _trials(study: Study, start: str) -> list[Task]:
    """Trials of options of training."""
    return [
        Task(f"trial-{start}-{n}-{j}", work.trial, (study, start, n, j, candidate), float(n))
        for n in (study.tuned if "train" in study.uses(start) else ())
        for j, candidate in enumerate(_candidates(study, start, n))
    ]  # fmt: skip


def _probe(study: Study, runner: Runner) -> list[dict[str, Any]]:
    """Options of linear probes, chosen once, and k-NN and probes of all draws."""
    sweeps = {start: task for start in study.starts for task in _sweeps(study, start)}
    done = [task for task in sweeps.values() if runner.is_done(task)]
    known = {start: runner.run([task])[task.key] for start, task in sweeps.items() if task in done}
    # What is chosen already is probed beside the choices that are still open.
    chosen = runner.run([*(task for task in sweeps.values() if task not in done), *probe_tasks(study, known)])
    swept = {s: known[s] if s in known else chosen[task.key] for s, task in sweeps.items()}
    runner.run(sorted(probe_tasks(study, swept), key=lambda task: -task.seconds))
    return [
        {"start": start, "use": "linear", "labels": int(n), "chosen": 0, "selection": own["selection"],
         "trials": [{k: own[k] for k in ("pool", "rate", "decay", "score")}]}
        for start, of in swept.items() for n, own in of.items()
    ]  # fmt: skip


def _candidates(study: Study, start: str, labels: int) -> list[Candidate]:
    return candidates(study.usual(start, labels), study.recipe.verdict.trials, seed=labels)


def _tune(study: Study, runner: Runner) -> tuple[dict[tuple[str, int], Candidate], list[dict[str, Any]]]:
    """What was chosen for every method, by number of labels; the usual options where nothing is tuned."""
    tasks = [task for start in study.starts for task in _trials(study, start)]
    returned = runner.run(sorted(tasks, key=lambda task: -task.seconds))
    won: dict[tuple[str, int], Candidate] = {}
    studies: list[dict[str, Any]] = []
    for start in study.starts:
        trained = "train" in study.uses(start)
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
    return won, studies
