"""Training on labels, short and long: from which length on strong augmentation pays.

    python benchmarks/short_training.py cells16 --data FOLDER         # half an hour of one core
    python benchmarks/short_training.py cells16-few --data FOLDER
    python benchmarks/short_training.py cifar10 --data FOLDER
    python benchmarks/short_training.py cifar10-all --data FOLDER

Strong is RandAugment, erasing and, with 2,500 labels, mixup and CutMix, as the presets from 17 px on have it; light is
crops and mirror images alone. Crops are boxes of 35 to 100 % of the area; padded ones, which are better where training
is light, are compared in labelled_crops.md. The whole length is 100 epochs, and 1,000 steps at least, as in a verdict.
A held-out fifth of the training labels is asked; test images take no part. Mean ± deviation over seeds, which choose
weights, order and draws of augmentation. Finished trainings are kept in --work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contest import reached
from reports import RESULTS, about, paragraph, same_command, write_parts

ROOT = Path(__file__).resolve().parent.parent
_BOXES = "--augment.crop_scale", "[0.35, 1.0]"
WAYS = {
    "strong": (*_BOXES, "--augment.policy", "randaugment", "--augment.erasing", "0.25"),
    "light": (*_BOXES, "--augment.policy", "none", "--augment.erasing", "0"),
}
MIXED = {"strong": ("0.8", "1.0"), "light": ("0", "0")}
"""Mixup and CutMix, also where the preset leaves them out because the held-out fifth makes labels few."""
_EPOCHS, _LEAST = 100, 1000
_LENGTHS = (0.2, 0.35, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Field:
    """One set of images."""

    title: str
    labels: int | None
    """None: all."""
    images: int
    """That are trained on: four fifths of them."""
    metric: str
    data: tuple[str, ...]
    network: tuple[str, ...]
    seeds: int = 2
    lengths: tuple[float, ...] = _LENGTHS
    batch: int = 64
    mixed: bool = True


_CELLS = "--data.image_column", "image,dna,ssc"
_NARROW = ("--model.name", "vit_tiny_patch16_224", "--model.img_size", "40", "--model.patch_size", "8",
           "--model.width", "96", "--model.depth", "4", "--model.heads", "4")  # fmt: skip
_MICRO = ("--model.name", "vit_micro")
SETS = {
    "cells16": Field("cells16 (40 px, three 16-bit channels), 2,500 labels, less the held-out fifth", 2500, 2000,
                     "balanced", _CELLS, _NARROW),
    "cells16-few": Field("cells16, 256 labels, less the held-out fifth", 256, 205, "balanced", _CELLS, _NARROW, 3,
                         (0.5, 1.0), 32, mixed=False),
    "cifar10": Field("CIFAR-10, 2,500 labels, less the held-out fifth", 2500, 2000, "top1", (), _MICRO),
    "cifar10-all": Field("CIFAR-10, all labels, less the held-out fifth", None, 40_000, "top1", (), _MICRO, 1, (0.1,)),
}  # fmt: skip


def run(*words: str, folder: Path) -> None:
    """recipes/supervised.py in a process of its own, if its folder is not there."""
    if not (folder / "done").exists():
        subprocess.run([sys.executable, str(ROOT / "recipes/supervised.py"), *words, "--run.dir", str(folder)],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        (folder / "done").touch()


def measured(name: str, data: str, work: Path) -> list[dict[str, Any]]:
    """All rows of a set, the shortest first."""
    import numpy as np

    field, rows = SETS[name], list[dict[str, Any]]()
    for length in field.lengths:
        steps = round(length * max(_LEAST, _EPOCHS * field.images / field.batch))
        for way, options in WAYS.items():
            mixup, cutmix = MIXED[way] if field.mixed else ("0", "0")
            found = []
            for seed in range(field.seeds):
                folder = work / f"{way}-{length:g}-{seed}"
                run(
                    "--preset", "px32-cpu", "--data.path", data, *field.data, *field.network, *options,
                    "--supervised.mixup", mixup, "--supervised.cutmix", cutmix,
                    "--fit.epochs", "1e-6", "--fit.min_steps", f"{steps}", "--fit.batch_size", f"{field.batch}",
                    *(("--eval.labels", f"{field.labels}") if field.labels else ()),
                    "--eval.held_out", "true", "--seed", f"{seed}",
                    folder=folder,
                )  # fmt: skip
                found.append(reached(folder, field.metric))
            spread = float(np.std(found, ddof=1)) if len(found) > 1 else None
            rows.append({"length": length, "steps": steps, "way": way, "reached": found,
                         "mean": float(np.mean(found)), "sd": spread})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def table(_: str, part: dict[str, Any]) -> list[str]:
    """A line per length."""
    heads = ["length", "steps", "images seen", *WAYS]
    lines = [f"| {' | '.join(heads)} |", "|" + " ---: |" * len(heads)]
    for length in dict.fromkeys(row["length"] for row in part["rows"]):
        cells = {row["way"]: row for row in part["rows"] if row["length"] == length}
        shown = [f"{cells[way]['mean']:.1f}" + (f" ± {sd:.1f}" if (sd := cells[way]["sd"]) is not None else "")
                 for way in WAYS]  # fmt: skip
        seen = cells["light"]["steps"] * part["batch"]
        lines.append(f"| {length:g} | {cells['light']['steps']:,} | {seen:,} | {' | '.join(shown)} |")
    what = {"balanced": "Balanced accuracy", "top1": "Top-1"}[part["metric"]]
    seeds = len(part["rows"][0]["reached"])
    told = f"mean and deviation of {seeds} seeds" if seeds > 1 else "one seed"
    return [*lines, "", f"{what}, %, {told}. Network: `{part['network']}`. Trained at commit {part['trained']}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(SETS), help="of images")
    parser.add_argument("--data", required=True, help="its folder")
    parser.add_argument("--work", default="runs/short_training", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    field = SETS[options.set]
    work = Path(options.work).resolve() / options.set
    rows = measured(options.set, str(Path(options.data).resolve()), work)
    made = {str(json.loads(path.read_text())["commit"])[:7] for path in sorted(work.glob("*/environment.json"))}
    part = {"about": about(same_command("short_training.py", sys.argv[1:])), "metric": field.metric, "rows": rows,
            "batch": field.batch, "network": " ".join(field.network), "trained": ", ".join(sorted(made))}  # fmt: skip
    head = [
        "# Short training: augmentation that long training needs",
        "",
        paragraph(__doc__, 2),
        "",
        "Before that, once each, and fine-tuned from MAE, too: [short training of cells](short_training_before.md).",
    ]
    write_parts(options.out, "short_training", head, {key: each.title for key, each in SETS.items()},
                {options.set: part}, table)  # fmt: skip


if __name__ == "__main__":
    main()
