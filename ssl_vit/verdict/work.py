"""The tasks of a verdict: each runs in one process (or all together), and leaves files that are whole.

Whatever interrupts one of them, the same command goes on.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ssl_vit.configs import RunConfig
from ssl_vit.configs.metrics import METRICS, defined_on_any
from ssl_vit.core.dist import gather_lists, rank_and_world
from ssl_vit.core.errors import Collapsed, Diverged, UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import json_lines, read_object, read_yaml
from ssl_vit.core.started import main_of
from ssl_vit.evaluation.answers import Answers, save_answers
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import start_called
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.runs import lock
from ssl_vit.runs.identity import digest, remove
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate

_AGAIN = "remove it, and run eval/verdict.py again"
_LINES, _SECONDS, _MOST_STEPS, _TIMES = 6, 3.0, 120, 3
"""Parts that measured steps are timed in, how long they should take, how many they are and how often at most."""


def key_of(start: str, use: str, labels: int, draw: int, *, matched: bool = False) -> str:
    """Name of a number's files."""
    return f"{start}-{use}{'-matched' if matched else ''}-{labels}-labels-draw-{draw}"


def files_of(key: str) -> list[str]:
    """Where a number and its answers are, in the verdict's folder."""
    return [f"results/{key}.json", f"results/{key}.npz"]


def pretrain(study: Study, start: str, number: int) -> dict[str, Any]:
    """One pre-training run, continued where it was.

    Returns:
        What ``cost_of`` the run says, or ``failed``: why, where self-distillation collapsed or training diverged.
    """
    config = study.pretraining(start, number)
    try:
        _run(METHODS[start_called(start).method].script, config)
    except (Collapsed, Diverged) as error:
        return {"failed": str(error)}
    return cost_of(Path(config.run.dir or "")) if is_main() else {}


def cost_of(run: Path) -> dict[str, Any]:
    """What a run took: steps done and planned, images seen, FLOPs, seconds of training, peak memory in bytes, devices.

    ``planned`` is None for a run of an earlier version, which did not record it.
    """
    lines, timing = _lines(run / "metrics.jsonl"), _lines(run / "timing.jsonl")
    about = read_object(run / "environment.json", _AGAIN)
    batch = read_yaml(run / "config.yaml")["fit"]["batch_size"]
    steps = np.diff([0, *[line["step"] for line in timing]])
    seconds = float((steps * batch / np.array([line["images_per_second"] for line in timing])).sum())
    images = lines[-1]["step"] * batch
    return {
        "steps": lines[-1]["step"], "planned": about.get("steps"),
        "images": images, "seconds": seconds, "flops": about.get("flops_per_image", 0) * images or None,
        "peak_memory": max(line["peak_memory"] for line in timing), "device": about["hardware"].get("device"),
        "devices": about["hardware"].get("processes", 1), "last_loss": lines[-1]["loss"],
    }  # fmt: skip


def _lines(path: Path) -> list[dict[str, Any]]:
    if not (lines := json_lines(path).whole):
        raise UserError(f"{path} {'is damaged' if path.exists() else 'is missing'}; {_AGAIN}")
    return lines


def trial(study: Study, start: str, labels: int, number: int, chosen: Candidate) -> dict[str, Any]:
    """One trial of options on the first draw, judged by a fifth of its labels.

    Returns:
        ``score``: larger is better; None where training diverged, or no metric is defined on so few labels.
    """
    folder = study.folder / "work" / f"trial-{start}-{labels}-{number}"
    script, config = study.training(start, labels, 0, chosen, folder, held_out=True)
    found: dict[str, Any] = {}
    try:
        _run(script, config)
        if is_main():
            row, cost = _result(folder)["rows"][0], cost_of(folder)
            # A fifth of the labels may be all of one class, or one number; then another metric judges all trials.
            names = (study.metric, defined_on_any(study.kind))
            metric = next((name for name in names if row.get(name) is not None), None)
            score = None if metric is None else METRICS[metric].sign * row[metric]
            found = {"score": score, "cost": cost, "command": study.command(script, config)}
    except Diverged as error:
        found = {"score": None, "why": str(error)}
    discard(folder)
    return found


def measure(study: Study, start: str) -> dict[str, Any]:
    """Some steps of a run, for planning: its pace, and what a run takes beside its steps.

    Tried at least twice: the first time also imports and compiles what all runs use, and tells little of how many steps
    the time is enough for.
    """
    if method := start_called(start).method:
        config: Any = study.pretraining(start, 0)
        script = METHODS[method].script
        own = getattr(config, method)
        if hasattr(own, "on_collapse"):  # so few steps say nothing of it
            config = replace(config, **{method: replace(own, on_collapse="warn")})
        if config.model.weights:  # nor of drift
            config = replace(config, continued=replace(config.continued, least_agreement=0.0, least_cka=0.0))
    else:
        script, config = study.training(start, study.labels[-1], 0, study.usual(start, study.labels[-1]), study.folder)
    steps, found, folder = _LINES, dict[str, Any](), study.folder / "work" / f"measure-{start}"
    for number in range(_TIMES):
        discard(folder)
        fit = replace(config.fit, epochs=1e-6, min_steps=steps, log_every=steps // _LINES)
        began, enough = time.monotonic(), 0.0
        main_of(script)(replace(config, fit=fit, run=RunConfig(str(folder))))
        took = time.monotonic() - began
        if is_main():
            timing, cost = _lines(folder / "timing.jsonl"), cost_of(folder)
            pace = float(np.median([line["images_per_second"] for line in timing[_LINES // 2 :]]))  # first it warms up
            batch, overhead = cost["images"] / steps, max(0.0, took - cost["seconds"])
            found = {"images_per_second": pace, "batch": batch, "overhead": overhead,
                     "flops_per_image": (cost["flops"] or 0) / cost["images"]}  # fmt: skip
            enough = _SECONDS * pace / batch
        discard(folder)
        wanted = int(gather_lists([str(int(np.clip(enough, _LINES, _MOST_STEPS)))])[0])  # as the main process says
        if number and wanted < 2 * steps:
            break
        steps = _LINES * (wanted // _LINES)
    return found


def training(
    study: Study, start: str, labels: int, draw: int, chosen: Candidate, steps: int | None = None
) -> dict[str, Any]:
    """All weights trained on one draw of labels, and judged on the test images.

    ``steps`` takes the place of the tuned length, for the baseline at the FLOPs of pre-training and fine-tuning.

    Returns:
        ``value`` and ``files``, or ``failed`` where training diverged with the tuned options and with the usual ones;
        a ``note`` of either.
    """
    matched = steps is not None
    key = key_of(start, "train", labels, draw, matched=matched)
    where = f"{start_called(start).title} with {labels:,} labels, draw {draw}"
    where += ", at the FLOPs of pre-training" if matched else ""
    found: dict[str, Any] = {"failed": "diverged", "note": f"{where}: training diverged, so there is no number"}
    folders = {chosen: study.folder / "work" / key}
    folders.setdefault(study.usual(start, labels), study.folder / "work" / f"{key}-usual")
    for options, folder in folders.items():
        script, config = study.training(start, labels, draw, options, folder, steps=steps)
        try:
            _run(script, config)
        except Diverged:
            continue
        found = _keep_training(study, script, config, start, labels, draw, matched) if is_main() else {}
        if options != chosen:
            found["note"] = f"{where}: training with the tuned options diverged, so the usual ones were taken"
        break
    for folder in folders.values():
        discard(folder)
    return found


_RULES = (
    "optim",
    "fit",
    "model",
    "preset",
    "supervised.mixup",
    "supervised.cutmix",
    "augment.policy",
    "augment.erasing",
)
"""What is tuned, and what the number of labels decides: no options here."""


def _keep_training(
    study: Study, script: str, config: Any, start: str, labels: int, draw: int, matched: bool
) -> dict[str, Any]:
    folder = Path(config.run.dir)
    result = _result(folder)
    row, protocol = result["rows"][0], result["protocol"]
    for name in _RULES:
        remove(protocol, name)
    v = study.recipe.verdict
    protocol |= {
        "evaluation": "all weights trained", "clip_grad": config.fit.clip_grad,
        "tuning": {"trials": v.trials, "length": v.length, "at": list(study.tuned), "judged by": "a held-out fifth"},
        "augmentation": f"as preset {study.preset} for so many images seen",
    }  # fmt: skip
    row["method"] = (
        start_called(start).title
        if isinstance(config, SupervisedRecipe)
        else f"{start_called(start).title}, fine-tuned"
    )
    result |= {"protocol": protocol, "protocol_hash": digest(protocol)}
    told = {"pretraining": study.number(start, draw), "command": study.command(script, config), "cost": cost_of(folder)}
    answers = next((folder / "results").glob("*.npz"), None)
    files = keep(study, start, "train", labels, draw, result, answers, told, matched=matched)
    if draw == 0 and labels == study.labels[-1] and not matched:  # one is kept, for pictures and predict.py
        classifier = study.folder / "runs" / f"{start}-trained"
        shutil.rmtree(classifier, ignore_errors=True)
        shutil.copytree(folder, classifier, ignore=shutil.ignore_patterns("checkpoints", lock.NAME))
    return {"value": row[study.metric], "files": files}


def _run(script: str, config: Any) -> None:
    """A script with these options, in a folder that holds nothing else."""
    prepare(Path(config.run.dir))
    main_of(script)(config)


def _result(folder: Path) -> dict[str, Any]:
    return read_object(next((folder / "results").glob("*.json")), _AGAIN)


def is_main() -> bool:
    """Whether this process writes."""
    return rank_and_world()[0] == 0


def prepare(folder: Path) -> None:
    """Leaves a run that may be continued, and removes what an interruption left that is none."""
    if is_main() and not (folder / "config.yaml").exists():
        shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path) -> None:
    """Removes a run that is no longer needed, if there is one; half of one is never taken for a run."""
    aside = folder.with_name(f"{folder.name}.gone")
    if is_main():
        shutil.rmtree(aside, ignore_errors=True)
        if folder.exists():
            folder.rename(aside)
            shutil.rmtree(aside)


def keep(
    study: Study, start: str, use: str, labels: int, draw: int, result: dict[str, Any], answers: Path | Answers | None,
    told: dict[str, Any], *, matched: bool = False,
) -> list[str]:  # fmt: skip
    """Writes a number's files, and says which; answers first, so a result that is there is whole.

    ``answers`` are of every test image, or the file with them; ``told`` is what else a verdict says of the number:
    command, cost, number of the pre-training seed.
    """
    key = key_of(start, use, labels, draw, matched=matched)
    path = study.folder / "results" / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(answers, Path):
        shutil.copyfile(answers, path.with_suffix(".npz"))
    elif answers is not None:
        save_answers(path, answers)
    about = {"start": start, "use": use, "draw": draw, "share": 100 * labels / study.labels[-1], "matched": matched}
    write_atomically(path, json.dumps(result | {"verdict": about | told, "draw": draw}, indent=1) + "\n")
    return files_of(key)
