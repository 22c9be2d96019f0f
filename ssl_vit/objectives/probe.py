"""A head on a frozen backbone, trained on augmented images: the papers' linear probes and the attentive probe."""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.dist import mean_over_ranks, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone, Pool, TokenBackbone
from ssl_vit.objectives.base import Objective, StepOutput
from ssl_vit.objectives.supervised import LOSSES
from ssl_vit.views.training import View, train_images


class Standardise(nn.Module):
    """Batch normalisation without scale and shift (MAE, appendix A.1), its statistics over all processes.

    Running statistics (momentum 0.1) serve in evaluation. What comes in is frozen, so no gradient is needed through the
    statistics, and two passes over the batch keep them accurate.
    """

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        """Starts with zero mean and unit variance."""
        super().__init__()
        self.eps = eps
        self.mean: Tensor
        self.var: Tensor
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    def forward(self, x: Float[Tensor, "B *N D"]) -> Float[Tensor, "B *N D"]:
        """Features (or tokens, all of one image's together) at zero mean and unit variance."""
        mean, var = self.mean, self.var
        if self.training:
            with torch.no_grad():
                rows = x.detach().flatten(0, -2)
                mean = mean_over_ranks(rows.mean(dim=0))
                var = mean_over_ranks((rows - mean).square().mean(dim=0))
                total = len(rows) * rank_and_world()[1]  # every process has a micro-batch of the same size
                self.mean.lerp_(mean.to(self.mean.dtype), 0.1)
                self.var.lerp_((var * (total / max(1, total - 1))).to(self.var.dtype), 0.1)
        return (x - mean) * torch.rsqrt(var + self.eps)


def linear_head(width: int, outputs: int, *, standardise: bool) -> nn.Module:
    """A linear classifier of deviation .01, behind batch normalisation where MAE has it (DINO has none)."""
    last = nn.Linear(width, outputs)
    nn.init.normal_(last.weight, std=0.01)
    nn.init.zeros_(last.bias)
    return nn.Sequential(Standardise(width), last) if standardise else last


class AttentiveHead(nn.Module):
    """Learned queries attend over the tokens, a linear classifier follows (El-Nouby et al. 2024, AIM, attentive probe).

    Each head h has its own query; p_h = sum_i softmax_i(q_h . K_h x_i / sqrt(D_h)) V_h x_i, side by side for all heads.
    """

    def __init__(self, width: int, outputs: int, heads: int) -> None:
        """Random queries of deviation .02, keys and values without bias; UserError where heads do not divide D."""
        super().__init__()
        if width % heads:
            raise UserError(f"--linear.heads {heads} must divide the width {width}")
        self.standardise = Standardise(width)
        self.query = nn.Parameter(torch.empty(heads, 1, width // heads))
        self.key, self.value = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        nn.init.normal_(self.query, std=0.02)
        for part in (self.key, self.value):
            nn.init.xavier_uniform_(part.weight)
        self.last = linear_head(width, outputs, standardise=False)

    def forward(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B K"]:
        """Outputs for every image."""
        x = self.standardise(tokens)
        batch, count, width = x.shape
        heads, _, each = self.query.shape
        key, value = (p(x).view(batch, count, heads, each).transpose(1, 2) for p in (self.key, self.value))
        pooled = F.scaled_dot_product_attention(self.query.to(key.dtype).expand(batch, -1, -1, -1), key, value)
        return self.last(pooled.reshape(batch, width))


class FrozenProbe(Objective):
    """Trains a head alone: the backbone neither changes nor leaves its evaluation mode."""

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        *,
        reads: Pool | Literal["tokens"],
        kind: Literal["class", "multilabel", "regression"] = "class",
    ) -> None:
        """Freezes a backbone in place.

        Args:
            backbone: Where the features come from; one with tokens where these are read.
            head: Features to outputs.
            reads: The pooled vector that goes into the head, or all tokens (class token first).
            kind: Softmax cross-entropy, a logistic loss per label, or squared error on standardised targets.
        """
        super().__init__()
        self.backbone = backbone.requires_grad_(False).eval()
        self.head, self.kind = head, kind
        self.reads: Pool | Literal["tokens"] = reads
        self.register_load_state_dict_pre_hook(_without_units)

    def train(self, mode: bool = True) -> FrozenProbe:
        """Training mode for the head only."""
        super().train(mode)
        self.backbone.eval()
        return self

    def outputs(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """What the head says: logits, or standardised numbers."""
        with torch.no_grad():
            if self.reads == "tokens":
                tokens = cast(TokenBackbone, self.backbone).forward_tokens(images)
                x = torch.cat([tokens.prefix, tokens.patches], dim=1)
            else:
                x = self.backbone.forward_pooled(images, pool=self.reads)
        return self.head(x.to(torch.promote_types(x.dtype, torch.float32)))

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C H W] (normalised) and ``labels`` of the kind, numbers standardised."""
        out = self.outputs(inputs["images"])
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        labels = inputs["labels"] if self.kind == "class" else inputs["labels"].to(out.dtype)
        return StepOutput(LOSSES[self.kind](out, labels), {})


def _without_units(_: nn.Module, state: dict[str, Tensor], *__: object) -> None:
    """Probes of version 0.1 kept what numbers are standardised by; their checkpoints go on."""
    for name in ("target_mean", "target_std"):
        state.pop(name, None)


def probe_view(scale: PixelScale, cfg: ResolvedAugment, *, size: int, dtype: torch.dtype) -> View:
    """Augmented images and their labels, for a head on a frozen backbone."""

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"images": train_images(batch, seed, scale, cfg, size, dtype), "labels": batch.truth}

    return view
