"""Schedules as pure functions of the optimiser step."""

from __future__ import annotations

import math


def warmup_cosine(
    step: int, *, total_steps: int, warmup_steps: int, peak: float, final: float, peak_twice: bool = False
) -> float:
    """Linear warm-up from zero, then half a cosine (MAE's learning-rate rule, in steps instead of epochs).

    Args:
        step: Optimiser step about to be taken, 0-based.
        total_steps: Of the whole run.
        warmup_steps: Of the linear part; 0 for none.
        peak: Value at the end of the warm-up.
        final: Value that the cosine approaches at ``total_steps``.
        peak_twice: Reach the peak at the last step of the warm-up, so that it is there twice, as in DINO's code.
    """
    if step < warmup_steps:
        return peak * step / max(1, warmup_steps - peak_twice)
    progress = min(1.0, (step - warmup_steps) / max(1e-9, total_steps - warmup_steps))
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def ema_decay(step: int, *, decay: float) -> float:
    """Weight-average decay after a step (0-based): (1 + t) / (10 + t) up to ``decay``, so that a short run has one."""
    return min(decay, (1.0 + step) / (10.0 + step))


def base_momentum(batch_size: int, total_steps: int) -> float:
    """Where the teacher's momentum starts: the paper's 0.996 at a batch of 1,024, for any batch and length.

    0.996^(batch / 1024) averages over the same number of images; a short run would then mostly average its start, so
    the horizon 1 / (1 - momentum) is at most 5 % of all steps.

    Args:
        batch_size: Effective batch size.
        total_steps: Optimiser steps of the whole run.
    """
    return min(0.996 ** (batch_size / 1024), max(0.0, 1.0 - 20.0 / total_steps))


def teacher_temperature(epoch: float, *, start: float, final: float, warmup_epochs: float) -> float:
    """DINO's teacher temperature, on a line during the warm-up.

    Args:
        epoch: Passes over the data so far; only whole ones count.
        start: Temperature of the first epoch.
        final: Temperature from the last epoch of the warm-up on.
        warmup_epochs: Epochs on the line; 0 for none.
    """
    whole = math.floor(epoch)
    if whole >= warmup_epochs:
        return final
    return start + (final - start) * min(1.0, whole / max(1.0, warmup_epochs - 1.0))


def is_look(done: int, before: int, steps: int, percent: float) -> bool:
    """Whether a look falls due after so many steps: at the end, and wherever another ``percent`` of all is over.

    Args:
        done: Steps taken.
        before: Steps at the last chance to look.
        steps: Of the whole run.
        percent: From one look to the next, of all steps.
    """
    looks, earlier = (int(100 * step / (percent * steps) + 1e-9) for step in (done, before))
    return looks > earlier or done == steps


def whole_steps(steps: float, least: int) -> int:
    """Steps of a run: every one that is begun, and at least so many.

    15 epochs of 1,000 images in batches of 120 are 125 steps, and 125.00000000000001 as a computer multiplies.
    """
    return max(1, math.ceil(round(steps, 6)), least)
