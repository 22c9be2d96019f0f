"""A verdict's folder with made-up numbers that look like those of digits, for everything that reads one."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from ssl_vit.runs.identity import digest
from ssl_vit.statistics.contributions import balanced_units

Curves = Mapping[tuple[str, str], tuple[float, ...]]

LABELS = (10, 20, 50, 100, 1438)
DIGITS: Curves = {
    ("scratch", "train"): (29.2, 41.7, 64.9, 79.6, 97.8),
    ("cnn", "train"): (48.0, 58.0, 79.0, 88.0, 98.9),
    ("mae", "train"): (64.3, 71.1, 83.0, 88.6, 98.3),
    ("dino", "train"): (61.0, 69.5, 81.0, 87.1, 98.0),
    ("mae", "linear"): (70.6, 75.8, 83.3, 87.7, 96.1),
    ("dino", "linear"): (68.2, 74.0, 82.0, 86.5, 95.4),
    ("pixels", "linear"): (54.1, 66.9, 81.5, 87.5, 97.5),
    ("random", "linear"): (20.6, 26.1, 47.0, 61.1, 91.1),
    ("mae", "knn"): (70.2, 75.1, 85.0, 87.6, 94.5),
    ("dino", "knn"): (69.0, 74.4, 84.1, 87.0, 93.9),
    ("pixels", "knn"): (63.8, 72.9, 87.9, 92.3, 99.4),
    ("random", "knn"): (18.2, 16.9, 18.2, 24.6, 50.2),
}
"""Means of the leading metric by start and use, one per number of labels."""
SMALL: Curves = {
    ("scratch", "train"): (40.0, 80.0),
    ("mae", "train"): (70.0, 85.0),
    ("mae", "knn"): (65.0, 80.0),
    ("pixels", "knn"): (60.0, 82.0),
}
NAMES = {
    "mae": "MAE", "dino": "DINO", "scratch": "from scratch", "cnn": "CNN", "pixels": "raw pixels",
    "random": "random weights", "public": "public weights", "lejepa@cnn": "LeJEPA on a CNN",
}  # fmt: skip
_OWN = ("mae", "dino", "lejepa@cnn")
PRETRAINING, TRAINING = 3.1e13, 5.6e11
"""FLOPs of one run."""
STEPS, BATCH = 800, 16
"""Of one training on labels."""
_NETWORKS = {"cnn": "ResNet of 4 blocks, 96 wide", "lejepa@cnn": "ResNet of 4 blocks, 96 wide", "pixels": "64 pixels"}
_SCRIPTS = {"knn": "knn", "linear": "linear-cached", "train": "finetune"}


def make_verdict(
    folder: Path,
    curves: Curves = DIGITS,
    *,
    labels: tuple[int, ...] = LABELS,
    draws: tuple[int, int] = (10, 5),
    seeds: int = 3,
    longer: tuple[float, ...] | None = (),
    longer_cnn: tuple[float, ...] | None = None,
    tuned: int | None = None,
    protocols: Mapping[str, str] | None = None,
    kind: str = "class",
    metric: str = "top1",
    classes: tuple[str, ...] = tuple("0123456789"),
    images: int = 359,
    units: bool = True,
    spread: float = 0.03,
    title: str = "digits",
    transductive: bool = False,
    grouped: bool = False,
    leaks: dict[str, Any] | None = None,
) -> Path:
    """Writes verdict.json, results, runs and pictures.

    Args:
        folder: Where to.
        curves: As ``DIGITS``.
        labels: Numbers of labels.
        draws: Of probes, and of training.
        seeds: Of pre-training.
        longer: Means of the baseline at the cost of pre-training; empty for a little more than the usual one's, None
            for no such training.
        longer_cnn: The same of the CNN; None for no such training.
        tuned: The number of labels that options were searched with; below it all take their usual ones. None for the
            fewest.
        protocols: Rules of training by start, where they are not the same for all.
        kind: Of labels; only "class" has predictions.
        metric: The leading one.
        classes: Their names.
        images: For testing.
        units: Whether the contributions of test images are there.
        spread: Deviation of a draw, in deviations of how hard images are.
        title: Name of the data.
        transductive: Whether it was declared.
        grouped: Whether four test images each are of one group.
        leaks: Content of leaks.json; None for no file.
    """
    rng = np.random.default_rng(1)
    hard, truth = rng.standard_normal(images), np.arange(images) % len(classes)
    if longer == ():
        longer = tuple(mean + 0.05 * (100 - mean) for mean in curves.get(("scratch", "train"), ()))
    lines = [(start, use, False, means) for (start, use), means in curves.items()]
    lines += [(s, "train", True, means) for s, means in (("scratch", longer), ("cnn", longer_cnn)) if means]
    for start, use, matched, means in lines:
        for count, mean in zip(labels, means, strict=True):
            for draw in range(draws[use == "train"]):
                eta = norm.ppf(mean / 100) * 1.5 + hard + spread * rng.standard_normal()
                hits = rng.random(images) < norm.cdf(eta / 0.5)
                missed = np.maximum(1, rng.choice([1, 2, 5], size=images) % len(classes))  # another class, however few
                predicted = np.where(hits, truth, (truth + missed) % len(classes))
                each = balanced_units(hits, truth) if metric == "balanced" else 100.0 * hits
                arrays: dict[str, np.ndarray] = {"positions": np.arange(images, dtype=np.int32)}
                arrays |= {"units": each.astype(np.float32)} if units else {}
                arrays |= {"clusters": np.arange(images) // 4} if grouped and metric in ("top1", "balanced") else {}
                if kind == "class":
                    arrays["predicted"] = predicted.astype(np.int32)
                    arrays["confidence"] = rng.random(images).astype(np.float32)
                row = {"method": NAMES.get(start, start), "images": images, metric: float(each.mean())}
                row |= _by_class(kind, classes, truth, hits)
                rules = {
                    "evaluation": use, "kind": kind, "metric": metric, "rules": (protocols or {}).get(start, "one"),
                    "train": "tr41n", "test": {"images": images, "fingerprint": "t3st", "split": "a fifth"},
                }  # fmt: skip
                factor = (PRETRAINING + TRAINING) / TRAINING if matched else 1.0
                steps = round(STEPS * factor)
                own = USUAL if tuned and count < tuned else CHOSEN
                if use == "train":
                    row |= {"steps": steps, "trained_with": {"optim": dict(zip(OPTIONS[:3], own[:3], strict=True))}}
                row |= PROBE if use == "linear" else {}
                backbone = {
                    "weights": f"{start}{draw % seeds}",
                    "seed": draw % seeds,
                    "pool_fingerprint": "p001",
                    "transductive": transductive,
                }
                place = {
                    "start": start, "use": use, "draw": draw, "matched": matched, "share": 100 * count / labels[-1],
                    "pretraining": draw % seeds if start in _OWN else None,
                    "command": f"accelerate launch eval/{_SCRIPTS[use]}.py --eval.labels {count} --eval.draw {draw}",
                    "cost": {"seconds": 14.0, "flops": TRAINING * factor, "images": steps * BATCH, "steps": steps,
                             "planned": steps, "peak_memory": 4.1e8, "devices": 1},
                }  # fmt: skip
                whole = count == labels[-1]
                _write(folder, f"{start}-{use}-{count}-{draw}{'-longer' * matched}", arrays, {
                    "method": _SCRIPTS[use], "rows": [row], "protocol": rules, "protocol_hash": digest(rules),
                    "labels_used": count, "draw": None if whole else draw, "seed": draw,
                    "data": {"name": title, "train": "tr41n" if whole else f"{count} by draw {draw}"},
                    "backbone": backbone if start in _OWN else None, "verdict": place,
                })  # fmt: skip
    more = [start for start, means in (("scratch", longer), ("cnn", longer_cnn)) if means]
    about = _about(curves, labels, draws, seeds, tuned or labels[0], more) | {
        "title": title, "kind": kind, "metric": metric, "classes": list(classes), "transductive": transductive,
        "test": {
            "positions": None, "labels": truth.tolist() if kind == "class" else None,
            "clusters": (np.arange(images) // 4).tolist() if grouped else None,
            "names": [f"{title}/{i}.png" for i in range(images)],
        },
        "data": {
            "name": title, "pool": labels[-1], "train": labels[-1], "test": images, "split": "a fifth of every class",
            "channels": 1, "bits": 8, "sizes": "8 x 8 px", "unreadable": 0, "group": "tile" if grouped else None,
            "fingerprints": {"pool": "p001", "train": "tr41n", "test": "t3st"},
            "per_class": {
                name: {"train": labels[-1] // len(classes) + i % 3, "test": int((truth == i).sum())}
                for i, name in enumerate(classes)
            },
        },
    }  # fmt: skip
    (folder / "verdict.json").write_text(json.dumps(about, indent=1))
    for run in (run for method in about["methods"].values() for run in method["pretraining"]):
        _train(folder / run["run"], rng)
    _draw(folder / "pictures", ["mae"] if ("mae", "train") in curves else [])
    if leaks is not None:
        (folder / "leaks.json").write_text(json.dumps(leaks))
    return folder


def _by_class(kind: str, classes: tuple[str, ...], truth: np.ndarray, hits: np.ndarray) -> dict[str, Any]:
    if kind == "multilabel":
        return {"per_label": dict.fromkeys(classes, 50.0)}
    if kind == "regression":
        return {"per_target": {name: {"mean_absolute_error": 3.0, "r2": 0.5} for name in classes}}
    parts = {name: hits[truth == i] for i, name in enumerate(classes)}
    return {"per_class": {name: 100.0 * float(part.mean()) if len(part) else None for name, part in parts.items()}}


def _write(folder: Path, key: str, arrays: dict[str, np.ndarray], content: dict[str, Any]) -> None:
    path = folder / "results" / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    if arrays:
        np.savez(path.with_suffix(".npz"), **arrays)


OPTIONS = ("lr", "weight_decay", "layer_decay", "steps", "score")
USUAL, CHOSEN = (1e-3, 0.05, 0.75, 400), (1e-3, 0.3, 0.65, STEPS)
PROBE = {"pool": "mean", "rate": 1.0, "decay": 1e-4}


def _about(
    curves: Curves, labels: tuple[int, ...], draws: tuple[int, int], seeds: int, tuned: int, longer: list[str]
) -> dict[str, Any]:
    """What does not depend on the images."""
    tried = [USUAL, (2e-3, 0.05, 1.0, 400), (5e-4, 0.3, 1.0, 800), CHOSEN]
    trials = [dict(zip(OPTIONS, (*values, 60.0 + i), strict=True)) for i, values in enumerate(tried)]
    methods = {
        start: {
            "name": NAMES.get(start, start), "uses": [use for s, use in curves if s == start],
            "network": _NETWORKS.get(start, "ViT, 64 wide, 4 blocks, patches of 2 px at 8 px"),
            "parameters": None if start == "pixels" else 203_456,
            "architecture_hash": _NETWORKS.get(start, "vit"),
            "pretraining": [
                {
                    "run": f"runs/{start}-{i}", "seed": i, "steps": 1800, "planned": 1800, "exported": 1800,
                    "drift": None, "images": 575_200, "flops": PRETRAINING, "seconds": 31.0,
                    "peak_memory": 5.2e8, "device": "cpu", "devices": 1, "weights": f"{start}{i}",
                    "command": f"accelerate launch recipes/{start}.py --seed {i}", "checkpoint": "step 1,800 of 1,800",
                }
                for i in range(seeds)
            ] if start in _OWN else [],
        }
        for start in dict.fromkeys(start for start, _ in curves)
    }  # fmt: skip
    return {
        "format": 2, "labels": list(labels), "methods": methods,
        "left_out": {} if "public" in methods else {"public": "there are no public weights for images of 8 px"},
        "draws": {"probes": draws[0], "train": draws[1]},
        "numbers": {
            line: {str(n): list(range(draws["train" in line])) for n in labels}
            for line in (*(f"{s}-{u}" for s, u in curves), *(f"{start}-train-matched" for start in longer))
        },
        "tuning": {
            "trials": len(trials),
            "space": "learning rate 5e-4 to 2e-3, weight decay 0.05 or 0.3, layer decay 0.65 to 1, 400 or 800 steps",
            "studies": [
                {"start": start, "use": use, "labels": tuned, "trials": trials, "chosen": 3,
                 "selection": "cross-validation inside the labels of the first draw"}
                for start, use in curves if use == "train"
            ] + [
                {"start": start, "use": use, "labels": n, "trials": [PROBE | {"score": 60.0}], "chosen": 0,
                 "selection": "cross-validation inside the labels of the first draw"}
                for start, use in curves if use == "linear" for n in labels
            ],
        },
        "plan": {
            "budget": 600, "expected": 540.0, "taken": 561.0, "jobs": 2, "sessions": 1,
            "rows": [{"what": "MAE pre-training", "units": seeds, "seconds": 93.0},
                     {"what": "fine-tuning", "units": 75, "seconds": 340.0}],
            "notes": ["5 draws of labels instead of 10 where all weights are trained"],
        },
        "provenance": {
            "command": "accelerate launch eval/verdict.py", "commit": "485a61f",
            "versions": {"python": "3.11.7", "torch": "2.15.0"}, "hardware": {"cpu": "AMD EPYC", "cores": 2},
            "config": {"data": {"path": "digits"}, "seed": 0},
        },
    }  # fmt: skip


def _train(run: Path, rng: np.random.Generator) -> None:
    run.mkdir(parents=True, exist_ok=True)
    steps = np.arange(10, 1801, 10)
    losses = (0.35 + 0.6 * np.exp(-steps / 300)) * (1 + rng.normal(scale=0.01, size=len(steps)))
    told = ({"step": int(s), "epoch": s / 18, "loss": float(v), "lr": 1e-3} for s, v in zip(steps, losses, strict=True))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))


def _draw(folder: Path, starts: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    told: list[dict[str, Any]] = []
    for start in starts:
        for name in ("Nearest neighbours", "Most confident mistakes"):
            file = f"{start}-{name.split()[-1]}.png"
            (folder / file).write_bytes(png((60, 90, 120), 480, 240))
            told.append({"file": file, "title": name, "caption": "Made up.", "start": start})
    (folder / "pictures.json").write_text(json.dumps(told))


def png(colour: tuple[int, int, int], width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(colour) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def no_leaks(**changes: Any) -> dict[str, Any]:
    """What the leak guard writes where it finds nothing, with changes."""
    return {
        "of": {"pool": ["p001", None], "train": ["tr41n", None], "test": ["t3st", None]},
        "format": 1, "images": {"pool": 1438, "train": 1438, "test": 359, "different": 1797}, "unreadable": [],
        "on_leak": "stop", "transductive": False, "findings": [], "affected": [], "affected_images": [],
        "sentences": ["No image occurs twice, as it is or nearly, within or between the sets."], "examples": [],
    } | changes  # fmt: skip
