"""DINO's loss between views, and what stands against collapse: centring and Sinkhorn-Knopp."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.dist import max_over_ranks, sum_over_ranks


class LastLayer(NamedTuple):
    """The last layer as it stands in the head: y_k = gain_k v_k.z / |v_k|.

    The rows are not normalised beforehand: their lengths go into a scale of the outputs, which saves several passes
    over a matrix that may have 65,536 rows.
    """

    direction: Float[Tensor, "K Z"]
    gain: Float[Tensor, "K 1"]

    def scale(self) -> Float[Tensor, " K"]:
        """gain_k / |v_k|."""
        return self.gain[:, 0] / torch.linalg.vector_norm(self.direction, dim=1).clamp(min=1e-12)

    def outputs(self, z: Float[Tensor, "*B Z"], scale: Float[Tensor, " K"]) -> Float[Tensor, "*B K"]:
        """Outputs times what the scale is multiplied by, in full precision even where autocast lowers the product's."""
        product = self.product(z)
        return product.to(torch.promote_types(product.dtype, scale.dtype)).mul_(scale)

    def product(self, z: Float[Tensor, "*B Z"]) -> Float[Tensor, "*B K"]:
        """v_k.z, in autocast's precision."""
        # As one product of two matrices: a batch of them would copy the layer for every view.
        return (z.reshape(-1, z.shape[-1]) @ self.direction.T).view(*z.shape[:-1], -1)


class Teaching(NamedTuple):
    """What the teacher says about G views, before it is sharpened."""

    bottleneck: Float[Tensor, "G B Z"]
    layer: LastLayer
    centre: Float[Tensor, " K"]
    temperature: float
    targets: Float[Tensor, "G B K"] | None
    """Probabilities that were made beforehand (Sinkhorn-Knopp); None: the sharpened softmax of centred outputs."""

    def chunk(self, part: slice, scale: Float[Tensor, " K"]) -> tuple[Float[Tensor, "G b K"], Float[Tensor, "G b"]]:
        """Probabilities of some images, and their entropies; ``scale``: the last layer's over the temperature."""
        if self.targets is not None:
            p = self.targets[:, part]
            return p, -torch.special.xlogy(p, p).sum(dim=-1)
        logits = self.layer.outputs(self.bottleneck[:, part], scale).sub_(self.centre / self.temperature)
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        p = logits.exp()
        total = p.sum(dim=-1, keepdim=True)
        p.div_(total)
        return p, total[..., 0].log() - torch.linalg.vecdot(logits, p)


class LossParts(NamedTuple):
    """The loss and what tells whether it is healthy."""

    loss: Float[Tensor, ""]
    entropy: Float[Tensor, ""]
    """Mean entropy of the teacher's probabilities; loss = entropy + mean KL divergence from teacher to student."""
    marginal: Float[Tensor, " K"]
    """Mean of the teacher's probabilities over views and images."""


_ROWS = 1024
"""Rows whose products a CPU adds up before they leave its cache."""


def _row_products(a: Float[Tensor, "K Z"], b: Float[Tensor, "K Z"]) -> Float[Tensor, " K"]:
    """The product of each row with the same row."""
    rows = _ROWS if a.device.type == "cpu" else len(a)
    return torch.cat([(x * y).sum(dim=1) for x, y in zip(a.split(rows), b.split(rows), strict=True)])


def _against(
    outputs: Float[Tensor, "b K"], scale: Float[Tensor, " K"], wanted: Float[Tensor, "b K"], count: int
) -> Float[Tensor, ""]:
    """Cross-entropy of a student view with ``count`` teacher views, whose probabilities add up to ``wanted``.

    In place of its outputs, before they are scaled, stands its gradient with respect to them afterwards.
    """
    logits = outputs.to(scale.dtype).mul_(scale)
    loss = -torch.dot(wanted.flatten(), logits.flatten())
    top = logits.amax(dim=-1, keepdim=True)
    summed = logits.sub_(top).exp_().sum(dim=-1, keepdim=True)
    gradient = logits.mul_(count / summed).sub_(wanted).mul_(scale)
    if gradient.dtype != outputs.dtype:
        outputs.copy_(gradient)
    return loss + count * (top + summed.log()).sum()


class _CrossView(torch.autograd.Function):
    """The loss with its gradients computed in the forward pass, a chunk of images at a time.

    The gradient with respect to the outputs is known in closed form, so no output has to wait for the backward pass:
    memory is bounded by the chunk, and nothing is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, direction: Tensor, gain: Tensor, teaching: Teaching, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        layer = LastLayer(direction, gain)
        views, batch, _ = student.shape
        given = len(teaching.bottleneck)
        pairs = given * (views - 1)
        cold, warm = teaching.layer.scale() / teaching.temperature, layer.scale() / temperature
        loss, entropy = student.new_zeros(()), student.new_zeros(())
        marginal = student.new_zeros(len(direction))
        needs_z, needs_w, needs_gain = ctx.needs_input_grad[:3]
        grad_z = torch.empty_like(student) if needs_z else None
        grad_w: Tensor | None = None
        kind, low = student.device.type, student.dtype
        # Not in fp16, which has no place for gradients of small probabilities: no scaler is in here.
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            low = torch.bfloat16
        rounded = layer._replace(direction=direction.to(low))
        for first in range(0, batch, chunk):
            part = slice(first, min(batch, first + chunk))
            p, h = teaching.chunk(part, cold)
            entropy += h.sum()
            total = p.sum(dim=0)
            marginal += total.sum(dim=0)
            z = student[:, part]
            steep = rounded.product(z).to(low)
            for view, own in enumerate(steep):
                # A student view is compared with every teacher view but its own.
                count, wanted = (given - 1, total - p[view]) if view < given else (given, total)
                loss += _against(own, warm, wanted, count)
            # Products in bf16 where those of all other gradients are, too.
            with torch.autocast(kind, enabled=False):
                if grad_z is not None:
                    grad_z[:, part] = steep @ rounded.direction
                if needs_w or needs_gain:
                    rows, inner = steep.flatten(0, 1).T, z.flatten(0, 1).to(low)
                    if grad_w is None:
                        grad_w = (rows @ inner).to(direction.dtype)
                    elif low == grad_w.dtype:
                        grad_w.addmm_(rows, inner)
                    else:
                        grad_w.add_(rows @ inner)
        grad_gain = None
        if grad_w is not None:  # a row's length has no effect: what points along it goes to the gain
            along = _row_products(direction, grad_w)
            grad_gain = (along / gain[:, 0])[:, None]
            squares = torch.linalg.vector_norm(direction, dim=1).square().clamp(min=1e-24)
            grad_w.addcmul_(direction, (along / squares)[:, None], value=-1.0)
        grads = (grad_z, grad_w if needs_w else None, grad_gain if needs_gain else None)
        ctx.grads = [None if g is None else g.div_(pairs * batch) for g in grads]
        ctx.mark_non_differentiable(entropy, marginal)
        return loss / (pairs * batch), entropy / (given * batch), marginal / (given * batch)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        own, ctx.grads = ctx.grads, None
        if own is None:
            raise RuntimeError("the gradients of this loss were handed over; it can be differentiated once")
        return *(None if g is None else g.mul_(grads[0]) for g in own), None, None, None


def cross_view_loss(
    student: Float[Tensor, "V B Z"], layer: LastLayer, teaching: Teaching, *, temperature: float, chunk: int
) -> LossParts:
    """Cross-entropy between every teacher view and every other student view (Caron et al. 2021, equation 3).

    As nested loops, with P_i the teacher's probabilities of view i and s_j the student's outputs of view j, both of one
    image::

        for i in teacher views:
            for j in student views, j != i:
                loss += -(P_i * log_softmax(s_j / temperature)).sum() / number of pairs

    then the mean over images.

    Args:
        student: Bottleneck of all views; those that the teacher sees come first, in its order.
        layer: The student's last layer.
        teaching: What the teacher says.
        temperature: The student's.
        chunk: Images whose outputs are in memory at once.
    """
    return LossParts(*_CrossView.apply(student, layer.direction, layer.gain, teaching, temperature, chunk))


def sinkhorn_knopp(outputs: Float[Tensor, "*B K"], temperature: float, iterations: int = 3) -> Float[Tensor, "*B K"]:
    """Probabilities that use every output equally often over the batch of all processes (Caron et al. 2020; DINOv2).

    In logarithms, so that nothing can vanish.

    Args:
        outputs: Of the teacher.
        temperature: The teacher's.
        iterations: Times that columns, then rows are normalised.
    """
    log_q = outputs.flatten(0, -2) / temperature
    for _ in range(iterations):
        top = max_over_ranks(log_q.amax(dim=0))
        log_q = log_q - (top + sum_over_ranks((log_q - top).exp().sum(dim=0)).log())
        log_q = log_q - log_q.logsumexp(dim=1, keepdim=True)
    return log_q.exp().view_as(outputs)
