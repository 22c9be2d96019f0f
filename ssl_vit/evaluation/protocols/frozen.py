"""Linear probes on features that are extracted once: linear-cached and logistic."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

from ssl_vit.configs import LinearRecipe, to_dict
from ssl_vit.configs.networks import check_pool
from ssl_vit.configs.protocols import probe_named
from ssl_vit.evaluation.features import Features, candidate_pools
from ssl_vit.evaluation.judging import Judged, answered
from ssl_vit.evaluation.linear import linear_probe
from ssl_vit.evaluation.linear_cached import linear_cached
from ssl_vit.evaluation.metrics import judge as measure
from ssl_vit.evaluation.session import Session, arithmetic, contestants, extract_both

HEADINGS = {"method": "features", "pool": "pooling", "rate": "rate", "decay": "decay", "C": "C"}
"""Columns of a linear probe's table before the metrics."""


def own_options(cfg: LinearRecipe) -> dict[str, Any]:
    """The options of ``--linear`` that the protocol reads, but for its pooling."""
    read = probe_named(cfg.linear.protocol).reads
    return {k: v for k, v in to_dict(cfg.linear).items() if f"linear.{k}" in read and k != "pool"}


def judge(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocols linear-cached and logistic.

    Args:
        cfg: What ``--help`` lists.
        session: Backbone and images.
        accelerator: Made by ``launch.start``.

    Raises:
        UserError: For a pooling that the backbone does not have.
    """
    exported, data, device = session.exported, session.data, accelerator.device
    backbone, cached = exported.backbone, cfg.linear.protocol == "cached"
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
        metrics = measure(data.train.kind, scores, asked.labels, data.test.classes)
        answers = answers or answered(session, scores, asked)
        rows.append({"method": method, **fitted, **metrics, "unreadable_test_images": list(asked.left_out)})
    options = {
        "linear": own_options(cfg),
        "pool": list(pools) if cached else pool,
        "features": "standardised on the part trained on" + (", over the root of their number" if cached else ""),
        "optimiser": "SGD, momentum 0.9, half a cosine to 0" if cached else "scikit-learn's lbfgs",
        "selection": f"{cfg.linear.folds}-fold cross-validation inside the training labels"
        + (", groups kept whole" if data.train.groups is not None else ""),
        **arithmetic(cfg.eval),
    }
    title = f"{probe_named(cfg.linear.protocol).method} ({rows[0]['selection'] if rows else ''})"
    return Judged(rows, options, title, answers, HEADINGS)


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
