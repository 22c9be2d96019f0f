"""verdict.json: everything of a verdict that is no number of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors

from ssl_vit.configs import networks, to_dict
from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.files import write_atomically
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import starts, titles
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.provenance import command, commit, hardware, versions
from ssl_vit.verdict.opening import Opened, facts
from ssl_vit.verdict.plan import Plan
from ssl_vit.verdict.study import Study, architecture_hash
from ssl_vit.verdict.tuning import SPACE


class Made(NamedTuple):
    """What was done, beside the results' own files."""

    plan: Plan
    pretraining: dict[str, list[dict[str, Any]]]
    """Costs by method and number of the seed."""
    studies: list[dict[str, Any]]
    """Trials of options, and what won."""
    left_out: dict[str, str]
    notes: list[str]
    draws: int
    """Draws where all weights were trained."""


def write_about(opened: Opened, made: Made, note: str, run: RunDir, seconds: float, sessions: int, jobs: int) -> None:
    """Writes verdict.json.

    Args:
        opened: The study as it was asked for, and its images.
        made: What was done.
        note: What the pool is.
        run: The verdict's folder.
        seconds: What it took.
        sessions: How often it was begun.
        jobs: Tasks that ran at the same time.
    """
    study, v = made.plan.study, made.plan.study.recipe.verdict
    test, plan = opened.data.test, made.plan
    kept = judged_positions(study.folder / "results", len(test))
    by_image = METRICS[study.metric].per_image  # units of other metrics are blocks of images
    groups = None if test.groups is None or not by_image else test.groups[kept].tolist()
    about: dict[str, Any] = {
        "format": 1, "title": opened.data.test.name, "kind": study.kind, "metric": study.metric,
        "classes": list(test.classes), "labels": list(study.labels),
        "data": facts(opened, note) | {"unreadable": len(test) - len(kept)},
        "test": {"positions": None if len(kept) == len(test) else kept.tolist(),
                 "labels": test.truth[kept].tolist() if study.kind == "class" else None, "clusters": groups,
                 "names": [test.where(int(i)) for i in kept] if study.kind == "class" else []},
        "transductive": study.recipe.data.transductive,
        "methods": {start: _method(study, start, made) for start in study.starts},
        "left_out": made.left_out, "draws": {"probes": v.probe_draws, "train": made.draws},
        "tuning": {"trials": v.trials, "space": SPACE, "studies": made.studies},
        "plan": {
            "budget": opened.budget, "expected": plan.seconds, "taken": seconds, "jobs": max(1, jobs),
            "sessions": sessions, "pretraining": v.pretraining, "length": v.length,
            "rows": [line._asdict() for line in plan.lines],
            "notes": [*opened.notes, *made.notes],
        },
        "provenance": {
            "command": command(), "commit": commit(), "versions": versions(), "hardware": hardware(),
            "config": to_dict(study.recipe),
        },
    }  # fmt: skip
    write_atomically(run.path / "verdict.json", json.dumps(about, indent=1) + "\n")


def _method(study: Study, start: str, made: Made) -> dict[str, Any]:
    runs = study.runs(start)
    backbone = runs[0] / "backbone"
    if start == "cnn":
        assert study.cnn is not None
        trained = study.folder / "runs" / "cnn-trained" / "backbone"
        network, size = str(study.cnn.name), study.cnn.img_size
        known = (trained / "config.json").exists()  # not where its training with all labels diverged
        return {
            "name": titles()[start], "network": f"{network} at {size} px",
            "parameters": _parameters(trained) if known else None,
            "architecture_hash": architecture_hash(trained) if known else None,
            "uses": list(starts()[start].uses), "pretraining": [],
        }  # fmt: skip
    config = json.loads((backbone / "config.json").read_text())
    args = config["model_args"]
    words = networks.in_words(config["architecture"], args, config["pretrained_cfg"]["input_size"][-1])
    costs = made.pretraining.get(start, [])
    rows = [
        {"run": str(run), "seed": _seed(run), "weights": _weights(run), "checkpoint": "last step",
         "command": _command(study, start, k), **cost}
        for k, (run, cost) in enumerate(zip(runs, costs, strict=False))
    ]  # fmt: skip
    if start == "public":
        rows = [{"run": str(runs[0]), "seed": None, "weights": _weights(runs[0]), "checkpoint": "as released",
                 "command": str(config["ssl_vit"].get("public")), "images": None, "flops": None, "seconds": None,
                 "peak_memory": None, "device": None, "devices": None}]  # fmt: skip
    return {
        "name": titles()[start], "network": "raw pixels" if start == "pixels" else words,
        "parameters": 0 if start == "pixels" else _parameters(backbone), "uses": list(starts()[start].uses),
        "architecture_hash": None if start == "pixels" else architecture_hash(backbone), "pretraining": rows,
    }  # fmt: skip


def _command(study: Study, start: str, number: int) -> str:
    if start in study.given:
        about = json.loads((study.runs(start)[number] / "environment.json").read_text())
        return str(about.get("command"))
    return study.command(METHODS[start].script, study.pretraining(start, number))


def _parameters(backbone: Path) -> int:
    with safetensors.safe_open(backbone / "model.safetensors", framework="numpy") as file:
        names = file.keys()
        return sum(int(np.prod(file.get_slice(name).get_shape())) for name in names)


def _weights(run: Path) -> str:
    return load_backbone(str(run)).weights_hash


def _seed(run: Path) -> int | None:
    return json.loads((run / "backbone" / "config.json").read_text())["ssl_vit"].get("seed")


def judged_positions(results: Path, images: int) -> np.ndarray:
    """Which test images the numbers stand on: the readable ones, the same for all methods.

    Args:
        results: The folder of answers beside results.
        images: All test images.
    """
    for path in sorted(results.glob("*.npz")):
        with np.load(path) as answers:
            if "positions" in answers.files:  # an older version did not keep them
                return answers["positions"].astype(np.int64)
    return np.arange(images)
