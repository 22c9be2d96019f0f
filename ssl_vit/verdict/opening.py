"""From options to a study: images, labels to judge at, networks, and what cannot take part."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ssl_vit.configs import networks, presets
from ssl_vit.configs.metrics import METRICS
from ssl_vit.configs.networks import Needs, meets
from ssl_vit.core.dist import gather_lists
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import chosen_metric
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.evaluation.features import RAW_SIDE, candidate_pools
from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods import METHODS, Facts
from ssl_vit.methods.supervised import labelled_rate
from ssl_vit.models.backbone import Pool
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.verdict.named import named_runs
from ssl_vit.verdict.networks import cnn_for, own_scale, prepare_public
from ssl_vit.verdict.options import Comparison, label_counts, methods_of, seconds_of
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import tuned_counts
from ssl_vit.verdict.work import is_main


class Opened(NamedTuple):
    """A study, and the images it is about."""

    study: Study
    pool: ImageSet
    data: Labelled
    left_out: dict[str, str]
    """Methods that cannot take part, and why."""
    notes: list[str]
    """Numbers of labels that were left out, and why."""
    budget: float | None
    """Seconds."""


def open_images(cfg: Comparison) -> tuple[ImageSet, str, Labelled]:
    """The pool and what it is, and the labelled images.

    Raises:
        UserError: For paths, labels and splits that cannot be used.
    """
    pool, note = open_pool(cfg.data, cfg.eval.data)
    data = open_labelled(cfg.data, cfg.eval.data)
    if (form := pool.form) != (judged := data.test.form):
        raise UserError(
            f"the pool has images of {form.channels} channel(s) and {form.bits} bits, the labelled images of "
            f"{judged.channels} and {judged.bits}; pre-training on one kind cannot be judged on the other"
        )
    return pool, note, data


def open_study(cfg: Comparison, folder: Path, pool: ImageSet, data: Labelled) -> Opened:
    """Decides what takes part."""
    train, test = data.train, data.test
    metric = chosen_metric(cfg.eval.metric, test.kind, test.truth)
    _check_defined(metric, data)
    given, model = named_runs(cfg, pool)
    cfg = replace(cfg, model=model)
    short = cfg.data.window or pool.sizes.short_side
    shape = model_facts(*networks.wanted(model, short, cfg.preset))
    resolved = networks.resolve_model(model, short, shape, cfg.preset)
    preset = presets.preset_for(cfg.preset, resolved.img_size)
    classes = len(np.unique(train.truth)) if train.kind == "class" else None
    digits = cfg.data.path == "digits" and not cfg.eval.data.path
    counts, notes = label_counts(cfg.verdict, len(train), classes, digits)
    notes += _small_classes(cfg, train)
    tuned = tuned_counts(counts, {n: _held_out(train, n) for n in counts})
    backbone = build_backbone(resolved, pool.form.channels)
    rates = {start: labelled_rate(preset, backbone.embed_dim, start) for start in preset.base_lr}
    parameters = sum(p.numel() for p in backbone.parameters())
    widths = sum(backbone.pooled_width(cast(Pool, name)) for name in candidate_pools(backbone)[1])
    raw = min(RAW_SIDE, resolved.img_size) ** 2 * pool.form.channels
    starts = list(methods_of(cfg.verdict.methods))
    if cfg.verdict.backbones is not None and cfg.verdict.methods is None:
        starts = [s for s in starts if s not in METHODS or s in given]
    left_out = _lacking(starts, resolved.name, shape.offers, asked=cfg.verdict.methods is not None)
    starts = [s for s in starts if s not in left_out]
    study = Study(
        folder=folder, recipe=cfg, kind=train.kind, metric=metric, labels=counts, starts=tuple(starts),
        preset=preset.name, model=resolved,
        cnn=cnn_for(cfg.verdict.cnn, parameters, resolved.img_size, cfg.data.window),
        epochs=_epochs(cfg, starts, Facts(len(pool), resolved, shape), preset),
        given=given, tuned=tuned, matched=tuple(sorted({counts[0], counts[-1]})),
        judged=len(train) + len(test), heads=(widths * len(train.classes), raw * len(train.classes)),
        base_lr=rates | {"public": preset.base_lr["finetune"]},  # public networks are wide ones
    )  # fmt: skip
    if is_main():
        if not (folder / "units").exists():  # what an earlier start left that ended here may be of other options
            for name in ("untrained", "public"):
                shutil.rmtree(folder / "runs" / name, ignore_errors=True)
        _export_untrained(study, pool)
    if "public" in starts:
        asked = cfg.verdict.methods is not None or cfg.verdict.public is not None
        why = gather_lists([prepare_public(study, pool, asked=asked) or ""] if is_main() else [])[0]
        if why:
            left_out["public"] = why
            study = replace(study, starts=tuple(s for s in study.starts if s != "public"))
    budget = cfg.verdict.budget or ("10m" if digits else None)
    return Opened(study, pool, data, left_out, notes, None if budget is None else seconds_of(budget))


_LACKS = {
    "tokens": "reads the tokens of an image, which {} does not give",
    "dropping": "leaves out tokens of an image, which {} cannot",
}


def _lacking(starts: Sequence[str], network: str, offers: Needs, *, asked: bool) -> dict[str, str]:
    """Methods that use more of a network than it offers, and why.

    Raises:
        UserError: For the first of them, where methods were named.
    """
    lacking = [METHODS[s] for s in starts if s in METHODS and not meets(offers, METHODS[s].needs)]
    why = {m.name: f"{m.title} {_LACKS[m.needs].format(network)}" for m in lacking}
    if why and asked:
        start, reason = next(iter(why.items()))
        raise UserError(
            f"--verdict.methods {start}: {reason}; leave it out, or name a plain ViT, for example --model.name vit_tiny"
        )
    return why


def _check_defined(metric: str, data: Labelled) -> None:
    """Refuses a metric that the labels of these test images leave undefined, before anything is trained."""
    test = data.test
    if METRICS[metric].needs_variety and not np.ptp(test.truth, axis=0).any():
        which = "a single class" if test.kind == "class" else "labels that do not vary"
        raise UserError(
            f"--eval.metric {metric} is not defined on the {len(test):,} test images ({data.split}), which have "
            f"{which}; name another metric, or other test images with --eval.data.test_split"
        )


def _small_classes(cfg: Comparison, train: ImageSet) -> list[str]:
    """Where there are not as many labels per class as were asked for."""
    if cfg.verdict.per_class is None or train.kind != "class":
        return []
    sizes = np.bincount(train.truth, minlength=len(train.classes))
    return [
        f"{k} per class: there are fewer of {', '.join(names[:3])}{' and others' if names[3:] else ''}, all of "
        "which are taken; larger classes give more instead"
        for k in dict.fromkeys(cfg.verdict.per_class)
        if (names := [name for name, n in zip(train.classes, sizes, strict=True) if 0 < n < k])
    ]  # fmt: skip


def _held_out(train: ImageSet, labels: int) -> int:
    """How many labels a choice inside the first draw is made by; 0 where none can be made."""
    drawn = labelled_draw(train, labels, 0)
    parts = held_out_inside(drawn.truth, 0, drawn.kind, drawn.groups)
    return 0 if parts is None else len(parts[1])


def _epochs(cfg: Comparison, starts: Sequence[str], facts: Facts, preset: presets.Preset) -> dict[str, float]:
    """The whole length of pre-training of every method that takes part."""
    return {
        name: METHODS[name].resolve(cfg.of(METHODS[name]), facts, preset).fit.epochs
        for name in starts if name in METHODS
    }  # fmt: skip


def _export_untrained(study: Study, pool: ImageSet) -> None:
    """The network before any training, with the pool's pixel statistics: what random features and raw pixels use."""
    place = study.folder / "runs" / "untrained"
    if (place / "backbone" / "config.json").exists():
        return
    model = study.model
    about = {"objective": "random weights", "positions": model.positions, "pool_fingerprint": pool.fingerprint}
    about |= recorded_data(study.recipe.data, study.recipe.eval.data)
    backbone = build_backbone(model, pool.form.channels)
    export_backbone(backbone, place / "backbone", own_scale(study, pool, model.img_size), model.pool, about)


def facts(opened: Opened, note: str) -> dict[str, Any]:
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
