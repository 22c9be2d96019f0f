"""Stochastic depth (Huang et al. 2016) by given numbers, for every timm model: its own draws from hidden state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.drop import DropPath
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LARGEST = 0.5
"""Rate that models are built with, so that timm makes places; a power of two leaves their shares of it exact."""


def linear_rates(depth: int, rate: float) -> Float[Tensor, "L 2"] | None:
    """Rates of a plain ViT's L blocks, two residual branches each: linear from 0 to ``rate``, None where that is 0."""
    return torch.linspace(0.0, rate, depth, device="cpu")[:, None].repeat(1, 2) if rate else None


class KeyedDropPath(nn.Module):
    """Scales each sample of a residual branch by its given factor, where timm would draw one.

    Some branches hold several rows of each image next to each other (patches of it in TNT and MobileViT): they are
    dropped together, so that what becomes of an image depends on its own factors alone.
    """

    def __init__(self, running: DropPlaces, place: int) -> None:
        """Takes a place: a column of the factors that ``running`` holds while the model runs."""
        super().__init__()
        self.running, self.place = running, place

    def forward(self, x: Float[Tensor, " R *S"]) -> Float[Tensor, " R *S"]:
        """The branch times its factors; as it is where there are none."""
        factors = self.running.factors
        if factors is None:
            return x
        rows, rest = divmod(len(x), len(factors))
        if rest:
            raise ValueError(f"{len(x)} rows on a residual branch of {len(factors)} images")
        own = factors[:, self.place].to(x.dtype)
        own = own if rows == 1 else own.repeat_interleave(rows)
        return x * own.view(-1, *[1] * (x.ndim - 1))


class DropPlaces:
    """The places of one model where residual branches are dropped.

    A module that timm calls for both branches of a block is one place: they are dropped together.
    """

    def __init__(self, model: nn.Module) -> None:
        """Replaces every ``DropPath`` of a model that was built with ``drop_path_rate=LARGEST``; its numbers stay."""
        self.factors: Tensor | None = None
        shares: list[float] = []
        self._blocks: set[type[nn.Module]] = set()
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is DropPath:
                    setattr(parent, name, KeyedDropPath(self, len(shares)))
                    shares.append(child.drop_prob / LARGEST)
                    self._blocks.add(type(parent))
        self.shares = tuple(shares)

    def rates(self, rate: float) -> Float[Tensor, " L"] | None:
        """Rates of all places, as timm spreads ``drop_path_rate`` over them; None where nothing is dropped."""
        return torch.tensor([share * rate for share in self.shares], device="cpu") if rate and self.shares else None

    def run(self, forward: Callable[[Tensor], Tensor], images: Tensor, drop: Float[Tensor, "B L"] | None) -> Tensor:
        """A pass with a factor per sample and place; None for none."""
        self.factors = drop
        try:
            return forward(images)
        finally:
            self.factors = None

    def recompute(self, model: nn.Module) -> None:
        """From now on the residual blocks of the model keep what enters them alone, and compute the rest again."""
        for child in model.children():
            if type(child) in self._blocks:
                child.forward = partial(recomputed, child.forward, self)
            else:
                self.recompute(child)


def recomputed(forward: Callable[..., Any], running: DropPlaces, *args: Any, **options: Any) -> Any:
    """A block under activation checkpointing, computed again with the factors of its own pass."""
    if not torch.is_grad_enabled():
        return forward(*args, **options)
    factors = running.factors

    def run(*args: Any, **options: Any) -> Any:
        before, running.factors = running.factors, factors
        try:
            return forward(*args, **options)
        finally:
            running.factors = before

    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **options)
