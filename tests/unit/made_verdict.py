"""A verdict's folder with made-up numbers that look like those of digits."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from ssl_vit.rundir import digest

LABELS = (10, 20, 50, 100, 1438)
CURVES: dict[tuple[str, str], tuple[float, ...]] = {
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
NAMES = {
    "mae": "MAE", "dino": "DINO", "scratch": "from scratch", "cnn": "CNN from scratch", "pixels": "raw pixels",
    "random": "random weights", "public": "public weights",
}  # fmt: skip
METHODS = {"knn": "knn", "linear": "linear_probe", "train": "finetune"}


def png(colour: tuple[int, int, int], width: int = 48, height: int = 32) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(colour) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def make_verdict(
    folder: Path,
    *,
    curves: dict[tuple[str, str], tuple[float, ...]] | None = None,
    labels: tuple[int, ...] = LABELS,
    draws: tuple[int, int] = (10, 5),
    test: int = 359,
    classes: tuple[str, ...] = tuple("0123456789"),
    kind: str = "class",
    metric: str = "top1",
    seeds: int = 3,
    matched: bool = True,
    title: str = "digits",
    group: str | None = None,
    pictures: bool = True,
    leaks: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """Writes verdict.json, results, runs and pictures.

    Args:
        folder: Where to.
        curves: Means of the leading metric by (start, use), one per number of labels.
        labels: Numbers of labels.
        draws: Of probes, and of training.
        test: Test images.
        classes: Their names.
        kind: Of labels; only "class" has predictions.
        metric: The leading one.
        seeds: Of pre-training.
        matched: Whether the baseline was also trained at the cost of pre-training.
        title: Name of the data.
        group: Column of groups; images then belong to clusters.
        pictures: Whether there are some.
        leaks: Content of leaks.json; None for no file.
        seed: Of all that is drawn.
    """
    curves = CURVES if curves is None else curves
    rng = np.random.default_rng(seed)
    truth = np.arange(test) % len(classes)
    hardness = rng.normal(size=test)
    clusters = np.arange(test) // 4 if group else None
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    methods = list(dict.fromkeys(start for start, _ in curves))
    protocols = {
        use: {"evaluation": METHODS[use], "kind": kind, "metric": metric, "view": {"input": 8},
              "test": {"images": test, "fingerprint": "t3st", "split": "a fifth"}}
        for use in METHODS
    }  # fmt: skip

    def write(start: str, use: str, count: int, draw: int, mean: float, *, extra: bool = False) -> None:
        pretraining = draw % seeds if start in ("mae", "dino") else None
        wobble = float(rng.normal(scale=0.06 * (100 - mean) + 0.15))
        share = np.clip(mean + wobble, 1, 99.7) / 100
        noise = hardness + rng.normal(scale=1.2, size=test)
        right = noise >= np.quantile(noise, 1 - share)
        predicted = np.where(
            right, truth, (truth + rng.choice([1, 2, 5], size=test, p=[0.6, 0.25, 0.15])) % len(classes)
        )
        row: dict[str, Any] = {"method": NAMES.get(start, start), "images": test}
        arrays: dict[str, np.ndarray] = {"units": (100.0 * right).astype(np.float32)}
        if kind == "class":
            arrays |= {"predicted": predicted.astype(np.int32), "confidence": rng.random(test).astype(np.float32)}
            per_class = {
                name: 100.0 * float(right[truth == i].mean()) if (truth == i).any() else None
                for i, name in enumerate(classes)
            }
            row |= {"top1": 100.0 * float(right.mean()), "balanced": float(np.mean([v for v in per_class.values() if v is not None])),
                    "per_class": per_class}  # fmt: skip
        elif kind == "multilabel":
            row |= {"average_precision": 100.0 * float(right.mean()), "per_label": dict.fromkeys(classes, 50.0)}
        else:
            scale = 0.01
            arrays["units"] = (arrays["units"] * scale).astype(np.float32)
            row |= {
                "r2": float(right.mean()),
                "mae": 3.0,
                "per_target": {name: {"mae": 3.0, "r2": 0.5} for name in classes},
            }
        key = f"{start}-{use}-{count}-{draw}{'-matched' if extra else ''}"
        all_of_them = count == labels[-1]
        seconds = {"knn": 0.2, "linear": 1.5, "train": 14.0}[use] * (2.4 if extra else 1.0)
        content = {
            "method": METHODS[use], "rows": [row], "protocol": protocols[use], "protocol_hash": digest(protocols[use]),
            "labels_used": count, "draw": None if all_of_them else draw, "seed": draw,
            "data": {"name": title, "train": "tr41n", "test": "t3st", "split": "a fifth"},
            "backbone": {"folder": f"runs/{start}-{pretraining}/backbone", "weights": f"{start}{pretraining}"}
            if pretraining is not None else None,
            "made_with": {"versions": {"torch": "2.15.0"}, "commit": "f00d", "command": "eval/verdict.py"},
            "verdict": {
                "start": start, "use": use, "draw": draw, "share": 100.0 * count / labels[-1],
                "pretraining": pretraining, "matched": extra,
                "command": f"accelerate launch eval/{METHODS[use]}.py --eval.labels {count} --eval.draw {draw}",
                "cost": {"seconds": seconds, "flops": seconds * 4e10, "images": int(seconds * 900),
                         "peak_memory": 4.1e8 if use == "train" else None},
            },
        }  # fmt: skip
        (results / f"{key}.json").write_text(json.dumps(content))
        np.savez(results / f"{key}.npz", **arrays)

    for (start, use), means in curves.items():
        for count, mean in zip(labels, means, strict=True):
            for draw in range(draws[use == "train"]):
                write(start, use, count, draw, mean)
                if matched and start == "scratch":
                    write(start, use, count, draw, mean + 0.3 * (100 - mean) * 0.2, extra=True)

    trained = [start for start, use in curves if use == "train"]
    trials = [
        {"lr": lr, "weight_decay": wd, "layer_decay": ld, "steps": steps, "score": float(rng.uniform(60, 80))}
        for lr, wd, ld, steps in ((1e-3, 0.05, 0.75, 400), (2e-3, 0.05, 1.0, 400), (5e-4, 0.3, 1.0, 800),
                                  (1e-3, 0.3, 0.65, 800), (3e-3, 0.05, 1.0, 800))
    ]  # fmt: skip
    studies = [
        {"start": start, "use": "train", "labels": labels[0], "trials": trials, "chosen": 2,
         "selection": "cross-validation inside the labels of one draw"}
        for start in trained
    ]  # fmt: skip
    about = {
        "format": 1, "title": title, "kind": kind, "metric": metric, "classes": list(classes), "labels": list(labels),
        "data": {
            "name": title, "pool": labels[-1], "train": labels[-1], "test": test, "split": "a fifth of every class",
            "channels": 1, "bits": 8, "sizes": "8 x 8 px", "unreadable": 0, "group": group,
            "per_class": {name: {"train": labels[-1] // len(classes) + i % 3, "test": int((truth == i).sum())}
                          for i, name in enumerate(classes)},
            "fingerprints": {"pool": "p001", "train": "tr41n", "test": "t3st"},
        },
        "test": {"labels": truth.tolist() if kind == "class" else None,
                 "clusters": None if clusters is None else clusters.tolist(),
                 "names": [f"digits/{i}.png" for i in range(test)]},
        "transductive": False,
        "methods": {
            start: {
                "name": NAMES.get(start, start),
                "network": {"cnn": "ResNet of 4 blocks, 96 wide", "pixels": "64 pixels"}.get(start, "ViT, 64 wide, 4 blocks, patches of 2 px at 8 px"),
                "parameters": None if start == "pixels" else 203_456,
                "architecture_hash": None if start == "pixels" else "cnn" if start == "cnn" else "vit",
                "uses": [use for s, use in curves if s == start],
                "pretraining": [
                    {"run": f"runs/{start}-{i}", "seed": i, "images": 575_200 + i, "flops": 3.1e13, "seconds": 31.0 + i,
                     "peak_memory": 5.2e8, "device": "cpu", "devices": 1, "weights": f"{start}{i}",
                     "command": f"accelerate launch recipes/{start}.py --seed {i}", "checkpoint": "last step"}
                    for i in range(seeds)
                ] if start in ("mae", "dino") else [],
            }
            for start in methods
        },
        "left_out": {"public": "no public weights on this machine, and no network"} if "public" not in methods else {},
        "draws": {"probes": draws[0], "train": draws[1]},
        "tuning": {"trials": 5, "space": "learning rate 5e-4 to 3e-3, weight decay 0.05 or 0.3, layer decay 0.65, 0.75 or 1, 400 or 800 steps", "studies": studies},
        "plan": {"budget": 600, "expected": 540.0, "taken": 561.0, "jobs": 2, "sessions": 1,
                 "rows": [{"what": "MAE pre-training", "units": seeds, "seconds": 31.0 * seeds},
                          {"what": "fine-tuning", "units": 75, "seconds": 340.0}],
                 "notes": ["5 draws of labels instead of 10 where all weights are trained"]},
        "provenance": {"command": "accelerate launch eval/verdict.py", "commit": "485a61f",
                       "versions": {"python": "3.11.7", "torch": "2.15.0", "timm": "1.0.31"},
                       "hardware": {"cpu": "AMD EPYC", "cores": 2}, "config": {"data": {"path": title}, "seed": 0}},
    }  # fmt: skip
    (folder / "verdict.json").write_text(json.dumps(about, indent=1))
    for start in ("mae", "dino"):
        for i in range(seeds if start in methods else 0):
            run = folder / "runs" / f"{start}-{i}"
            run.mkdir(parents=True, exist_ok=True)
            steps = np.arange(10, 1801, 10)
            losses = {"mae": 0.35 + 0.6 * np.exp(-steps / 300), "dino": 3 + 5.3 * np.exp(-steps / 500)}[start]
            losses = losses * (1 + rng.normal(scale=0.01, size=len(steps)))
            lines = [
                json.dumps({"step": int(s), "epoch": s / 18, "loss": float(v), "lr": 1e-3})
                for s, v in zip(steps, losses, strict=True)
            ]
            (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if pictures:
        place = folder / "pictures"
        place.mkdir(exist_ok=True)
        told = []
        for name, heading, start, colour in (
            ("neighbours", "Nearest neighbours", "mae", (60, 90, 120)),
            ("mistakes", "Most confident mistakes", "mae", (140, 90, 60)),
            ("reconstructions", "What MAE fills in", "mae", (90, 120, 80)),
            ("attention", "Attention of the class token", "dino", (90, 90, 90)),
        ):
            (place / f"{name}.png").write_bytes(png(colour, 480, 240))
            told.append({"file": f"{name}.png", "title": heading, "caption": "Made up.", "start": start})
        (place / "pictures.json").write_text(json.dumps(told))
    if leaks is not None:
        (folder / "leaks.json").write_text(json.dumps(leaks))
    return folder
