"""How far a network has drifted from the one it began with, on images alone; and the alarm that stops it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ssl_vit.configs import ResolvedContinued
from ssl_vit.core.dist import rank_and_world, sum_over_ranks
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import permutation
from ssl_vit.core.schedules import is_look
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.training.health import glance

_MOST, _NEAREST, _LEAST = 512, 10, 8
"""Images that are kept, neighbours that each is asked for, and images without which nothing can be said."""
AGREEMENT, CKA = "drift/agreement", "drift/cka"


def neighbours_kept(before: Float[np.ndarray, "n D"], now: Float[np.ndarray, "n E"], k: int) -> float:
    """Share of every image's k nearest others (by cosine) that are the same in both, in [0, 1].

    Of features that know nothing of each other it is k / (n - 1).

    Args:
        before: Features.
        now: Others of the same images.
        k: Neighbours, less than n.
    """
    return float((_nearest(before, k) & _nearest(now, k)).sum() / (k * len(now)))


def _nearest(x: Float[np.ndarray, "n D"], k: int) -> Bool[np.ndarray, "n n"]:
    x = x.astype(np.float64)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    near = x @ x.T
    np.fill_diagonal(near, -np.inf)
    found = np.zeros(near.shape, dtype=bool)
    np.put_along_axis(found, np.argsort(-near, axis=1, kind="stable")[:, :k], True, axis=1)
    return found


def linear_cka(before: Float[np.ndarray, "n D"], now: Float[np.ndarray, "n E"]) -> float:
    """Linear centred kernel alignment (Kornblith et al. 2019), at most 1: the same up to rotation and one factor.

    HSIC is estimated without bias (Song et al. 2012, equation 5): the plain estimate of independent features is near 1
    as soon as they are wider than there are images. Independent ones give about 0, or a little less. It is NaN where
    all images have one vector.

    Args:
        before: Features of at least 4 images.
        now: Others of the same images.
    """
    k, m = (_gram(x) for x in (before, now))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(_hsic(k, m) / np.sqrt(_hsic(k, k) * _hsic(m, m)))


def _gram(x: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n n"]:
    x = x.astype(np.float64)
    x = x - x.mean(axis=0)  # changes nothing but rounding
    gram = x @ x.T
    np.fill_diagonal(gram, 0.0)
    return gram


def _hsic(k: Float[np.ndarray, "n n"], m: Float[np.ndarray, "n n"]) -> float:
    n = len(k)
    every = k.sum() * m.sum() / ((n - 1) * (n - 2))
    return float(((k * m).sum() + every - 2 / (n - 2) * (k.sum(axis=0) @ m.sum(axis=0))) / (n * (n - 3)))


def kept_positions(images: int) -> Int[np.ndarray, " n"]:
    """Positions of at most 512 of so many images: the first of a hashed order that no seed changes."""
    return permutation(0, "drift", n=images).numpy()[:_MOST]


class Drift:
    """Looks at what a run would export, on kept images of its pool, and keeps the best-known state.

    What is best cannot be known without labels: the loss tells how well the method's task is solved, and falls while a
    network forgets. So the rule knows only what was wanted beforehand, that not more than a stated drift is spent on
    it: **best-known is the last state that was looked at and lay within both limits**. The starting network, which lies
    within all, is the first of them; where no look passes a limit, it is the last step. Images and limits are chosen
    before training, and no label is read.

    The images are the first of a hashed order of the pool that no seed changes, in evaluation's view. Only the main
    process looks, and tells the others what it saw, so that all stop after the same step.
    """

    def __init__(self, cfg: ResolvedContinued, images: ImageSet, scale: PixelScale, pool: Pool, at_once: int) -> None:
        """Reads nothing yet.

        Args:
            cfg: Limits, and how often to look.
            images: To be pre-trained on.
            scale: Pixel statistics.
            pool: What represents an image.
            at_once: Images per forward pass.
        """
        self.cfg, self.images, self.scale, self.at_once = cfg, images, scale, at_once
        self.pool: Pool = pool
        self.kept: dict[str, Any] = {}
        """``step``, ``agreement``, ``cka`` and, on the main process, ``weights`` of the best-known state."""
        self.passed: dict[str, Any] | None = None
        """Step, agreement and CKA of the look that passed a limit."""
        self._before: Float[np.ndarray, "n D"] | None = None

    @cached_property
    def _batch(self) -> Batch:
        batch = chosen_images(self.images, kept_positions(len(self.images)), torch.device("cpu"))[0]
        if len(batch.index) < _LEAST:
            raise UserError(f"{len(batch.index)} images are too few to see drift: pre-train on at least {_LEAST}")
        return batch

    def _features(self, backbone: Backbone) -> Float[np.ndarray, "n D"]:
        return glance(backbone, self._batch, self.scale, self.pool, self.at_once)

    def begin(self, backbone: Backbone) -> None:
        """Looks at the starting network, on every start of a run before a checkpoint replaces it."""
        if rank_and_world()[0] == 0:
            self._before = self._features(backbone)
        self._keep(backbone, {"step": 0, "agreement": 1.0, "cka": 1.0})

    def is_due(self, done: int, steps: int) -> bool:
        """Whether features are looked at after so many steps of all."""
        return is_look(done, done - 1, steps, self.cfg.look_percent)

    def look(self, backbone: Backbone, done: int) -> dict[str, float]:
        """``drift/agreement`` and ``drift/cka`` after so many steps, the same on every process, which all call it.

        A state within the limits is kept, another one is the end (``passed``). Features that are no finite numbers say
        nothing, and the dictionary is empty: the loop stops for them by itself.
        """
        found = torch.zeros(2, device=next(backbone.parameters()).device)
        if self._before is not None:
            now = self._features(backbone)
            if np.isfinite(now).all():
                k = min(_NEAREST, (len(now) - 1) // 2)
                values = neighbours_kept(self._before, now, k), linear_cka(self._before, now)
                found = found.new_tensor([value if np.isfinite(value) else 0.0 for value in values])
            else:
                found += torch.nan
        agreement, cka = sum_over_ranks(found).tolist()
        if not np.isfinite(agreement):
            return {}
        seen = {"step": done, "agreement": agreement, "cka": cka}
        limits = ((agreement, self.cfg.least_agreement), (cka, self.cfg.least_cka))
        if all(value >= least or least == 0 for value, least in limits):
            self._keep(backbone, seen)
        else:
            self.passed = seen
        return {AGREEMENT: agreement, CKA: cka}

    def _keep(self, backbone: Backbone, seen: dict[str, Any]) -> None:
        state = backbone.state_dict() if rank_and_world()[0] == 0 else {}
        self.kept = seen | {"weights": {name: value.detach().to("cpu", copy=True) for name, value in state.items()}}

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        return {"kept": self.kept, "passed": self.passed}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.kept, self.passed = state["kept"], state["passed"]

    def leave(self, backbone: Backbone) -> None:
        """Gives the backbone its best-known state, where a limit was passed; on the main process, which exports it."""
        if self.passed is not None and self.kept["weights"]:
            backbone.load_state_dict(self.kept["weights"])

    def record(self) -> dict[str, Any]:
        """What is exported, and the look that passed a limit, if any did, as plain data."""
        kept = {name: value for name, value in self.kept.items() if name != "weights"}
        return {"exported": kept, "passed": self.passed}

    def words(self) -> str:
        """What came of it: what is exported, and where a limit was passed."""
        kept = self.kept
        now = f"{kept['agreement']:.2f} of neighbours kept, CKA {kept['cka']:.2f}"
        if self.passed is None:
            return f"drift           {now} after the last step; no limit was passed"
        limits = (("least_agreement", self.passed["agreement"]), ("least_cka", self.passed["cka"]))
        over = [f"{v:.2f} is below --continued.{n} {least:g}" for n, v in limits if v < (least := getattr(self.cfg, n))]
        return (
            f"drift           stopped after step {self.passed['step']:,}: {' and '.join(over)}. Exported is the state "
            f"after step {kept['step']:,}, the last that was looked at within the limits ({now}). Lower "
            "--continued.rate or --continued.blocks to go further; labels had no part in this"
        )
