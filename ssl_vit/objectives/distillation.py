"""DINO's loss between views, and what stands against collapse: centring and Sinkhorn-Knopp."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.dist import max_over_ranks, sum_over_ranks


class Teaching(NamedTuple):
    """What the teacher says about G views, before it is sharpened."""

    bottleneck: Float[Tensor, "G B Z"]
    prototypes: Float[Tensor, "K Z"]
    centre: Float[Tensor, " K"]
    temperature: float
    targets: Float[Tensor, "G B K"] | None
    """Probabilities that were made beforehand (Sinkhorn-Knopp); None: the sharpened softmax of centred outputs."""

    def chunk(self, part: slice) -> tuple[Float[Tensor, "G b K"], Float[Tensor, "G b"]]:
        """Probabilities of some images, and their entropies."""
        if self.targets is not None:
            p = self.targets[:, part]
            return p, -torch.special.xlogy(p, p).sum(dim=-1)
        logits = _outputs(self.bottleneck[:, part], self.prototypes).sub_(self.centre).div_(self.temperature)
        log_norm = logits.logsumexp(dim=-1, keepdim=True)
        p = (logits - log_norm).exp_()
        entropy = log_norm[..., 0] - logits.mul_(p).sum(dim=-1)
        return p, entropy


class LossParts(NamedTuple):
    """The loss and what tells whether it is healthy."""

    loss: Float[Tensor, ""]
    entropy: Float[Tensor, ""]
    """Mean entropy of the teacher's probabilities; loss = entropy + mean KL divergence from teacher to student."""
    marginal: Float[Tensor, " K"]
    """Mean of the teacher's probabilities over views and images."""


def _outputs(z: Float[Tensor, "*B Z"], prototypes: Float[Tensor, "K Z"]) -> Float[Tensor, "*B K"]:
    """Z W', in the parameters' precision even where autocast lowers that of the product."""
    return (z @ prototypes.T).to(torch.promote_types(z.dtype, torch.float32))


class _CrossView(torch.autograd.Function):
    """The loss with its gradients computed in the forward pass, a chunk of images at a time.

    The gradient with respect to the outputs is known in closed form, so no output has to wait for the backward pass:
    memory is bounded by the chunk, and nothing is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, prototypes: Tensor, teaching: Teaching, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        views, batch, _ = student.shape
        given = len(teaching.bottleneck)
        pairs = given * (views - 1)
        # How many teacher views each student view is compared with: not with its own.
        partners = [given - 1 if view < given else given for view in range(views)]
        loss, entropy = student.new_zeros(()), student.new_zeros(())
        marginal = student.new_zeros(len(prototypes))
        needs_z, needs_w = ctx.needs_input_grad[:2]
        grad_z = torch.empty_like(student) if needs_z else None
        grad_w = torch.zeros_like(prototypes) if needs_w else None
        for first in range(0, batch, chunk):
            part = slice(first, min(batch, first + chunk))
            p, h = teaching.chunk(part)
            entropy += h.sum()
            total = p.sum(dim=0)
            marginal += total.sum(dim=0)
            z = student[:, part]
            logits = _outputs(z, prototypes).div_(temperature)
            norm = logits.logsumexp(dim=-1)
            for view, count in enumerate(partners):
                wanted = total - p[view] if view < given else total
                loss += count * norm[view].sum() - torch.dot(wanted.flatten(), logits[view].flatten())
                # d loss / d logits = count x softmax - wanted, in place of the logits
                logits[view].sub_(norm[view][:, None]).exp_().mul_(count).sub_(wanted)
            if grad_z is not None:
                grad_z[:, part] = logits @ prototypes
            if grad_w is not None:
                grad_w += logits.flatten(0, 1).T @ z.flatten(0, 1)
        scale = 1.0 / (temperature * pairs * batch)
        ctx.save_for_backward(*(None if g is None else g.mul_(scale) for g in (grad_z, grad_w)))
        ctx.mark_non_differentiable(entropy, marginal)
        return loss / (pairs * batch), entropy / (given * batch), marginal / (given * batch)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad_z, grad_w = ctx.saved_tensors
        return *(None if g is None else g * grads[0] for g in (grad_z, grad_w)), None, None, None


def cross_view_loss(
    student: Float[Tensor, "V B Z"],
    prototypes: Float[Tensor, "K Z"],
    teaching: Teaching,
    *,
    temperature: float,
    chunk: int,
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
        prototypes: The student's last layer.
        teaching: What the teacher says.
        temperature: The student's.
        chunk: Images whose outputs are in memory at once.
    """
    return LossParts(*_CrossView.apply(student, prototypes, teaching, temperature, chunk))


def sinkhorn_knopp(outputs: Float[Tensor, "*B K"], temperature: float, iterations: int = 3) -> Float[Tensor, "*B K"]:
    """Probabilities that use every output equally often over the batch of all processes (Caron et al. 2020; DINOv2).

    Args:
        outputs: Of the teacher.
        temperature: The teacher's.
        iterations: Times that columns, then rows are normalised.
    """
    rows = outputs.flatten(0, -2)
    q = ((rows - max_over_ranks(rows.max())) / temperature).exp()  # the shift cancels, and keeps it finite
    for _ in range(iterations):
        q = q / sum_over_ranks(q.sum(dim=0)).clamp(min=torch.finfo(q.dtype).tiny)
        q = q / q.sum(dim=1, keepdim=True)
    return q.view_as(outputs)
