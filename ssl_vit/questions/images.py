"""The images of a study: opened and decoded once in every process, as they are and permuted."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ssl_vit.configs import LabelledDataConfig, PoolConfig
from ssl_vit.data.images import ImageSet, evenly
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.evaluation.session import on_canvas
from ssl_vit.leaks.guard import guard_labelled, on_leak
from ssl_vit.questions.memory import in_memory
from ssl_vit.questions.permuting import permuted
from ssl_vit.questions.scope import Images
from ssl_vit.questions.study import Study

LOOKED = 128
"""Test images that networks are looked at with."""


@lru_cache(maxsize=2)
def labelled(data: PoolConfig, judged_on: LabelledDataConfig) -> Labelled:
    """The labelled images, without training images that show test images; opened once in every process.

    Args:
        data: ``--data``.
        judged_on: ``--eval.data``.
    """
    return guard_labelled(open_labelled(data, judged_on), on_leak(data, judged_on), data.workers)[0]


@lru_cache(maxsize=2)
def _held(data: PoolConfig, judged_on: LabelledDataConfig, size: int) -> Labelled:
    """The same as the ViT has them, in memory."""
    found = on_canvas(labelled(data, judged_on), data.canvas, size, None)
    return found._replace(train=in_memory(found.train), test=in_memory(found.test))


@lru_cache(maxsize=1)
def _permuted(
    data: PoolConfig, judged_on: LabelledDataConfig, kind: Images, side: int, patch: int, seed: int
) -> Labelled:
    """The same as squares, permuted."""
    found = _held(data, judged_on, side)
    train, test = (in_memory(permuted(part, kind, side, patch, seed)) for part in (found.train, found.test))
    return found._replace(train=train, test=test)


def opened(study: Study, images: Images | None = None, draw: int = 0) -> Labelled:
    """The labelled images of a study.

    Args:
        study: Of whose options.
        images: How their squares are permuted; None for images that are not made squares.
        draw: Which of the permutations; every draw of labels has its own.
    """
    cfg, scope = study.recipe, study.scope
    if images is None:
        return _held(cfg.data, cfg.eval.data, scope.img_size)
    return _permuted(cfg.data, cfg.eval.data, images, scope.img_size, scope.patch, cfg.seed + draw)


@lru_cache(maxsize=2)
def pixel_scale(data: PoolConfig, judged_on: LabelledDataConfig, size: int) -> PixelScale:
    """Statistics of all training images, as every network from scratch has them; a permutation changes none.

    Args:
        data: ``--data``.
        judged_on: ``--eval.data``.
        size: Side of the ViT's input in pixels.
    """
    return measure_scale(_held(data, judged_on, size).train)


def looked_at(test: ImageSet) -> np.ndarray:
    """Positions of the test images that networks are looked at with.

    Args:
        test: All of them.
    """
    return evenly(len(test), LOOKED)
