"""The five protocols of eval/linear_probe.py, by name: what they compute and what they put on record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator

from ssl_vit.configs import LinearRecipe, ResolvedLinear, ResolvedOptim, RunConfig, flat, to_dict
from ssl_vit.configs.networks import check_pool
from ssl_vit.configs.presets import for_side
from ssl_vit.configs.resolve import resolve_probe
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.targets import measure_targets
from ssl_vit.evaluation.answers import Answers, answers_of
from ssl_vit.evaluation.features import Features, extract_features, images_at_once
from ssl_vit.evaluation.linear import linear_probe
from ssl_vit.evaluation.linear_cached import linear_cached
from ssl_vit.evaluation.metrics import judge
from ssl_vit.evaluation.session import Session, arithmetic, contestants, extract_both
from ssl_vit.models.backbone import Backbone, Pool, with_tokens
from ssl_vit.objectives.probe import AttentiveHead, FrozenProbe, linear_head, probe_view
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.runs.identity import digest, identity
from ssl_vit.training.launch import (
    DTYPES,
    count_steps,
    describe,
    micro_batch_size,
    summarise,
    with_statistics,
)
from ssl_vit.training.loop import fit
from ssl_vit.views.evaluation import eval_images

NAMES = {
    "cached": "linear-cached",
    "logistic": "logistic",
    "aug-mae": "linear-aug (MAE)",
    "aug-dino": "linear-aug (DINO)",
    "attentive": "attentive",
}
"""What a protocol is called in tables and result files."""

FILES = {**NAMES, "aug-mae": "linear-aug-mae", "aug-dino": "linear-aug-dino"}
"""Names of the result files."""

_OWN = {
    "cached": ("rates", "decays", "default_rate", "default_decay", "passes", "min_steps", "batch_size", "folds"),
    "logistic": ("grid", "folds", "default", "max_iter"),
    "attentive": ("heads",),
}
"""Options of ``--linear`` that a protocol reads beside its pooling."""


class Judged(NamedTuple):
    """A protocol's numbers; on processes other than the main one without rows."""

    rows: list[dict[str, Any]]
    protocol: dict[str, Any]
    """Everything that gives the numbers their meaning."""
    note: str
    """For the table's title."""
    answers: Answers
    """The backbone's, for every test image."""


def judge_linear(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """Judges the backbone, and the baselines that the protocol allows, by ``--linear.protocol``.

    Raises:
        UserError: For options that the protocol does not read, or labels it cannot learn.
    """
    _refuse_without_effect(cfg)
    if cfg.linear.protocol in ("cached", "logistic"):
        return _on_features(cfg, session, accelerator)
    return _on_augmented_images(cfg, session, accelerator)


def _refuse_without_effect(cfg: LinearRecipe) -> None:
    """An option that was changed for nothing is a mistake."""
    usual, given = flat(to_dict(LinearRecipe())), flat(to_dict(cfg))
    trained = cfg.linear.protocol in ("aug-mae", "aug-dino", "attentive")
    read = {f"linear.{name}" for name in ("protocol", "pool", *_OWN.get(cfg.linear.protocol, ()))}
    groups = ("linear.",) if trained else ("linear.", "optim.", "fit.", "augment.")
    lost = [n for n in given if n.startswith(groups) and n not in read and given[n] != usual.get(n)]
    lost = [n for n in lost if n != "fit.precision"]
    if lost:
        raise UserError(
            f"--{lost[0]} has no effect with --linear.protocol {cfg.linear.protocol}, which reads "
            f"{', '.join(sorted('--' + n for n in read))}{' and --optim, --fit, --augment' if trained else ''}"
        )


def _options(cfg: LinearRecipe) -> dict[str, Any]:
    own = ("protocol", *_OWN.get(cfg.linear.protocol, ()))
    return {k: v for k, v in to_dict(cfg.linear).items() if k in own}


def candidate_pools(backbone: Backbone) -> tuple[Pool, dict[str, slice]]:
    """What to extract in one pass, and which of its columns are which pooling.

    The columns are the class tokens of the last four blocks, then the mean of patches: every candidate is a slice.
    """
    if not backbone.class_token:
        return "mean", {"mean": slice(None)}
    width, all_cls = backbone.embed_dim, backbone.pooled_width("cls4")
    return "cls4+mean", {
        "cls": slice(all_cls - width, all_cls),
        "mean": slice(all_cls, all_cls + width),
        "cls4": slice(0, all_cls),
        "cls+mean": slice(all_cls - width, all_cls + width),
    }


def _on_features(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    exported, data, device = session.exported, session.data, accelerator.device
    backbone, cached = exported.backbone, cfg.linear.protocol == "cached"
    if not cached and data.train.kind != "class":
        raise UserError("--linear.protocol logistic needs one class per image; use cached")
    if cfg.linear.pool is not None:
        check_pool(cfg.linear.pool, backbone.class_token)
    if cached and cfg.linear.pool is None:
        pool, pools = candidate_pools(backbone)
    else:
        pool = cfg.linear.pool or exported.pool
        pools = {pool: slice(None)}
    described = session._replace(exported=exported._replace(pool=pool))
    features = [  # of all before anything is fitted: the other processes do not wait for the main one meanwhile
        (contestant.method, *extract_both(described, contestant, cfg.eval, device))
        for contestant in contestants(described, cfg.eval, seed=cfg.seed, device=device)
    ]
    rows, answers = [], {}
    for method, bank, asked in features if accelerator.is_main_process else ():
        own = {"pixels": slice(None)} if method == "raw pixels" else pools
        default = exported.pool if exported.pool in own else next(iter(own))
        fitted, scores = _fit(cfg, session, bank, asked, own, default, device)
        metrics = judge(data.train.kind, scores, asked.labels, data.test.classes)
        answers = answers or _answers(session, scores, asked)
        rows.append({"method": method, **fitted, **metrics, "unreadable_test_images": list(asked.left_out)})
    protocol = {
        "linear": _options(cfg),
        "pool": list(pools) if cached else pool,
        "features": "standardised on the part trained on" + (", over the root of their number" if cached else ""),
        "optimiser": "SGD, momentum 0.9, half a cosine to 0" if cached else "scikit-learn's lbfgs",
        "selection": f"{cfg.linear.folds}-fold cross-validation inside the training labels"
        + (", groups kept whole" if data.train.groups is not None else ""),
        **arithmetic(cfg.eval),
    }
    return Judged(rows, protocol, rows[0]["selection"] if rows else "", answers)


def _answers(session: Session, scores: np.ndarray, asked: Features) -> Answers:
    test = session.data.test
    groups = None if test.groups is None else test.groups[asked.index]
    return answers_of(test.kind, session.metric, scores, asked.labels, test.classes, groups, positions=asked.index)


def _fit(
    cfg: LinearRecipe,
    session: Session,
    bank: Features,
    asked: Features,
    pools: dict[str, slice],
    default: str,
    device: torch.device,
) -> tuple[dict[str, Any], Any]:
    train, names = session.data.train, session.data.test.classes
    groups = None if train.groups is None else train.groups[bank.index]
    if cfg.linear.protocol == "logistic":
        done = linear_probe(
            bank.x, bank.labels, asked.x, classes=len(names), cfg=cfg.linear, seed=cfg.seed, groups=groups
        )
        row = {"C": f"{done.strength:g}", "selection": done.selection, "converged": done.converged}
        return {**row, "pool": next(iter(pools))}, done.scores
    found = linear_cached(
        bank.x, bank.labels, asked.x, pools, kind=train.kind, names=names, cfg=cfg.linear, default_pool=default,
        seed=cfg.seed, metric=session.metric, groups=groups, device=device,
    )  # fmt: skip
    row = {"pool": found.pool, "rate": f"{found.rate:g}", "decay": f"{found.decay:g}", "selection": found.selection}
    return {**row, "validated": found.validated}, found.scores


def _on_augmented_images(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    exported, data = session.exported, session.data
    backbone, asked = exported.backbone, cfg
    if cfg.linear.protocol == "attentive":
        with_tokens(backbone, "--linear.protocol attentive")
    cfg = resolve_probe(
        cfg, len(data.train), for_side(exported.size), width=backbone.embed_dim, class_token=backbone.class_token
    )
    unique = digest(
        [
            identity(to_dict(replace(cfg, backbone="", run=RunConfig())), type(cfg)),
            exported.weights_hash,
            data.train.fingerprint,
            cfg.fit.given_micro_batch,  # batch statistics are those of a micro-batch
        ]
    )
    folder = session.run.path / "linear_probe" / unique[:8]
    probed = [(str(exported.about.get("objective", "backbone")), "backbone", backbone)]
    if cfg.eval.baselines:
        probed.append(("random weights", "random-weights", exported.with_random_weights(cfg.seed)))
    rows, answers = [], {}
    for method, name, network in probed:
        if accelerator.is_main_process:
            print(f"{NAMES[cfg.linear.protocol]} on {method}")
        own = replace(cfg, run=RunConfig(str(folder / name)))
        run = open_run(
            "linear_probe", own, data=data.train.name, fingerprint=f"{exported.weights_hash}-{data.train.fingerprint}",
            writes=accelerator.is_main_process, accelerator=describe(accelerator),
        )  # fmt: skip
        metrics, found = train_probe(
            network, data, exported.scale, own, size=exported.size, run=run, accelerator=accelerator
        )
        answers = answers or _answers(session, found.x, found)
        trained = {k: to_dict(cfg)[k] for k in ("optim", "fit", "augment")}
        rows.append({"method": method, "pool": cfg.linear.pool or "tokens", "trained_with": trained, **metrics})
    protocol = {
        "linear": _options(cfg),
        "pool": cfg.linear.pool or "all tokens",
        "head": {
            "aug-mae": "batch norm without affine (statistics of all processes), linear",
            "aug-dino": "linear",
            "attentive": "batch norm without affine, one learned query per head, linear",
        }[cfg.linear.protocol],
        "optim": to_dict(asked.optim),  # what an open option becomes may depend on the number of labels
        "fit": to_dict(asked.fit),
        "augment": to_dict(asked.augment),
        "batch_statistics": asked.fit.given_micro_batch or "of the whole batch",
        "selection": "none: fixed options, last step",
    }
    return Judged(rows if accelerator.is_main_process else [], protocol, "fixed options, last step", answers)


def train_probe(
    backbone: Backbone,
    data: Labelled,
    scale: PixelScale,
    cfg: ResolvedLinear,
    *,
    size: int,
    run: RunDir,
    accelerator: Accelerator,
) -> tuple[dict[str, Any], Features]:
    """Trains one head on a frozen backbone in the one loop, and judges the last step on the test images.

    Args:
        backbone: Frozen in place.
        data: Labelled training and test images.
        scale: Pixel statistics.
        cfg: Resolved by ``resolve_probe``.
        size: Side of the input in pixels.
        run: Where metrics and checkpoints go.
        accelerator: Made by ``train.start``.

    Returns:
        Metrics on the test images, steps and unreadable images; and what the head says of every test image.
    """
    protocol, optim = cfg.linear.protocol, ResolvedOptim(**to_dict(cfg.optim))
    assert cfg.linear.heads is not None
    torch.manual_seed(cfg.seed)
    outputs, reads = len(data.train.classes), cfg.linear.pool or "cls"
    if protocol == "attentive":
        head, reads = AttentiveHead(backbone.embed_dim, outputs, cfg.linear.heads), "tokens"
    else:
        head = linear_head(backbone.pooled_width(reads), outputs, standardise=protocol == "aug-mae")
    mean = std = None
    if data.train.kind == "regression":
        mean, std = (torch.tensor(v) for v in measure_targets(data.train.truth))
    objective = FrozenProbe(backbone, head, reads=reads, kind=data.train.kind, mean=mean, std=std)
    loader = Loader(
        data.train, batch_size=cfg.fit.batch_size, micro_batch=micro_batch_size(cfg.fit, accelerator.num_processes),
        seed=cfg.seed, device=accelerator.device, cache=cfg.data.cache, workers=cfg.data.workers,
        crops=file_crops(cfg.data, data.train, cfg.augment, size),
    )  # fmt: skip
    view = probe_view(scale, cfg.augment, size=size, dtype=DTYPES.get(cfg.fit.precision, torch.float32))
    summarise(objective, loader, cfg.fit, optim, f"head on {reads}", accelerator)
    taken = with_statistics(cfg.fit, accelerator.num_processes, cfg.linear.protocol != "aug-dino")
    fit(objective, loader, view, fit=taken, optim=optim, run=run, accelerator=accelerator, seed=cfg.seed)
    found = _scores(objective, data.test, scale, size, accelerator.device)
    metrics = judge(data.train.kind, found.x, found.labels, data.test.classes)
    metrics |= {"steps": count_steps(cfg.fit, loader), "unreadable_test_images": list(found.left_out)}
    return metrics, found


def _scores(objective: FrozenProbe, images: ImageSet, scale: PixelScale, size: int, device: torch.device) -> Features:
    objective.eval()
    dtype = next(objective.head.parameters()).dtype

    def extract(batch: Batch) -> torch.Tensor:
        with torch.inference_mode():
            return objective.scores(eval_images(batch, scale, size, dtype))

    at_once = images_at_once(None, size, device)
    return extract_features(extract, images, batch_size=at_once, device=device, may_be_constant=True)
