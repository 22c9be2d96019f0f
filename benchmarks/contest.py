"""What benchmarks of pre-training share: cells computed once, an opened network, training all weights on labels."""

from __future__ import annotations

import json
import multiprocessing
import runpy
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssl_vit.configs import AugmentConfig

NAMES = {"mae": "MAE", "dino": "DINO"}
"""Recipes as tables name them."""
_PREFIX = {"mae": "backbone.", "dino": "teacher.backbone."}
"""Where a checkpoint holds what is exported."""


@dataclass(frozen=True)
class Plan:
    """What is done with one image set."""

    about: str
    pretrain: dict[str, tuple[str, ...]]
    """Options of recipes/RECIPE.py besides path, seed and folder."""
    steps: dict[int, int]
    """Number of labels (0: all) to optimiser steps of training all weights, batch 64."""
    draws: int
    metric: str
    rates: dict[str, tuple[float, float, float]]
    """Candidate learning rates."""
    curve: int | None = None
    """Labels of k-NN over the epochs (0: all); None: no curve."""


def run_cells(tasks: dict[str, tuple[Any, ...]], cells: Path, processes: int) -> None:
    """What is not finished yet, each in a fresh process; a cell's rows are kept in CELLS/NAME.json."""
    todo = {key: words for key, words in tasks.items() if not (cells / f"{key}.json").exists()}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        running = {pool.submit(*words): key for key, words in todo.items()}
        for done in as_completed(running):
            (cells / f"{running[done]}.json").write_text(json.dumps(done.result()))
            print(f"{running[done]} finished", flush=True)


def pretrain(recipe: str, folder: str, options: tuple[str, ...], threads: int = 1) -> None:
    """recipes/RECIPE.py on so many threads."""
    import torch

    torch.set_num_threads(threads)
    root = Path(__file__).resolve().parent.parent
    sys.argv = [str(root / f"recipes/{recipe}.py"), *options, "--run.dir", folder]
    runpy.run_path(sys.argv[0], run_name="__main__")


def open_network(folder: str, path: str | None = None, precision: str = "fp32") -> tuple[Any, Any, Any]:
    """The accelerator (one thread), a pre-trained backbone, and the images it belongs to with their labels.

    Args:
        folder: The backbone's.
        path: Where those images lie now; None: where they were.
        precision: Of what is trained.
    """
    import torch
    from ssl_vit.configs import LabelledDataConfig, PoolConfig
    from ssl_vit.data.sources.opening import open_labelled
    from ssl_vit.evaluation.session import on_canvas
    from ssl_vit.exports.timm_folder import load_backbone
    from ssl_vit.training import launch

    torch.set_num_threads(1)
    accelerator, exported = launch.join(precision, 0), load_backbone(folder)
    own = PoolConfig(**exported.about["data"] | ({"path": path} if path else {}))
    labelled = open_labelled(own, LabelledDataConfig())
    return accelerator, exported, on_canvas(labelled, own.canvas, exported.size, own.window)


def train_on(
    opened: tuple[Any, Any, Any], task: str, rate: float | None, draw: int, train_set: Any, judged_on: Any, steps: int,
    layer_decay: float | None = None, batch: int = 64, augment: AugmentConfig | None = None,
) -> dict[str, float]:  # fmt: skip
    """All weights trained on some labels, from random ("scratch") or pre-trained ones ("finetune").

    ``augment`` and ``layer_decay`` are the recipe's own where None is given.

    Returns:
        What they reach on ``judged_on``.
    """
    import torch
    from ssl_vit.configs import presets
    from ssl_vit.data.sources.opening import Labelled
    from ssl_vit.evaluation.labelled_run import facts_of_backbone, train_on_labels
    from ssl_vit.methods import supervised
    from ssl_vit.runs.directory import RunDir

    accelerator, exported, data = opened
    scratch = task == "scratch"
    backbone = exported.with_random_weights(draw) if scratch else exported.backbone
    recipe = supervised.SupervisedRecipe() if scratch else supervised.FinetuneRecipe()
    decay = recipe.optim.layer_decay if layer_decay is None else layer_decay
    recipe = replace(
        recipe, seed=draw, optim=replace(recipe.optim, lr=rate, layer_decay=decay), augment=augment or recipe.augment,
        fit=replace(recipe.fit, batch_size=batch, epochs=1e-3, min_steps=steps, log_every=10**9),
    )  # fmt: skip
    facts = facts_of_backbone(backbone, exported, None, len(train_set), train_set.kind)
    settle: Any = supervised.resolve if scratch else supervised.resolve_finetuning
    cfg = settle(recipe, facts, presets.preset_for(None, exported.size, cpu=True))
    torch.manual_seed(draw)
    with tempfile.TemporaryDirectory() as place:
        trained = train_on_labels(
            backbone, Labelled(train_set, judged_on, data.split), exported.scale, cfg, size=exported.size,
            run=RunDir(Path(place), True), accelerator=accelerator, quiet=True,
        )  # fmt: skip
    return trained.metrics


def knn_votes(bank: Any, asked: Any, classes: int, columns: slice = slice(None)) -> Any:
    """Scores of k-NN (k = 20) for the features ``asked``, from the labelled features ``bank``; some columns or all."""
    import numpy as np
    import torch
    from ssl_vit.evaluation.knn import knn_scores

    rows = (bank.x[:, columns], bank.labels, asked.x[:, columns])
    tensors = [torch.from_numpy(np.ascontiguousarray(row)) for row in rows]
    return knn_scores(*tensors, ks=(20,), classes=classes)[20].numpy()


def knn_curve(recipe: str, folder: str, method: str, labels: int | None, draw: int) -> list[dict[str, Any]]:
    """k-NN (k = 20) on the test images with some labels: at random weights, at every checkpoint kept, at the end."""
    import torch
    from ssl_vit.evaluation.features import backbone_extractor, extract_features
    from ssl_vit.evaluation.few_label import labelled_draw
    from ssl_vit.evaluation.metrics import judge

    accelerator, exported, data = open_network(folder)
    part, device, classes = labelled_draw(data.train, labels, draw), accelerator.device, data.test.classes
    backbone, rows = exported.with_random_weights(draw), []
    took, done = seconds_until(Path(folder))
    weights = {0: backbone.state_dict()}
    for path in sorted((Path(folder) / "checkpoints").glob("step_*.pt")):
        state, prefix = torch.load(path, map_location="cpu", weights_only=True), _PREFIX[recipe]
        weights[state["step"]] = {
            name.removeprefix(prefix): value for name, value in state["objective"].items() if name.startswith(prefix)
        }
    for step, state in weights.items():
        backbone.load_state_dict(state)
        extract = backbone_extractor(backbone, exported.scale, size=exported.size, pool="cls+mean", device=device)
        bank, asked = (extract_features(extract, s, batch_size=512, device=device) for s in (part, data.test))
        width = backbone.embed_dim
        for pool, columns in (("cls", slice(0, width)), ("mean", slice(width, None))):
            judged = judge("class", knn_votes(bank, asked, len(classes), columns), asked.labels, classes)
            rows.append({"curve": method, "pool": pool, "step": step, "labels": len(part),
                         "epoch": step / done["step"] * done["epoch"], "minutes": took(step) / 60,
                         **{k: judged[k] for k in ("top1", "balanced")}})  # fmt: skip
    return rows


def seconds_until(folder: Path) -> tuple[Any, dict[str, Any]]:
    """How long training took until a step, from its log, and the log's last line."""
    import numpy as np

    done = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    batch = batch_size(folder)
    steps = np.array([0, *[line["step"] for line in timing]])
    seconds = np.cumsum([0.0, *np.diff(steps) * batch / np.array([line["images_per_second"] for line in timing])])
    return lambda step: float(np.interp(step, steps, seconds)), done


def reached(folder: Path, metric: str) -> float:
    """What a run that was trained on labels says of its test images."""
    (place,) = (folder / "results").glob("*.json")
    return float(json.loads(place.read_text())["rows"][0][metric])


def batch_size(folder: Path) -> int:
    """Effective batch of a run."""
    import yaml

    return yaml.safe_load((folder / "config.yaml").read_text())["fit"]["batch_size"]
