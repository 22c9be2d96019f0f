"""DIET (Ibrahim et al. 2024, arXiv 2406.10743; Balestriero 2023, 2302.10260): which image is this?

Every image of the pool is a class of its own, and a linear layer with a row for each tells them apart, however an image
is varied. There is one view of an image, no projector, no teacher and nothing between the images of a batch.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.data.constants import sent
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.shared import free_memory
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.diet import ResolvedDIETRecipe
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.objectives.base import Built, Objective, StepOutput, train_all
from ssl_vit.views.mixing import erase
from ssl_vit.views.training import View, host_key, left_out, train_images

_CHUNK = 2**25
"""Outputs in memory at once."""
_STATE = 16
"""Bytes of a weight with its gradient and two averages."""


class _OwnClass(torch.autograd.Function):
    """The loss with its gradients computed in the forward pass, a chunk of images at a time.

    The gradient with respect to the outputs is known in closed form: softmax - (1 - s) for the own class - s / N. So no
    output waits for the backward pass: memory is bounded by the chunk, and nothing is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, rows: Tensor, own: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        images, spread = len(features), smoothing / len(rows)
        loss, right = features.new_zeros(()), features.new_zeros(())
        needs_x, needs_w = ctx.needs_input_grad[:2]
        grad_x = torch.empty_like(features) if needs_x else None
        grad_w: Tensor | None = None
        for first in range(0, images, chunk):
            part = slice(first, first + chunk)
            x, place = features[part], own[part, None]
            outputs = (x @ rows.T).to(features.dtype)
            norm, wanted = outputs.logsumexp(dim=1, keepdim=True), outputs.gather(1, place)
            loss += (norm - (1.0 - smoothing) * wanted - smoothing * outputs.mean(dim=1, keepdim=True)).sum()
            right += (wanted >= outputs.amax(dim=1, keepdim=True)).sum()
            change = outputs.sub_(norm).exp_().sub_(spread)  # in place of the outputs
            change.scatter_add_(1, place, torch.full_like(wanted, smoothing - 1.0))
            if grad_x is not None:
                grad_x[part] = change @ rows
            if needs_w:
                with torch.autocast(x.device.type, enabled=False):
                    grad_w = change.T @ x if grad_w is None else grad_w.addmm_(change.T, x)
        ctx.grads = [None if g is None else g.div_(images) for g in (grad_x, grad_w)]
        right /= images
        ctx.mark_non_differentiable(right)
        return loss / images, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found, ctx.grads = ctx.grads, None
        if found is None:
            raise RuntimeError("the gradients of this loss were handed over; it can be differentiated once")
        return *(None if g is None else g.mul_(grads[0]) for g in found), None, None, None


def own_class_loss(
    features: Float[Tensor, "B D"], rows: Float[Tensor, "N D"], own: Int[Tensor, " B"], *, smoothing: float,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:  # fmt: skip
    """Cross-entropy between a smoothed class and the softmax of ``features @ rows.T``, mean over images.

    Args:
        features: In single precision at least.
        rows: One for every class.
        own: Class of each image.
        smoothing: Mass moved from the own class to all N, in [0, 1).
        chunk: Images whose outputs are in memory at once; default: as many as make 2^25 outputs.

    Returns:
        The loss, and the share of images whose own class has the largest output.
    """
    return _OwnClass.apply(features, rows, own, smoothing, chunk or max(1, _CHUNK // len(rows)))


class DIET(Objective):
    """Cross-entropy with label smoothing over as many classes as images (section 3)."""

    smaller = ("fewer --diet.classes",)

    def __init__(
        self, backbone: Backbone, *, classes: int, smoothing: float, pool: Pool, freeze_positions: bool = False
    ) -> None:
        """Adds a linear layer without bias, with a row for every class.

        Args:
            backbone: Random or pre-trained.
            classes: N.
            smoothing: Of the loss, in [0, 1).
            pool: What represents an image.
            freeze_positions: Leave the position embedding as it is (a sine-cosine table).
        """
        super().__init__()
        train_all(backbone, freeze_positions)
        self.backbone, self.smoothing = backbone, smoothing
        self.pool: Pool = pool
        self.head = nn.Linear(backbone.pooled_width(pool), classes, bias=False)
        self.features = backbone.forward_pooled

    def compile_passes(self, mode: str | None) -> None:
        """Compiles what makes features; the loss is few large products, in chunks by hand."""
        self.features = torch.compile(self.features, dynamic=False, mode=mode)

    def describe(self, steps: int) -> str:
        """The size of the classifier."""
        rows, width = self.head.weight.shape
        taken = f"{_STATE * rows * width / 1e6:,.3g} MB with gradient and averages"
        return f"classes         {rows:,} rows of {width} numbers, {taken}"

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C S S] (normalised) and ``own`` Int[B], the class of each."""
        x = self.features(inputs["images"], pool=self.pool)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        loss, right = own_class_loss(x, self.head.weight, inputs["own"], smoothing=self.smoothing)
        return StepOutput(loss, {"right": right})


def diet_view(scale: PixelScale, cfg: ResolvedAugment, *, size: int, classes: int, dtype: torch.dtype) -> View:
    """One varied view of every image, and its class: its place in the pool, which no order and no restart changes.

    Args:
        scale: Pixel statistics.
        cfg: Resolved.
        size: S, side of the model's input in pixels.
        classes: N; an image beyond shares the class of another.
        dtype: Arithmetic of the images.
    """

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, size, dtype)
        if cfg.erasing:
            images = erase(host_key(seed, "erasing", batch), images, cfg.erasing)
        return {"images": images, "own": sent(batch.index % classes, images.device)}

    return view


def build(cfg: ResolvedDIETRecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError where the classifier does not fit into memory."""
    model, classes = cfg.model, cfg.diet.classes
    _check_room(classes, backbone.pooled_width(model.pool))
    objective = DIET(
        backbone, classes=classes, smoothing=cfg.diet.label_smoothing, pool=model.pool,
        freeze_positions=model.positions == "sincos",
    )  # fmt: skip
    return Built(
        objective, diet_view(scale, cfg.augment, size=model.img_size, classes=classes, dtype=dtype),
        f"{model.img_size} px, {classes:,} classes", left_out(cfg.augment, backbone.channels, scale.bits),
    )  # fmt: skip


def _check_room(classes: int, width: int) -> None:
    """Refuses a classifier that alone is more than the memory it would have to be in."""
    needed = _STATE * classes * width
    free = torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else free_memory()
    if needed > free:
        raise UserError(
            f"DIET's {classes:,} classes of {width} numbers take {needed / 1e9:,.1f} GB with gradient and averages, of "
            f"{free / 1e9:,.1f} GB that there are; use a narrower network, fewer --diet.classes, or another method"
        )
