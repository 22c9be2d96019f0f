"""Numbers of questions that nobody trained for: what comes out is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from ssl_vit.questions.numbers import Numbers
from ssl_vit.questions.plan import Pace, Terms, tried
from ssl_vit.questions.scope import METHODS, Look, Pretraining, Scope, Training
from ssl_vit.questions.table import looks, pretrainings, trainings

IMAGES = 400
ALL = ("data", "bias", "translation", "positions", "learned", "scale")
NETS_SPEED = {"vit": 1.0, "hybrid": 0.6, "cct": 0.7, "swin": 0.5, "resnet": 0.4, "relative": 0.6}


def made_scope(questions: tuple[str, ...] = ALL, **options: object) -> Scope:
    usual = {"labels": (20, 100, 1438), "draws": 3, "steps": 1000, "seconds": math.inf, "doublings": 4}
    return Scope(questions, **(usual | options))


def made_numbers(
    scope: Scope,
    right: Callable[[Training], float],
    change: Callable[[Training], float] = lambda of: 0.5,
    read: Callable[[Training, str], float] = lambda of, name: 1.0,
    metric: str = "top1",
    seed: int = 0,
) -> Numbers:
    """Every training right on a share of the images; images and draws are as hard for all, so that pairs are alike."""
    rng = np.random.default_rng(seed)
    hard = rng.random((scope.draws, IMAGES))
    scores = {one.key: 100.0 * (hard[one.draw] < right(one)) for one in trainings(scope)}
    costs = {
        one.key: {"seconds": 2.0 * (one.width or 64) * (one.depth or 4), "flops": 1e9 * (one.width or 64) ** 2}
        for one in (*trainings(scope), *pretrainings(scope))
    }
    seen: dict[str, dict[str, np.ndarray]] = {}
    for look in looks(scope):
        seen[look.key] = _seen(scope, look, change, read, rng)
    return Numbers(metric, scores, costs, seen)


def _seen(
    scope: Scope, look: Look, change: Callable[[Training], float], read: Callable[[Training, str], float],
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:  # fmt: skip
    images = 50
    noise = 0.01 * rng.standard_normal(images)
    if look.what == "shifts":
        steps = np.arange(scope.patch + 1)[:, None] / scope.patch
        return {"change": steps * change(look.of) + noise * (steps > 0)}
    if look.what == "blocks":
        return {
            name: np.array([read(look.of, name) + noise] * scope.depth)
            for name in ("distance", "information", "amplitude")
        }
    grid = scope.grid
    return {"similarity": np.full((min(grid, 4) ** 2, grid, grid), 0.5)}


def made_terms(scope: Scope, budget: float | None, jobs: int = 2) -> Terms:
    """Paces of networks that are so many times slower than the ViT; larger ones are four times slower, small faster."""
    paces: dict[str, Pace] = {}
    for name, one in tried(scope).items():
        speed = 2000.0 * (NETS_SPEED[one.net] if isinstance(one, Training) else 1.0)
        larger = one.width > scope.width or one.depth > scope.depth
        paces[name] = Pace(speed * (0.25 if larger else 4.0 if one.width or one.depth else 1.0), 0.5)
        assert isinstance(one, Training | Pretraining)
    return Terms(paces, 1438, dict.fromkeys(METHODS, 140.0), dict.fromkeys(METHODS, 128.0), budget, jobs, 30.0)
