"""Whether training is alive: how far features spread, and the two ways in which self-distillation dies."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.core.dist import sum_over_ranks

Collapse = Literal["uniform", "dominant"]
_KINDS: tuple[Collapse, ...] = ("uniform", "dominant")

_UNIFORM = 0.99
"""Share of ln K from which an entropy counts as that of the uniform distribution."""
_ONE_OUTPUT = math.log(2.0)
"""Entropy of the mean distribution below which fewer than two outputs are in use."""
_NO_INFORMATION = 0.002
"""Share of ln K up to which the information between image and output counts as none."""
_AGREED = 0.02
"""Share of ln K up to which the KL divergence counts as none: the student gives the same answer."""


def steps_between_looks(steps_per_epoch: float) -> int:
    """Optimiser steps from one look at a run to the next: an epoch, within 20 to 100."""
    return max(20, min(100, round(steps_per_epoch)))


class Observations:
    """Sums over the micro-batches of one step, and over processes when they are read."""

    def __init__(self) -> None:
        """Empty."""
        self._sums: dict[str, Tensor] = {}

    def add(self, marginal: Float[Tensor, " K"], entropy: Float[Tensor, ""], divergence: Float[Tensor, ""]) -> None:
        """One micro-batch: its mean probabilities, their mean entropy, mean KL divergence from teacher to student."""
        new = {"micro": marginal.new_ones(()), "marginal": marginal, "entropy": entropy, "divergence": divergence}
        for name, value in new.items():
            self._sums[name] = self._sums[name] + value.detach() if name in self._sums else value.detach()

    def read(self, centre: Float[Tensor, " K"]) -> dict[str, float]:
        """What one step looked like over all processes; forgets it. What is not finite is left out.

        It is ``teacher_entropy`` and ``kl`` in nats beside ``ln_out_dim``, ``marginal_entropy`` of the mean
        distribution, and ``centre_norm``.
        """
        # On the host, in double precision, which not every device has.
        total = {name: sum_over_ranks(v.clone()).cpu().numpy().astype(np.float64) for name, v in self._sums.items()}
        self._sums = {}
        micro = total["micro"]
        marginal = total["marginal"] / micro
        values = {
            "teacher_entropy": total["entropy"] / micro,
            "ln_out_dim": math.log(len(marginal)),
            "kl": total["divergence"] / micro,
            "marginal_entropy": _entropy(marginal),
            "centre_norm": np.linalg.norm(centre.detach().cpu().numpy()),
        }
        return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def spread(features: Float[np.ndarray, "n D"]) -> dict[str, float]:
    """``effective_rank`` and ``feature_std``: how much features differ; empty where they are no finite numbers.

    The first is exp of the entropy of their singular values (RankMe, Garrido et al. 2023, equation 1), at most the
    smaller of n and D. The second is their deviation as a share of their root mean square length, 0 where all are one.
    """
    x = features.astype(np.float64)
    if not np.isfinite(x).all():
        return {}
    power = np.square(x).sum(axis=1).mean()
    deviation = np.square(x - x.mean(axis=0)).sum(axis=1).mean()
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0))
    rank = np.exp(_entropy(singular / max(singular.sum(), 1e-30)))
    return {"effective_rank": float(rank), "feature_std": float(np.sqrt(deviation / max(power, 1e-30)))}


def _entropy(shares: np.ndarray) -> float:
    from scipy.special import entr  # takes most of a second to import, which a first step need not wait for

    return float(entr(shares).sum())


def collapse_kind(health: dict[str, float]) -> Collapse | None:
    """The kind of collapse that one look shows, if any.

    The teacher's answers say nothing about the image when their mean distribution is no broader than each of them: the
    difference of both entropies is the information between image and output. Uniform: that one answer is the uniform
    distribution, where the centre has caught up with it. Dominant: it is concentrated, ahead of the centre; or answers
    differ, but share fewer than two outputs.
    """
    if not {"teacher_entropy", "marginal_entropy", "kl"} <= set(health):
        return None
    top, entropy, marginal = (health[k] for k in ("ln_out_dim", "teacher_entropy", "marginal_entropy"))
    if marginal < min(_ONE_OUTPUT, 0.5 * top):
        return "dominant"
    if marginal - entropy > _NO_INFORMATION * top or health["kl"] > _AGREED * top:
        return None
    return "uniform" if entropy > _UNIFORM * top else "dominant"


def explain_collapse(kind: Collapse, health: dict[str, float], since: int) -> str:
    """What happened since that step (counted from 1), how it shows, and which options to try."""
    names = {"teacher_entropy": "teacher entropy", "marginal_entropy": "of its mean answer",
             "ln_out_dim": "ln(out_dim)", "kl": "KL"}  # fmt: skip
    numbers = ", ".join(f"{words} {health[name]:.3f}" for name, words in names.items() if name in health)
    what, remedy = {
        "uniform": (
            "the teacher gives every image the same, uniform answer",
            "a lower --dino.teacher_temp (and --dino.warmup_teacher_temp), a lower --optim.base_lr, a smaller "
            "--dino.out_dim, milder --crops.*",
        ),
        "dominant": (
            "the teacher gives every image the same few outputs",
            "a lower --dino.centre_momentum or --dino.centring sinkhorn, a higher --dino.teacher_temp, a lower "
            "--optim.base_lr",
        ),
    }[kind]
    return f"DINO has collapsed ({kind}): since step {since:,} {what} ({numbers}). Try {remedy}"


class Watch(nn.Module):
    """How long a collapse has lasted; its state is saved with the run."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        super().__init__()
        self.state: Tensor  # step of the first of the looks that showed it, kind of it, healthy looks in a row
        self.register_buffer("state", torch.tensor([-1, -1, 0]))

    def look(self, kind: Collapse | None, step: int) -> int | None:
        """Takes note of a look at a step (0-based); gives the step since which there has been this kind of collapse.

        A single healthy look between others ends nothing, another kind starts anew. None where there is none.
        """
        since, before, healthy = self.state.tolist()
        if kind is None:
            healthy += 1
            if healthy > 1:
                since, before = -1, -1
        else:
            now, healthy = _KINDS.index(kind), 0
            if now != before:
                since, before = step, now
        self.state.copy_(torch.tensor([since, before, healthy]))
        return None if kind is None else since
