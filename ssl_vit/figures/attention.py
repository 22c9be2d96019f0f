"""Where the class token looks: its attention to the patches in the last block (Caron et al. 2021, "DINO", figure 1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ssl_vit.figures.panels import MUTED, sheet
from ssl_vit.figures.pixels import omitted, planes
from ssl_vit.figures.shown import Shown, network
from ssl_vit.models.backbone import TokenBackbone

_HEADS = 6
"""Heads that are drawn at most."""


@torch.inference_mode()
def save_attention(backbone: TokenBackbone, shown: Shown, path: Path) -> None:
    """Draws a row per image: the image, the mean over all heads and the first heads, one square per patch.

    All maps share one scale, in multiples of an even spread over the patches.

    Args:
        backbone: With a class token.
        shown: The images.
        path: PNG to write.

    Raises:
        ValueError: Without a class token.
    """
    attention = backbone.eval().attention(shown.pixels).float().cpu()
    count, heads, patches = attention.shape
    side = shown.pixels.shape[3] // backbone.patch_size
    maps = torch.cat([attention.mean(dim=1, keepdim=True), attention[:, :_HEADS]], dim=1).numpy()
    relative = (patches * maps).reshape(*maps.shape[:2], side, side)
    most = max(1.0, float(np.quantile(relative, 0.995)))
    pictures = planes(shown.pixels, shown.scale)
    names = [name for name, _ in pictures] + ["mean of heads"] + [f"head {n + 1}" for n in range(maps.shape[1] - 1)]
    some = f"heads 1 to {_HEADS} of {heads}, and the mean of all" if heads > _HEADS else f"{heads} head(s)"
    title = f"Attention of the class token in the last block: {network(backbone, side, side)}"
    notes = [
        f"{shown.words}; {some}.",
        "Colours: multiples of an even spread over the patches. Under each map: the share of the attention that goes to"
        " patches at all.",
        omitted(shown.pixels.shape[1], shown.scale.bits),
    ]
    page = sheet(count, len(names), title=title, notes=notes, right=1.05, under=0.17, head=0.22)
    for column, name in enumerate(names):
        page.name_column(column, name)
    for row in range(count):
        for column, (_, images) in enumerate(pictures):
            page.draw(row, column, images[row])
        for column, (values, share) in enumerate(zip(relative[row], maps[row].sum(axis=1), strict=True), len(pictures)):
            page.draw(row, column, values, cmap="viridis", vmin=0.0, vmax=most)
            page.axes[row, column].set_xlabel(f"{share:.0%}", fontsize=7.5, color=MUTED, labelpad=2.5)
    page.colour_bar("x even spread")
    page.save(path)
