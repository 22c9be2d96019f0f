"""What an hour of unlabelled pre-training on two CPU cores gives on CIFAR-10 with 500 labels.

    python benchmarks/league.py trial --data FOLDER          # FOLDER holds train.parquet and test.parquet
    python benchmarks/league.py trial --data FOLDER --only "k-means of patches"
    python benchmarks/league.py final --data FOLDER          # preset px32-cpu: three seeds of an hour on two cores

Trials are shorter, on one core, of one seed, and judged inside the training labels: a fixed fifth (10,000 images) is
asked, draws of 500 labels come from the other four. So whatever is chosen by them, no test image took part. The final
is judged on the test images. Pre-training sees the training images without labels, less those that show test images,
and what is judged is its last step, at 32 px: by linear-cached, whose options are chosen by cross-validation inside the
500 labels, ten draws, and by k-NN (k = 20) with all labels. Finished cells are kept in --work: it goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coates import kmeans_extractor
from contest import knn_votes, open_network, pretrain, run_cells, seconds_until
from reports import RESULTS, about, paragraph, same_command, write_parts

LABELS, DRAWS, SEEDS = 500, 10, 3


@dataclass(frozen=True)
class Entry:
    """One way to use the time."""

    recipe: str
    """Of recipes/; empty: features that are not trained."""
    words: tuple[str, ...]
    """Its options besides path, seed and folder."""
    epochs: float
    """Of a trial: what a core does in some ten minutes."""


def _lejepa(network: tuple[str, ...], least: float, epochs: float) -> Entry:
    """Two crops of 24 px of at least that share of the image, batches of 128, AdamW at 2e-3."""
    crops = ("--crops.global_size", "24", "--crops.global_scale", f"[{least}, 1.0]")
    return Entry("lejepa", (*network, *crops, "--fit.batch_size", "128", "--optim.base_lr", "4e-3"), epochs)


_RESNET = ("--model.name", "resnet_mini")
_WIDER = (
    "--model.name", "resnet_small_images",
    "--model.args", "{layers: [1, 1, 1, 1], channels: [32, 64, 128, 256], stem_width: 32}",
)  # fmt: skip
ENTRIES = {
    "k-means of patches": Entry("", (), 0),
    "lejepa, resnet_mini, crops from 0.4": _lejepa(_RESNET, 0.4, 2),
    "lejepa, resnet_mini": _lejepa(_RESNET, 0.2, 1.5),
    "lejepa, resnet of 256 channels": _lejepa(_WIDER, 0.2, 1.5),
    "lejepa, resnet_mini, 14 epochs": _lejepa(_RESNET, 0.2, 14),
}
"""Of trials."""
FINAL = Entry("lejepa", ("--preset", "px32-cpu"), 24)


def judge_features(extract: Any, columns: dict[str, slice], data: Any, device: Any, *, test: bool) -> dict[str, float]:
    """Accuracy with 500 labels (mean and deviation over the draws) and of k-NN with all of them."""
    import numpy as np
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.features import extract_features
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw
    from ssl_vit.evaluation.linear_cached import linear_cached

    train, asked = data.train, data.test
    if not test:
        split = held_out_inside(train.labels, 0)
        assert split is not None
        train, asked = train.subset(split[0]), train.subset(split[1])
    bank, questions = (extract_features(extract, s, batch_size=512, device=device) for s in (train, asked))
    scores = []
    for draw in range(DRAWS):
        part = labelled_draw(train, LABELS, draw)
        chosen = bank.subset(np.flatnonzero(np.isin(train.ids, part.ids)))
        found = linear_cached(
            chosen.x, chosen.labels, questions.x, columns, kind="class", names=train.classes, cfg=LinearConfig(),
            default_pool=next(iter(columns)), seed=draw, metric="top1",
        )  # fmt: skip
        scores.append(100 * float((found.scores.argmax(1) == questions.labels).mean()))
    votes = max(
        100 * float((knn_votes(bank, questions, len(train.classes), part).argmax(1) == questions.labels).mean())
        for part in columns.values()
    )
    return {"linear": float(np.mean(scores)), "deviation": float(np.std(scores, ddof=1)), "knn": votes}


def train(name: str, folder: str, data: str, epochs: float, seed: int, threads: int) -> list[dict[str, Any]]:
    """Pre-trains one entry; its minutes are those of the loop's own log."""
    entry = ENTRIES.get(name, FINAL)
    words = ("--data.path", data, *entry.words, "--fit.epochs", f"{epochs:g}", "--seed", str(seed))
    pretrain(entry.recipe, folder, words, threads)
    took, done = seconds_until(Path(folder))
    return [{"minutes": took(done["step"]) / 60}]


def judged(name: str, folder: str, data: str, epochs: float, seed: int, test: bool) -> list[dict[str, Any]]:
    """What an entry's features are worth."""
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools

    entry = ENTRIES.get(name, FINAL)
    row: dict[str, Any] = {"entry": name, "seed": seed, "epochs": epochs, "words": " ".join(entry.words)}
    if not entry.recipe:
        made, images, device, row["minutes"] = kmeans_extractor(data, seed)
        return [row | judge_features(made, {"all": slice(None)}, images, device, test=test)]
    accelerator, exported, images = open_network(folder)
    pool, columns = candidate_pools(exported.backbone)
    device = accelerator.device
    extract = backbone_extractor(exported.backbone, exported.scale, size=exported.size, pool=pool, device=device)
    row["parameters"] = sum(p.numel() for p in exported.backbone.parameters())
    return [row | judge_features(extract, columns, images, device, test=test)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("trial", "final"))
    parser.add_argument("--data", required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--work", default="runs/league", help="where runs and finished cells are kept")
    parser.add_argument("--only", action="append", choices=list(ENTRIES), help="some of them; default: all")
    parser.add_argument("--processes", type=int, default=2, help="trials at a time")
    parser.add_argument("--threads", type=int, help="of one training; default: 2 in the final, else 1")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the final; finished ones are kept")
    options = parser.parse_args()
    work, data, final = Path(options.work).resolve(), str(Path(options.data).resolve()), options.stage == "final"
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    threads = options.threads or (2 if final else 1)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    training: dict[str, tuple[Any, ...]] = {}
    judging: dict[str, tuple[Any, ...]] = {}
    entries = {"px32-cpu": FINAL} if final else {name: ENTRIES[name] for name in options.only or ENTRIES}
    for name, entry in entries.items():
        for seed in range(options.seeds if final else 1):
            key = hashlib.sha256(f"{name} {entry} {seed}".encode()).hexdigest()[:8]
            words = (name, str(work / key), data, entry.epochs, seed)
            if entry.recipe:
                training[f"train-{key}"] = (train, *words, threads)
            judging[f"{options.stage}-{key}"] = (judged, *words, final)
    run_cells(training, cells, 1 if final else options.processes)
    run_cells(judging, cells, options.processes)
    report(cells, same_command("league.py", sys.argv[1:]))


_HEADS = {"trial": "Trials, judged on a fifth of the training labels", "final": "Judged on the test images"}


def report(cells: Path, command: str) -> None:
    """benchmarks/results/league.json and .md, from all cells that are finished."""
    parts = {}
    for stage in _HEADS:
        rows: list[dict[str, Any]] = []
        for path in cells.glob(f"{stage}-*.json"):
            trained = path.with_name(path.name.replace(stage, "train", 1))
            rows += [(json.loads(trained.read_text())[0] if trained.exists() else {}) | json.loads(path.read_text())[0]]
        if rows:
            parts[stage] = {"about": about(command), "rows": sorted(rows, key=lambda row: -row["linear"])}
    write_parts(RESULTS, "league", ["# The hour on two cores", "", paragraph(__doc__, 2)], _HEADS, parts, _table)


def _table(stage: str, part: dict[str, Any]) -> list[str]:
    lines = [
        "| entry | seed | epochs | minutes | parameters | linear, 500 labels | k-NN, all labels |",
        "| --- |" + " ---: |" * 6,
    ]
    for row in part["rows"]:
        size = f"{row['parameters'] / 1e6:.2f} M" if "parameters" in row else ""
        lines.append(
            f"| {row['entry']} | {row['seed']} | {row['epochs']:g} | {row['minutes']:.1f} | {size} | "
            f"{row['linear']:.1f} ± {row['deviation']:.1f} | {row['knn']:.1f} |"
        )
    return [
        *lines,
        "",
        *(f"- {row['entry']}: `recipes/lejepa.py {row['words']}`" for row in part["rows"] if row["words"]),
    ]


if __name__ == "__main__":
    main()
