"""Original, masked and reconstructed images side by side."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.data.images import ImageSet
from ssl_vit.data.loader import UnreadableLog, eval_batches
from ssl_vit.data.views import PixelScale, eval_images
from ssl_vit.masking import Mask, kept_patches, random_mask
from ssl_vit.objectives.mae import MAE, images_from_patches, pixel_patches
from ssl_vit.randomness import bits, make_key

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_LINE, _MUTED = "#1a1a1a", "#6b6b6b"
_MOST = 4
"""Channels that are drawn where each is a picture of its own."""
_HIDDEN = (0.78, 0.86, 0.95)  # a tint that no grey image contains


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
    chosen = images.subset(np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)))
    log = UnreadableLog(chosen, silent=True)
    batch = next(eval_batches(chosen, count, device, log))
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


def _draw(rows: list[tuple[str, Tensor]], scale: PixelScale, path: Path, *, leak: bool) -> None:
    channels, columns = rows[0][1].shape[1], len(rows[0][1])
    # Only photographs are shown in colour: three channels of a microscope are no red, green and blue.
    planes = [slice(0, 3)] if channels == 3 and scale.bits == 8 else [slice(c, c + 1) for c in range(channels)][:_MOST]
    lines = len(rows) * len(planes)
    figure, axes = plt.subplots(
        lines, columns, figsize=(1.15 * columns + 1.2, 1.15 * lines + 0.35), squeeze=False, layout="constrained"
    )
    for number, plane in enumerate(planes):
        low, high = _range(scale.restore(rows[0][1])[:, plane])
        for line, (title, pixels) in zip(axes[number * len(rows) :], rows, strict=False):
            for axis, image in zip(line, _displayed(scale.restore(pixels)[:, plane], low, high), strict=True):
                axis.imshow(image, interpolation="nearest")
                axis.set(xticks=[], yticks=[])
                for spine in axis.spines.values():
                    spine.set(color="#cccccc", linewidth=0.6)
            words = title if len(planes) == 1 else f"channel {number + 1}\n{title}"
            line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9, color=_LINE, labelpad=6)
    notes = []
    if len(planes) < channels and channels != 3:
        notes.append(f"Channels {_MOST + 1} to {channels} are not shown.")
    if leak:
        notes.append(
            "Targets are normalised per patch: each predicted patch is shown with the true patch's mean and contrast."
        )
    if notes:
        figure.supxlabel(" ".join(notes), fontsize=7.5, color=_MUTED, x=0.99, ha="right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, facecolor="white")
    plt.close(figure)


def _range(images: Tensor) -> tuple[float, float]:
    """Black and white of the picture: the range of nearly all pixels, so that dark and speckled images are visible."""
    low, high = np.quantile(images.detach().float().cpu().numpy(), (0.002, 0.998)).tolist()
    if high <= low:
        low, high = float(images.min()), float(images.max())
    return (low, high) if high > low else (0.0, 1.0)


def _displayed(images: Tensor, low: float, high: float) -> np.ndarray:
    """[B, H, W, 3] in [0, 1] of three channels or one; hidden patches (NaN) get a tint."""
    x = ((images.detach().float().cpu() - low) / (high - low)).clamp(0.0, 1.0).expand(-1, 3, -1, -1)
    return torch.where(x.isnan(), torch.tensor(_HIDDEN)[:, None, None], x).permute(0, 2, 3, 1).numpy()
