"""Whether self-distillation is alive: what its outputs and features look like, and the two ways in which they die."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.dist import sum_over_ranks

Collapse = Literal["uniform", "dominant"]

_UNIFORM = 0.99
"""Share of ln K from which an entropy counts as that of the uniform distribution."""
_ONE_OUTPUT = math.log(2.0)
"""Entropy of the mean distribution below which fewer than two outputs are in use."""


class Observations:
    """Sums over the micro-batches of one step, and over processes when they are read."""

    def __init__(self) -> None:
        """Empty."""
        self._sums: dict[str, Tensor] = {}

    def add(
        self,
        features: Float[Tensor, "B D"],
        marginal: Float[Tensor, " K"],
        entropy: Float[Tensor, ""],
        divergence: Float[Tensor, ""],
    ) -> None:
        """One micro-batch.

        Args:
            features: The teacher's, of the views it saw.
            marginal: Mean of its probabilities.
            entropy: Mean entropy of its probabilities.
            divergence: Mean KL divergence from teacher to student.
        """
        x = features.detach().to(torch.promote_types(features.dtype, torch.float32))
        new = {
            "micro": x.new_ones(()),
            "rows": x.new_tensor(float(len(x))),
            "sum": x.sum(dim=0),
            "gram": x.T @ x,
            "marginal": marginal,
            "entropy": entropy,
            "divergence": divergence,
        }
        for name, value in new.items():
            self._sums[name] = self._sums[name] + value.detach() if name in self._sums else value.detach()

    def read(self, centre: Float[Tensor, " K"]) -> dict[str, float]:
        """What one step looked like over all processes; forgets it.

        Args:
            centre: The running centre.

        Returns:
            ``teacher_entropy`` and ``kl`` in nats beside ``ln_out_dim``; ``marginal_entropy``, of the mean
            distribution; ``centre_norm``; ``feature_std``, the features' deviation as a share of their root mean square
            length (0: all the same); ``effective_rank`` of the features (RankMe, Garrido et al. 2023). Empty where a
            number is not finite: that the loop reports.
        """
        total = {name: sum_over_ranks(value.clone()).cpu().double() for name, value in self._sums.items()}
        self._sums = {}
        if not all(bool(torch.isfinite(value).all()) for value in total.values()):
            return {}
        micro, rows = total["micro"], total["rows"]
        marginal = total["marginal"] / micro
        mean = total["sum"] / rows
        power = total["gram"].diagonal() / rows
        spread = (power - mean.square()).clamp(min=0.0).sum() / power.sum().clamp(min=1e-30)
        values = {
            "teacher_entropy": total["entropy"] / micro,
            "ln_out_dim": torch.tensor(math.log(len(marginal))),
            "kl": total["divergence"] / micro,
            "marginal_entropy": -torch.special.xlogy(marginal, marginal).sum(),
            "centre_norm": centre.detach().cpu().double().norm(),
            "feature_std": spread.sqrt(),
            "effective_rank": effective_rank(total["gram"]),
        }
        return {name: float(value) for name, value in values.items()}


def effective_rank(gram: Float[Tensor, "D D"]) -> Float[Tensor, ""]:
    """Exp of the entropy of the singular values of X, from X'X (RankMe, Garrido et al. 2023, equation 1)."""
    singular = torch.linalg.eigvalsh(gram).clamp(min=0.0).sqrt()
    share = singular / singular.sum().clamp(min=1e-30)
    return (-torch.special.xlogy(share, share).sum()).exp()


def collapse_kind(health: dict[str, float]) -> Collapse | None:
    """The kind of collapse that one look shows, if any.

    Uniform: the teacher's answer to every image is the uniform distribution, and the student gives it too. Dominant:
    all images share fewer than two outputs.
    """
    top = health["ln_out_dim"]
    if health["teacher_entropy"] > _UNIFORM * top and health["kl"] < (1.0 - _UNIFORM) * top:
        return "uniform"
    return "dominant" if health["marginal_entropy"] < _ONE_OUTPUT else None


def explain_collapse(kind: Collapse, health: dict[str, float], since: int) -> str:
    """What happened, how it shows, and which options to try."""
    entropy, top = health["teacher_entropy"], health["ln_out_dim"]
    numbers = (
        f"teacher entropy {entropy:.3f} of ln(out_dim) = {top:.3f}, KL {health['kl']:.3f}, effective rank "
        f"{health['effective_rank']:.1f}"
    )
    what, remedy = {
        "uniform": (
            "the teacher gives every image the same, uniform answer",
            "a lower --dino.teacher_temp or a longer --dino.teacher_warmup, a lower --optim.base_lr, a smaller "
            "--dino.out_dim, milder --crops.*",
        ),
        "dominant": (
            "the teacher puts every image into the same output",
            "a lower --dino.centre_momentum or --dino.centring sinkhorn, a higher --dino.teacher_temp, a lower "
            "--optim.base_lr",
        ),
    }[kind]
    return f"DINO has collapsed ({kind}): since step {since:,} {what} ({numbers}). Try {remedy}"
