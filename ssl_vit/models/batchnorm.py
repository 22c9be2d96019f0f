"""Batch normalisation whose statistics are those of all processes; torch's own refuses tensors on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ssl_vit.core.dist import differentiable_sum, rank_and_world


class SynchronisedBatchNorm(_BatchNorm):
    """Batch normalisation (Ioffe and Szegedy 2015) over the micro-batches of all processes, which are of one size.

    In one process it is torch's own. Under gradient accumulation the statistics are those of one micro-batch of all
    processes, not of the whole effective batch: there 1 x 256 and 4 x 64 are different networks.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        """Takes the parameters, buffers and options of a layer, and the activation that timm puts into some."""
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self._parameters, self._buffers, self._modules = norm._parameters, norm._buffers, norm._modules
        self.train(norm.training)

    def forward(self, input: Float[Tensor, "B D *N"]) -> Float[Tensor, "B D *N"]:
        """Zero mean and unit variance in every channel, then scale, shift and activation."""
        together = self.training and rank_and_world()[1] > 1
        x = self._normalised(input) if together else super().forward(input)
        for part in self._modules.values():  # timm's dropout and activation, in their order
            assert part is not None
            x = part(x)
        return x

    def _normalised(self, x: Float[Tensor, "B D *N"]) -> Float[Tensor, "B D *N"]:
        rank, world = rank_and_world()
        # Every process writes its statistics into its own row, so that one sum shows all of them to everybody.
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        own_var, own_mean = torch.var_mean(exact, dim=[0, *range(2, x.ndim)], correction=0)
        row = torch.stack([own_mean, own_var])[None]
        rows = differentiable_sum(F.pad(row, (0, 0, 0, 0, rank, world - 1 - rank)))
        means, variances = rows.unbind(1)
        mean = means.mean(dim=0)
        var = (variances + (means - mean).square()).mean(dim=0)
        if self.track_running_stats:
            self._track(mean.detach(), var.detach(), world * x.numel() // x.shape[1])
        scale = torch.rsqrt(var + self.eps)
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return torch.addcmul(shift.view(shape), exact, scale.view(shape)).to(x.dtype)

    def _track(self, mean: Float[Tensor, " D"], var: Float[Tensor, " D"], count: int) -> None:
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        unbiased = var * (count / max(1, count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of places per image is welcome."""


def synchronise_batch_norm(model: nn.Module) -> None:
    """Makes every batch normalisation inside a model one over all processes; names of parameters and buffers stay."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, SynchronisedBatchNorm):
                setattr(parent, name, SynchronisedBatchNorm(child))


def running_statistics(model: nn.Module) -> Iterator[Tensor]:
    """Running means and variances of every batch normalisation, in the model's order."""
    for part in model.modules():
        if isinstance(part, _BatchNorm) and part.running_mean is not None and part.running_var is not None:
            yield part.running_mean
            yield part.running_var


def takes_batch_statistics(model: nn.Module) -> bool:
    """Whether a model has any batch normalisation."""
    return any(isinstance(part, SynchronisedBatchNorm) for part in model.modules())
