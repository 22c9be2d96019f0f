"""A loss on labels: one code for the labelled baseline (from scratch) and for fine-tuning (from a backbone)."""

from __future__ import annotations

import copy
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.parts import local
from ssl_vit.core.schedules import ema_decay
from ssl_vit.data.constants import sent
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.targets import Kind
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.batchnorm import running_statistics
from ssl_vit.models.heads import Classifier
from ssl_vit.objectives.base import Clock, Objective, StepOutput
from ssl_vit.views import mixing
from ssl_vit.views.mixing import erase
from ssl_vit.views.training import View, drop_path_factors, host_key, train_images

LOSSES = {"class": F.cross_entropy, "multilabel": F.binary_cross_entropy_with_logits, "regression": F.mse_loss}
"""By the kind of labels."""


class Supervised(Objective):
    """Soft-target cross-entropy, binary cross-entropy or squared error, by the kind of labels.

    Smoothing, mixing partners and stochastic depth arrive drawn by the view. The weight average holds the average of
    batch normalisation's running statistics too.
    """

    decays_tokens = False

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        cfg: ResolvedSupervised,
        kind: Literal["class", "multilabel", "regression"] = "class",
        *,
        two_heads: bool = False,
    ) -> None:
        """Puts a classifier on a backbone.

        Args:
            backbone: Random or pre-trained; all of it is trained, positions included.
            classes: K, number of classes, labels or numbers to predict.
            cfg: Resolved.
            kind: One class, several labels or numbers per image.
            two_heads: See ``Classifier``.
        """
        super().__init__()
        backbone.requires_grad_(True)
        self.net = Classifier(backbone, classes, pool=cfg.pool, hidden=cfg.head_hidden, two_heads=two_heads)
        self.kind = kind
        self.decay = cfg.ema_decay
        self.average = copy.deepcopy(self.net).requires_grad_(False) if cfg.ema_decay else None
        self._averaged: tuple[list[Tensor], ...] | None = None

    @property
    def top_layer(self) -> int:
        """Final norm and head."""
        return self.net.backbone.depth + 1

    def layer_id(self, name: str) -> int:
        """The backbone's own layer, or the top for the head."""
        inner = name.removeprefix("net.backbone.")
        return self.net.backbone.layer_id(inner) if inner != name else self.top_layer

    def exported(self) -> Backbone:
        """The averaged backbone where weights are averaged, else the trained one."""
        return self.classifier().backbone

    def classifier(self) -> Classifier:
        """The network to judge: averaged weights where they are kept."""
        return self.average or self.net

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C H W] (normalised) and ``targets`` Float[B K].

        Targets are rows that sum to 1, one probability per label, or standardised numbers; with stochastic depth there
        is ``drop`` Float[B *L].
        """
        logits = self.net(inputs["images"], inputs.get("drop"))
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return StepOutput(LOSSES[self.kind](logits.to(dtype), inputs["targets"].to(dtype)), {})

    def after_step(self, clock: Clock) -> None:
        """Moves the weight average."""
        if self.average is None:
            return
        with torch.no_grad():
            if self._averaged is None:  # looked up once: on small networks this took a tenth of a step
                self._averaged = tuple(
                    [local(value) for value in (*net.parameters(), *running_statistics(net))]
                    for net in (self.average, self.net)
                )
            kept, now = self._averaged
            weight = 1.0 - ema_decay(clock.step, decay=self.decay)
            torch._foreach_lerp_(kept, now, weight)  # pyright: ignore[reportPrivateImportUsage]


def supervised_view(
    scale: PixelScale,
    cfg: ResolvedAugment,
    loss: ResolvedSupervised,
    *,
    size: int,
    drop_rates: Float[Tensor, "*L"] | None = None,
    classes: int,
    kind: Kind = "class",
    dtype: torch.dtype,
) -> View:
    """Images, soft targets and stochastic depth.

    Args:
        scale: Pixel statistics.
        cfg: Resolved augmentation.
        loss: Resolved smoothing and mixing.
        size: Side of the model's input in pixels.
        drop_rates: As ``Backbone.drop_rates`` gives them; None for none.
        classes: K, number of classes, labels or numbers to predict.
        kind: What labels are; numbers come standardised.
        dtype: Arithmetic of the images.
    """
    mixup, cutmix = loss.mixup, loss.cutmix

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, size, dtype)
        if cfg.erasing:
            images = erase(host_key(seed, "erasing", batch), images, cfg.erasing)
        targets = mixing.make_targets(batch.truth, kind, classes=classes, smoothing=loss.label_smoothing, dtype=dtype)
        if mixup or cutmix:
            key = host_key(seed, "mix", batch)
            images, targets = mixing.mix(key, images, targets, mixup=mixup, cutmix=cutmix)
        inputs = {"images": images, "targets": targets}
        if drop_rates is not None:
            factors = drop_path_factors(host_key(seed, "drop-path", batch), drop_rates)
            inputs["drop"] = sent(factors, images.device)
        return inputs

    return view
