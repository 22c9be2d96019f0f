"""What timm asks of every network, once for those that stand here."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from timm.layers import DropPath, trunc_normal_
from torch import Tensor, nn


class Network(nn.Module):
    """A network with timm's manners, whose first token speaks for an image."""

    num_prefix_tokens = 1
    learned_tables = ("pos_embed", "cls_token")
    """Parameters that start as truncated normals and are not decayed, by the ends of their names."""

    def finish(self, width: int, num_classes: int) -> None:
        """Adds the last norm and the classifier, and draws all weights.

        Args:
            width: D of the tokens that the network ends with.
            num_classes: Of the classifier; 0 for none.
        """
        self.embed_dim = self.num_features = self.head_hidden_size = width
        self.norm = nn.LayerNorm(width, eps=self.last_eps)
        self.reset_classifier(num_classes)
        self.init_weights()

    last_eps = 1e-5
    """Of the last norm."""

    def init_weights(self) -> None:
        """Truncated normals of .02 for linear layers and learned tables, biases of 0."""
        for name, weight in self.named_parameters():
            if name.endswith(self.learned_tables) and weight.requires_grad:
                trunc_normal_(weight, std=0.02)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                trunc_normal_(part.weight, std=0.02)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def no_weight_decay(self) -> set[str]:
        """Learned tables."""
        return {name for name, _ in self.named_parameters() if name.endswith(self.learned_tables)}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Is left to the caller: blocks are plain modules."""
        assert not enable, "gradient checkpointing not supported"

    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Another last layer.

        Args:
            num_classes: 0 for none.
            global_pool: Without effect: the network has one way of pooling.
        """
        self.num_classes = num_classes
        self.head = nn.Linear(self.embed_dim, num_classes) if num_classes else nn.Identity()

    def forward_head(self, x: Float[Tensor, "B N D"], pre_logits: bool = False) -> Float[Tensor, "B E"]:
        """The first token, and what the classifier makes of it.

        Args:
            x: As ``forward_features`` gives them.
            pre_logits: Leave the classifier out.
        """
        return x[:, 0] if pre_logits else self.head(x[:, 0])

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B E"]:
        """Answers, or pooled features where there is no classifier."""
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Normalised tokens, the first speaking for the image; each network has its own."""
        raise NotImplementedError


def linear_rates(rate: float, depth: int) -> list[float]:
    """Stochastic depth of all blocks: linear from 0 at the first to ``rate`` at the last."""
    return torch.linspace(0, rate, depth, device="cpu").tolist()


def dropped(rate: float) -> nn.Module:
    """A place for stochastic depth; nothing at rate 0."""
    return DropPath(rate) if rate else nn.Identity()


def described(size: int, first_conv: str, **more: Any) -> dict[str, Any]:
    """What timm keeps of a network without public weights.

    Args:
        size: Side of its images in pixels.
        first_conv: Name of its first convolution.
        more: Further entries.
    """
    return {
        "url": "", "num_classes": 1000, "input_size": (3, size, size), "fixed_input_size": True, "classifier": "head",
        "first_conv": first_conv, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), **more,
    }  # fmt: skip
