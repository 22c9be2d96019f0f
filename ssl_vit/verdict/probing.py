"""Tasks on frozen features: options of linear probes chosen once, then k-NN and probes draw by draw."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ssl_vit.configs import EvalConfig, KNNRecipe, LinearConfig, LinearRecipe, RunConfig
from ssl_vit.configs.metrics import METRICS
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.evaluation.answers import answered
from ssl_vit.evaluation.features import Features, candidate_pools
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.evaluation.knn import by_neighbours
from ssl_vit.evaluation.linear_cached import CachedFit, linear_cached
from ssl_vit.evaluation.metrics import judge
from ssl_vit.evaluation.session import Session, contestants, extract_both, open_session, result_of
from ssl_vit.methods.starts import start_called
from ssl_vit.runs.provenance import commit, hardware, versions
from ssl_vit.training import launch
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.work import is_main, keep

K = 20
"""Neighbours that vote, fixed beforehand."""


class Bank:
    """Features of the images of one method, with every pooling in their columns."""

    def __init__(self, study: Study, start: str, number: int) -> None:
        """Extracts them, or finds them from before.

        ``number`` is that of the pre-training seed; for random weights their seed.
        """
        self.study, self.start, self.number = study, start, number
        accelerator = launch.join("fp32", 0)
        self.device = accelerator.device
        self.untrained = {"random": "random weights", "pixels": "raw pixels"}.get(start)
        self.run = str(study.runs(start)[0 if self.untrained else number])
        session = open_session(
            self.run, study.extraction(), RunConfig(None), main=accelerator.is_main_process, device=accelerator.device
        )
        pool, self.pools = candidate_pools(session.exported.backbone)
        self.own_pool = session.exported.pool
        self.session: Session = session._replace(exported=session.exported._replace(pool=pool))
        launch.use_cores(accelerator, session.exported.size)
        cfg = EvalConfig(baselines=self.untrained is not None)
        # An untrained network is called "random weights" itself, so the baselines behind it are looked through first.
        found = reversed(list(contestants(self.session, cfg, seed=number, device=self.device)))
        chosen = next(c for c in found if self.untrained in (None, c.method))
        if start == "pixels":
            self.pools, self.own_pool = {"pixels": slice(None)}, "pixels"
        self.train, self.test = extract_both(self.session, chosen, study.extraction(), self.device)
        self.about = self.session.result("", [], {}, 0)  # of all results on these features
        self.about["made_with"] = {"versions": versions(), "commit": commit(), "hardware": hardware()}
        if self.untrained:
            self.about["backbone"] = None

    def draw(self, labels: int, draw: int) -> Features:
        """Features of one draw's images."""
        whole = self.session.data.train
        part = labelled_draw(whole, labels, draw)
        return self.train.subset(np.flatnonzero(np.isin(whole.ids, part.ids)))

    def linear(self, drawn: Features, cfg: LinearConfig, seed: int) -> CachedFit:
        """A linear probe of one draw's images."""
        whole, test = self.session.data.train, self.session.data.test
        pools = self.pools if cfg.pool is None or cfg.pool not in self.pools else {cfg.pool: self.pools[cfg.pool]}
        return linear_cached(
            drawn.x, drawn.labels, self.test.x, pools, kind=self.study.kind, names=test.classes, cfg=cfg,
            default_pool=self.own_pool, seed=seed, metric=self.study.metric,
            groups=None if whole.groups is None else whole.groups[drawn.index], device=self.device,
        )  # fmt: skip

    def votes(self, drawn: Features) -> np.ndarray:
        """What the neighbours among one draw's images say of every test image."""
        columns, outputs = self.pools[self.own_pool], len(self.session.data.test.classes)
        x, queries = (np.ascontiguousarray(features.x[:, columns]) for features in (drawn, self.test))
        return by_neighbours(self.study.kind, x, drawn.labels, queries, outputs, ks=(K,), device=self.device)[K]

    def keep(
        self, use: str, labels: int, draw: int, scores: np.ndarray, chosen: dict[str, Any], seconds: float
    ) -> list[str]:
        """Writes a number (of use knn or linear) and what was answered for every test image.

        ``chosen`` are options of the linear probe, as ``sweep`` returns them.
        """
        study, session, test = self.study, self.session, self.session.data.test
        row = {"method": start_called(self.start).title, **{k: v for k, v in chosen.items() if k != "score"},
               **judge(study.kind, scores, self.test.labels, test.classes, only=study.metric),
               "unreadable_test_images": list(self.test.left_out)}  # fmt: skip
        cfg = replace(study.extraction(), labels=labels, draw=draw)
        if use == "knn":
            name = PROTOCOLS["knn"].method
            protocol: dict[str, Any] = {"knn": {"k": K, "temperature": 0.07, "similarity": "cosine"}}
            command = study.command("eval/knn.py", KNNRecipe(self.run, self.number, eval=cfg))
        else:
            name = PROTOCOLS["cached"].method
            protocol = {"linear": {"rates": LinearConfig().rates, "decays": LinearConfig().decays},
                        "tuning": "once, by cross-validation inside the first draw's labels"}  # fmt: skip
            pool = None if self.start == "pixels" else chosen["pool"]
            linear = LinearConfig(pool=pool, rates=(chosen["rate"],), decays=(chosen["decay"],))
            command = study.command("eval/linear_probe.py", LinearRecipe(self.run, draw, eval=cfg, linear=linear))
        told = {
            "pretraining": self.number if start_called(self.start).pretrained else None,
            "command": command + (f"   # the row {start_called(self.start).title}" if self.untrained else ""),
            "cost": {"seconds": seconds, "flops": None, "images": None, "peak_memory": None},
        }  # fmt: skip
        data = session.data._replace(train=labelled_draw(session.data.train, labels, draw))
        size, metric = session.exported.size, study.metric
        result = result_of(name, [row], protocol, data=data, size=size, metric=metric, cfg=cfg, seed=draw)
        answers = answered(test, metric, scores, self.test)
        return keep(study, self.start, use, labels, draw, self.about | result, answers, told)


def sweep(study: Study, start: str) -> dict[str, Any]:
    """Options of the linear probe, chosen once for a method by cross-validation inside the first draw's labels.

    Returns:
        By number of labels: pool, rate, decay, selection.
    """
    bank = Bank(study, start, 0)
    found: dict[str, Any] = {}
    sign = METRICS[study.metric].sign  # of scores, the larger one is better
    for labels in study.labels if is_main() else ():
        fitted = bank.linear(bank.draw(labels, 0), LinearConfig(), 0)
        found[str(labels)] = {"pool": fitted.pool, "rate": fitted.rate, "decay": fitted.decay,
                              "selection": fitted.selection,
                              "score": None if fitted.validated is None else sign * fitted.validated}  # fmt: skip
    return found


def probe(study: Study, start: str, number: int, draws: tuple[int, ...], swept: dict[str, Any]) -> dict[str, Any]:
    """k-NN and linear probes on one set of features, with every number of labels and some draws.

    ``number`` is as for ``Bank``, and ``draws`` go with it; ``swept`` is what ``sweep`` chose.
    """
    bank, files = Bank(study, start, number), list[str]()
    for draw, labels in product(draws, study.labels) if is_main() else ():
        began, drawn = time.monotonic(), bank.draw(labels, draw)
        files += bank.keep("knn", labels, draw, bank.votes(drawn), {}, time.monotonic() - began)
        began, own = time.monotonic(), swept[str(labels)]
        fixed = LinearConfig(pool=own["pool"], rates=(own["rate"],), decays=(own["decay"],))
        scores = bank.linear(drawn, fixed, draw).scores
        files += bank.keep("linear", labels, draw, scores, own, time.monotonic() - began)
    return {"draws": len(draws), "files": files}
