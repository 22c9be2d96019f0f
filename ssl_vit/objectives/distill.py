"""Distillation from any trained network: its pooled features and its feature map, by cosine distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.methods.distill import DistillConfig, ResolvedDistillRecipe
from ssl_vit.models.backbone import Backbone, as_judged
from ssl_vit.objectives.base import Built, Objective, StepOutput, train_all
from ssl_vit.released.starts import read_start
from ssl_vit.views.augment import resized
from ssl_vit.views.training import View, left_out, train_images

_Pool = Literal["cls", "mean"]


def cosine_distance(found: Float[Tensor, "*B D"], wanted: Float[Tensor, "*B D"]) -> Float[Tensor, ""]:
    """1 - the cosine of the angle between vectors, in single precision at least; mean over all of them."""
    a, b = (F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1) for x in (found, wanted))
    return 1.0 - (a * b).sum(dim=-1).mean()


class Distillation(Objective):
    """w_p d(P s, t) + w_m mean over places of d(M s_i, t_i), where d is the cosine distance, and P and M are linear.

    s are features of the student, t of the teacher. Its map is resized to the student's places.
    """

    def __init__(
        self, backbone: Backbone, teacher: Backbone, cfg: DistillConfig, *, pool: _Pool, taught_pool: _Pool,
        freeze_positions: bool = False,
    ) -> None:  # fmt: skip
        """Adds linear layers to the student, and freezes the teacher in place.

        Args:
            backbone: The student: random or pre-trained.
            teacher: In evaluation mode from here on.
            cfg: Weights of both distances.
            pool: What represents an image, of the student.
            taught_pool: The same of the teacher.
            freeze_positions: Leave the student's position embedding as it is (a sine-cosine table).
        """
        super().__init__()
        train_all(backbone, freeze_positions)
        self.backbone, self.cfg = backbone, cfg
        self.pool: _Pool = pool
        self.taught_pool: _Pool = taught_pool
        # In no state dict and no checkpoint: every start loads it.
        self._teacher = (teacher.requires_grad_(False).eval(),)
        self.project = nn.Linear(backbone.pooled_width(pool), teacher.pooled_width(taught_pool))
        own, taught = (map_shape(net) if cfg.map_weight else None for net in (backbone, teacher))
        self.places = own[1] if own and taught else None
        self.project_map = nn.Linear(own[0], taught[0]) if own and taught else None

    @property
    def teacher(self) -> Backbone:
        """The network that is learnt from."""
        return self._teacher[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Distillation:
        """What moves the student to a device or to another precision moves the teacher, too."""
        self.teacher._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C S S] and ``taught`` Float[B c T T], one view as each network reads it."""
        with torch.no_grad():
            wanted, wanted_map = self._features(self.teacher, inputs["taught"], self.taught_pool)
        found, found_map = self._features(self.backbone, inputs["images"], self.pool)
        apart = cosine_distance(self.project(found), wanted)
        loss, metrics = self.cfg.pooled_weight * apart, {"pooled": apart.detach()}
        if self.places and self.project_map and wanted_map is not None and found_map is not None:
            wanted_map = wanted_map.to(torch.promote_types(wanted_map.dtype, torch.float32))
            wanted_map = resized(wanted_map, self.places, "bilinear")
            apart = cosine_distance(self.project_map(_rows(found_map)), _rows(wanted_map))
            loss, metrics["map"] = loss + self.cfg.map_weight * apart, apart.detach()
        return StepOutput(loss, metrics)

    def _features(self, net: Backbone, images: Tensor, pool: _Pool) -> tuple[Tensor, Tensor | None]:
        return (net.forward_pooled(images, pool=pool), None) if self.places is None else net.pooled_and_map(
            images, pool=pool
        )  # fmt: skip


def _rows(features: Float[Tensor, "B D h w"]) -> Float[Tensor, "B N D"]:
    return features.flatten(2).transpose(1, 2)


def map_shape(net: Backbone) -> tuple[int, int] | None:
    """Channels and side in places of a network's feature map; None where it has no square one."""
    image = next(net.parameters()).new_zeros(1, net.channels, net.img_size, net.img_size)
    try:
        with torch.no_grad(), as_judged(net):
            shape = net.feature_map(image).shape
    except (UserError, AttributeError):
        return None
    return (shape[1], shape[2]) if shape[2] == shape[3] else None


def distill_view(scale: PixelScale, cfg: ResolvedAugment, teacher: Exported, *, size: int, dtype: torch.dtype) -> View:
    """One view of every image as both networks read it, cut at the larger of their inputs.

    Grey images reach a teacher of RGB as three equal channels. Images of other bits than the teacher's are standardised
    by their own statistics: brightness in one range says nothing in the other. So are all where a teacher from
    elsewhere does not say how pixels are to be standardised.

    Args:
        scale: Pixel statistics of the student.
        cfg: Resolved.
        teacher: With its own statistics and size.
        size: S, side of the student's input in pixels.
        dtype: Arithmetic of the images.
    """
    whole = max(size, teacher.size)

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, whole, dtype)
        return {"images": resized(images, size), "taught": as_read_by(teacher, images, scale)}

    return view


def as_read_by(teacher: Exported, images: Float[Tensor, "B C H W"], scale: PixelScale) -> Float[Tensor, "B c T T"]:
    """A student's images at the input of its teacher, as ``distill_view`` says.

    Args:
        teacher: With its own statistics and size.
        images: Normalised by the student's.
        scale: Pixel statistics of the student.
    """
    channels, taught = teacher.backbone.channels, resized(images, teacher.size)
    if teacher.scale.bits == scale.bits and not teacher.about.get("untold_scale"):
        taught = teacher.scale.normalise(scale.restore(taught).clamp_(0.0, 1.0).expand(-1, channels, -1, -1))
    return taught.expand(-1, channels, -1, -1)


def load_teacher(cfg: DistillConfig, channels: int) -> Exported:
    """The teacher of a student that reads so many channels.

    Raises:
        UserError: Where there is none, it has other weights than those that are named, or reads other channels.
    """
    found = read_start(cfg.teacher, "--teacher")
    if cfg.teacher_weights not in (None, found.weights_hash):
        raise UserError(
            f"--teacher {cfg.teacher} has the weights {found.weights_hash}, and --distill.teacher_weights names "
            f"{cfg.teacher_weights}; give the folder of those weights, or leave --distill.teacher_weights out"
        )
    fits_channels(found, channels, cfg.teacher)
    return found


def fits_channels(teacher: Exported, channels: int, given: str) -> None:
    """Refuses a teacher that cannot read images of so many channels.

    Args:
        teacher: RGB ones read grey images, too.
        channels: C of the images.
        given: ``--teacher``.

    Raises:
        UserError: Naming both numbers.
    """
    own = teacher.backbone.channels
    if channels not in (1 if own == 3 else own, own):
        raise UserError(
            f"--teacher {given} reads images of {own} channel(s), and these have {channels}; give a teacher that was "
            "trained on such images"
        )


def build(cfg: ResolvedDistillRecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError as ``load_teacher``."""
    model, taught = cfg.model, load_teacher(cfg.distill, backbone.channels)
    objective = Distillation(
        backbone, taught.backbone, cfg.distill, pool=model.pool, taught_pool=cast(_Pool, taught.pool),
        freeze_positions=model.positions == "sincos",
    )  # fmt: skip
    name, about = taught.backbone.architecture, taught.about
    known = {key: about[key] for key in ("objective", "data", "labels", "pool_fingerprint") if key in about}
    objective.export_note = f"taught by {name} {taught.weights_hash}"
    objective.origin = {
        "teacher": {"given": cfg.distill.teacher, "architecture": name, "weights": taught.weights_hash, **known},
        **({"transductive": True} if about.get("transductive") else {}),  # what it saw of test images, the student sees
    }
    notes = {
        "the teacher was trained on labels, and what it knows of them reaches the student": "labels" in known,
        "one of the networks has no square feature map; pooled features alone are learnt": cfg.distill.map_weight
        and objective.places is None,
        f"the teacher was trained on images of {taught.scale.bits} bits; these of {scale.bits} bits reach it "
        "standardised by their own statistics": taught.scale.bits != scale.bits,
    }
    return Built(
        objective, distill_view(scale, cfg.augment, taught, size=model.img_size, dtype=dtype),
        f"{model.img_size} px; the teacher, {name}, reads {taught.size} px",
        (*(f"note: {note}" for note, holds in notes.items() if holds),
         *left_out(cfg.augment, backbone.channels, scale.bits)),
        taught.size, replace(cfg.distill, teacher_weights=taught.weights_hash),
    )  # fmt: skip
