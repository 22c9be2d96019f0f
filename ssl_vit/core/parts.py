"""Tensors of which every process holds a part (``DTensor`` of torch), as one may meet them after sharding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.dist import sum_over_ranks


def local(value: Tensor) -> Tensor:
    """This process's part of a tensor, which shares its memory; the tensor itself where it is whole."""
    part = getattr(value, "to_local", None)
    return value if part is None else part()


def full(value: Tensor) -> Tensor:
    """The whole of a tensor (every process must call it)."""
    gather = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def like(whole: Tensor, part: Tensor) -> Tensor:
    """A whole tensor cut as another one is, which every process has all of."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(whole, DTensor) or not isinstance(part, DTensor):
        return whole
    return distribute_tensor(whole.to(part.device), part.device_mesh, part.placements, src_data_rank=None)


def norms(grads: Sequence[Tensor]) -> Float[Tensor, " n"]:
    """Norm of each gradient, over all of its parts (every process must call it)."""
    parts = torch.stack(torch._foreach_norm([local(g) for g in grads]))  # pyright: ignore[reportPrivateImportUsage]
    if all(local(g) is g for g in grads):
        return parts
    return sum_over_ranks(parts.square()).sqrt()


def clip_whole(grads: Sequence[Tensor], largest: float) -> None:
    """Scales gradients that are in parts so that their common norm is at most ``largest``, as torch does."""
    total = norms(grads).square().sum().sqrt()
    factor = (largest / (total + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([local(g) for g in grads], factor)  # pyright: ignore[reportPrivateImportUsage]
