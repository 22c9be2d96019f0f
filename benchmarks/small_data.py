"""Does an hour of pre-training on a CPU pay? MAE and DINO against random weights, raw pixels and training from scratch.

    python benchmarks/small_data.py digits                    # no download; the recipes' own presets
    python benchmarks/small_data.py cifar10 --data FOLDER     # FOLDER holds train.parquet and test.parquet
    python benchmarks/small_data.py cells16 --data FOLDER
    python benchmarks/small_data.py magtile --data FOLDER

Pre-training on the training images with one seed; then features by k-NN (k = 20, fixed) and linear-cached (its options
by cross-validation inside the labels), and all weights trained from pre-trained and from random ones. Every method sees
the same draws of labels. Learning rates of fine-tuning and of training from scratch are chosen once per number of
labels, among three candidates, on a held-out fifth of the first draw's labels; where the best from scratch is the
smallest or largest of them, up to two more beyond it are tried, so that the baseline is not the worse tuned one. k-NN
over the epochs is drawn for plans that keep checkpoints. Nothing is chosen on test images. Finished cells are kept in
--work, so it continues where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from contest import NAMES, Plan, knn_curve, knn_votes, open_network, pretrain, run_cells, train_on
from small_data_report import report

SEARCH = 0.5
"""Share of the steps that a trial of a learning rate gets."""


_WIDE = ("--model.width", "128", "--model.depth", "6", "--model.heads", "4")
_NARROW = ("--model.width", "96", "--model.depth", "4", "--model.heads", "4")
_DECODER = ("--mae.decoder_width", "64", "--mae.decoder_depth", "2", "--mae.decoder_heads", "4")
_RATES = {"scratch": (5e-4, 1e-3, 2e-3), "finetune": (2.5e-4, 5e-4, 1e-3)}


def _kept(steps: int) -> tuple[str, ...]:
    """Options that keep a checkpoint every so many steps."""
    return "--fit.checkpoint_steps", str(steps), "--fit.keep_checkpoints", "1000"


PLANS = {
    "digits": Plan(
        "scikit-learn's handwritten digits, 1,438 training and 359 test images of 8 px, grey",
        {"mae": _kept(125), "dino": _kept(125)},
        {20: 400, 100: 600, 0: 800}, 3, "top1", {"scratch": (1e-3, 2e-3, 4e-3), "finetune": _RATES["finetune"]}, 0,
    ),
    "cifar10": Plan(
        "CIFAR-10, whose JPEG was re-encoded at about quality 75 (so numbers lie slightly below those on the lossless "
        "images); 50,000 training and 10,000 test images of 32 px",
        {"mae": (*_WIDE, *_DECODER, "--fit.batch_size", "128", "--optim.base_lr", "2e-3", "--fit.epochs", "36",
                 *_kept(1400))},
        {500: 400, 2500: 900}, 2, "top1", _RATES, 2500,
    ),
    "cells16": Plan(
        "imaging flow cytometry, 2,563 training and 855 test cells in three 16-bit channels (brightfield, DNA, side "
        "scatter) of 40 px, five unbalanced phases",
        {"mae": (*_NARROW, *_DECODER, "--data.image_column", "image,dna,ssc", "--fit.batch_size", "64",
                 "--optim.base_lr", "4e-3", "--fit.epochs", "100")},
        {128: 400, 641: 600}, 3, "balanced", _RATES,
    ),
    "magtile": Plan(
        "surface defects of magnetic tiles, 978 training and 366 test images of many sizes, grey, six unbalanced "
        "classes; its split keeps all pictures of one tile (tile_group) on one side",
        {"mae": (*_NARROW, *_DECODER, "--model.img_size", "64", "--data.group", "tile_group", "--fit.batch_size", "64",
                 "--optim.base_lr", "4e-3", "--fit.epochs", "300")},
        {98: 400, 0: 800}, 3, "balanced", _RATES,
    ),
}  # fmt: skip


def probes(name: str, work: str, recipe: str | None) -> list[dict[str, Any]]:
    """k-NN and linear-cached of every draw, at every number of labels; no recipe: random weights and raw pixels."""
    import numpy as np
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools, extract_features, pixel_extractor
    from ssl_vit.evaluation.few_label import labelled_draw
    from ssl_vit.evaluation.linear_cached import linear_cached
    from ssl_vit.evaluation.metrics import judge

    plan = PLANS[name]
    accelerator, exported, data = open_network(f"{work}/{recipe or 'mae'}")
    device, classes = accelerator.device, data.test.classes
    pool, pools = candidate_pools(exported.backbone)
    shape = {"size": exported.size, "pool": pool, "device": device}
    if recipe is None:
        contestants = {
            "random weights": (backbone_extractor(exported.with_random_weights(0), exported.scale, **shape), pools),
            "raw pixels": (pixel_extractor(exported.scale, size=exported.size), {"pixels": slice(None)}),
        }
    else:
        contestants = {NAMES[recipe]: (backbone_extractor(exported.backbone, exported.scale, **shape), pools)}
    rows = []
    for method, (extract, columns) in contestants.items():
        bank, asked = (extract_features(extract, s, batch_size=512, device=device) for s in (data.train, data.test))
        for labels in sorted({*plan.steps, 0}):
            for draw in range(plan.draws if labels else 1):
                part = labelled_draw(data.train, labels or None, draw)
                chosen = bank.subset(np.flatnonzero(np.isin(data.train.ids, part.ids)))
                found = {}
                for own in ("cls", "mean") if len(columns) > 1 else columns:
                    found[f"k-NN, {own}"] = knn_votes(chosen, asked, len(classes), columns[own])
                found["linear-cached"] = linear_cached(
                    chosen.x, chosen.labels, asked.x, columns, kind="class", names=classes, cfg=LinearConfig(),
                    default_pool=next(iter(columns)), seed=draw, metric=plan.metric,
                ).scores  # fmt: skip
                for protocol, scores in found.items():
                    judged = judge("class", scores, asked.labels, classes)
                    rows.append({"method": method, "protocol": protocol, "labels": labels or len(bank.x), "draw": draw,
                                 **{k: judged[k] for k in ("top1", "balanced")}})  # fmt: skip
    return rows


def _task(start: str) -> str:
    return "scratch" if start == "scratch" else "finetune"


def trial(name: str, work: str, start: str, labels: int, rate: float) -> list[dict[str, Any]]:
    """One candidate learning rate from scratch or from a recipe's backbone, judged on a fifth of the first draw."""
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw

    plan = PLANS[name]
    opened = open_network(f"{work}/{'mae' if start == 'scratch' else start}", precision="auto")
    drawn = labelled_draw(opened[2].train, labels or None, 0)
    assert drawn.labels is not None
    split = held_out_inside(drawn.labels, 0, groups=drawn.groups)
    if split is None:
        return []
    steps = int(SEARCH * plan.steps[labels])
    train_part, held_out = (drawn.subset(part) for part in split)
    metrics = train_on(opened, _task(start), rate, 0, train_part, held_out, steps)
    return [{"trial": start, "labels": labels, "rate": rate, plan.metric: metrics[plan.metric]}]


def train_all(name: str, work: str, start: str, labels: int, draw: int) -> list[dict[str, Any]]:
    """One draw, with the learning rate that won its trials."""
    from ssl_vit.evaluation.few_label import labelled_draw

    plan, task = PLANS[name], _task(start)
    opened = open_network(f"{work}/{'mae' if start == 'scratch' else start}", precision="auto")
    found = _tried(Path(work) / "cells", start, labels)
    rate = max(found, key=lambda row: row[plan.metric])["rate"] if found else plan.rates[task][1]
    how = (
        f"best of {len(found)} on a fifth of the first draw's labels" if found else "fixed: too few labels to choose by"
    )
    drawn = labelled_draw(opened[2].train, labels or None, draw)
    metrics = train_on(opened, task, rate, draw, drawn, opened[2].test, plan.steps[labels])
    method, protocol = ("from scratch", "supervised") if task == "scratch" else (NAMES[start], "fine-tuning")
    scores = {k: metrics[k] for k in ("top1", "balanced")}
    return [{"method": method, "protocol": protocol, "labels": len(drawn), "draw": draw, "learning_rate": rate,
             "selection": how, "steps": plan.steps[labels], **scores}]  # fmt: skip


def _tried(cells: Path, start: str, labels: int) -> list[dict[str, Any]]:
    """Trials that are there, smallest rate first; a held-out fifth of few labels may not exist."""
    found = [json.loads(path.read_text()) for path in cells.glob(f"trial-{start}-{labels}-*.json")]
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
    parser.add_argument("--data", help="folder with train.parquet and test.parquet; not for digits")
    parser.add_argument("--work", help="where runs and finished cells are kept; default: runs/small_data")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=("pretrain", "report"), help="one stage; default: all")
    options = parser.parse_args()
    name, plan = options.name, PLANS[options.name]
    if (options.data is None) != (name == "digits"):
        parser.error("--data FOLDER is needed, for all but digits")
    version = hashlib.sha256(repr(plan).encode()).hexdigest()[:8]  # cells of another plan are not this one's
    work = Path(options.work or "runs/small_data").resolve() / f"{name}-{version}"
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.only != "report":
        images = ("--data.path", str(Path(options.data).resolve())) if options.data else ()
        runs = {f"pretrain-{r}": (pretrain, r, f"{work}/{r}", (*images, *own)) for r, own in plan.pretrain.items()}
        run_cells(runs, cells, options.processes)
    if options.only is None:
        _evaluate(name, work, cells, options.processes)
    if options.only != "pretrain":
        report(name, plan, cells, work)


def _evaluate(name: str, work: Path, cells: Path, processes: int) -> None:
    """Trials of learning rates first, then everything that is judged on test images."""
    plan, folder = PLANS[name], str(work)
    starts = (*plan.pretrain, "scratch")
    run_cells({f"trial-{s}-{n}-{r}": (trial, name, folder, s, n, r) for s in starts for n in plan.steps
               for r in plan.rates[_task(s)]}, cells, processes)  # fmt: skip
    for _ in range(2):
        more = {n: _beyond(cells, n, plan.metric) for n in plan.steps}
        more = {f"trial-scratch-{n}-{r}": (trial, name, folder, "scratch", n, r) for n, r in more.items() if r}
        run_cells(more, cells, processes)
    finals: dict[str, tuple[Any, ...]] = {
        f"{s}-{n}-{d}": (train_all, name, folder, s, n, d) for s in starts for n in plan.steps
        for d in range(plan.draws if n else 2)
    }  # fmt: skip
    finals |= {f"probes-{recipe or 'start'}": (probes, name, folder, recipe) for recipe in (*plan.pretrain, None)}
    if plan.curve is not None:
        finals |= {f"curve-{r}": (knn_curve, r, f"{folder}/{r}", NAMES[r], plan.curve or None, 0)
                   for r in plan.pretrain}  # fmt: skip
    run_cells(finals, cells, processes)


if __name__ == "__main__":
    main()
