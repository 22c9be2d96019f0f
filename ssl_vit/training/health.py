"""health.jsonl for every method: how far the features of some kept images spread while a network trains."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
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
        """Reads nothing yet.

        Args:
            loader: Whose images are looked at.
            scale: Pixel statistics.
            pool: What represents an image in evaluation.
        """
        self.loader, self.scale = loader, scale
        self.pool: Pool = pool
        self._batch: Batch | None = None

    def is_due(self, clock: Clock) -> bool:
        """Whether features are looked at after this step: the last one, and about every 100 steps."""
        between = steps_between_looks(clock.steps_per_epoch)
        every = between * math.ceil(_LEAST_STEPS / between)
        return (clock.step + 1) % every == 0 or clock.step + 1 == clock.total_steps

    @torch.no_grad()
    def look(self, backbone: Backbone) -> dict[str, float]:
        """``effective_rank`` and ``feature_std`` (``objectives.health.spread``) of its features.

        Args:
            backbone: As it trains; it is left in the mode that it is in.
        """
        if self._batch is None:
            count = min(_MOST, 2 * self.loader.batch_size)
            self._batch, _ = some_images(self.loader.images, count, torch.device("cpu"))
        images, at_once = len(self._batch.index), self.loader.micro_batch
        with as_judged(backbone):
            parts = [self._features(backbone, slice(i, i + at_once)) for i in range(0, images, at_once)]
        return spread(torch.cat(parts).cpu().numpy())

    def _features(self, backbone: Backbone, which: slice) -> Tensor:
        assert self._batch is not None
        weight, part = next(backbone.parameters()), self._batch.part(which)
        moved = {name: value.to(weight.device) for name, value in vars(part).items() if isinstance(value, Tensor)}
        images = eval_images(replace(part, **moved), self.scale, backbone.img_size, weight.dtype)
        return backbone.forward_pooled(images, pool=self.pool)
