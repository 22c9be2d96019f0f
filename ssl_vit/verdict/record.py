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
from ssl_vit.core.reading import object_in, read_object
from ssl_vit.data.images import ImageSet
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import start_called
from ssl_vit.report.findings.records import FORMAT, Place, answers_beside
from ssl_vit.runs.identity import digest
from ssl_vit.runs.provenance import command, commit, hardware, versions
from ssl_vit.verdict.opening import Opened
from ssl_vit.verdict.plan import Plan
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import SPACE

_AGAIN = "remove it, and run eval/verdict.py again"


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
    looks: int
    """Draws after which none would have been made, whatever the looks at earlier ones had shown."""


def write_about(opened: Opened, made: Made, note: str, seconds: float, sessions: int, jobs: int) -> None:
    """Writes verdict.json.

    ``note`` says what the pool is; ``jobs`` tasks ran at the same time.
    """
    study, v = made.plan.study, made.plan.study.recipe.verdict
    test, plan = opened.data.test, made.plan
    images = judged_images(study, test)
    unreadable = 0 if images["positions"] is None else len(test) - len(images["positions"])
    about: dict[str, Any] = {
        "format": FORMAT, "title": opened.data.test.name, "kind": study.kind, "metric": study.metric,
        "classes": list(test.classes), "labels": list(study.labels),
        "data": _images(opened, note) | {"unreadable": unreadable},
        "test": images,
        "transductive": study.recipe.data.transductive,
        "methods": {start: _method(study, start, made) for start in study.starts},
        "left_out": made.left_out, "draws": {"probes": v.probe_draws, "train": made.draws},
        "numbers": _numbers(study.folder / "results"),
        "tuning": {"trials": v.trials, "space": SPACE, "studies": made.studies},
        "plan": {
            "budget": opened.budget, "expected": plan.seconds, "taken": seconds, "jobs": max(1, jobs),
            "sessions": sessions, "pretraining": min(study.lengths.values(), default=v.pretraining), "length": v.length,
            "lengths": study.lengths, "looks": made.looks,
            "rows": [line._asdict() for line in plan.lines],
            "notes": [*opened.notes, *made.notes],
        },
        "provenance": {
            "command": command(), "commit": commit(), "versions": versions(), "hardware": hardware(),
            "config": to_dict(study.recipe),
        },
    }  # fmt: skip
    write_atomically(study.folder / "verdict.json", json.dumps(about, indent=1) + "\n")


def _images(opened: Opened, note: str) -> dict[str, Any]:
    """What verdict.json says of the images."""
    train, test, pool = opened.data.train, opened.data.test, opened.pool
    counts = {}
    if train.kind == "class":
        sizes = (np.bincount(images.truth, minlength=len(train.classes)).tolist() for images in (train, test))
        counts = {name: {"train": a, "test": b} for name, a, b in zip(train.classes, *sizes, strict=True)}
    shape = pool.sizes.common or pool.sizes.usual
    sizes = f"{shape[1]} x {shape[0]} px" if shape else f"many sizes, median short side {pool.sizes.short_side} px"
    return {
        "name": test.name, "pool": len(pool), "pool_note": note, "train": len(train), "test": len(test),
        "split": opened.data.split, "channels": pool.form.channels, "bits": pool.form.bits, "sizes": sizes,
        "per_class": counts, "group": opened.study.recipe.eval.data.group or opened.study.recipe.data.group,
        "fingerprints": {"pool": pool.fingerprint, "train": train.fingerprint, "test": test.fingerprint},
    }  # fmt: skip


def judged_images(study: Study, test: ImageSet) -> dict[str, Any]:
    """What verdict.json tells of the test images, of those that could be read."""
    kept = judged_positions(study.folder / "results", len(test))
    by_image = METRICS[study.metric].per_image  # units of other metrics are blocks of images
    return {
        "positions": None if len(kept) == len(test) else kept.tolist(),
        "labels": test.truth[kept].tolist() if study.kind == "class" else None,
        "clusters": None if test.groups is None or not by_image else test.groups[kept].tolist(),
        "names": [test.where(int(i)) for i in kept] if study.kind == "class" else [],
    }


def _method(study: Study, start: str, made: Made) -> dict[str, Any]:
    runs, pixels = study.runs(start), start == "pixels"
    unknown: dict[str, Any] = dict.fromkeys(
        ("steps", "planned", "images", "flops", "seconds", "peak_memory", "device", "devices")
    )
    costs = [unknown] if start == "public" else made.pretraining.get(start, [])
    own = study.networks.get(start)
    backbone = (study.folder / "runs" / f"{start}-trained" if own else runs[0]) / "backbone"
    known = (backbone / "config.json").exists()  # no CNN where its training with all labels diverged
    config = read_object(backbone / "config.json", _AGAIN) if known else {}
    if own:
        network = f"{own.name} at {own.img_size} px"
    else:
        size = config["pretrained_cfg"]["input_size"][-1]
        network = networks.in_words(config["architecture"], config["model_args"], size)
    args = {k: v for k, v in config.get("model_args", {}).items() if k != "global_pool"}
    return {
        "name": start_called(start).title, "network": "raw pixels" if pixels else network,
        "parameters": 0 if pixels else _parameters(backbone) if known else None, "uses": list(study.uses(start)),
        "architecture_hash": digest([config["architecture"], args]) if known and not pixels else None,
        "pretraining": [
            {"run": str(run), "seed": _about(run).get("seed"), "weights": load_backbone(str(run)).weights_hash,
             "command": _command(study, start, k), **cost, **_exported(start, _about(run), cost)}
            for k, (run, cost) in enumerate(zip(runs, costs, strict=False))
        ],
    }  # fmt: skip


def _exported(start: str, about: dict[str, Any], cost: dict[str, Any]) -> dict[str, Any]:
    """Which step's weights are used, by what the run itself wrote down, and the look that a drift alarm stopped at."""
    if start == "public":
        return {"exported": None, "drift": None, "checkpoint": "as released"}
    step, planned, drift = about.get("step"), cost["planned"], (about.get("continued") or {}).get("passed")
    words = "step not recorded" if None in (step, planned) else f"step {step:,} of {planned:,}"
    return {"exported": step, "drift": drift, "checkpoint": words}


def _numbers(results: Path) -> dict[str, dict[str, list[int]]]:
    """Draws that there is a number of, by method and number of labels."""
    found: dict[str, dict[str, list[int]]] = {}
    for told in (read_object(path, _AGAIN) for path in results.glob("*.json")):
        own = told["verdict"]
        place = Place(own["start"], own["use"], told["labels_used"], own["draw"], own["matched"])
        found.setdefault(place.line, {}).setdefault(str(place.labels), []).append(place.draw)
    return {line: {n: sorted(own[n]) for n in sorted(own, key=int)} for line, own in sorted(found.items())}


def _about(run: Path) -> dict[str, Any]:
    return read_object(run / "backbone" / "config.json", _AGAIN)["ssl_vit"]


def _command(study: Study, start: str, number: int) -> str:
    run = study.runs(start)[number]
    if start == "public":
        return str(_about(run).get("public"))
    if start in study.given:
        return str((object_in(run / "environment.json") or {}).get("command"))
    return study.command(METHODS[start_called(start).method].script, study.pretraining(start, number))


def _parameters(backbone: Path) -> int:
    with safetensors.safe_open(backbone / "model.safetensors", framework="numpy") as file:
        return sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118


def judged_positions(results: Path, images: int) -> np.ndarray:
    """Which of all test images the numbers in a folder stand on: the readable ones, the same for all methods."""
    for path in sorted(results.glob("*.npz")):
        answers = answers_beside(path)
        if "positions" in answers:  # an older version did not keep them
            return answers["positions"].astype(np.int64)
    return np.arange(images)
