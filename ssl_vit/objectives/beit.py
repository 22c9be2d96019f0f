"""BEiT (Bao et al. 2022, "BEiT: BERT Pre-Training of Image Transformers"), with visual words of the own images.

Hidden patches are replaced by a mask token behind the patch embedding; a linear layer says which word each of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.dist import meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import block_mask, kept_patches
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.beit import ResolvedBEiT, ResolvedBEiTRecipe
from ssl_vit.models.backbone import Backbone, Replace, TokenBackbone, Tokens, with_tokens
from ssl_vit.models.vit import gather_patches
from ssl_vit.objectives.base import Built, Objective, StepOutput, train_all
from ssl_vit.objectives.mae import check_normalised, pixel_patches
from ssl_vit.objectives.words import FILE, load_words, nearest, patches_of, save_words, words_of_images
from ssl_vit.views.training import View, left_out, sample_key, train_images


class BEiT(Objective):
    """Cross-entropy of the words of hidden patches (section 2.3, equation 3), the mean over all of them."""

    def __init__(self, backbone: TokenBackbone, cfg: ResolvedBEiT, *, freeze_positions: bool = False) -> None:
        """Adds a mask token and a linear layer to a backbone whose patches can be replaced (else UserError).

        Words are zeros until ``prepare`` or a checkpoint says them.
        """
        super().__init__()
        if not backbone.drops_tokens:
            raise UserError(
                f"BEiT replaces patches, and the stem of {backbone.architecture} looks beyond each of them; use "
                "SimMIM, which hides pixels, or a network such as beit_micro"
            )
        self.backbone, self.cfg = backbone, cfg
        train_all(backbone, freeze_positions)
        self.mask_token = nn.Parameter(torch.empty(backbone.embed_dim))
        self.head = nn.Linear(backbone.embed_dim, cfg.words)
        for weight in (self.mask_token, self.head.weight):
            nn.init.trunc_normal_(weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.words: Tensor
        if cfg.norm_pix:
            check_normalised("beit", backbone)
        self.register_buffer("words", torch.zeros(cfg.words, backbone.patch_size**2 * backbone.channels))

    def prepare(
        self, images: ImageSet, scale: PixelScale, folder: Path, seed: int, kept: Callable[[str], Tensor | None]
    ) -> None:
        """Finds the words on the main process, unless the run has them already; see ``Objective.prepare``."""
        if rank_and_world()[0] == 0 and load_words(folder) is None:
            words = kept("words")  # other ones would not be those that it has learnt
            if words is None:
                words = words_of_images(
                    images, scale, self.backbone, count=self.cfg.words, norm_pix=self.cfg.norm_pix, seed=seed
                )
            save_words(folder, words)
        meet()
        words = load_words(folder)
        assert words is not None
        self.words.copy_(words)
        told = sha256(words.numpy().tobytes()).hexdigest()[:16]
        self.origin = {"words": {"count": len(words), "hash": told, "normalised": self.cfg.norm_pix}}

    def beside(self) -> dict[str, dict[str, Tensor]]:
        """The words; see ``Objective.beside``."""
        return {FILE: {"words": self.words}}

    def encode(self, images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]) -> Tokens:
        """Tokens of all patches, the hidden ones as mask tokens."""
        return self.backbone.forward_tokens(images, replace=Replace(hidden, self.mask_token))

    def word_of(self, images: Float[Tensor, "B C H W"]) -> Int[Tensor, "B N"]:
        """The word of every patch."""
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            patches = pixel_patches(images.to(torch.promote_types(images.dtype, torch.float32)),
                                    self.backbone.patch_size)  # fmt: skip
            return nearest(patches_of(patches, self.cfg.norm_pix), self.words.to(patches.dtype))

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C H W] (normalised) and ``mask_ids`` Int[B M], the hidden patches."""
        images, mask_ids = inputs["images"], inputs["mask_ids"]
        tokens = self.encode(images, self._hidden(mask_ids))
        logits = self.head(gather_patches(tokens.patches, mask_ids)).flatten(0, 1)
        wanted = self.word_of(images).gather(1, mask_ids).flatten()
        right = (logits.detach().argmax(dim=1) == wanted).to(torch.float32).mean()
        return StepOutput(word_loss(logits, wanted), {"words_right": right})

    def encoded(self, inputs: dict[str, Tensor]) -> Float[Tensor, "B T D"]:
        """See ``Objective.encoded``."""
        tokens = self.encode(inputs["images"], self._hidden(inputs["mask_ids"]))
        return torch.cat([tokens.prefix, tokens.patches], dim=1)

    def _hidden(self, mask_ids: Int[Tensor, "B M"]) -> Bool[Tensor, "B N"]:
        patches = self.backbone.grid[0] * self.backbone.grid[1]
        hidden = torch.zeros((len(mask_ids), patches), dtype=torch.bool, device=mask_ids.device)
        return hidden.scatter(1, mask_ids, True)


def word_loss(logits: Float[Tensor, "M V"], wanted: Int[Tensor, " M"]) -> Float[Tensor, ""]:
    """Mean over hidden patches of minus the log probability of their words, in single precision at least."""
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), wanted)


def beit_view(
    scale: PixelScale, cfg: ResolvedAugment, *, size: int, grid: tuple[int, int], hidden: int, dtype: torch.dtype
) -> View:
    """Images and the blocks of patches that are hidden.

    Args:
        scale: Pixel statistics.
        cfg: Resolved.
        size: Side of the model's input in pixels.
        grid: Rows and columns of patches.
        hidden: M, hidden patches of every image.
        dtype: Arithmetic of the images.
    """

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, size, dtype)
        return {"images": images, "mask_ids": block_mask(sample_key(seed, "mask", batch), grid, hidden).mask_ids}

    return view


def build(cfg: ResolvedBEiTRecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError for a backbone without tokens, or a mask of all or nothing."""
    encoder = with_tokens(backbone, "BEiT")
    objective = BEiT(encoder, cfg.beit, freeze_positions=cfg.model.positions == "sincos")
    size, patches = cfg.model.img_size, encoder.grid[0] * encoder.grid[1]
    hidden = patches - kept_patches(patches, cfg.beit.mask_ratio, "--beit.mask_ratio")
    view = beit_view(scale, cfg.augment, size=size, grid=encoder.grid, hidden=hidden, dtype=dtype)
    sees = f"{size} px = {patches} patches of {encoder.patch_size} px, {hidden} hidden, {cfg.beit.words} words"
    return Built(objective, view, sees, left_out(cfg.augment, backbone.channels, scale.bits))
