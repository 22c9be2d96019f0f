"""``--fit.watch knn``: what the features of a network are worth while it trains, told by neighbours.

Labelled training images alone take part: a fifth of them ask, the others vote. Nothing is chosen by what they say, and
training does not notice: no random number is drawn, and modes and statistics of the network stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import torch

from ssl_vit.configs import KNNConfig, ResolvedPretraining
from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ImageSet, evenly
from ssl_vit.data.leading import headline
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.evaluation.features import images_at_once
from ssl_vit.evaluation.few_label import HELD_OUT, held_out_inside, too_few
from ssl_vit.evaluation.knn import by_neighbours
from ssl_vit.evaluation.metrics import judge
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.training.health import glance

_MOST, _BYTES = 2500, 2**29
"""Images that are kept in memory at most, and bytes of their pixels: four fifths vote."""
_AT_ONCE = 64
"""Images per forward pass at most: the memory is training's."""


def open_watch(cfg: ResolvedPretraining, form: Format) -> Callable[[PixelScale], Neighbours]:
    """The labelled training images of a run, parted into those that vote and those that ask; reads no pixels yet.

    Args:
        cfg: Options of the run.
        form: Channels and bits of its pool.

    Returns:
        What makes a watch, once pixel statistics are known.

    Raises:
        UserError: Where there are no labels, too few, or images of another kind.
    """
    try:
        train = open_labelled(cfg.data, cfg.eval.data).train
        train = train.on_canvas(cfg.data.canvas, cfg.model.img_size, cfg.data.window)
        parts = held_out_inside(train.truth, 0, train.kind, train.groups)
        if train.form != form:
            raise UserError(f"{train.name} has images of other channels or another bit depth than the pool")
        if parts is None:
            raise UserError(too_few(train))
    except UserError as error:
        raise UserError(f"--fit.watch knn: {error}; to train without a watch, leave --fit.watch out") from error
    height, width = train.shape or (cfg.model.img_size, cfg.model.img_size)
    most = min(_MOST, _BYTES // (form.channels * height * width * form.bits // 8))
    shares = most - most // HELD_OUT, most // HELD_OUT
    voters, asked = (train.subset(part[evenly(len(part), n)]) for part, n in zip(parts, shares, strict=True))
    return partial(Neighbours, voters, asked, cfg.model.pool)


class Neighbours:
    """Weighted k-NN as ``eval/knn.py`` has it, on images that stay in memory."""

    def __init__(self, voters: ImageSet, asked: ImageSet, pool: Pool, scale: PixelScale) -> None:
        """Reads no pixels yet.

        Args:
            voters: Labelled images that vote.
            asked: Labelled images whose labels are guessed.
            pool: What represents an image.
            scale: Pixel statistics.
        """
        self.voters, self.asked, self.scale = voters, asked, scale
        self.pool: Pool = pool
        self.metric = headline(asked.kind, asked.truth)

    @cached_property
    def _kept(self) -> tuple[Batch, Batch]:
        voters, asked = (chosen_images(part, np.arange(len(part)), torch.device("cpu"))[0] for part in self._parts)
        return voters, asked

    @property
    def _parts(self) -> tuple[ImageSet, ImageSet]:
        return self.voters, self.asked

    def describe(self, percent: float) -> str:
        """A line for the screen.

        Args:
            percent: Of all steps from one look to the next.
        """
        return (
            f"watched         k-NN, {METRICS[self.metric].heading}, of {len(self.asked):,} labelled training images by "
            f"{len(self.voters):,} others, every {percent:g} %; nothing is chosen by it"
        )

    def __call__(self, backbone: Backbone) -> dict[str, float]:
        """``watch/knn_METRIC`` of a network; empty where its features are no finite numbers.

        Args:
            backbone: In training; it keeps its mode, statistics and device.
        """
        device, k = next(backbone.parameters()).device, KNNConfig().k
        at_once = min(_AT_ONCE, images_at_once(None, backbone.img_size, device))
        x, queries = (glance(backbone, batch, self.scale, self.pool, at_once) for batch in self._kept)
        if not (np.isfinite(x).all() and np.isfinite(queries).all()):
            return {}
        labels, truth = (part.truth[batch.index.numpy()] for part, batch in zip(self._parts, self._kept, strict=True))
        kind, names = self.asked.kind, self.asked.classes
        scores = by_neighbours(kind, x, labels, queries, len(names), ks=(k,), device=device)[k]
        value = judge(kind, scores, truth, names, only=self.metric)[self.metric]
        return {} if value is None else {f"watch/knn_{self.metric}": float(value)}
