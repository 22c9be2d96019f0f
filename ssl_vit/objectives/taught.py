"""Labels and a teacher: DeiT's distillation, soft and hard (Touvron et al. 2021), and token labelling.

Jiang et al. 2021 ("All Tokens Matter") keep a map of scores of every training image on disk. Here the teacher reads the
very image that the student reads, so that its map is of the same crop, mixed or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, TrainedClassifier
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.methods.taught import TaughtConfig
from ssl_vit.models.backbone import Backbone, TokenBackbone, with_tokens
from ssl_vit.models.heads import Classifier, has_distillation_token
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.base import StepOutput
from ssl_vit.objectives.distill import as_read_by, map_shape
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.views.augment import resized
from ssl_vit.views.training import View


def _at_least_single(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def distillation_loss(
    outputs: Float[Tensor, "B K"], teacher: Float[Tensor, "B K"], kind: Literal["hard", "soft"], temperature: float
) -> Float[Tensor, ""]:
    """What is learnt of the teacher's answer to the whole image (DeiT, section 4).

    Soft: temperature^2 x the Kullback-Leibler divergence of the teacher's probabilities from the student's, the mean
    over images and, as in DeiT's code, over classes. Hard: cross-entropy with the teacher's first class.
    """
    outputs, teacher = _at_least_single(outputs), _at_least_single(teacher)
    if kind == "hard":
        return F.cross_entropy(outputs, teacher.argmax(dim=1))
    own, wanted = ((x / temperature).log_softmax(dim=1) for x in (outputs, teacher))
    apart = F.kl_div(own, wanted, reduction="sum", log_target=True)
    return apart * temperature**2 / outputs.numel()


def soft_cross_entropy(outputs: Float[Tensor, "*B K"], wanted: Float[Tensor, "*B K"]) -> Float[Tensor, ""]:
    """Mean over rows of - sum of wanted x log softmax(outputs): of images, or of all places of all images."""
    outputs = _at_least_single(outputs)
    return -(wanted.to(outputs.dtype) * outputs.log_softmax(dim=-1)).sum(dim=-1).mean()


class Taught(Supervised):
    """(1 - w) CE(class head, labels) + w D(head, teacher) + w_t mean over places of CE(place, teacher's place)."""

    def __init__(
        self, backbone: Backbone, classes: int, cfg: ResolvedSupervised, taught: TaughtConfig,
        teacher: TrainedClassifier, order: Int[Tensor, " K"],
    ) -> None:  # fmt: skip
        """Puts heads on a backbone, and freezes the teacher in place.

        Args:
            backbone: All of it is trained.
            classes: K.
            cfg: Resolved.
            taught: What is learnt of the teacher.
            teacher: A classifier of the same classes; in evaluation mode from here on.
            order: The teacher's output of every class.

        Raises:
            UserError: For token labelling where a network has no square map, or a head that reads no places.
        """
        super().__init__(backbone, classes, cfg, two_heads=has_distillation_token(backbone))
        self.taught = taught
        # In no state dict and no checkpoint: every start loads it.
        self._teacher = (teacher.net.requires_grad_(False).eval(),)
        self.order: Tensor
        self.register_buffer("order", order, persistent=False)
        self.places, self.dense, self.dense_norm = None, None, None
        if taught.token_weight:
            own, read = map_shape(backbone), _head_width(teacher.net)
            shape = map_shape(teacher.net.backbone)
            if own is None or shape is None or shape[0] != read:
                who = "this network" if own is None else f"the teacher, {teacher.net.backbone.architecture},"
                raise UserError(
                    f"--taught.token_weight {taught.token_weight:g}: {who} has no square feature map that its head "
                    "could read; leave it out"
                )
            if not _pools_places(teacher.net):
                say_once(
                    f"note: the head of the teacher, {teacher.net.backbone.architecture}, was trained on a class token "
                    f"alone; --taught.token_weight {taught.token_weight:g} has it read places, which it has not seen"
                )
            self.places = own[1]
            # Tokens of a ViT are normalised; a map of another network need not be.
            self.dense_norm = nn.Identity() if isinstance(backbone, ViTBackbone) else nn.LayerNorm(own[0])
            self.dense = nn.Linear(own[0], classes)
            nn.init.trunc_normal_(self.dense.weight, std=2e-5)
            nn.init.zeros_(self.dense.bias)

    @property
    def teacher(self) -> Classifier:
        """The network that is learnt from."""
        return self._teacher[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Taught:
        """What moves the student to a device or to another precision moves the teacher, too."""
        self.teacher._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` and ``targets`` as ``Supervised`` reads them, and ``taught`` Float[B c T T].

        ``taught`` are the same images as the teacher reads them.
        """
        with torch.no_grad():
            wanted, wanted_places = self._asked(inputs["taught"])
        outputs, distilled, places = self._say(inputs["images"], inputs.get("drop"))
        share, cfg = self.taught.weight, self.taught
        on_labels = soft_cross_entropy(outputs, inputs["targets"])
        apart = distillation_loss(distilled, wanted, cfg.distillation, cfg.temperature)
        loss = (1.0 - share) * on_labels + share * apart
        metrics = {"labels": on_labels.detach(), "teacher": apart.detach()}
        if self.dense is not None and self.dense_norm is not None and places is not None and wanted_places is not None:
            of_places = soft_cross_entropy(self.dense(self.dense_norm(places)), wanted_places)
            loss, metrics["places"] = loss + cfg.token_weight * of_places, of_places.detach()
        return StepOutput(loss, metrics)

    def _say(self, images: Tensor, drop: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Outputs on labels and on the teacher, and what every place looks like."""
        net = self.net
        if net.second is not None:
            return net.both(images, drop)
        if self.dense is None:
            outputs = net(images, drop)
            return outputs, outputs, None
        pooled, found = net.backbone.pooled_and_map(images, pool=_map_pool(net), drop=drop)
        outputs = net.head(net.fc_norm(pooled))
        return outputs, outputs, net.fc_norm(_rows(found))

    def _asked(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the teacher says of images, and the probabilities of every place of the student's map."""
        net = self.teacher
        outputs = _at_least_single(net(images))[:, self.order]
        if self.places is None:
            return outputs, None
        if isinstance(net.backbone, TokenBackbone):
            tokens = with_tokens(net.backbone, "--teacher").forward_tokens(images, norm=net.pool != "mean_prenorm")
            found = net.fc_norm(tokens.patches).transpose(1, 2).unflatten(2, tokens.grid)
        elif isinstance(
            net.backbone, PooledBackbone
        ):  # its head reads what stands behind the pooling, a norm it may be
            found = net.backbone.place_features(images)
        else:
            found = net.backbone.feature_map(images)
        scores = _at_least_single(net.head(found.permute(0, 2, 3, 1)))[..., self.order].permute(0, 3, 1, 2)
        return outputs, _rows(resized(scores, self.places, "bilinear")).softmax(dim=-1)


def _rows(features: Float[Tensor, "B D h w"]) -> Float[Tensor, "B N D"]:
    return features.flatten(2).transpose(1, 2)


def _pools_places(net: Classifier) -> bool:
    """Whether a head was trained on what places are like."""
    return net.backbone.pools_places() if isinstance(net.backbone, PooledBackbone) else "mean" in net.pool


def _map_pool(net: Classifier) -> Literal["cls", "mean", "mean_prenorm"]:
    return "cls" if net.pool == "cls" else "mean_prenorm" if net.pool == "mean_prenorm" else "mean"


def _head_width(net: Classifier) -> int | None:
    return net.head.in_features if isinstance(net.head, nn.Linear) else None


def order_of_classes(teacher: Labelling, classes: tuple[str, ...], kind: str, given: str) -> Int[Tensor, " K"]:
    """The teacher's output of every class that the student learns.

    Args:
        teacher: What the teacher's outputs mean.
        classes: The student's, in its order.
        kind: Of the student's labels.
        given: ``--teacher``, for messages.

    Raises:
        UserError: Where they are not the same classes.
    """
    for who, found in (("these images have", kind), (f"--teacher {given} answers", teacher.kind)):
        if found != "class":
            raise UserError(
                f"a teacher is for one class per image, and {who} {found} labels; use recipes/supervised.py"
            )
    if set(teacher.names) != set(classes):
        lacking = [name for name in classes if name not in teacher.names]
        more = [name for name in teacher.names if name not in classes]
        parts = [
            f"{word} {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
            for word, names in (("it does not know", lacking), ("it knows besides", more)) if names
        ]  # fmt: skip
        close = did_you_mean(lacking[0], more) if lacking and more else ""
        raise UserError(
            f"--teacher {given} was trained on other classes than these {len(classes)}: {'; '.join(parts)}; "
            f"give a run on the same classes{close}"
        )
    return torch.tensor([teacher.names.index(name) for name in classes])


def taught_view(view: View, scale: PixelScale, teacher: TrainedClassifier, *, size: int) -> View:
    """A labelled view whose images the teacher reads, too, mixed and erased as they are.

    Args:
        view: Makes images at the larger of both inputs.
        scale: Pixel statistics of the student.
        teacher: With its own statistics and size.
        size: S, side of the student's input in pixels.
    """

    def both(batch: Batch, seed: int) -> dict[str, Tensor]:
        inputs = view(batch, seed)
        images = inputs["images"]
        return {**inputs, "images": resized(images, size), "taught": as_read_by(teacher.exported, images, scale)}

    return both
