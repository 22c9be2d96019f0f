"""How many labels does pre-training save on digits? Accuracy over the number of labels, pixels always beside it.

    python benchmarks/digits_labels.py            # about half an hour on two cores; continues where it was stopped

k-NN (k = 20, fixed), logistic regression (C by cross-validation inside the labels) over 10 draws; training all weights
(learning rate by a held-out fifth of the labels, where every class has five) over 5 draws. Each draw of labels is
shared by all methods; draw d uses pre-training seed d % 3. Nothing is chosen on the 359 test images, which no
pre-training run has seen either.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from contest import knn_votes, open_network, pretrain, run_cells, train_on
from reports import RESULTS, made_by

BUDGETS: tuple[int | None, ...] = (10, 20, 50, 100, None)
PROBE_DRAWS, TRAIN_DRAWS, SEEDS = 10, 5, 3
RATES = {"scratch": (5e-4, 1e-3, 3e-3), "finetune": (2e-4, 5e-4, 1e-3)}
DEFAULT_RATE = {"scratch": 1e-3, "finetune": 5e-4}
LAYER_DECAY = {"scratch": 1.0, "finetune": 0.75}
STEPS, SEARCH = 1000, 0.3
"""Optimiser steps (at least 50 passes over the labels), and the share of them in the search for a learning rate."""


def probes(draw: int, folder: str) -> list[dict[str, Any]]:
    """k-NN and logistic regression of one draw, at every number of labels."""
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.features import backbone_extractor, extract_features, pixel_extractor
    from ssl_vit.evaluation.few_label import labelled_draw
    from ssl_vit.evaluation.linear import linear_probe
    from ssl_vit.evaluation.metrics import classification_metrics

    accelerator, exported, data = open_network(f"{folder}/mae-{draw % SEEDS}")
    device = accelerator.device
    shape = {"size": exported.size, "pool": exported.pool, "device": device}
    methods = {
        "MAE": backbone_extractor(exported.backbone, exported.scale, **shape),
        "random weights": backbone_extractor(exported.with_random_weights(draw), exported.scale, **shape),
        "raw pixels": pixel_extractor(exported.scale, size=exported.size),
    }
    rows = []
    for method, extract in methods.items():
        bank, asked = (extract_features(extract, s, batch_size=512, device=device) for s in (data.train, data.test))
        for budget in BUDGETS:
            if budget is None and draw > 0 and method == "raw pixels":
                continue  # all labels, nothing random: one value
            chosen = bank.subset(_positions(labelled_draw(data.train, budget, draw), data.train))
            fit = linear_probe(chosen.x, chosen.labels, asked.x, classes=10, cfg=LinearConfig(), seed=draw)
            for protocol, scores in (("k-NN", knn_votes(chosen, asked, 10)), ("logistic regression", fit.scores)):
                top1 = classification_metrics(scores, asked.labels, data.test.classes)["top1"]
                rows.append({"method": method, "protocol": protocol, "labels": budget or len(bank.x), "draw": draw,
                             "top1": top1})  # fmt: skip
    return rows


def _positions(part: Any, whole: Any) -> Any:
    import numpy as np

    return np.flatnonzero(np.isin(whole.ids, part.ids))


def train_all(task: str, budget: int | None, draw: int, folder: str) -> list[dict[str, Any]]:
    """All weights trained on one draw of labels, from random or from pre-trained ones."""
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw

    data = open_network(f"{folder}/mae-{draw % SEEDS}")[2]
    train_set = labelled_draw(data.train, budget, draw)

    def top1(rate: float, train_part: Any, judged: Any, share: float) -> float:
        steps = int(share * max(STEPS, 50 * len(train_set) // 64))
        opened = open_network(f"{folder}/mae-{draw % SEEDS}")
        return train_on(opened, task, rate, draw, train_part, judged, steps, LAYER_DECAY[task])["top1"]

    rate, selection = DEFAULT_RATE[task], "fixed: too few labels to choose by"
    split = held_out_inside(train_set.truth, draw, train_set.kind, train_set.groups)
    if split is not None:
        inside, held = (train_set.subset(part) for part in split)
        rate = max(RATES[task], key=lambda r: top1(r, inside, held, SEARCH))  # at ties the first
        selection = f"best of {len(RATES[task])} on a fifth of the given labels"
    method, protocol = ("from scratch", "supervised") if task == "scratch" else ("MAE", "fine-tuning")
    value = top1(rate, train_set, data.test, 1.0)
    return [{"method": method, "protocol": protocol, "labels": len(train_set), "draw": draw, "top1": value,
             "learning_rate": rate, "selection": selection}]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="runs/digits_labels", help="where runs and finished cells are kept")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only write the tables from finished cells")
    options = parser.parse_args()
    work = Path(options.work).resolve()
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    if not options.report:
        os.environ["OMP_NUM_THREADS"] = "1"
        runs = {f"pretrain-{seed}": (pretrain, "mae", f"{work}/mae-{seed}", ("--seed", str(seed)))
                for seed in range(SEEDS)}  # fmt: skip
        run_cells(runs, cells, options.processes)
        tasks: dict[str, tuple[Any, ...]] = {f"probes-{d}": (probes, d, str(work)) for d in range(PROBE_DRAWS)}
        for draw in range(TRAIN_DRAWS):
            for budget in BUDGETS:
                for task in RATES:
                    tasks[f"{task}-{budget}-{draw}"] = (train_all, task, budget, draw, str(work))
        run_cells(tasks, cells, options.processes)
    report(cells, work)


def report(cells: Path, work: Path) -> None:
    """benchmarks/results/digits_labels.json and .md."""
    import numpy as np
    from ssl_vit.runs.provenance import commit, hardware, versions

    rows = [row for path in sorted(cells.glob("*.json")) for row in json.loads(path.read_text()) or []]
    budgets = sorted({row["labels"] for row in rows})
    kinds = [("MAE", "k-NN"), ("random weights", "k-NN"), ("raw pixels", "k-NN"), ("MAE", "logistic regression"),
             ("random weights", "logistic regression"), ("raw pixels", "logistic regression"), ("MAE", "fine-tuning"),
             ("from scratch", "supervised")]  # fmt: skip
    about: dict[str, Any] = {"command": "python benchmarks/digits_labels.py", "commit": commit()}
    about |= {"versions": versions(), "hardware": hardware()}
    about["pre_training"] = json.loads((work / "mae-0" / "environment.json").read_text())["commit"]
    lines = ["# Digits: accuracy over the number of labels", "",
             "Top-1 % on 359 held-out digits: mean ± standard deviation over draws of labels (10 for k-NN and logistic",
             "regression, 5 where all weights are trained). ViT 64 x 4 blocks, 2-px patches; MAE pre-trained on the",
             "1,438 training images, three seeds in turn.", "",
             "| features | protocol | " + " | ".join(f"{b:,} labels" for b in budgets) + " |",
             "| --- | --- |" + " ---: |" * len(budgets)]  # fmt: skip
    for method, protocol in kinds:
        line = []
        for budget in budgets:
            values = [
                r["top1"] for r in rows if (r["method"], r["protocol"], r["labels"]) == (method, protocol, budget)
            ]
            spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            line.append(f"{np.mean(values):.1f}{spread}" if values else "-")
        lines.append(f"| {method} | {protocol} | " + " | ".join(line) + " |")
    lines += ["", made_by(about, ("torch", "timm", "scikit-learn")), ""]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "digits_labels.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    (RESULTS / "digits_labels.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
