"""Classifier heads."""

from __future__ import annotations

from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.models.backbone import Backbone, Pool


def make_head(width: int, classes: int, hidden: int = 0) -> nn.Module:
    """A linear classifier, or one with a hidden tanh layer for pre-training on labels (ViT, section 3.1).

    Args:
        width: D of the features.
        classes: Number of classes.
        hidden: Width of the hidden layer; 0 for none. Fine-tuning replaces such a head by a linear one.
    """
    last = nn.Linear(hidden or width, classes)
    nn.init.trunc_normal_(last.weight, std=2e-5)  # MAE's fine-tuning: logits start at zero
    nn.init.zeros_(last.bias)
    if not hidden:
        return last
    return nn.Sequential(OrderedDict(pre_logits=nn.Linear(width, hidden), tanh=nn.Tanh(), logits=last))


class Classifier(nn.Module):
    """A backbone, its pooling and a head: images to logits."""

    def __init__(self, backbone: Backbone, classes: int, *, pool: Pool, hidden: int = 0) -> None:
        """Puts a head on a backbone.

        Args:
            backbone: Where the features come from.
            classes: Number of classes.
            pool: What the head reads; ``mean_prenorm`` adds the fresh LayerNorm that MAE calls fc_norm.
            hidden: Width of a hidden layer in the head; 0 for a linear one.
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
        self.head = make_head(backbone.embed_dim, classes, hidden)

    def forward(
        self, images: Float[Tensor, "B C H W"], drop: Float[Tensor, " B *L"] | None = None
    ) -> Float[Tensor, "B K"]:
        """Logits of every class."""
        return self.head(self.fc_norm(self.backbone.forward_pooled(images, pool=self.pool, drop=drop)))
