"""timm's plain VisionTransformer as a TokenBackbone: embeds only the visible patches, at any resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ssl_vit.core.errors import UserError
from ssl_vit.models.backbone import Pool, Replace, TokenBackbone, Tokens
from ssl_vit.models.blocks import as_stream, attention_rows, run_block
from ssl_vit.models.packing import can_pack, pack, pays, run_packed, token_factors, unpack
from ssl_vit.models.positions import FactorisedPositions, resample, sincos_2d
from ssl_vit.models.stochastic_depth import linear_rates


def patchify(images: Float[Tensor, "B C H W"], size: int) -> Float[Tensor, "B N P"]:
    """Non-overlapping patches, flattened (channel, row, column) as a convolution's weight is; N row-major.

    Args:
        images: Pixels; H and W are multiples of ``size``.
        size: Side of a patch in pixels; P = C * size * size.
    """
    batch, channels, height, width = images.shape
    grid = images.reshape(batch, channels, height // size, size, width // size, size)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def gather_patches(x: Float[Tensor, "B N E"], ids: Int[Tensor, "B K"]) -> Float[Tensor, "B K E"]:
    """Rows ``ids`` of every sample."""
    return x.gather(1, ids[:, :, None].expand(-1, -1, x.shape[2]))


def embed_patches(
    embed: Any, size: int, images: Float[Tensor, "B C H W"], keep_ids: Int[Tensor, "B K"] | None,
    replace: Replace | None,
) -> tuple[Float[Tensor, "B L D"], tuple[int, int]]:  # fmt: skip
    """Embeddings of patches without positions, and the grid that they stand on: eq. 1 of ViT.

    Args:
        embed: timm's ``PatchEmbed``.
        size: Side of a patch in pixels.
        images: Normalised pixels.
        keep_ids: Only these patches; None for all.
        replace: Patches that are hidden; None for none.
    """
    if images.shape[2] % size or images.shape[3] % size:
        raise ValueError(f"images of {tuple(images.shape[2:])} pixels are no multiple of the patch size {size}")
    grid = (images.shape[2] // size, images.shape[3] // size)
    patches = patchify(images, size)
    if keep_ids is not None:
        patches = gather_patches(patches, keep_ids)
    x = embed.norm(F.linear(patches, embed.proj.weight.flatten(1), embed.proj.bias))
    if replace is not None:
        hidden, instead = replace
        instead = instead.expand(hidden.shape[0], hidden.shape[1], -1).to(x.dtype)
        if keep_ids is not None:
            hidden, instead = hidden.gather(1, keep_ids), gather_patches(instead, keep_ids)
        x = torch.where(hidden[:, :, None], instead, x)
    return x, grid


def add_positions(
    x: Float[Tensor, "B L D"], prefix: list[Tensor], table: Float[Tensor, "1 R D"] | None, embedded_prefix: int,
    old: tuple[int, int], new: tuple[int, int], keep_ids: Int[Tensor, "B K"] | None, *, antialias: bool = True,
) -> tuple[Float[Tensor, "B L D"], list[Tensor]]:  # fmt: skip
    """Adds every patch's position, and those of prefix tokens that have one.

    Args:
        x: Embeddings of patches.
        prefix: Class token and others, of every image.
        table: Positions; None for none.
        embedded_prefix: Rows of it that belong to prefix tokens.
        old: Grid of the table.
        new: Grid of the images.
        keep_ids: Which patches ``x`` holds; None for all.
        antialias: See ``positions.resample``.
    """
    if table is None:
        return x, prefix
    positions = resample(table, old, new, prefix=embedded_prefix, antialias=antialias)
    where = positions[:, embedded_prefix:]
    x = x + (where if keep_ids is None else where[0][keep_ids])
    if prefix and embedded_prefix:
        prefix = [torch.cat(prefix, 1) + positions[:, :embedded_prefix]]
    return x, prefix


class ViTBackbone(TokenBackbone):
    """The equations of ViT (Dosovitskiy et al. 2021, eqs. 1-4), with token dropping between eq. 1 and eq. 2."""

    drops_tokens = True
    draws_drop_path = True

    def __init__(self, vit: VisionTransformer, architecture: str, model_args: dict[str, Any]) -> None:
        """Wraps a plain ViT without classifier, which ``timm.create_model`` makes of this name and these arguments."""
        super().__init__()
        self.vit = vit
        self.architecture = architecture
        self.model_args = model_args
        self.embed_dim = vit.embed_dim
        self.depth = len(vit.blocks)
        self.channels = vit.patch_embed.proj.in_channels
        blocks: Any = vit.blocks
        self.heads = int(blocks[0].attn.num_heads)
        self.patch_size = vit.patch_embed.proj.kernel_size[0]
        self.img_size = int(vit.patch_embed.img_size[0])
        self.grid: tuple[int, int] = vit.patch_embed.grid_size
        self.prefix_tokens = vit.num_prefix_tokens
        self.class_token = vit.has_class_token
        self.embedded_prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
        self.axes: FactorisedPositions | None = None
        self.fc_norm = not isinstance(vit.fc_norm, nn.Identity)
        """Whether the one norm behind the blocks stands behind the mean of patches, where timm calls it ``fc_norm``."""
        self.recompute = False
        self.antialias = True
        """How positions are resampled where images of another size are read; see ``positions.resample``."""

    def timm_state(self) -> dict[str, Tensor]:
        """The timm model's state dict, with the whole table in place of factorised positions."""
        state = self.vit.state_dict()
        return state if self.axes is None else state | {"pos_embed": self.axes().detach()}

    def load_timm_state(self, state: dict[str, Tensor]) -> None:
        """Takes over the timm model's state dict; factorised positions have no place in it."""
        self.vit.load_state_dict(state)

    def position_table(self) -> Float[Tensor, "1 L D"] | None:
        """Positions of the embedded prefix tokens and of all patches; None where there are none."""
        return self.vit.pos_embed if self.axes is None else self.axes()

    def patch_positions(self) -> Float[Tensor, "N D"] | None:
        """One row per patch; see ``TokenBackbone.patch_positions``."""
        table = self.position_table()
        return None if table is None else table[0, self.embedded_prefix :]

    def set_sincos_positions(self) -> None:
        """Fills the position embedding with MAE's sine-cosine table; prefix rows become zero."""
        positions = self.vit.get_parameter("pos_embed")
        with torch.no_grad():
            positions.zero_()
            positions[0, self.embedded_prefix :] = sincos_2d(self.embed_dim, self.grid)

    def set_factorised_positions(self) -> None:
        """Replaces the position embedding by one learnable table per axis; DDP refuses an unused whole one."""
        self.vit.pos_embed = None
        self.axes = FactorisedPositions(self.embed_dim, self.grid, self.embedded_prefix)

    def drop_rates(self, rate: float) -> Float[Tensor, "L 2"] | None:
        """Linear in the block; see ``Backbone.drop_rates``."""
        return linear_rates(self.depth, rate)

    def recompute_activations(self) -> None:
        """Keeps only what enters each block; see ``Backbone.recompute_activations``."""
        self.recompute = True

    def _run(
        self, i: int, x: Float[Tensor, "B T D"], drop: Float[Tensor, "B L 2"] | None, wanted: slice | None = None
    ) -> Float[Tensor, "B _ D"]:
        """Block i, of all tokens or of those wanted."""
        return self._kept_little(run_block, self.vit.blocks[i], x, None if drop is None else drop[:, i], wanted)

    def _kept_little(self, run: Callable[..., Tensor], *given: Any) -> Tensor:
        """A block's output; its activations are made again in the backward pass where that was asked for."""
        if self.recompute and torch.is_grad_enabled():
            return cast(Tensor, checkpoint(run, *given, use_reentrant=False, preserve_rng_state=False))
        return run(*given)

    def layer_id(self, name: str) -> int:
        """0 for embeddings, i + 1 for block i, depth + 1 for the final norm."""
        first, *words = name.removeprefix("vit.").split(".")
        if first in ("cls_token", "reg_token", "pos_embed", "patch_embed", "norm_pre", "axes"):
            return 0
        return int(words[0]) + 1 if first == "blocks" else self.depth + 1

    def _embed(
        self, images: Float[Tensor, "B C H W"], keep_ids: Int[Tensor, "B K"] | None, replace: Replace | None = None
    ) -> tuple[Float[Tensor, "B L D"], tuple[int, int]]:
        vit, size = self.vit, self.patch_size
        x, grid = embed_patches(vit.patch_embed, size, images, keep_ids, replace)
        prefix = [t.expand(len(x), -1, -1) for t in (vit.cls_token, vit.reg_token) if t is not None]
        x, prefix = add_positions(
            x, prefix, self.position_table(), self.embedded_prefix, self.grid, grid, keep_ids, antialias=self.antialias
        )
        return vit.norm_pre(torch.cat([*prefix, x], dim=1) if prefix else x), grid

    def forward_tokens(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        keep_ids: Int[Tensor, "B K"] | None = None,
        replace: Replace | None = None,
        drop: Float[Tensor, "B L 2"] | None = None,
        norm: bool = True,
    ) -> Tokens:
        """Tokens of every image; see ``TokenBackbone.forward_tokens``."""
        embedded, grid = self._embed(images, keep_ids, replace)
        x = as_stream(embedded, training=self.training)
        for i in range(self.depth):
            x = self._run(i, x, drop)
        x = x.to(embedded.dtype)
        if norm:
            x = self._last_norm(x)
        return Tokens(x[:, : self.prefix_tokens], x[:, self.prefix_tokens :], grid)

    def forward_pooled(
        self, images: Float[Tensor, "B C H W"], *, pool: Pool, drop: Float[Tensor, "B L 2"] | None = None
    ) -> Float[Tensor, "B E"]:
        """One vector per image; see ``Backbone.forward_pooled``."""
        self._check_pool(pool)
        parts = pool.split("+")
        embedded, _ = self._embed(images, None)
        x, tokens = as_stream(embedded, training=self.training), list[Tensor]()
        alone = set(parts) <= {"cls", "cls4"}  # nothing reads the last block's patches
        for i in range(self.depth):
            x = self._run(i, x, drop, slice(0, 1) if alone and i == self.depth - 1 else None)
            if "cls4" in parts and i >= self.depth - 4:
                tokens.append(self._last_norm(x[:, 0].to(embedded.dtype)))
        return self._pooled(x.to(embedded.dtype), parts, tokens)

    def pooled_and_map(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        pool: Literal["cls", "mean", "mean_prenorm"],
        drop: Float[Tensor, "B L 2"] | None = None,
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D h w"]]:
        """Both of the tokens, the mean with its norm behind it where that belongs; see ``Backbone.pooled_and_map``."""
        if pool != "mean" or not self.fc_norm:
            return super().pooled_and_map(images, pool=pool, drop=drop)
        pooled, found = super().pooled_and_map(images, pool="mean_prenorm", drop=drop)
        return self.vit.fc_norm(pooled), self.vit.fc_norm(found.movedim(1, 3)).movedim(3, 1)

    def own_pool(self) -> Pool:
        """By ``global_pool``; see ``Backbone.own_pool``."""
        vit: Any = self.vit
        if vit.global_pool == "token":
            return "cls"
        if vit.global_pool == "avg" and not vit.pool_include_prefix:
            return "mean"
        how = "attention" if vit.attn_pool is not None else f"{vit.global_pool or 'nothing'} of all tokens"
        raise UserError(
            f"{self.architecture} pools by {how}, which is not read; read are networks that give their class token or "
            "the mean of their patches"
        )

    def _last_norm(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.vit.fc_norm(x) if self.fc_norm else self.vit.norm(x)

    def _check_pool(self, pool: Pool) -> None:
        if "cls" in pool and not self.class_token:
            raise ValueError(f"pool {pool}, but {self.architecture} has no class token")

    def _pooled(self, x: Float[Tensor, "B L D"], parts: Sequence[str], tokens: list[Tensor]) -> Float[Tensor, "B E"]:
        """Of what the last block gave; ``tokens`` are the last blocks' class tokens, normalised."""
        raw, bare = x, "mean_prenorm" in parts or (self.fc_norm and set(parts) == {"mean"})
        x = x if bare else self._last_norm(x)
        pooled: list[Tensor] = []
        for part in parts:
            if part == "cls4":
                pooled += tokens
            elif part == "mean" and self.fc_norm:
                pooled.append(self.vit.fc_norm(raw[:, self.prefix_tokens :].mean(dim=1)))
            else:
                pooled.append(x[:, 0] if part == "cls" else x[:, self.prefix_tokens :].mean(dim=1))
        return torch.cat(pooled, dim=1)

    def forward_sizes(
        self, images: Sequence[Float[Tensor, "_ C _ _"]], *, pool: Pool,
        drops: Sequence[Float[Tensor, "_ L 2"] | None],
    ) -> list[Float[Tensor, "_ E"]]:  # fmt: skip
        """In one pass where blocks are plain and that pays; see ``Backbone.forward_sizes``."""
        able = "cls4" not in pool and all(map(can_pack, self.vit.blocks))
        if len(images) == 1 or not able or not pays(images[0].device):
            return super().forward_sizes(images, pool=pool, drops=drops)
        self._check_pool(pool)
        embedded = [self._embed(part, None)[0] for part in images]
        sizes = [(len(part), part.shape[1]) for part in embedded]
        factors, x = token_factors(drops, sizes), as_stream(pack(embedded), training=self.training)
        alone = pool == "cls"  # as in ``forward_pooled``: the last block of the class token only
        for i in range(self.depth - alone):
            given = self.vit.blocks[i], x, sizes, None if factors is None else factors[i]
            x = self._kept_little(run_packed, *given)
        found = unpack(x, sizes)
        if alone:
            last = self.depth - 1
            found = [self._run(last, part, drop, slice(0, 1)) for part, drop in zip(found, drops, strict=True)]
        return [self._pooled(part.to(embedded[0].dtype), pool.split("+"), []) for part in found]

    def after_blocks(self, images: Float[Tensor, "B C H W"]) -> list[Float[Tensor, "B L D"]]:
        """All tokens as they leave every block, prefix tokens first."""
        x, _ = self._embed(images, None)
        return [x := self._run(i, x, None) for i in range(self.depth)]

    def attentions(
        self, images: Float[Tensor, "B C H W"], wanted: slice = slice(None)
    ) -> list[Float[Tensor, "B heads M T"]]:
        """Of every block; see ``TokenBackbone.attentions``."""
        x, _ = self._embed(images, None)
        found: list[Tensor] = []
        for block in self.vit.blocks:
            found.append(attention_rows(block, x, wanted))
            x = run_block(block, x)
        return found
