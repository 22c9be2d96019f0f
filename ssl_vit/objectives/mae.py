"""Masked autoencoder (He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners").

The encoder sees only the visible patches; a small decoder reconstructs the hidden ones from them and from mask tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import Mask, kept_patches, random_mask
from ssl_vit.core.randomness import bits
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.mae import ResolvedMAE, ResolvedMAERecipe
from ssl_vit.models.backbone import Backbone, TokenBackbone, Tokens, with_tokens
from ssl_vit.models.blocks import as_stream, init_weights, make_blocks, run_block
from ssl_vit.models.positions import sincos_2d
from ssl_vit.models.vit import gather_patches
from ssl_vit.objectives.base import Built, Objective, StepOutput, train_all
from ssl_vit.views.training import View, left_out, sample_key, train_images


def pixel_patches(images: Float[Tensor, "B C H W"], size: int) -> Float[Tensor, "B N P"]:
    """Patches as reconstruction targets, flattened (row, column, channel) as the official MAE code has them.

    Args:
        images: Pixels; H and W are multiples of ``size``.
        size: Side of a patch in pixels; P = size * size * C.
    """
    batch, channels, height, width = images.shape
    grid = images.reshape(batch, channels, height // size, size, width // size, size)
    return grid.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def images_from_patches(
    patches: Float[Tensor, "B N P"], grid: tuple[int, int], channels: int
) -> Float[Tensor, "B C H W"]:
    """The inverse of ``pixel_patches``."""
    rows, columns = grid
    size = int((patches.shape[2] // channels) ** 0.5)
    x = patches.reshape(len(patches), rows, columns, size, size, channels)
    return x.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), channels, rows * size, columns * size)


def check_normalised(method: str, backbone: TokenBackbone) -> None:
    """Refuses to normalise patches of one number, which has no deviation.

    Raises:
        UserError: Names the option of the method.
    """
    if backbone.patch_size**2 * backbone.channels == 1:
        raise UserError(
            f"--{method}.norm_pix true divides by the deviation inside a patch, and patches of one pixel of one "
            f"channel have none; --{method}.norm_pix false takes pixels as they are"
        )


def normalise_targets(targets: Float[Tensor, "*B P"]) -> Float[Tensor, "*B P"]:
    """Each patch minus its mean over its standard deviation (unbiased variance + 1e-6; MAE, section 3)."""
    return (targets - targets.mean(-1, keepdim=True)) / (targets.var(-1, keepdim=True) + 1e-6) ** 0.5


class MAE(Objective):
    """Mean squared error on the hidden patches only (MAE, section 3 and appendix A.1)."""

    def __init__(self, backbone: TokenBackbone, cfg: ResolvedMAE, *, freeze_positions: bool = False) -> None:
        """Adds a decoder, whose sizes must divide, to a backbone that can leave tokens out (else UserError)."""
        super().__init__()
        if not backbone.drops_tokens:
            raise UserError(
                f"MAE needs a backbone that can leave out patches, and the stem of {backbone.architecture} looks "
                "beyond each of them; use SimMIM, which hides pixels, or a plain ViT"
            )
        width, depth, heads = cfg.decoder_width, cfg.decoder_depth, cfg.decoder_heads
        if width % heads or width % 4:
            raise UserError(f"--mae.decoder_width {width} must be a multiple of 4 and of --mae.decoder_heads {heads}")
        if cfg.norm_pix:
            check_normalised("mae", backbone)
        self.norm_pix = cfg.norm_pix
        self.backbone = backbone
        train_all(backbone, freeze_positions)
        self.embed = nn.Linear(backbone.embed_dim, width)
        self.mask_token = nn.Parameter(torch.empty(1, 1, width))
        self.blocks = make_blocks(width, depth, heads)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pred = nn.Linear(width, backbone.patch_size**2 * backbone.channels)
        self.positions: Tensor
        self.register_buffer("positions", sincos_2d(width, backbone.grid).float(), persistent=False)
        for part in (self.embed, self.blocks, self.pred):
            init_weights(part)
        nn.init.normal_(self.mask_token, std=0.02)

    def encode(self, images: Float[Tensor, "B C H W"], keep_ids: Int[Tensor, "B K"]) -> Tokens:
        """Tokens of the visible patches."""
        return self.backbone.forward_tokens(images, keep_ids=keep_ids)

    def decode(self, tokens: Tokens, mask: Mask, *, every: bool = False) -> Float[Tensor, "B M P"]:
        """Predicted pixels, in the order of ``mask.mask_ids`` (behind those of ``mask.keep_ids`` when ``every``).

        Attention does not care about the order of tokens, so the visible ones stay in front and nothing is put back
        into raster order; only hidden patches leave the last block, unless every one is wanted.

        Args:
            tokens: What the encoder made of the visible patches.
            mask: Which patches were visible and hidden.
            every: Predict the visible patches too (for pictures).
        """
        seen = self.embed(torch.cat([tokens.prefix, tokens.patches], dim=1))
        prefix, kept = seen[:, : tokens.prefix.shape[1]], seen[:, tokens.prefix.shape[1] :]
        where = self.positions
        hidden = self.mask_token + where[mask.mask_ids]
        # Under autocast the sums promote what was embedded to the parameters' precision.
        x = torch.cat([prefix.to(hidden.dtype), kept + where[mask.keep_ids], hidden], dim=1)
        x = as_stream(x, training=self.training)
        for block in self.blocks[:-1]:
            x = run_block(block, x)
        x = run_block(self.blocks[-1], x, wanted=slice(prefix.shape[1] if every else seen.shape[1], None))
        return self.pred(self.norm(x.to(hidden.dtype)))

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C H W] (normalised), ``keep_ids`` Int[B K] and ``mask_ids`` Int[B M]."""
        images, mask = inputs["images"], Mask(inputs["keep_ids"], inputs["mask_ids"])
        predicted = self.decode(self.encode(images, mask.keep_ids), mask)
        wanted = gather_patches(pixel_patches(images, self.backbone.patch_size), mask.mask_ids)
        if self.norm_pix:
            wanted = normalise_targets(wanted)
        # Every sample hides as many patches as the next, so the plain mean is the mean over hidden patches.
        return StepOutput((predicted.to(wanted.dtype) - wanted).square().mean(), {})

    def encoded(self, inputs: dict[str, Tensor]) -> Float[Tensor, "B L D"]:
        """See ``Objective.encoded``."""
        tokens = self.encode(inputs["images"], inputs["keep_ids"])
        return torch.cat([tokens.prefix, tokens.patches], dim=1)


def mae_view(
    scale: PixelScale, cfg: ResolvedAugment, *, size: int, patches: int, kept: int, dtype: torch.dtype
) -> View:
    """Images and their masks.

    Args:
        scale: Pixel statistics.
        cfg: Resolved.
        size: Side of the model's input in pixels.
        patches: N, patches per image.
        kept: K, visible patches, from 1 to N - 1.
        dtype: Arithmetic of the images.
    """

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, size, dtype)
        mask = random_mask(bits(sample_key(seed, "mask", batch), patches), kept)
        return {"images": images, "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}

    return view


def build(cfg: ResolvedMAERecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError for a backbone that gives no tokens."""
    encoder = with_tokens(backbone, "MAE")
    objective = MAE(encoder, cfg.mae, freeze_positions=cfg.model.positions == "sincos")
    size, patches = cfg.model.img_size, encoder.grid[0] * encoder.grid[1]
    kept = kept_patches(patches, cfg.mae.mask_ratio)
    view = mae_view(scale, cfg.augment, size=size, patches=patches, kept=kept, dtype=dtype)
    sees = f"{size} px = {patches} patches of {encoder.patch_size} px, {kept} visible"
    return Built(objective, view, sees, left_out(cfg.augment, backbone.channels, scale.bits))
