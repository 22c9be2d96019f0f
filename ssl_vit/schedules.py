"""Schedules as pure functions of the optimiser step."""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, total_steps: int, warmup_steps: int, peak: float, final: float) -> float:
    """Linear warm-up from zero, then half a cosine to ``final`` (MAE's learning-rate rule, in steps instead of epochs).

    Args:
        step: Optimiser step about to be taken, 0-based.
        total_steps: Steps of the whole run.
        warmup_steps: Steps of the linear part; 0 for none.
        peak: Value at the end of the warm-up.
        final: Value that the cosine approaches at ``total_steps``.

    Returns:
        The value for this step.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1e-9, total_steps - warmup_steps))
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def ema_decay(step: int, *, decay: float) -> float:
    """Weight-average decay with the ramp (1 + t) / (10 + t), so that a short run is not mostly its initialisation.

    Args:
        step: Optimiser step just taken, 0-based.
        decay: Upper limit, in [0, 1).

    Returns:
        The decay to use after this step.
    """
    return min(decay, (1.0 + step) / (10.0 + step))
