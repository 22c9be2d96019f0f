"""Does an hour of pre-training on a CPU pay? k-NN, linear-cached and fine-tuning with few labels, on three image sets.

    python benchmarks/small_data.py cifar10 --data FOLDER     # FOLDER holds train.parquet and test.parquet
    python benchmarks/small_data.py cells16 --data FOLDER
    python benchmarks/small_data.py magtile --data FOLDER

MAE pre-training on the training images with one seed; then features of MAE, of random weights and raw pixels by k-NN
(k = 20, fixed) and linear-cached (its options by cross-validation inside the labels), and all weights trained from MAE
and from scratch. Every method sees the same draws of labels. Learning rates of fine-tuning and of training from scratch
are chosen once per number of labels, among three candidates, on a held-out fifth of the first draw's labels; where the
best from scratch is the smallest or largest of them, up to two more beyond it are tried, so that the baseline is not
the worse tuned one. Nothing is chosen on test images. Finished cells are kept in --work, so it continues where it
stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SEARCH = 0.5
"""Share of the steps that a trial of a learning rate gets."""


@dataclass(frozen=True)
class Plan:
    """What is done with one image set."""

    about: str
    pretrain: tuple[str, ...]
    """Options of recipes/mae.py besides path, seed and folder."""
    steps: dict[int, int]
    """Number of labels (0: all) to optimiser steps of training all weights, batch 64."""
    draws: int
    metric: str
    rates: dict[str, tuple[float, float, float]]
    """Candidate learning rates."""


_WIDE = ("--model.width", "128", "--model.depth", "6", "--model.heads", "4")
_NARROW = ("--model.width", "96", "--model.depth", "4", "--model.heads", "4")
_DECODER = ("--mae.decoder_width", "64", "--mae.decoder_depth", "2", "--mae.decoder_heads", "4")
_RATES = {"scratch": (5e-4, 1e-3, 2e-3), "finetune": (2.5e-4, 5e-4, 1e-3)}

PLANS = {
    "cifar10": Plan(
        "CIFAR-10, whose JPEG was re-encoded at about quality 75 (so numbers lie slightly below those on the lossless "
        "images); 50,000 training and 10,000 test images of 32 px",
        (*_WIDE, *_DECODER, "--fit.batch_size", "128", "--optim.base_lr", "2e-3", "--fit.epochs", "36"),
        {500: 400, 2500: 900}, 2, "top1", _RATES,
    ),
    "cells16": Plan(
        "imaging flow cytometry, 2,563 training and 855 test cells in three 16-bit channels (brightfield, DNA, side "
        "scatter) of 40 px, five unbalanced phases",
        (*_NARROW, *_DECODER, "--data.image_column", "image,dna,ssc", "--fit.batch_size", "64",
         "--optim.base_lr", "4e-3", "--fit.epochs", "100"),
        {128: 400, 641: 600}, 3, "balanced", _RATES,
    ),
    "magtile": Plan(
        "surface defects of magnetic tiles, 978 training and 366 test images of many sizes, grey, six unbalanced "
        "classes; its split keeps all pictures of one tile (tile_group) on one side",
        (*_NARROW, *_DECODER, "--model.img_size", "64", "--data.group", "tile_group", "--fit.batch_size", "64",
         "--optim.base_lr", "4e-3", "--fit.epochs", "300"),
        {98: 400, 0: 800}, 3, "balanced", _RATES,
    ),
}  # fmt: skip


def _start(work: str) -> Any:
    """Opens the accelerator, the pre-trained backbone's images and the backbone."""
    import torch
    from ssl_vit import train
    from ssl_vit.checkpoint import load_backbone
    from ssl_vit.configs import DataConfig, LabelledDataConfig
    from ssl_vit.data.sources import open_labelled
    from ssl_vit.evaluation.session import on_canvas

    torch.set_num_threads(1)
    accelerator = train.start("fp32", 0)
    exported = load_backbone(f"{work}/mae")
    own = DataConfig(**exported.about["data"])
    return (
        accelerator,
        exported,
        on_canvas(open_labelled(own, LabelledDataConfig()), own.canvas, exported.size, own.window),
    )


def pretrain(name: str, path: str, work: str) -> None:
    """recipes/mae.py with the plan's options."""
    import runpy
    import sys

    root = Path(__file__).resolve().parent.parent
    words = ["--data.path", path, *PLANS[name].pretrain, "--run.dir", f"{work}/mae"]
    sys.argv = [str(root / "recipes/mae.py"), *words]
    runpy.run_path(sys.argv[0], run_name="__main__")


def probes(name: str, work: str) -> list[dict[str, Any]]:
    """k-NN and linear-cached of every draw, at every number of labels."""
    import numpy as np
    import torch
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.features import backbone_extractor, extract_features, pixel_extractor
    from ssl_vit.evaluation.few_label import labelled_draw
    from ssl_vit.evaluation.knn import knn_scores
    from ssl_vit.evaluation.linear_cached import linear_cached
    from ssl_vit.evaluation.linear_protocols import candidate_pools
    from ssl_vit.evaluation.metrics import judge

    plan = PLANS[name]
    accelerator, exported, data = _start(work)
    device, classes = accelerator.device, data.test.classes
    pool, pools = candidate_pools(exported.backbone)
    shape = {"size": exported.size, "pool": pool, "device": device}
    contestants = {
        "MAE": (backbone_extractor(exported.backbone, exported.scale, **shape), pools),
        "random weights": (backbone_extractor(exported.with_random_weights(0), exported.scale, **shape), pools),
        "raw pixels": (pixel_extractor(exported.scale, size=exported.size), {"pixels": slice(None)}),
    }
    rows = []
    for method, (extract, columns) in contestants.items():
        bank, asked = (extract_features(extract, s, batch_size=512, device=device) for s in (data.train, data.test))
        for labels in sorted({*plan.steps, 0}):
            for draw in range(plan.draws if labels else 1):
                part = labelled_draw(data.train, labels or None, draw)
                chosen = bank.subset(np.flatnonzero(np.isin(data.train.ids, part.ids)))
                found = {}
                for own in ("cls", "mean") if len(columns) > 1 else columns:
                    x, queries = chosen.x[:, columns[own]], asked.x[:, columns[own]]
                    tensors = [torch.from_numpy(np.ascontiguousarray(v)) for v in (x, chosen.labels, queries)]
                    found[f"k-NN, {own}"] = knn_scores(*tensors, ks=(20,), classes=len(classes))[20].numpy()
                found["linear-cached"] = linear_cached(
                    chosen.x, chosen.labels, asked.x, columns, kind="class", names=classes, cfg=LinearConfig(),
                    default_pool=next(iter(columns)), seed=draw, metric=plan.metric,
                ).scores  # fmt: skip
                for protocol, scores in found.items():
                    judged = judge("class", scores, asked.labels, classes)
                    rows.append({"method": method, "protocol": protocol, "labels": labels or len(bank.x), "draw": draw,
                                 **{k: judged[k] for k in ("top1", "balanced")}})  # fmt: skip
    return rows


def _train(name: str, work: str, task: str, rate: float, draw: int, train_set: Any, judged_on: Any, steps: int) -> Any:
    """All weights trained on some labels, from random or from pre-trained ones."""
    import torch
    from ssl_vit.configs import AugmentConfig, FinetuneRecipe, SupervisedRecipe, resolve
    from ssl_vit.data.sources import Labelled
    from ssl_vit.evaluation.finetune import train_on_labels
    from ssl_vit.rundir import RunDir

    accelerator, exported, data = _start(work)
    recipe = SupervisedRecipe() if task == "scratch" else FinetuneRecipe()
    backbone = exported.with_random_weights(draw) if task == "scratch" else exported.backbone
    torch.manual_seed(draw)
    with tempfile.TemporaryDirectory() as place:
        _, metrics = train_on_labels(
            backbone, Labelled(train_set, judged_on, data.split), exported.scale, size=exported.size,
            supervised=resolve.resolve_supervised(recipe.supervised, exported.pool, exported.size, len(train_set)),
            augment=resolve.resolve_augment(AugmentConfig(), exported.size, labelled=True),
            optim=replace(recipe.optim, lr=rate),
            fit_cfg=replace(recipe.fit, batch_size=64, epochs=1e-3, min_steps=steps, log_every=10**9),
            run=RunDir(Path(place), True), accelerator=accelerator, seed=draw, quiet=True,
        )  # fmt: skip
    return metrics


def trial(name: str, work: str, task: str, labels: int, rate: float) -> list[dict[str, Any]]:
    """One candidate learning rate, judged on a fifth of the first draw's labels."""
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw

    plan = PLANS[name]
    _, _, data = _start(work)
    drawn = labelled_draw(data.train, labels or None, 0)
    assert drawn.labels is not None
    split = held_out_inside(drawn.labels, 0, groups=drawn.groups)
    if split is None:
        return []
    steps = int(SEARCH * plan.steps[labels])
    metrics = _train(name, work, task, rate, 0, *(drawn.subset(part) for part in split), steps)
    return [{"trial": task, "labels": labels, "rate": rate, plan.metric: metrics[plan.metric]}]


def train_all(name: str, work: str, task: str, labels: int, draw: int) -> list[dict[str, Any]]:
    """One draw, with the learning rate that won its trials."""
    from ssl_vit.evaluation.few_label import labelled_draw

    plan = PLANS[name]
    _, _, data = _start(work)
    found = _tried(Path(work) / "cells", task, labels)
    rate = max(found, key=lambda row: row[plan.metric])["rate"] if found else plan.rates[task][1]
    how = (
        f"best of {len(found)} on a fifth of the first draw's labels" if found else "fixed: too few labels to choose by"
    )
    drawn = labelled_draw(data.train, labels or None, draw)
    metrics = _train(name, work, task, rate, draw, drawn, data.test, plan.steps[labels])
    method, protocol = ("from scratch", "supervised") if task == "scratch" else ("MAE", "fine-tuning")
    scores = {k: metrics[k] for k in ("top1", "balanced")}
    return [{"method": method, "protocol": protocol, "labels": len(drawn), "draw": draw, "learning_rate": rate,
             "selection": how, "steps": plan.steps[labels], **scores}]  # fmt: skip


def _tried(cells: Path, task: str, labels: int) -> list[dict[str, Any]]:
    """Trials that are there, smallest rate first; a held-out fifth of few labels may not exist."""
    found = [json.loads(path.read_text()) for path in cells.glob(f"trial-{task}-{labels}-*.json")]
    return sorted((rows[0] for rows in found if rows), key=lambda row: row["rate"])


def _beyond(cells: Path, labels: int, metric: str) -> float | None:
    """The next rate from scratch, where the best is at the edge of those tried."""
    found = _tried(cells, "scratch", labels)
    if not found:
        return None
    scores = [row[metric] for row in found]
    best = scores.index(max(scores))
    return {0: found[0]["rate"] / 2, len(found) - 1: found[-1]["rate"] * 2}.get(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(PLANS))
    parser.add_argument("--data", required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--work", help="where runs and finished cells are kept; default: runs/small_data")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=("pretrain", "scratch", "rest", "report"), help="one stage; default: all")
    options = parser.parse_args()
    name, plan = options.name, PLANS[options.name]
    version = hashlib.sha256(repr(plan).encode()).hexdigest()[:8]  # cells of another plan are not this one's
    work = Path(options.work or "runs/small_data").resolve() / f"{name}-{version}"
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.only in (None, "pretrain", "rest"):
        _run({"pretrain": (pretrain, name, str(Path(options.data).resolve()), str(work))}, cells, 1)
    tasks = {"scratch": ("scratch",), "rest": ("finetune", "scratch")}.get(options.only or "rest", ())
    trials = {f"trial-{t}-{n}-{r}": (trial, name, str(work), t, n, r) for t in tasks for n in plan.steps
              for r in plan.rates[t]}  # fmt: skip
    _run(trials, cells, options.processes)
    for _ in range(2 if "scratch" in tasks else 0):
        more = {n: _beyond(cells, n, plan.metric) for n in plan.steps}
        more = {f"trial-scratch-{n}-{r}": (trial, name, str(work), "scratch", n, r) for n, r in more.items() if r}
        _run(more, cells, options.processes)
    finals = {f"{t}-{n}-{d}": (train_all, name, str(work), t, n, d) for t in tasks for n in plan.steps
              for d in range(plan.draws if n else 2)}  # fmt: skip
    if "finetune" in tasks:
        finals["probes"] = (probes, name, str(work))
    _run(finals, cells, options.processes)
    if options.only in (None, "rest", "report"):
        report(name, cells, work)


def _run(tasks: dict[str, tuple[Any, ...]], cells: Path, processes: int) -> None:
    """What is not finished yet, each in a fresh process."""
    todo = {key: words for key, words in tasks.items() if not (cells / f"{key}.json").exists()}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        running = {pool.submit(*words): key for key, words in todo.items()}
        for done in as_completed(running):
            (cells / f"{running[done]}.json").write_text(json.dumps(done.result()))
            print(f"{running[done]} finished", flush=True)


def report(name: str, cells: Path, work: Path) -> None:
    """benchmarks/results/NAME.json and .md."""
    import numpy as np
    from ssl_vit.rundir import commit, hardware, versions

    plan = PLANS[name]
    found = [row for path in sorted(cells.glob("*.json")) for row in json.loads(path.read_text()) or []]
    rows, trials = [r for r in found if "method" in r], [r for r in found if "trial" in r]
    budgets = sorted({row["labels"] for row in rows})
    made = json.loads((work / "mae" / "environment.json").read_text())
    timing = [json.loads(line) for line in (work / "mae" / "timing.jsonl").read_text().splitlines()]
    speed = float(np.median([t["images_per_second"] for t in timing]))
    seen = json.loads((work / "mae" / "metrics.jsonl").read_text().splitlines()[-1])
    images = made.get("images") or round(seen["step"] * _batch(plan))
    about: dict[str, Any] = {
        "command": f"python benchmarks/small_data.py {name} --data FOLDER", "commit": commit(), "versions": versions(),
        "hardware": hardware(), "pre_training_commit": made["commit"], "pre_training_options": list(plan.pretrain),
        "images_seen": images, "images_per_second": speed,
    }  # fmt: skip
    kinds = [(m, f"k-NN, {p}") for p in ("cls", "mean") for m in ("MAE", "random weights")]
    kinds += [("raw pixels", "k-NN, pixels")]
    kinds += [(m, "linear-cached") for m in ("MAE", "random weights", "raw pixels")]
    kinds += [("MAE", "fine-tuning"), ("from scratch", "supervised")]
    metric = {"top1": "Top-1 %", "balanced": "Balanced accuracy %"}[plan.metric]
    lines = [f"# {name}: {metric} over the number of labels", "", f"{plan.about}.", "",
             f"MAE was pre-trained on {images:,} images ({seen['epoch']:.0f} epochs), {images / speed / 60:.0f} min "
             f"at {speed:,.0f} images/s (median) on one thread of a CPU that other programs shared; one seed. Options: "
             f"`{' '.join(plan.pretrain)}`.", "",
             "Mean ± standard deviation over draws of labels (number of draws in brackets where there are several);",
             "all with MAE's one backbone. cls and mean are the pooling that k-NN reads.", "",
             "| features | protocol | " + " | ".join(f"{b:,} labels" for b in budgets) + " |",
             "| --- | --- |" + " ---: |" * len(budgets)]  # fmt: skip
    for method, protocol in kinds:
        line = []
        for budget in budgets:
            values = [r[plan.metric] for r in rows
                      if (r["method"], r["protocol"], r["labels"]) == (method, protocol, budget)]  # fmt: skip
            spread = f" ± {np.std(values, ddof=1):.1f} ({len(values)})" if len(values) > 1 else ""
            line.append(f"{np.mean(values):.1f}{spread}" if values else "-")
        lines.append(f"| {method} | {protocol} | " + " | ".join(line) + " |")
    lines += ["", "Learning rates that were tried and won (half of the steps, a fifth of the first draw's labels):", ""]
    for task in ("finetune", "scratch"):
        for labels in plan.steps:
            own = [t for t in trials if (t["trial"], t["labels"]) == (task, labels)]
            tried = ", ".join(f"{t['rate']:g}: {t[plan.metric]:.1f}" for t in sorted(own, key=lambda t: t["rate"]))
            lines.append(f"- {task}, {labels or 'all'} labels, {plan.steps[labels]} steps of 64: {tried or 'none'}")
    cpu = f"{about['hardware']['cores']} cores of {about['hardware']['cpu']}"
    made_with = ", ".join(f"{p} {about['versions'][p]}" for p in ("torch", "timm", "python"))
    lines += ["", f"Made by `{about['command']}` at commit {about['commit']} (pre-training: {made['commit']}) with "
              f"{made_with}, on {cpu}.", ""]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"about": about, "rows": rows, "trials": trials}, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    print("\n".join(lines))


def _batch(plan: Plan) -> int:
    return int(plan.pretrain[plan.pretrain.index("--fit.batch_size") + 1])


if __name__ == "__main__":
    main()
