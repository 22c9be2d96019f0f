"""Heads on a backbone: classifiers, and DINO's projection."""

from __future__ import annotations

import copy
from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.models.backbone import Backbone, Pool, TokenBackbone, with_tokens


class Classifier(nn.Module):
    """A backbone, its pooling and a head: images to logits."""

    def __init__(
        self, backbone: Backbone, classes: int, *, pool: Pool, hidden: int = 0, two_heads: bool = False
    ) -> None:
        """Puts a head on a backbone.

        Args:
            backbone: Where the features come from.
            classes: K.
            pool: What the head reads; ``mean_prenorm`` adds the fresh LayerNorm that MAE calls fc_norm.
            hidden: Tanh units of a hidden layer in the head (ViT, section 3.1); 0 for a linear one.
            two_heads: A second head on the distillation token (DeiT, section 5.2), of a backbone that has one.
        """
        super().__init__()
        self.backbone = backbone
        self.pool: Pool = pool
        fresh = pool == "mean_prenorm"
        self.fc_norm = nn.LayerNorm(backbone.embed_dim, eps=1e-6) if fresh else nn.Identity()
        if fresh:  # the backbone's own final norm is bypassed, and DDP refuses parameters without gradients
            for name, parameter in backbone.named_parameters():
                if backbone.layer_id(name) == backbone.depth + 1:
                    parameter.requires_grad_(False)
        last = nn.Linear(hidden or backbone.embed_dim, classes)
        nn.init.trunc_normal_(last.weight, std=2e-5)  # MAE's fine-tuning: logits start at zero
        nn.init.zeros_(last.bias)
        self.head: nn.Module = last
        if hidden:
            first = nn.Linear(backbone.embed_dim, hidden)
            self.head = nn.Sequential(OrderedDict(pre_logits=first, tanh=nn.Tanh(), logits=last))
        self.second = copy.deepcopy(last) if two_heads else None

    def forward(
        self, images: Float[Tensor, "B C H W"], drop: Float[Tensor, " B *L"] | None = None
    ) -> Float[Tensor, "B K"]:
        """Logits of every class; those of two heads are averaged."""
        if self.second is not None:
            one, other, _ = self.both(images, drop)
            return (one + other) / 2
        return self.head(self.fc_norm(self.backbone.forward_pooled(images, pool=self.pool, drop=drop)))

    def both(
        self, images: Float[Tensor, "B C H W"], drop: Float[Tensor, " B *L"] | None = None
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"], Float[Tensor, "B N D"]]:
        """What each of two heads says, of class and distillation token, and the tokens of patches."""
        assert self.second is not None
        tokens = with_tokens(self.backbone, "a second head").forward_tokens(images, drop=drop)
        return self.head(tokens.prefix[:, 0]), self.second(tokens.prefix[:, 1]), tokens.patches

    def timm_heads(self) -> dict[str, nn.Module]:
        """The head, or both of them, by timm's names; timm averages what several say."""
        names = self.backbone.classifier
        return dict.fromkeys(names, self.head) if self.second is None else {names[0]: self.head, names[1]: self.second}


def has_distillation_token(backbone: Backbone) -> bool:
    """Whether a backbone has a second token, with a head of its own in timm's model."""
    return isinstance(backbone, TokenBackbone) and backbone.prefix_tokens == 2 and len(backbone.classifier) == 2


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
            bottleneck: Z, width of z.
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
