"""An hour of LeJEPA on photographs of 64 px on one CPU core: what is its curve?

    python benchmarks/photographs.py --data FOLDER    # FOLDER holds train and test parquet files of imagenette160

Pre-training sees the 9,469 training images of imagenette (official split) without labels. Features of the frozen
network are judged on the test images by linear-cached, whose options are chosen by cross-validation inside the labels,
with 1 and 10 % of the training labels at every checkpoint and with all of them at the end, and by k-NN (k = 20) with
all of them. What is told is the last step; nothing is chosen on test images. Raw pixels at 32 px and random weights
stand beside it. Finished cells are kept in --work, so it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from contest import knn_votes, open_network, pretrain, run_cells, seconds_until
from reports import RESULTS, about, made_by, paragraph, same_command, write

SIZE, EPOCHS, STEPS, DRAWS = 64, 24, 296, 3
"""Side in pixels; epochs of pre-training; steps between checkpoints (four epochs); draws of few labels."""
SHARES = {"1 %": 95, "10 %": 947, "100 %": None}
WORDS = (
    "--preset", "px32-cpu", "--model.name", "resnet_mini", "--model.img_size", f"{SIZE}", "--crops.global_size", "48",
    "--fit.epochs", f"{EPOCHS}", "--fit.checkpoint_steps", f"{STEPS}", "--fit.keep_checkpoints", "1000",
)  # fmt: skip
PIXELS, RANDOM = "raw pixels", "the same network, random weights"


def train(folder: str, data: str) -> list[dict[str, Any]]:
    """The run whose checkpoints are judged."""
    pretrain("lejepa", folder, ("--data.path", data, *WORDS))
    return [about("")]


def judged(bank: Any, asked: Any, columns: dict[str, slice], data: Any, *, all_labels: bool = False) -> dict[str, Any]:
    """Top-1, %, by k-NN with all labels, and of every draw by share of labels (of all of them where asked)."""
    import numpy as np
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.few_label import labelled_draw
    from ssl_vit.evaluation.linear_cached import linear_cached
    from ssl_vit.evaluation.metrics import judge

    names = data.train.classes

    def top1(scores: Any) -> float:
        return float(judge("class", scores, asked.labels, names)["top1"])

    found: dict[str, Any] = {"knn": max(top1(knn_votes(bank, asked, len(names), part)) for part in columns.values())}
    for share, labels in SHARES.items():
        found[share] = []
        for draw in range(DRAWS if labels else int(all_labels)):
            part = labelled_draw(data.train, labels, draw)
            chosen = bank.subset(np.flatnonzero(np.isin(data.train.ids, part.ids)))
            scores = linear_cached(
                chosen.x, chosen.labels, asked.x, columns, kind="class", names=names, cfg=LinearConfig(),
                default_pool=next(iter(columns)), seed=draw, metric="top1",
            ).scores  # fmt: skip
            found[share].append(top1(scores))
    return found


def curve(folder: str) -> list[dict[str, Any]]:
    """A row per checkpoint, the random weights first."""
    import torch
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools, extract_features

    accelerator, exported, data = open_network(folder)
    pool, columns = candidate_pools(exported.backbone)
    took, done = seconds_until(Path(folder))
    last = {name: value.clone() for name, value in exported.backbone.state_dict().items()}  # written over below
    weights = {0: exported.with_random_weights(0).state_dict(), done["step"]: last}
    for path in sorted((Path(folder) / "checkpoints").glob("step_*.pt")):
        state = torch.load(path, map_location="cpu", weights_only=True)
        own = {name.removeprefix("backbone."): v for name, v in state["objective"].items() if name.startswith("backb")}
        weights.setdefault(state["step"], own)
    rows = []
    for step, state in sorted(weights.items()):
        exported.backbone.load_state_dict(state)
        extract = backbone_extractor(
            exported.backbone, exported.scale, size=exported.size, pool=pool, device=accelerator.device
        )
        bank, asked = (extract_features(extract, s, batch_size=256, device=accelerator.device)
                       for s in (data.train, data.test))  # fmt: skip
        rows.append({"step": step, "epoch": step / done["step"] * done["epoch"], "minutes": took(step) / 60,
                     **judged(bank, asked, columns, data, all_labels=step == done["step"])})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def references(folder: str) -> list[dict[str, Any]]:
    """Raw pixels of the same images."""
    from ssl_vit.evaluation.features import extract_features, pixel_extractor

    accelerator, exported, data = open_network(folder)
    extract, device = pixel_extractor(exported.scale, size=SIZE), accelerator.device
    bank, asked = (extract_features(extract, s, batch_size=256, device=device) for s in (data.train, data.test))
    return [{"name": PIXELS, "minutes": 0.0, **judged(bank, asked, {"all": slice(None)}, data)}]


def draw_curve(rows: list[dict[str, Any]], others: list[dict[str, Any]], path: Path) -> None:
    """Top-1 over minutes: a line per share of labels, and what raw pixels reach with it."""
    from matplotlib.figure import Figure
    from ssl_vit.core.files import write_bytes_atomically
    from ssl_vit.methods import METHODS
    from ssl_vit.report.charts.canvas import styled
    from ssl_vit.report.look import MUTED, looks

    colour, file = looks(METHODS)["lejepa"].light, io.BytesIO()
    (pixels,) = (row for row in others if row["name"] == PIXELS)
    minutes = [row["minutes"] for row in rows]
    with styled():
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        axis = figure.subplots()
        for share in (share for share, labels in SHARES.items() if labels):
            means = [sum(row[share]) / len(row[share]) for row in rows]
            axis.plot(minutes, means, color=colour, marker="o", markersize=3)
            axis.annotate(f"{share} of labels", (minutes[-1], means[-1]), (6, 0), textcoords="offset points",
                          va="center", color=colour)  # fmt: skip
            level = sum(pixels[share]) / len(pixels[share])
            axis.plot([minutes[0], minutes[-1]], [level] * 2, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
        axis.set(xlabel="minutes of pre-training on one core", ylabel="top-1 %", xlim=(0, minutes[-1] * 1.2))
        axis.grid(axis="y")
        axis.set_title("Frozen features of LeJEPA on photographs of 64 px; dotted: raw pixels", loc="left")
        figure.savefig(file, dpi=160, facecolor="white")
    write_bytes_atomically(path, file.getvalue())


def table(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """Lines of the result: what it is worth, then the curve."""

    def cells(row: dict[str, Any]) -> str:
        shown = []
        for share in SHARES:
            if not row[share]:
                shown.append("-")
                continue
            mean = sum(row[share]) / len(row[share])
            spread = (sum((x - mean) ** 2 for x in row[share]) / max(1, len(row[share]) - 1)) ** 0.5
            shown.append(f"{mean:.1f} ± {spread:.1f}" if len(row[share]) > 1 else f"{mean:.1f}")
        return " | ".join([*shown, f"{row['knn']:.1f}"])

    heads = " | ".join([*(f"linear, {share} ({labels or 9469:,})" for share, labels in SHARES.items()), "k-NN, 100 %"])
    last, first = rows[-1], rows[0]
    lines = [f"| features | minutes | {heads} |", "| --- |" + " ---: |" * 5]
    lines += [f"| LeJEPA, {last['epoch']:.0f} epochs | {last['minutes']:.0f} | {cells(last)} |"]
    lines += [f"| {row['name']} | {row['minutes']:.0f} | {cells(row)} |" for row in others]
    lines += [
        f"| {RANDOM} | 0 | {cells(first)} |",
        "",
        f"Mean ± deviation of {DRAWS} draws of labels; one training.",
        "",
    ]
    lines += ["![Top-1 over the minutes of pre-training](photographs.png)", ""]
    lines += [f"| epochs | minutes | {heads} |", "| ---: |" + " ---: |" * 5]
    return lines + [f"| {row['epoch']:.0f} | {row['minutes']:.0f} | {cells(row)} |" for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the parquet files")
    parser.add_argument("--work", type=Path, default=Path("runs/photographs"), help="where what is finished is kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    work, data = options.work.resolve(), str(Path(options.data).resolve())
    cells, folder = work / "cells", str(work / "lejepa")
    cells.mkdir(parents=True, exist_ok=True)
    run_cells({"train": (train, folder, data)}, cells, 1)
    run_cells({"curve": (curve, folder), "references": (references, folder)}, cells, 1)
    told, rows, others = (json.loads((cells / f"{name}.json").read_text()) for name in ("train", "curve", "references"))
    made = about(same_command("photographs.py", sys.argv[1:]), "CPU, 1 thread", trained=told[0])
    options.out.mkdir(parents=True, exist_ok=True)
    draw_curve(rows, others, options.out / "photographs.png")
    head = ["# Photographs of 64 px: an hour on one core", "", paragraph(__doc__, 2), ""]
    end = ["", f"Pre-trained by `recipes/lejepa.py {' '.join(WORDS)}`", f"at commit {told[0]['commit'][:7]}.", ""]
    lines = [*head, *table(rows, others), *end, made_by(made)]
    write(options.out, "photographs", {"about": made, "curve": rows, "references": others}, lines)


if __name__ == "__main__":
    main()
