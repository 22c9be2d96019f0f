"""Weighted k-nearest neighbours on frozen features, for every kind of labels."""

from __future__ import annotations

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float

from ssl_vit.configs import KNNRecipe
from ssl_vit.data.targets import Kind
from ssl_vit.evaluation.judging import Judged, answered
from ssl_vit.evaluation.knn import knn_means, knn_scores, log_shares, share_logits
from ssl_vit.evaluation.metrics import judge as measure
from ssl_vit.evaluation.session import Session, arithmetic, contestants, extract_both


def judge(cfg: KNNRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """The protocol knn: k is fixed beforehand, and other k stand beside it.

    Args:
        cfg: What ``--help`` lists.
        session: Backbone and images.
        accelerator: Made by ``launch.start``.
    """
    data, device = session.data, accelerator.device
    kind, names = data.test.kind, data.test.classes
    ks = tuple(sorted({cfg.knn.k, *cfg.knn.also}))
    rows, answers = [], None
    for contestant in contestants(session, cfg.eval, seed=cfg.seed, device=device):
        bank, asked = extract_both(session, contestant, cfg.eval, device)
        scores = by_neighbours(
            kind, bank.x, bank.labels, asked.x, len(names), ks=ks, temperature=cfg.knn.temperature, device=device
        )
        answers = answers or answered(session, scores[cfg.knn.k], asked)  # the backbone's, which comes first
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
    headings = {"method": "features", "neighbours": "k"}
    title = f"weighted k-NN, k = {cfg.knn.k}"
    return Judged(rows, options, title, answers or {}, headings, "none: k is fixed beforehand")


def by_neighbours(
    kind: Kind,
    train: Float[np.ndarray, "n D"],
    labels: np.ndarray,
    queries: Float[np.ndarray, "q D"],
    outputs: int,
    *,
    ks: tuple[int, ...],
    temperature: float = 0.07,
    device: torch.device,
) -> dict[int, Float[np.ndarray, "q K"]]:
    """What neighbours say, in the form that ``metrics.judge`` takes.

    Args:
        kind: How to read the labels.
        train: Training features.
        labels: As ``ImageSet.labels``.
        queries: Features to answer for.
        outputs: Number of classes, labels or numbers.
        ks: Numbers of neighbours.
        temperature: Softness of the vote.
        device: Where to compute.

    Returns:
        By k: log-probabilities of classes, logits of labels, or predicted numbers.
    """
    x, asked = (torch.from_numpy(features).to(device) for features in (train, queries))
    known = torch.from_numpy(labels)
    if kind == "class":
        votes = knn_scores(x, known.to(device), asked, ks=ks, classes=outputs, temperature=temperature)
        return {k: log_shares(found).numpy() for k, found in votes.items()}
    means = knn_means(x, known, asked, ks=ks, temperature=temperature)
    return {k: (share_logits(found) if kind == "multilabel" else found).numpy() for k, found in means.items()}
