"""Units of work on frozen features: options of linear probes chosen once, then k-NN and probes draw by draw."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ssl_vit.configs import EvalConfig, KNNRecipe, LinearConfig, LinearRecipe, RunConfig
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.evaluation.answers import answered
from ssl_vit.evaluation.features import Features, candidate_pools
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.evaluation.knn import by_neighbours
from ssl_vit.evaluation.linear_cached import CachedFit, linear_cached
from ssl_vit.evaluation.metrics import judge
from ssl_vit.evaluation.session import Contestant, Session, contestants, extract_both, open_session, result_of
from ssl_vit.methods.starts import pretrained, titles
from ssl_vit.runs.provenance import commit, hardware, versions
from ssl_vit.training import launch
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.work import files_of, is_main, keep, key_of

K = 20
"""Neighbours that vote, fixed beforehand."""


class Bank:
    """Features of the images of one method, with every pooling in their columns."""

    def __init__(self, study: Study, start: str, number: int) -> None:
        """Extracts them, or finds them from before.

        Args:
            study: What it belongs to.
            start: mae, dino, public, random or pixels.
            number: Of the pre-training seed; for random weights their seed.
        """
        accelerator = launch.start("fp32", 0)
        run = study.runs(start)[number if start not in ("random", "pixels") else 0]
        main = accelerator.is_main_process
        session = open_session(str(run), study.extraction(), RunConfig(None), main=main)
        pool, self.pools = candidate_pools(session.exported.backbone)
        self.own_pool = session.exported.pool
        self.session: Session = session._replace(exported=session.exported._replace(pool=pool))
        launch.use_cores(accelerator, session.exported.size)
        chosen = self._contestant(start, number, accelerator.device)
        if start == "pixels":
            self.pools, self.own_pool = {"pixels": slice(None)}, "pixels"
        self.train, self.test = extract_both(self.session, chosen, study.extraction(), accelerator.device)
        self.device = accelerator.device
        self.about = self.session.result("", [], {}, 0)  # of all results on these features
        if start in ("random", "pixels"):
            self.about["backbone"] = None

    def _contestant(self, start: str, number: int, device: torch.device) -> Contestant:
        wanted = {"random": "random weights", "pixels": "raw pixels"}.get(start)
        found = list(contestants(self.session, EvalConfig(baselines=wanted is not None), seed=number,
                                 device=device))  # fmt: skip
        # An untrained network is called "random weights" itself, so the baselines behind it are looked through first.
        return found[0] if wanted is None else next(c for c in reversed(found) if c.method == wanted)

    def draw(self, labels: int, draw: int) -> Features:
        """Features of one draw's images."""
        whole = self.session.data.train
        part = labelled_draw(whole, labels, draw)
        return self.train.subset(np.flatnonzero(np.isin(whole.ids, part.ids)))


def sweep(study: Study, start: str) -> dict[str, Any]:
    """Options of the linear probe, chosen once for a method by cross-validation inside the first draw's labels.

    Returns:
        By number of labels: pool, rate, decay, selection.
    """
    bank = Bank(study, start, 0)
    found: dict[str, Any] = {}
    for labels in study.labels if is_main() else ():
        fitted = _linear(study, bank, bank.draw(labels, 0), LinearConfig(), 0)
        found[str(labels)] = {"pool": fitted.pool, "rate": fitted.rate, "decay": fitted.decay,
                              "selection": fitted.selection, "score": fitted.validated}  # fmt: skip
    return found


def _linear(study: Study, bank: Bank, drawn: Features, cfg: LinearConfig, seed: int) -> CachedFit:
    whole = bank.session.data.train
    pools = bank.pools if cfg.pool is None or cfg.pool not in bank.pools else {cfg.pool: bank.pools[cfg.pool]}
    return linear_cached(
        drawn.x, drawn.labels, bank.test.x, pools, kind=study.kind, names=bank.session.data.test.classes, cfg=cfg,
        default_pool=bank.own_pool, seed=seed, metric=study.metric,
        groups=None if whole.groups is None else whole.groups[drawn.index], device=bank.device,
    )  # fmt: skip


def probe(study: Study, start: str, number: int, draws: tuple[int, ...], swept: dict[str, Any]) -> dict[str, Any]:
    """k-NN and linear probes on one set of features, with every number of labels and some draws.

    Args:
        study: What it belongs to.
        start: mae, dino, public, random or pixels.
        number: Of the pre-training seed; for random weights their seed.
        draws: Draws of labels that go with it.
        swept: What ``sweep`` chose.
    """
    bank = Bank(study, start, number)
    for draw in draws if is_main() else ():
        for labels in study.labels:
            began, drawn = time.monotonic(), bank.draw(labels, draw)
            scores = _votes(study, bank, drawn)
            _keep_probe(study, bank, "knn", start, number, labels, draw, scores, {}, time.monotonic() - began)
            began, own = time.monotonic(), swept[str(labels)]
            fixed = LinearConfig(pool=own["pool"], rates=(own["rate"],), decays=(own["decay"],))
            fitted = _linear(study, bank, drawn, fixed, draw)
            _keep_probe(study, bank, "linear", start, number, labels, draw, fitted.scores, own,
                        time.monotonic() - began)  # fmt: skip
    keys = [key_of(start, use, labels, draw) for draw in draws for labels in study.labels for use in ("knn", "linear")]
    return {"draws": len(draws), "files": [name for key in keys for name in files_of(key)]}


def _votes(study: Study, bank: Bank, drawn: Features) -> np.ndarray:
    columns = bank.pools[bank.own_pool]
    x, queries = (np.ascontiguousarray(features.x[:, columns]) for features in (drawn, bank.test))
    outputs = len(bank.session.data.test.classes)
    return by_neighbours(study.kind, x, drawn.labels, queries, outputs, ks=(K,), device=bank.device)[K]


def _keep_probe(
    study: Study, bank: Bank, use: str, start: str, number: int, labels: int, draw: int, scores: np.ndarray,
    own: dict[str, Any], seconds: float,
) -> None:  # fmt: skip
    session, test = bank.session, bank.session.data.test
    row = {"method": titles()[start], **{k: v for k, v in own.items() if k != "score"},
           **judge(study.kind, scores, bank.test.labels, test.classes, only=study.metric),
           "unreadable_test_images": list(bank.test.left_out)}  # fmt: skip
    if use == "knn":
        protocol: dict[str, Any] = {"knn": {"k": K, "temperature": 0.07, "similarity": "cosine"}}
    else:
        protocol = {"linear": {"rates": LinearConfig().rates, "decays": LinearConfig().decays},
                    "tuning": "once, by cross-validation inside the first draw's labels"}  # fmt: skip
    data = session.data._replace(train=labelled_draw(session.data.train, labels, draw))
    cfg = replace(study.extraction(), labels=labels, draw=draw)
    name, size = PROTOCOLS["knn" if use == "knn" else "cached"].method, session.exported.size
    result = bank.about | result_of(
        name, [row], protocol, data=data, size=size, metric=study.metric, cfg=cfg, seed=draw
    )
    seeded = start in pretrained()
    told = {
        "start": start, "use": use, "draw": draw, "share": 100 * labels / study.labels[-1],
        "pretraining": number if seeded else None, "matched": False,
        "command": _probe_command(study, use, start, number, labels, draw, own), "cost":
        {"seconds": seconds, "flops": None, "images": None, "peak_memory": None},
    }  # fmt: skip
    result |= {"verdict": told, "made_with": _made_with(), "draw": draw}
    keep(study, key_of(start, use, labels, draw), result, answered(test, study.metric, scores, bank.test))


def _probe_command(study: Study, use: str, start: str, number: int, labels: int, draw: int, own: dict[str, Any]) -> str:
    run = str(study.runs(start)[number if start not in ("random", "pixels") else 0])
    cfg = replace(study.extraction(), labels=labels, draw=draw)
    words = "" if start not in ("random", "pixels") else f"   # the row {titles()[start]}"
    if use == "knn":
        return study.command("eval/knn.py", KNNRecipe(run, number, eval=cfg)) + words
    pool = None if start == "pixels" else own["pool"]
    linear = LinearConfig(pool=pool, rates=(own["rate"],), decays=(own["decay"],))
    return study.command("eval/linear_probe.py", LinearRecipe(run, draw, eval=cfg, linear=linear)) + words


@lru_cache(maxsize=1)
def _made_with() -> dict[str, Any]:
    return {"versions": versions(), "commit": commit(), "hardware": hardware()}
