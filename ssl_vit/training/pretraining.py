"""pretrain: images in, a backbone out, by any method of the table; and what to type next."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ssl_vit.configs import (
    OBJECT,
    GuardedConfig,
    LabelledDataConfig,
    ModelConfig,
    PretrainingRecipe,
    ResolvedAugment,
    ResolvedContinued,
    ResolvedModel,
    ResolvedPretraining,
    networks,
    presets,
    to_dict,
)
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.core.started import python_line, typed
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import FileCrops, file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.everywhere import same_everywhere
from ssl_vit.data.sources.opening import Labelled, labels_here, open_pool
from ssl_vit.data.sources.told import label_lines, print_lines, unnamed_table
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import Exported, export_backbone
from ssl_vit.leaks.guard import Guarded, guard_pool
from ssl_vit.methods import Facts, Method
from ssl_vit.methods.method import imported
from ssl_vit.models.batchnorm import takes_batch_statistics
from ssl_vit.models.build import build_backbone, facts_of
from ssl_vit.models.families import ours
from ssl_vit.objectives.base import Built, Objective
from ssl_vit.released.starts import for_images, layout_of, network_of_weights, read_start
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.training import launch, loop
from ssl_vit.training.continuing import Continuing
from ssl_vit.training.drift import Drift
from ssl_vit.training.forecast import lighter_networks, network_of, within_an_hour
from ssl_vit.training.health import Health
from ssl_vit.training.saving import CHECKPOINTS, kept_tensor
from ssl_vit.training.trackers import follow

_LOOKED_AT = 200_000
"""Images up to which the first lines tell of labels."""


class Beginning(NamedTuple):
    """Accelerator, images and network of a run."""

    accelerator: Accelerator
    guarded: Guarded
    """The pool, without images that show test images."""
    note: str
    """What is said about the pool: its source, and images that stay out."""
    side: int
    """What chose the preset: median short side of the images, or of a window, in pixels."""
    facts: Facts
    preset: presets.Preset
    named: str | None
    """As given by ``--preset``."""
    judged: Labelled | None
    """What will be judged on, for what is said of it; None where there are no labels."""
    asked: PretrainingRecipe
    """With what an hour of a CPU allows, where nobody named network and length."""

    @property
    def pool(self) -> ImageSet:
        """What is pre-trained on."""
        return self.guarded.images


def pretrain(method: Method, asked: PretrainingRecipe) -> RunDir:
    """Images in, RUN/backbone out, by an entry of ``methods.METHODS``; continues where an earlier start ended.

    Where weights that it goes on from (``--model.weights``) drift too far while they are trained (``training.drift``),
    the run ends there, and what is exported is the best-known state before.

    UserError for options, images and networks that do not go together.
    """
    begun = _begin(method, asked)
    accelerator, facts = begun.accelerator, begun.facts
    cfg: ResolvedPretraining = method.resolve(begun.asked, facts, begun.preset)
    size = cfg.model.img_size
    # What judges is above this room, and imported only where it is asked for.
    watched = imported("ssl_vit.evaluation.watching:open_watch")(cfg, begun.pool.form) if cfg.fit.watch else None
    pool = begun.pool.on_canvas(cfg.data.canvas, size, cfg.data.window)
    start = _start(cfg.model, pool)
    scale = start.scale if start else measure_scale(pool)
    backbone = start.backbone if start else build_backbone(cfg.model, pool.form.channels)
    dtype = launch.DTYPES.get(cfg.fit.precision, torch.float32)
    built: Built = imported(method.build)(cfg, backbone, scale, dtype)
    objective = built.objective
    if built.reads > size:  # by another network beside it
        pool = begun.pool.on_canvas(cfg.data.canvas, built.reads, cfg.data.window)
    crops = _crops(method, cfg, pool, max(size, built.reads))
    cfg = replace(cfg, **({} if built.settled is None else {method.name: built.settled}))
    taken = takes_batch_statistics(backbone) or objective.batch_statistics
    continuing = None
    if isinstance(cfg.continued, ResolvedContinued):
        micro = launch.micro_batch_size(cfg.fit, accelerator.num_processes)
        continuing = Continuing(objective, cfg.continued, Drift(cfg.continued, pool, scale, cfg.model.pool, micro))
    if continuing is None and cfg.optim.layer_decay != 1:
        raise UserError(
            f"--optim.layer_decay {cfg.optim.layer_decay:g} is for networks that begin with weights (--model.weights) "
            "and for training on labels; from random weights every block has the same rate"
        )
    cfg = replace(cfg, fit=launch.with_statistics(cfg.fit, accelerator.num_processes, taken))
    loader = Loader(
        pool, batch_size=cfg.fit.batch_size, micro_batch=launch.micro_batch_size(cfg.fit, accelerator.num_processes),
        seed=cfg.seed, device=accelerator.device, cache=cfg.data.cache, workers=cfg.data.workers, crops=crops,
        repeats=getattr(getattr(cfg, "augment", None), "repeats", 1),
    )  # fmt: skip
    launch.use_cores(accelerator, size)
    made_of = [*([start.weights_hash] if start else []), begun.pool.fingerprint]
    run = open_run(
        method.name, cfg, data=cfg.data.path, fingerprint="-".join(made_of),
        writes=accelerator.is_main_process, accelerator=launch.describe(accelerator),
    )  # fmt: skip
    follow(run, cfg)
    if accelerator.is_main_process:
        if begun.guarded.omission:
            begun.guarded.omission.write(run.path)
        if start and run.about is not None:
            run.about["started_from"] = _told_of(start, cfg.model)
        _warn(method, built, cfg, begun.judged)
        print_lines(_first_lines(begun, cfg))
    objective.prepare(pool, scale, run.path, cfg.seed, partial(kept_tensor, run.path / CHECKPOINTS))
    sees = f"{begun.note}; preset {cfg.preset}, {built.sees}"
    launch.summarise(objective, loader, cfg.fit, cfg.optim, sees, accelerator)
    steps = launch.count_steps(cfg.fit, loader)
    words = objective.describe(steps)
    if continuing is not None:
        words = "\n".join(filter(None, (words, continuing.describe(steps, cfg.optim.layer_decay))))
    watch = None if watched is None else watched(scale)
    if watch is not None:
        words = "\n".join(filter(None, (words, watch.describe(cfg.fit.watch_percent))))
    if accelerator.is_main_process and words:
        print(words, flush=True)
    objective = loop.fit(
        objective, loader, built.view, fit=cfg.fit, optim=cfg.optim, run=run, accelerator=accelerator, seed=cfg.seed,
        health=Health(loader, scale, cfg.model.pool), watch=watch, continuing=continuing,
        lighter=partial(lighter_networks, method, cfg, asked, len(pool), begun.side, pool.form),
    )  # fmt: skip
    drift = None if continuing is None else continuing.drift
    if accelerator.is_main_process:
        made: dict[str, Any] = {"step": steps if drift is None or drift.passed is None else drift.kept["step"]}
        if start is not None:
            made["started_from"] = _told_of(start, cfg.model)
        if drift is not None:
            drift.leave(objective.exported())
            made["continued"] = drift.record()
            run.record("drift", drift.record())
            print(drift.words(), flush=True)
        _export(method, objective, cfg, begun, scale, run, made)
        seen = ""
        if method.picture and (drift is None or drift.passed is None):  # its other parts are of a later step
            path = run.path / "figures" / f"{method.picture.partition(':')[0].rpartition('.')[2]}.png"
            imported(method.picture)(objective, loader.images, scale, path, cfg)  # plotting takes time to import
            run.show(path, steps)
            seen = f"Picture: {path}   "
        print(_what_next(cfg, begun, run, seen))
    return run


def _begin(method: Method, cfg: PretrainingRecipe) -> Beginning:
    """Joins the other processes, opens the images and chooses the network; a wrong model name comes before data."""
    if cfg.model.weights is not None:
        network_of_weights(cfg.model, method.needs)
    elif cfg.model.name is not None:
        facts_of(cfg.model, needs=method.needs)
    accelerator = launch.join(cfg.fit.precision, cfg.seed, cfg.fit.products)
    pool, note = open_pool(cfg.data, cfg.eval.data)
    same_everywhere(pool)
    guarded = guard_pool(pool, cfg.data, cfg.eval.data, accelerator.device)
    pool, judged = guarded.images, None
    if accelerator.is_main_process and len(pool) <= _LOOKED_AT:  # of more, looking at all files again takes minutes
        judged = labels_here(cfg.data, cfg.eval.data)
        if judged is None and cfg.eval.data.path is None and (hint := unnamed_table(pool)):
            say_once(hint)
    side = cfg.data.window or pool.sizes.short_side
    if accelerator.device.type == "cpu" and cfg.model.weights is None:
        cfg, chosen = within_an_hour(method, cfg, len(pool), side, pool.form)
        if chosen and accelerator.is_main_process:
            print(chosen, flush=True)
    facts, preset = network_of(method, cfg, len(pool), side, cpu=accelerator.device.type == "cpu")
    return Beginning(accelerator, guarded, note, side, facts, preset, cfg.preset, judged, cfg)


def _start(model: ResolvedModel, pool: ImageSet) -> Exported | None:
    """What ``--model.weights`` names, for the images; None for random weights."""
    if model.weights is None:
        return None
    found = read_start(model.weights, "--model.weights")
    return for_images(found, pool, img_size=model.img_size, patch_size=model.patch_size)


def _told_of(start: Exported, model: ResolvedModel) -> dict[str, Any]:
    """Which weights a run went on from."""
    what = start.about.get("objective", "weights of timm")
    return {"weights": model.weights, "hash": start.weights_hash, "objective": what, **layout_of(start)}


def _crops(method: Method, cfg: ResolvedPretraining, pool: ImageSet, side: int) -> FileCrops | None:
    """Crops of that side in pixels that loader processes cut: of methods that see one of an image."""
    augment = getattr(cfg, "augment", None)
    if isinstance(augment, ResolvedAugment):
        return file_crops(cfg.data, pool, augment, side)
    if cfg.data.crop_from == "file":
        raise UserError(
            f"--data.crop_from file: {method.title} cuts several crops of every decoded image; leave it out"
        )
    return None


def _first_lines(begun: Beginning, cfg: ResolvedPretraining) -> list[tuple[str, str]]:
    """Labels, which training does not read, and the network."""
    lines = [] if begun.judged is None else label_lines(begun.judged)
    lines = [(name, f"{text} (training reads none)" if name == "labels" else text) for name, text in lines]
    begins = f"; goes on from {cfg.model.weights}" if cfg.model.weights else ""
    return [*lines, ("network", networks.words_of(cfg.model) + begins), ("input", f"{cfg.model.img_size} px")]


def _warn(method: Method, built: Built, cfg: ResolvedPretraining, judged: Labelled | None) -> None:
    """Says what the view leaves out, and that outputs are fewer than classes where both are known."""
    for note in built.notes:
        say_once(note)
    outputs = built.objective.answers
    classes = len(judged.train.classes) if judged is not None and judged.train.kind == "class" else None
    if outputs is not None and classes is not None and outputs < classes:
        say_once(
            f"warning: --{method.name}.out_dim {outputs} is smaller than the {classes} classes of the images; outputs "
            "should be many times as many, or classes have to share them"
        )


def _export(
    method: Method, objective: Objective, cfg: ResolvedPretraining, begun: Beginning, scale: PixelScale, run: RunDir,
    made: dict[str, Any],
) -> None:  # fmt: skip
    """Writes RUN/backbone with what evaluation must know of its origin, and with how it was ``made`` of another."""
    recorded: dict[str, Any] = {
        "objective": ", ".join(filter(None, (method.title, objective.export_note))),
        "method": method.name,
        "preset": cfg.preset,
        "pool_fingerprint": begun.pool.fingerprint,
        "images": len(begun.pool),
        "seed": cfg.seed,
        "transductive": cfg.data.transductive,
        "guarded": begun.guarded.about,
        **recorded_data(cfg.data, cfg.eval.data),
        **made,
    }
    if omission := begun.guarded.omission:
        recorded["left_out"] = {"images": len(omission.images), "of": omission.total}
    recorded |= objective.origin
    if begun.facts.network.plain:
        recorded |= {"positions": cfg.model.positions, "init": cfg.model.init}
    export_backbone(objective.exported(), run.backbone, scale, cfg.model.pool, recorded, objective.beside())


def _what_next(cfg: ResolvedPretraining, begun: Beginning, run: RunDir, seen: str) -> str:
    """Where everything is, a picture that was drawn among it, and the commands that tell what it is worth."""
    # Only a made or given test split, or another labelled source, can be judged on.
    known = cfg.eval.data.path or "stay out" in begun.note or cfg.data.transductive
    judged = "" if known else " --eval.data.path LABELLED_IMAGES"
    place = quote(str(run.backbone))
    judging = [f"{typed(f'eval/{name}.py')} --backbone {place}{judged}" for name in ("knn", "linear_probe", "finetune")]
    again = _baseline_options(cfg, begun)
    baseline = f"{typed('recipes/supervised.py')} {' '.join(again)}{judged}"
    if cfg.data.path.startswith(OBJECT):  # no other process can read it
        words = {k[2:]: v for k, v in zip(again[::2], again[1::2], strict=True) if not k.startswith("--data.")}
        images = f"data={'images' if known else 'labelled_images'}"
        judging = [
            f"ssl_vit.evaluate({str(run.path)!r}, {name!r}, {images})" for name in ("knn", "logistic", "finetune")
        ]
        baseline = f"ssl_vit.pretrain('supervised', {images}{f', **{words}' if words else ''})"
    modules = "timm, ssl_vit.families" if ours(cfg.model.name) else "timm"
    folder = f"local-dir:{run.backbone.absolute()}"
    load = f"import {modules}; timm.create_model({folder!r}, pretrained=True)"
    return (
        f"\nThe pre-trained backbone is in {run.backbone}"
        f"\n  {load if cfg.data.path.startswith(OBJECT) else python_line(load)}"
        f"\n{seen}Metrics: {run.path / 'metrics.jsonl'}   Options: {run.path / 'config.yaml'}\n"
        "\nWhat it is worth on labelled images:"
        + "".join(f"\n  {line}" for line in judging)
        + f"\nand the same network without pre-training:\n  {baseline}".rstrip()
    )


def _baseline_options(cfg: ResolvedPretraining, begun: Beginning) -> list[str]:
    """The options with which the labelled baseline uses the same images and network."""
    side, named, network = begun.side, begun.named, begun.facts.network
    model = replace(cfg.model, weights=None)
    if short := networks.short_name(model.name, model.args):  # as it was typed
        own = networks.FAMILIES[short].args
        model = replace(model, name=short, args=None if model.args == own else model.args)
    name = None if model.name == networks.wanted(ModelConfig(), side, named)[0] else model.name
    usual: ModelConfig = networks.resolve_model(ModelConfig(name), side, network, named)
    if cfg.model.weights is not None or cfg.eval.data.path not in (None, cfg.data.path):
        # Other images would choose another network, and so would these without the weights: name all of it.
        name, usual = None, ModelConfig()
    elif short:
        model = replace(model, name=usual.name)  # it is named already
    words = [w for option, value in (("preset", named), ("model.name", name)) if value for w in (f"--{option}", value)]
    groups = [("data", cfg.data, GuardedConfig()), ("eval.data", cfg.eval.data, LabelledDataConfig())]
    for group, given, default in [*groups, ("model", model, usual)]:
        for field, value in to_dict(given).items():
            if value is not None and value != getattr(default, field, value):  # the baseline declares nothing
                text = value if isinstance(value, str) else json.dumps(value)
                words += [f"--{group}.{field}", quote(text)]
    return words
