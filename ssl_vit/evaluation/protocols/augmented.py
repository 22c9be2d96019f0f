"""Heads trained on augmented images, on a frozen backbone: linear-aug (MAE), linear-aug (DINO) and attentive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator

from ssl_vit.configs import LinearRecipe, ResolvedFit, ResolvedLinear, ResolvedOptim, RunConfig, to_dict
from ssl_vit.configs.networks import check_pool
from ssl_vit.configs.presets import Preset
from ssl_vit.configs.protocols import PROTOCOLS, ProbeOptimConfig, ResolvedProbe
from ssl_vit.configs.resolve import batch_for, least_steps, resolve_augment
from ssl_vit.configs.settled import settle
from ssl_vit.core.notices import say_once
from ssl_vit.data.loading.file_crops import file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.targets import measure_targets
from ssl_vit.evaluation.answers import answered
from ssl_vit.evaluation.features import Features, answers_to
from ssl_vit.evaluation.judging import Judged
from ssl_vit.evaluation.metrics import judge as measure
from ssl_vit.evaluation.protocols.frozen import HEADINGS, own_options
from ssl_vit.evaluation.session import Session
from ssl_vit.models.backbone import Backbone, with_tokens
from ssl_vit.objectives.probe import AttentiveHead, FrozenProbe, linear_head, probe_view
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.runs.identity import digest, identity
from ssl_vit.training.launch import DTYPES, count_steps, describe, micro_batch_size, summarise, with_statistics
from ssl_vit.training.loop import fit
from ssl_vit.views.training import left_out

PROBES = {
    "aug-mae": (ProbeOptimConfig("lars", None, 0.1, 1 / 9, 0.0), 90.0, 16384),
    "aug-dino": (ProbeOptimConfig("sgd", None, 1e-3, 0.0, 0.0), 100.0, 1024),
    "attentive": (ProbeOptimConfig("adamw", None, 1e-3, 0.05, 0.05), 100.0, 1024),
}
"""Optimiser, epochs and batch of each protocol that trains on augmented images (MAE, appendix A.1; DINO's released
linear evaluation; the attentive probe's are our own)."""
_HEADS = {
    "aug-mae": "batch norm without affine (statistics of all processes), linear",
    "aug-dino": "linear",
    "attentive": "batch norm without affine, one learned query per head, linear",
}


def resolve_probe(cfg: LinearRecipe, images: int, preset: Preset, *, width: int, class_token: bool) -> ResolvedLinear:
    """The protocol's own optimiser, length, batch, crops and pooling as definite values, for so many labelled images.

    A batch that the images do not fill four times is halved until they do. The rate of the protocol's own optimiser
    does not fall with it: the length stays, and a head that starts at zero would hardly be trained.

    Raises:
        UserError: For a pooling that the backbone does not have.
    """
    protocol = cfg.linear.protocol
    own, epochs, batch = PROBES[protocol]
    given = {k: v for k, v in vars(cfg.optim).items() if v is not None}
    pool = cfg.linear.pool
    if protocol != "attentive":
        usual = "cls" if protocol == "aug-mae" else "cls4" if width < 768 else "cls+mean"
        pool = pool or (usual if class_token else "mean")
        check_pool(pool, class_token)
    batch_size = cfg.fit.batch_size or batch_for(images, batch)
    optim = replace(own, **given)
    reduced = cfg.fit.batch_size is None and batch_size < batch
    if reduced and optim.name == own.name and optim.base_lr and not {"lr", "base_lr"} & set(given):
        # LARS (a share of the weights' norm) and SGD as with the whole batch, which is too much for AdamW.
        whole = batch if optim.name in ("lars", "sgd") else max(batch_size, 256)
        optim = replace(optim, lr=optim.base_lr * whole / 256)
    boxes = preset.flip and cfg.augment.crop != "pad"  # digits are used whole
    crop = (0.08, 1.0) if boxes else (1.0, 1.0)
    return settle(
        ResolvedLinear,
        cfg,
        linear=settle(ResolvedProbe, cfg.linear, pool=pool, heads=cfg.linear.heads or max(1, width // 64)),
        optim=optim,
        fit=settle(
            ResolvedFit, cfg.fit, epochs=cfg.fit.epochs or epochs, batch_size=batch_size, min_steps=least_steps(cfg.fit)
        ),
        augment=resolve_augment(cfg.augment, preset, crop, labelled=False),
    )


def judge(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocols linear-aug (MAE), linear-aug (DINO) and attentive.

    Raises:
        UserError: For a pooling that the backbone does not have, or one that has no patch tokens.
    """
    exported, data, name = session.exported, session.data, PROTOCOLS[cfg.linear.protocol].method
    backbone, asked = exported.backbone, cfg
    if cfg.linear.protocol == "attentive":
        with_tokens(backbone, "--linear.protocol attentive")
    preset, made_of = exported.preset(exported.size), [exported.weights_hash, data.train.fingerprint]
    cfg = resolve_probe(cfg, len(data.train), preset, width=backbone.embed_dim, class_token=backbone.class_token)
    options = identity(to_dict(replace(cfg, backbone="", run=RunConfig())), type(cfg))
    # Batch statistics are those of a micro-batch.
    folder = session.run.path / "linear_probe" / digest([options, *made_of, cfg.fit.given_micro_batch])[:8]
    probed = [(str(exported.about.get("objective", "backbone")), "backbone", backbone)]
    if cfg.eval.baselines:
        probed.append(("random weights", "random-weights", exported.with_random_weights(cfg.seed)))
    rows, answers = [], {}
    for method, part, network in probed:
        if accelerator.is_main_process:
            print(f"{name} on {method}")
        own = replace(cfg, run=RunConfig(str(folder / part)))
        run = open_run(
            "linear_probe", own, data=data.train.name, fingerprint="-".join(made_of),
            writes=accelerator.is_main_process, accelerator=describe(accelerator),
        )  # fmt: skip
        metrics, found = train_probe(
            network, data, exported.scale, own, size=exported.size, run=run, accelerator=accelerator
        )
        answers = answers or answered(data.test, session.metric, found.x, found)
        trained = {k: to_dict(cfg)[k] for k in ("optim", "fit", "augment")}
        rows.append({"method": method, "pool": cfg.linear.pool or "tokens", "trained_with": trained, **metrics})
    meaning = {
        "linear": own_options(cfg),
        "pool": cfg.linear.pool or "all tokens",
        "head": _HEADS[cfg.linear.protocol],
        "optim": to_dict(asked.optim),  # what an open option becomes may depend on the number of labels
        "fit": to_dict(asked.fit),
        "augment": to_dict(asked.augment),
        "batch_statistics": asked.fit.given_micro_batch or "of the whole batch",
        "selection": "none: fixed options, last step",
    }
    return Judged(rows, meaning, f"{name} (fixed options, last step)", answers, HEADINGS)


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
    """Trains one head on a frozen backbone in the one loop, at an input of ``size`` pixels.

    Returns:
        Metrics of the last step on the test images, steps and unreadable images; and its answers to the test images.
    """
    protocol, optim = cfg.linear.protocol, ResolvedOptim(**to_dict(cfg.optim))
    torch.manual_seed(cfg.seed)
    outputs, reads = len(data.train.classes), cfg.linear.pool or "cls"
    if protocol == "attentive":
        head, reads = AttentiveHead(backbone.embed_dim, outputs, cfg.linear.heads), "tokens"
    else:
        head = linear_head(backbone.pooled_width(reads), outputs, standardise=protocol == "aug-mae")
    targets = measure_targets(data.train.truth) if data.train.kind == "regression" else None
    objective = FrozenProbe(backbone, head, reads=reads, kind=data.train.kind)
    learnt = data.train if targets is None else data.train.standardised(targets)
    loader = Loader(
        learnt, batch_size=cfg.fit.batch_size, micro_batch=micro_batch_size(cfg.fit, accelerator.num_processes),
        seed=cfg.seed, device=accelerator.device, cache=cfg.data.cache, workers=cfg.data.workers,
        crops=file_crops(cfg.data, data.train, cfg.augment, size), repeats=cfg.augment.repeats,
    )  # fmt: skip
    view = probe_view(scale, cfg.augment, size=size, dtype=DTYPES.get(cfg.fit.precision, torch.float32))
    for note in left_out(cfg.augment, data.train.form.channels, scale.bits):
        say_once(note)
    summarise(objective, loader, cfg.fit, optim, f"head on {reads}", accelerator)
    taken = with_statistics(cfg.fit, accelerator.num_processes, cfg.linear.protocol != "aug-dino")
    objective = fit(objective, loader, view, fit=taken, optim=optim, run=run, accelerator=accelerator, seed=cfg.seed)
    objective.eval()
    dtype = next(objective.head.parameters()).dtype
    found = answers_to(objective.outputs, data.test, scale, size=size, dtype=dtype, device=accelerator.device)
    found = found if targets is None else replace(found, x=targets.restore(found.x))
    metrics = measure(data.train.kind, found.x, found.labels, data.test.classes)
    metrics |= {"steps": count_steps(cfg.fit, loader), "unreadable_test_images": list(found.left_out)}
    return metrics, found
