"""Original, masked and reconstructed images side by side."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.masking import Mask, kept_patches, random_mask
from ssl_vit.core.randomness import bits, make_key
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import some_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.figures.panels import LINE, MUTED, frame, plt
from ssl_vit.figures.pixels import (
    displayed,
    omitted,
    plane_name,
    shown_planes,
    value_range,
)
from ssl_vit.methods.mae import ResolvedMAERecipe
from ssl_vit.objectives.mae import MAE, images_from_patches, pixel_patches
from ssl_vit.views.evaluation import eval_images


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
    grid = objective.backbone.grid
    true = pixel_patches(images, objective.backbone.patch_size)
    hidden = mask.mask_ids[:, :, None].expand(-1, -1, true.shape[2])
    predicted = objective.decode(objective.encode(images, mask.keep_ids), mask)
    if objective.norm_pix:
        own = true.gather(1, hidden)
        predicted = predicted * (own.var(-1, keepdim=True) + 1e-6) ** 0.5 + own.mean(-1, keepdim=True)
    channels = images.shape[1]
    masked = images_from_patches(true.scatter(1, hidden, torch.nan), grid, channels)
    return masked, images_from_patches(true.scatter(1, hidden, predicted.to(true.dtype)), grid, channels)


def save_reconstructions(
    objective: MAE, images: ImageSet, scale: PixelScale, path: Path, *, size: int, mask_ratio: float, seed: int,
    count: int = 8,
) -> None:  # fmt: skip
    """Draws evenly spaced training images as three rows: original, what the encoder sees, reconstruction.

    Args:
        objective: A trained MAE.
        images: Where to take images from.
        scale: Pixel statistics.
        path: PNG to write.
        size: Side of the input in pixels.
        mask_ratio: Share of patches hidden.
        seed: Seed of the masks.
        count: How many images.
    """
    device = next(objective.parameters()).device
    dtype = next(objective.parameters()).dtype
    batch, _ = some_images(images, count, device)
    pixels = eval_images(batch, scale, size, dtype)
    patches = objective.backbone.grid[0] * objective.backbone.grid[1]
    key = make_key(seed, "figure-mask", batch.index)
    mask = random_mask(bits(key, patches), kept_patches(patches, mask_ratio))
    masked, predicted = reconstruct(objective, pixels, mask)
    rows = [
        ("original", pixels),
        (f"visible ({1 - mask_ratio:.0%})", masked),
        ("reconstructed", predicted),
    ]
    _draw(rows, scale, path, leak=objective.norm_pix)


def draw(objective: MAE, images: ImageSet, scale: PixelScale, path: Path, cfg: ResolvedMAERecipe) -> None:
    """The picture of a run without options of its own.

    Args:
        objective: Trained.
        images: The pool.
        scale: Pixel statistics.
        path: The PNG to write.
        cfg: Resolved.
    """
    save_reconstructions(
        objective, images, scale, path, size=cfg.model.img_size, mask_ratio=cfg.mae.mask_ratio, seed=cfg.seed
    )


def _draw(rows: list[tuple[str, Tensor]], scale: PixelScale, path: Path, *, leak: bool) -> None:
    channels, columns = rows[0][1].shape[1], len(rows[0][1])
    planes = shown_planes(channels, scale.bits)
    lines = len(rows) * len(planes)
    figure, axes = plt.subplots(
        lines, columns, figsize=(1.15 * columns + 1.2, 1.15 * lines + 0.35), squeeze=False, layout="constrained"
    )
    for number, plane in enumerate(planes):
        low, high = value_range(scale.restore(rows[0][1])[:, plane])
        for line, (title, pixels) in zip(axes[number * len(rows) :], rows, strict=False):
            for axis, image in zip(line, displayed(scale.restore(pixels)[:, plane], low, high), strict=True):
                axis.imshow(image, interpolation="nearest")
                frame(axis)
            words = "\n".join([plane_name(plane, channels, ""), title]).strip()
            line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9, color=LINE, labelpad=6)
    notes = [omitted(channels, scale.bits)]
    if leak:
        notes.append(
            "Targets are normalised per patch: each predicted patch is shown with the true patch's mean and contrast."
        )
    if any(notes):
        figure.supxlabel(" ".join(notes).strip(), fontsize=7.5, color=MUTED, x=0.99, ha="right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, facecolor="white")
    plt.close(figure)
