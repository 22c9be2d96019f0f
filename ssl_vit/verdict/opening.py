"""From options to a study: images, labels to judge at, networks, and what cannot take part."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from ssl_vit.configs import ModelConfig, presets, to_dict
from ssl_vit.configs import networks as network_options
from ssl_vit.configs.metrics import METRICS
from ssl_vit.configs.networks import Needs, meets
from ssl_vit.core.dist import gather_lists
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import loads
from ssl_vit.core.text import duration
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import chosen_metric
from ssl_vit.data.sources.everywhere import same_everywhere
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.evaluation.features import RAW_SIDE, candidate_pools
from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import PUBLIC, start_called
from ssl_vit.methods.supervised import labelled_rate
from ssl_vit.models.backbone import Pool
from ssl_vit.models.build import build_backbone, facts_of
from ssl_vit.released.starts import network_of_weights
from ssl_vit.verdict.fitting import Counted, TooMuch, cannot, counted, fitted
from ssl_vit.verdict.named import named_runs
from ssl_vit.verdict.networks import networks_beside, own_scale, prepare_public
from ssl_vit.verdict.options import Comparison, label_counts, seconds_of, starts_of
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
    side: int
    """What chose the preset: median short side of the images, or of a window, in pixels."""
    asked: tuple[str, ...]
    """Starts that were named: no budget leaves them out."""
    costs: dict[str, Counted]
    """Of pre-training, by start."""


def open_images(cfg: Comparison) -> tuple[ImageSet, str, Labelled]:
    """The pool and what it is, and the labelled images (every process must call it).

    Raises:
        UserError: For paths, labels and splits that cannot be used, and where not all processes see the same.
    """
    pool, note = open_pool(cfg.data, cfg.eval.data)
    same_everywhere(pool)
    data = open_labelled(cfg.data, cfg.eval.data)
    same_everywhere(data.train, data.test)
    if (form := pool.form) != (judged := data.test.form):
        raise UserError(
            f"the pool has images of {form.channels} channel(s) and {form.bits} bits, the labelled images of "
            f"{judged.channels} and {judged.bits}; pre-training on one kind cannot be judged on the other"
        )
    return pool, note, data


def open_study(opened: Opened, jobs: int | None) -> Opened:
    """Prepares the networks that need no training, and leaves out what costs too much of what was ``decided``.

    ``jobs`` runs are made at a time; None where this is no CPU, of which nothing is counted.
    """
    study, left_out, pool = opened.study, dict(opened.left_out), opened.pool
    cfg = study.recipe
    if is_main():
        _forget(study)
        _export_untrained(study, pool)
    if PUBLIC in study.starts:
        named = cfg.verdict.methods is not None or cfg.verdict.public is not None
        why = gather_lists([prepare_public(study, pool, asked=named) or ""] if is_main() else [])[0]
        if why:
            left_out[PUBLIC] = why
        lacks = [s for s in study.starts if start_called(s).network == PUBLIC and (why or not _goes_on(study, s))]
        study = replace(study, starts=tuple(s for s in study.starts if s not in lacks))
    costs = counted(study, pool, opened.side, cpu=jobs is not None)
    study, wanted = replace(study, epochs={start: cost.epochs for start, cost in costs.items()}), starts_of(cfg.verdict)
    if jobs is not None:
        more = cannot(study, costs, len(pool), opened.budget, jobs)
        study = _feasible(study, more, wanted)
        _check_budget(study, more, opened.budget)
        left_out |= {start: too_much.why for start, too_much in more.items()}
    asked = tuple(s for s in study.starts if wanted[s])
    return opened._replace(study=study, left_out=left_out, asked=asked, costs=costs)


def decided(cfg: Comparison, folder: Path, pool: ImageSet, data: Labelled, jobs: int | None) -> Opened:
    """What takes part, with what network, as far as it is told without costs; nothing is written."""
    train, test = data.train, data.test
    metric = chosen_metric(cfg.eval.metric, test.kind, test.truth)
    _check_defined(metric, data)
    digits = cfg.data.path == "digits" and not cfg.eval.data.path
    budget = cfg.verdict.budget or ("8m" if digits else "30m" if jobs is not None else None)
    limit = None if budget is None else seconds_of(budget)
    given, model = named_runs(cfg, pool)
    cfg = replace(cfg, model=model)
    short = cfg.data.window or pool.sizes.short_side
    wanted = starts_of(cfg.verdict)
    notes = list[str]()
    if jobs is not None and not given:
        first = next((s for s in wanted if s in METHODS), next(iter(METHODS)))
        fit = fitted(cfg, first, len(pool), short, pool.form, limit, max(1, jobs), folder)
        cfg, notes = replace(cfg, model=fit.model), [fit.note] if fit.note else []
    model = cfg.model
    shape = facts_of(model, short, cfg.preset)
    resolved = network_options.resolve_model(model, short, shape, cfg.preset)
    preset = presets.preset_for(cfg.preset, resolved.img_size, cpu=jobs is not None)
    classes = len(np.unique(train.truth)) if train.kind == "class" else None
    counts, lost = label_counts(cfg.verdict, len(train), classes, digits)
    notes += lost + _small_classes(cfg, train)
    tuned = tuned_counts(counts, {n: _held_out(train, n) for n in counts})
    backbone = build_backbone(resolved, pool.form.channels)
    rates = {start: labelled_rate(preset, backbone.embed_dim, start) for start in preset.base_lr}
    parameters = sum(p.numel() for p in backbone.parameters())
    widths = sum(backbone.pooled_width(cast(Pool, name)) for name in candidate_pools(backbone)[1])
    raw = min(RAW_SIDE, resolved.img_size) ** 2 * pool.form.channels
    starts = list(wanted)
    if cfg.verdict.backbones is not None:
        starts = [s for s in starts if s in given or not start_called(s).made or (wanted[s] and s in METHODS)]
    left_out = _lacking([s for s in starts if s in METHODS], resolved.name, shape.offers, wanted)
    usual = network_options.NETWORKS[preset.network].width
    small = limit is not None and jobs is not None and (resolved.width or usual) < usual
    beside = networks_beside(cfg.verdict, resolved, parameters, cfg.data.window, preset.name, small=small)
    beside = _as_planned(folder, beside, limit)
    starts = [s for s in starts if s not in left_out and _carried(s, beside)]
    study = Study(
        folder=folder, recipe=cfg, kind=train.kind, metric=metric, labels=counts, starts=tuple(starts),
        preset=preset.name, model=resolved,
        networks=beside, epochs={}, given=given, tuned=() if cfg.verdict.trials == 1 else tuned, matched=tuned,
        judged=len(train) + len(test), heads=(widths * len(train.classes), raw * len(train.classes)),
        base_lr=rates | {"public": preset.base_lr["finetune"]},  # public networks are wide ones
    )  # fmt: skip
    return Opened(study, pool, data, left_out, notes, limit, short, (), {})


def _as_planned(folder: Path, networks: dict[str, ModelConfig], seconds: float | None) -> dict[str, ModelConfig]:
    """The networks of a plan that is there, which another version may have chosen; else those given."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if loads((folder / "plan.json").read_text())["budget"] == seconds:
            told = loads((folder / "network.json").read_text())
            return {name: ModelConfig(**told[name]) for name in networks}
    return networks


def _carried(start: str, networks: Mapping[str, ModelConfig]) -> bool:
    """Whether another network than the ViT offers what a method needs; public weights are looked at later."""
    known = start_called(start)
    if not known.made or known.network not in networks:
        return True
    return meets(facts_of(networks[known.network]).offers, METHODS[known.method].needs)


def _goes_on(study: Study, start: str) -> bool:
    """Whether a method can go on from the public weights."""
    known = start_called(start)
    if not known.made:
        return True
    try:
        network_of_weights(study.whole(start).model, METHODS[known.method].needs)
    except UserError:
        return False
    return True


def _feasible(study: Study, cannot: Mapping[str, TooMuch], wanted: Mapping[str, bool]) -> Study:
    """The study without what takes more than there is.

    Raises:
        UserError: For what was named.
    """
    for start, (why, lacks, _) in cannot.items():
        if wanted[start]:
            jobs = "; --verdict.jobs 1 leaves more memory for each" if lacks == "memory" else ""
            raise UserError(
                f"--verdict.methods {start}: {why}; leave it out, give more budget or a smaller network{jobs}"
            )
    return replace(study, starts=tuple(s for s in study.starts if s not in cannot))


def _check_budget(study: Study, cannot: Mapping[str, TooMuch], seconds: float | None) -> None:
    """Refuses a budget in which no pre-training can be done, before anything is measured."""
    late = {start: too_much for start, too_much in cannot.items() if too_much.lacks == "time"}
    if seconds is None or not late or study.given or any(start_called(s).made for s in study.starts):
        return
    start, least = min(late.items(), key=lambda each: each[1].budget)
    raise UserError(
        f"--verdict.budget: {duration(seconds)} is too short to recommend anything: {start_called(start).title} alone "
        f"is too much, {least.why}, and the baselines come on top; give more than {duration(least.budget)}, or "
        "leave the option out"
    )


_LACKS = {
    "tokens": "reads the tokens of an image, which {} does not give",
    "dropping": "leaves out tokens of an image, which {} cannot",
}


def _lacking(starts: Sequence[str], network: str, offers: Needs, wanted: Mapping[str, bool]) -> dict[str, str]:
    """Methods that use more of a network than it offers, and why.

    Raises:
        UserError: For the first of them, where methods were named.
    """
    lacking = [METHODS[s] for s in starts if not meets(offers, METHODS[s].needs)]
    why = {m.name: f"{m.title} {_LACKS[m.needs].format(network)}" for m in lacking}
    for start, reason in ((s, reason) for s, reason in why.items() if wanted[s]):
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


def _forget(study: Study) -> None:
    """Removes what an earlier start left that ended here: of other options, or of another budget's network."""
    units, told = study.folder / "units", study.folder / "network.json"
    now = json.dumps(to_dict(study.model) | {name: to_dict(model) for name, model in study.networks.items()})
    if units.exists() and told.exists() and told.read_text() == now:
        return
    for name in ("untrained", "public"):
        shutil.rmtree(study.folder / "runs" / name, ignore_errors=True)
    for path in units.glob("measure-*.json"):
        path.unlink()
    write_atomically(told, now)


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
