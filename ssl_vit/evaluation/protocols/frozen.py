"""Protocols on features that are extracted once: neighbours, linear-cached and logistic."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator

from ssl_vit.configs import KNNRecipe, LinearRecipe, to_dict
from ssl_vit.configs.networks import check_pool
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.evaluation.answers import answered
from ssl_vit.evaluation.features import candidate_pools
from ssl_vit.evaluation.judging import Judged
from ssl_vit.evaluation.knn import by_neighbours
from ssl_vit.evaluation.linear import linear_probe
from ssl_vit.evaluation.linear_cached import linear_cached
from ssl_vit.evaluation.metrics import judge as measure
from ssl_vit.evaluation.session import Session, arithmetic, contestants, extract_both

HEADINGS = {"method": "features", "pool": "pooling", "rate": "rate", "decay": "decay", "C": "C"}
"""Columns of a linear probe's table before the metrics."""


def own_options(cfg: LinearRecipe) -> dict[str, Any]:
    """The options of ``--linear`` that the protocol reads, but for its pooling."""
    read = PROTOCOLS[cfg.linear.protocol].reads
    return {k: v for k, v in to_dict(cfg.linear).items() if f"linear.{k}" in read and k != "pool"}


def judge(cfg: LinearRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocols linear-cached and logistic; a pooling that the backbone does not have is a ``UserError``."""
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
    train, names, rows, answers = data.train, data.test.classes, [], {}
    for method, bank, asked in features if accelerator.is_main_process else ():
        given = bank.x, bank.labels, asked.x
        own = {"pixels": slice(None)} if method == "raw pixels" else pools
        groups = None if train.groups is None else train.groups[bank.index]
        if cached:
            default = exported.pool if exported.pool in own else next(iter(own))
            found = linear_cached(
                *given, own, kind=train.kind, names=names, cfg=cfg.linear, default_pool=default, seed=cfg.seed,
                metric=session.metric, groups=groups, device=device,
            )  # fmt: skip
            fitted = {"pool": found.pool, "rate": f"{found.rate:g}", "decay": f"{found.decay:g}",
                      "selection": found.selection, "validated": found.validated}  # fmt: skip
        else:
            found = linear_probe(*given, classes=len(names), cfg=cfg.linear, seed=cfg.seed, groups=groups)
            fitted = {"C": f"{found.strength:g}", "selection": found.selection, "converged": found.converged,
                      "pool": next(iter(own))}  # fmt: skip
        metrics = measure(train.kind, found.scores, asked.labels, names)
        answers = answers or answered(data.test, session.metric, found.scores, asked)
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
    title = f"{PROTOCOLS[cfg.linear.protocol].method} ({rows[0]['selection'] if rows else ''})"
    return Judged(rows, options, title, answers, HEADINGS)


def neighbours(cfg: KNNRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocol knn: k is fixed beforehand, and other k stand beside it."""
    data, device = session.data, accelerator.device
    kind, names = data.test.kind, data.test.classes
    ks = tuple(sorted({cfg.knn.k, *cfg.knn.also}))
    rows, answers = [], None
    for contestant in contestants(session, cfg.eval, seed=cfg.seed, device=device):
        bank, asked = extract_both(session, contestant, cfg.eval, device)
        scores = by_neighbours(
            kind, bank.x, bank.labels, asked.x, len(names), ks=ks, temperature=cfg.knn.temperature, device=device
        )
        # The backbone's, which comes first.
        answers = answers or answered(data.test, session.metric, scores[cfg.knn.k], asked)
        for k in ks:
            only = None if k == cfg.knn.k else session.metric
            metrics = measure(kind, scores[k], asked.labels, names, only=only)
            used = f"{k}" if k <= len(bank.x) else f"{k} (all {len(bank.x)})"
            rows.append({"method": contestant.method, "k": k, "neighbours": used, "headline": k == cfg.knn.k, **metrics,
                         "unreadable_test_images": list(asked.left_out)})  # fmt: skip
    options = {
        "knn": {"k": cfg.knn.k, "temperature": cfg.knn.temperature, "similarity": "cosine"},
        "pool": session.exported.pool,
        **arithmetic(cfg.eval),
    }
    headings, title = {"method": "features", "neighbours": "k"}, f"weighted k-NN, k = {cfg.knn.k}"
    return Judged(rows, options, title, answers or {}, headings, "none: k is fixed beforehand")
