"""The two contracts every backbone keeps, and the tokens they speak in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ssl_vit.core.errors import UserError

Pool = Literal["cls", "mean", "mean_prenorm", "cls4", "cls+mean", "cls4+mean"]
"""What represents an image. After the final norm: the class token (``cls``), the mean of patches (``mean``), the class
tokens of the last four blocks, earliest first (``cls4``, DINO's for ViT-S), or such parts side by side (``cls+mean``,
DINO's for ViT-B); ``mean_prenorm`` is the mean of patches before that norm. Exported folders record cls or mean."""


class Tokens(NamedTuple):
    """What a transformer makes of a batch of images."""

    prefix: Float[Tensor, "B P D"]
    """Class token (and registers); P may be 0."""
    patches: Float[Tensor, "B N D"]
    """Patch tokens, row-major or in the order of ``keep_ids``."""
    grid: tuple[int, int]
    """Rows and columns; N = rows * columns when nothing was dropped."""


class Replace(NamedTuple):
    """Patches whose embeddings are replaced before the first block; their positions are added afterwards."""

    hidden: Bool[Tensor, "B N"]
    """Which ones, row-major."""
    instead: Float[Tensor, "*B N D"] | Float[Tensor, " D"]
    """What stands in their place: a mask token, or a row for every patch."""


class Backbone(nn.Module, ABC):
    """Images to one vector each: enough for supervised training, self-distillation and every evaluation."""

    embed_dim: int
    channels: int
    depth: int
    img_size: int
    """Side of the input in pixels; others may be possible."""
    class_token: bool
    """Whether there is one: the pools with ``cls`` need it."""
    draws_drop_path: bool
    """Whether it has places for stochastic depth, and ``forward_pooled`` takes factors for them."""
    classifier: tuple[str, ...] = ("head",)
    """timm's name of the linear layer on the pooled vector; where there are two, their outputs are averaged."""
    architecture: str
    """timm's name of the model."""
    model_args: dict[str, Any]
    """What timm's create_model needs besides the name to build it again."""

    @abstractmethod
    def layer_id(self, name: str) -> int:
        """Depth of a parameter for layer-wise decay: 0 for embeddings, 1..depth for blocks, depth + 1 above them."""

    @abstractmethod
    def forward_pooled(
        self, images: Float[Tensor, "B C H W"], *, pool: Pool, drop: Float[Tensor, " B *L"] | None = None
    ) -> Float[Tensor, "B E"]:
        """One vector per image, all parts of it from one pass.

        Args:
            images: Normalised pixels.
            pool: What represents an image; E is its ``pooled_width``.
            drop: Stochastic-depth factors of every place that ``drop_rates`` gives a rate of; None for none.
        """

    def forward_sizes(
        self, images: Sequence[Float[Tensor, "_ C _ _"]], *, pool: Pool,
        drops: Sequence[Float[Tensor, " _ *L"] | None],
    ) -> list[Float[Tensor, "_ E"]]:  # fmt: skip
        """``forward_pooled`` of images of several sizes, a batch of each.

        Args:
            images: Normalised pixels.
            pool: As for ``forward_pooled``.
            drops: The same of each batch.
        """
        return [self.forward_pooled(part, pool=pool, drop=drop) for part, drop in zip(images, drops, strict=True)]

    @abstractmethod
    def drop_rates(self, rate: float) -> Float[Tensor, "*L"] | None:
        """Rate of stochastic depth at every place, on the host: [blocks 2] of a plain ViT, else [places].

        Args:
            rate: Of the last place, in [0, 1); it grows linearly with the depth from 0.

        Returns:
            None where nothing is dropped: ``rate`` is 0, or the network has no such places.
        """

    def pooled_width(self, pool: Pool) -> int:
        """Numbers in a pooled vector; ``cls4`` takes all blocks where there are fewer than four."""
        return self.embed_dim * sum(min(4, self.depth) if part == "cls4" else 1 for part in pool.split("+"))

    def own_pool(self) -> Pool:
        """What timm's model of it makes its one vector of.

        Raises:
            UserError: Where that is neither the class token nor the mean of patches.
        """
        return "mean"

    def takes_head(self) -> bool:
        """Whether timm's own classifier of this model can be a linear layer on the pooled vector."""
        return True

    @abstractmethod
    def recompute_activations(self) -> None:
        """From now on activations are computed again in the backward pass instead of being kept."""

    def undecayed(self) -> set[str]:
        """Names of parameters that weight decay leaves alone beside the usual ones, as the network's authors do."""
        return set()

    def keep_channels_together(self) -> None:
        """From now on the channels of a place lie together in memory, where convolutions do most of the work."""

    @abstractmethod
    def timm_state(self) -> dict[str, Tensor]:
        """What gets exported: the state dict of timm's model of the same name and arguments."""

    @abstractmethod
    def load_timm_state(self, state: dict[str, Tensor]) -> None:
        """Takes over such a state dict."""

    @abstractmethod
    def feature_map(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """Features of every place of the image after the last layer, D channels."""

    @abstractmethod
    def pooled_and_map(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        pool: Literal["cls", "mean", "mean_prenorm"],
        drop: Float[Tensor, " B *L"] | None = None,
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D h w"]]:
        """``forward_pooled`` and ``feature_map`` from one pass; both before the final norm with ``mean_prenorm``."""


class TokenBackbone(Backbone):
    """A backbone that also gives its tokens and can leave some out: what masked modelling needs."""

    patch_size: int
    grid: tuple[int, int]
    drops_tokens: bool
    """Whether patches can be left out or replaced without being seen: no stem looks beyond each of them."""
    prefix_tokens: int
    """Class token and registers, which come first."""

    @abstractmethod
    def patch_positions(self) -> Float[Tensor, "N D"] | None:
        """The position embedding of every patch, row-major; None where there is none."""

    @abstractmethod
    def forward_tokens(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        keep_ids: Int[Tensor, "B K"] | None = None,
        replace: Replace | None = None,
        drop: Float[Tensor, " B *L"] | None = None,
        norm: bool = True,
    ) -> Tokens:
        """Tokens of every image.

        Args:
            images: Normalised pixels.
            keep_ids: Only these patches (row-major numbers) are embedded and attended to; None for all.
            replace: Patches that are hidden; None for none. Their pixels have no influence on anything.
            drop: Stochastic-depth factors of every place that ``drop_rates`` gives a rate of; None for none.
            norm: Apply the final norm.

        Raises:
            ValueError: For ``keep_ids`` or ``replace`` where ``drops_tokens`` is False.
        """

    @abstractmethod
    def attentions(
        self, images: Float[Tensor, "B C H W"], wanted: slice = slice(None)
    ) -> list[Float[Tensor, "B heads M T"]]:
        """How much tokens attend to every other, per block and head; rows sum to 1, prefix tokens come first.

        Args:
            images: Normalised pixels.
            wanted: The M tokens that attend.
        """

    @property
    def reads_class_token(self) -> bool:
        """Whether there is a class token whose attention can be read."""
        return self.class_token

    def attention(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B heads N"]:
        """How much the class token attends to every patch in the last block, per head.

        Softmax rows without their part for the class token and registers: they sum to less than 1.

        Raises:
            ValueError: Without a class token.
        """
        if not self.reads_class_token:
            raise ValueError(f"{self.architecture} has no class token whose attention could be read")
        return self.attentions(images, slice(0, 1))[-1][:, :, 0, self.prefix_tokens :]

    def feature_map(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """Patch tokens after the final norm; see ``Backbone.feature_map``."""
        tokens = self.forward_tokens(images)
        return tokens.patches.transpose(1, 2).unflatten(2, tokens.grid)

    def pooled_and_map(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        pool: Literal["cls", "mean", "mean_prenorm"],
        drop: Float[Tensor, " B *L"] | None = None,
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D h w"]]:
        """Both of the tokens; see ``Backbone.pooled_and_map``."""
        tokens = self.forward_tokens(images, drop=drop, norm=pool != "mean_prenorm")
        pooled = tokens.prefix[:, 0] if pool == "cls" else tokens.patches.mean(dim=1)
        return pooled, tokens.patches.transpose(1, 2).unflatten(2, tokens.grid)


Views = tuple[Float[Tensor, "B _ C _ _"], Float[Tensor, "B _ *L"] | None]
"""Views of one size of every image, and their stochastic depth; None for none."""


def pooled_views(backbone: Backbone, pool: Pool, views: Sequence[Views]) -> Float[Tensor, "B V E"]:
    """``forward_pooled`` of all views of every image, those of one size in one batch, in the order given."""
    images = [part.flatten(0, 1) for part, _ in views]
    drops = [None if drop is None else drop.flatten(0, 1) for _, drop in views]
    flat = backbone.forward_sizes(images, pool=pool, drops=drops)
    found = [x.unflatten(0, part.shape[:2]) for x, (part, _) in zip(flat, views, strict=True)]
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


@contextmanager
def as_judged(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every part gets back the mode that it had."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def with_tokens(backbone: Backbone, what: str) -> TokenBackbone:
    """The backbone itself, as one that gives its tokens.

    Raises:
        UserError: When it gives one vector per image only; ``what`` says who asks.
    """
    if not isinstance(backbone, TokenBackbone):
        raise UserError(
            f"{what} needs the tokens of an image, and {backbone.architecture} gives one vector per image; "
            "use a plain ViT, for example vit_small_patch16_224, or beit_micro, relative_micro, deit_micro"
        )
    return backbone
