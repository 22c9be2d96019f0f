"""Original, masked and reconstructed images side by side."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.masking import Mask, kept_patches, random_mask
from ssl_vit.core.randomness import bits, make_key
from ssl_vit.data.constants import sent
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import some_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.figures.panels import sheet
from ssl_vit.figures.pixels import displayed, omitted, plane_name, shown_planes, value_range
from ssl_vit.methods.mae import ResolvedMAERecipe
from ssl_vit.objectives.mae import MAE, images_from_patches, pixel_patches
from ssl_vit.views.evaluation import eval_images

_IMAGES = 8
_LEAK = "Targets are normalised per patch: each predicted patch is shown with the true patch's mean and contrast."


@torch.inference_mode()
def reconstruct(
    objective: MAE, images: Float[Tensor, "B C H W"], mask: Mask
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B C H W"]]:
    """What the network makes of the hidden patches.

    Args:
        objective: A trained MAE.
        images: Normalised pixels.
        mask: Which patches it sees.

    Returns:
        The images with hidden patches NaN, and with hidden patches predicted. With normalised targets each predicted
        patch gets back the mean and deviation of the true one, which the network did not have to guess.
    """
    objective.eval()
    grid, channels = objective.backbone.grid, images.shape[1]
    true = pixel_patches(images, objective.backbone.patch_size)
    hidden = mask.mask_ids[:, :, None].expand(-1, -1, true.shape[2])
    predicted = objective.decode(objective.encode(images, mask.keep_ids), mask)
    if objective.norm_pix:
        own = true.gather(1, hidden)
        predicted = predicted * (own.var(-1, keepdim=True) + 1e-6) ** 0.5 + own.mean(-1, keepdim=True)
    masked = images_from_patches(true.scatter(1, hidden, torch.nan), grid, channels)
    return masked, images_from_patches(true.scatter(1, hidden, predicted.to(true.dtype)), grid, channels)


def save_reconstructions(
    objective: MAE, images: ImageSet, scale: PixelScale, path: Path, cfg: ResolvedMAERecipe
) -> None:
    """Draws evenly spaced images of the pool as three rows: original, what the encoder sees, reconstruction.

    Args:
        objective: Trained.
        images: The pool.
        scale: Pixel statistics.
        path: The PNG to write.
        cfg: Of the run: the size of its input, its mask ratio, and the seed of the masks.
    """
    one, ratio = next(objective.parameters()), cfg.mae.mask_ratio
    batch, _ = some_images(images, _IMAGES, one.device)
    pixels = eval_images(batch, scale, cfg.model.img_size, one.dtype)
    patches = objective.backbone.grid[0] * objective.backbone.grid[1]
    key = make_key(cfg.seed, "figure-mask", sent(batch.index, one.device))
    mask = random_mask(bits(key, patches), kept_patches(patches, ratio))
    masked, predicted = reconstruct(objective, pixels, mask)
    rows = [("original", pixels), (f"visible ({1 - ratio:.0%})", masked), ("reconstructed", predicted)]
    _draw(rows, scale, path, leak=objective.norm_pix)


def _draw(rows: list[tuple[str, Tensor]], scale: PixelScale, path: Path, *, leak: bool) -> None:
    originals = rows[0][1]
    count, channels, *_ = originals.shape
    shown = shown_planes(channels, scale.bits)
    notes = [omitted(channels, scale.bits), _LEAK if leak else ""]
    page = sheet(len(shown) * len(rows), count, title="Reconstructions of hidden patches", notes=notes, left=1.1)
    for number, plane in enumerate(shown):
        low, high = value_range(scale.restore(originals)[:, plane])
        for row, (title, pixels) in enumerate(rows, number * len(rows)):
            for column, image in enumerate(displayed(scale.restore(pixels)[:, plane], low, high)):
                page.draw(row, column, image)
            page.name_row(row, "\n".join([plane_name(plane, channels, ""), title]).strip())
    page.save(path)
