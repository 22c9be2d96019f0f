"""DINO's projection head."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """y = W z / |z|, z = MLP(x): an MLP with GELU, a bottleneck of length 1, rows of W weight-normalised, no bias.

    Caron et al. 2021, section 3.2 and appendix C. Row k of W is gain_k times a direction of length 1, and both are
    plain parameters: so the head can be copied, and saved under names of its own.
    """

    def __init__(
        self, width: int, out_dim: int, *, hidden: int, bottleneck: int, layers: int = 3, fixed_gain: bool = True
    ) -> None:
        """Random directions of torch's default deviation, gains of 1, other weights of deviation 0.02.

        Args:
            width: D of the features.
            out_dim: K, number of outputs.
            hidden: Width of the hidden layers.
            bottleneck: Width of z.
            layers: Linear layers up to z, at least 1.
            fixed_gain: Whether the gains stay 1.
        """
        super().__init__()
        widths = [width, *[hidden] * (layers - 1), bottleneck]
        parts: list[nn.Module] = []
        for before, after in pairwise(widths):
            linear = nn.Linear(before, after)
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
            parts += [linear, nn.GELU()]
        self.mlp = nn.Sequential(*parts[:-1])
        self.direction = nn.Parameter(torch.empty(out_dim, bottleneck).uniform_(-(bottleneck**-0.5), bottleneck**-0.5))
        self.gain = nn.Parameter(torch.ones(out_dim, 1), requires_grad=not fixed_gain)

    def bottleneck(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B Z"]:
        """Z / |z|."""
        z = self.mlp(x)
        return F.normalize(z.to(torch.promote_types(z.dtype, torch.float32)), dim=-1)

    def prototypes(self) -> Float[Tensor, "K Z"]:
        """W, one row per output."""
        return self.gain * F.normalize(self.direction, dim=-1)

    def last_layer(self) -> list[nn.Parameter]:
        """What is not trained in the first epochs."""
        return [self.direction, self.gain]

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B K"]:
        """Outputs before any softmax."""
        return F.linear(self.bottleneck(x), self.prototypes())
