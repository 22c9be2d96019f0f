"""health.jsonl for every method: how far the features of some kept images spread while a network trains."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.data.loading.loader import Batch, Loader, some_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone, Pool, as_judged
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.health import spread, steps_between_looks
from ssl_vit.views.evaluation import eval_images

_MOST = 256
"""Images that are kept."""
_LEAST_STEPS = 100
"""Optimiser steps between looks, at least: a look at twice a batch costs less than one step."""


class Health:
    """Looks at what a run would export, on images of its own training set, and changes nothing by it.

    Images are evenly spaced in the set, at most 256 and at most two batches of them, in the deterministic view of
    evaluation. Only the main process looks; the others wait for it where they next meet.
    """

    def __init__(self, loader: Loader, scale: PixelScale, pool: Pool) -> None:
        """Looks at the loader's images, by what represents an image in evaluation; reads nothing yet."""
        self.loader, self.scale = loader, scale
        self.pool: Pool = pool

    @cached_property
    def _batch(self) -> Batch:
        count = min(_MOST, 2 * self.loader.batch_size)
        return some_images(self.loader.images, count, torch.device("cpu"))[0]

    def is_due(self, clock: Clock) -> bool:
        """Whether features are looked at after this step: the last one, and about every 100 steps."""
        between = steps_between_looks(clock.steps_per_epoch)
        every = between * math.ceil(_LEAST_STEPS / between)
        return (clock.step + 1) % every == 0 or clock.step + 1 == clock.total_steps

    def look(self, backbone: Backbone) -> dict[str, float]:
        """``effective_rank`` and ``feature_std`` (``objectives.health.spread``) of its features; it keeps its mode."""
        return spread(glance(backbone, self._batch, self.scale, self.pool, self.loader.micro_batch))


@torch.no_grad()
def glance(backbone: Backbone, batch: Batch, scale: PixelScale, pool: Pool, at_once: int) -> Float[np.ndarray, "n D"]:
    """Features of kept images in the view of evaluation, in the midst of training, which does not notice.

    Args:
        backbone: Keeps its mode, its statistics and its device.
        batch: The images, anywhere.
        scale: Pixel statistics.
        pool: What represents an image.
        at_once: Images per forward pass.
    """
    weight, parts = next(backbone.parameters()), list[Tensor]()
    with as_judged(backbone):
        for first in range(0, len(batch.index), at_once):
            part = batch.part(slice(first, first + at_once))
            moved = {name: value.to(weight.device) for name, value in vars(part).items() if isinstance(value, Tensor)}
            images = eval_images(replace(part, **moved), scale, backbone.img_size, weight.dtype)
            parts.append(backbone.forward_pooled(images, pool=pool))
    return torch.cat(parts).cpu().numpy()
