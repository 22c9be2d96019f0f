"""How alike the position embeddings of patches are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.errors import UserError
from ssl_vit.figures.panels import LINE, MUTED, plt
from ssl_vit.models.backbone import TokenBackbone

_PANELS = 8  # at most so many per row or column stay readable
_SIDE = 6.0  # inches of the panels' longer side
_NOTE = {"fontsize": 9, "color": MUTED}
_CELL, _GAP = 24, 0.16  # pixels of the mosaic per patch at least; space between panels as a share of a panel


def similarities(positions: Float[Tensor, "N D"]) -> Float[np.ndarray, "N N"]:
    """Cosine similarity of every patch's position embedding with every other; 1 on the diagonal."""
    unit = F.normalize(positions.detach().cpu().double(), dim=1)
    return (unit @ unit.T).numpy()


def shown_patches(count: int) -> list[int]:
    """Every k-th of ``count`` rows or columns, centred, at most eight."""
    step = -(-count // _PANELS)
    return list(range((count - 1) % step // 2, count, step))


def save_position_similarities(backbone: TokenBackbone, path: Path, *, kind: str) -> None:
    """Draws ViT's figure 7 (centre): one small map per patch, of its similarity with the whole grid.

    The class token's position is no part of the picture.

    Args:
        backbone: Whose positions.
        path: PNG to write.
        kind: The value of ``--model.positions``, for the title.

    Raises:
        UserError: When the backbone has no positions.
    """
    positions = backbone.patch_positions()
    if positions is None:
        raise UserError("the backbone has no position embedding (--model.positions none), so there is none to draw")
    rows, columns = backbone.grid
    maps = similarities(positions).reshape(rows, columns, rows, columns)
    down, across = shown_patches(rows), shown_patches(columns)
    mosaic, centres_y, centres_x = _mosaic(maps[np.ix_(down, across)])
    height, width = mosaic.shape
    wide, high = (_SIDE * n / max(mosaic.shape) for n in (width, height))
    left, right, bottom, top = 0.75, 1.15, 0.7, 0.75  # inches around the panels
    size = np.array([wide + left + right, high + bottom + top])
    figure = plt.figure(figsize=tuple(size))
    axis = figure.add_axes((left / size[0], bottom / size[1], wide / size[0], high / size[1]))
    beside = figure.add_axes(((left + wide + 0.2) / size[0], bottom / size[1], 0.16 / size[0], high / size[1]))
    # The colours reach down to the least similarity of this table: sine-cosine ones never come near -1.
    low = float(np.floor(10 * maps.min()) / 10)
    picture = axis.imshow(mosaic, cmap="viridis", vmin=min(low, 0.9), vmax=1.0, interpolation="nearest")
    axis.set_xticks(centres_x, [str(c + 1) for c in across])
    axis.set_yticks(centres_y, [str(r + 1) for r in down])
    axis.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    axis.set_xlabel("patch column", fontsize=9.5, color=LINE, labelpad=6)
    axis.set_ylabel("patch row", fontsize=9.5, color=LINE, labelpad=6)
    axis.spines[:].set_visible(False)
    bar = figure.colorbar(picture, cax=beside)
    bar.set_label("cosine similarity", fontsize=9.5, color=LINE, labelpad=8)
    beside.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    beside.spines[:].set_visible(False)
    name = {"sincos": "Sine-cosine"}.get(kind, kind.capitalize())
    network = f"ViT {backbone.embed_dim} x {backbone.depth}"
    title = f"{name} position embeddings: {network}, {rows} x {columns} patches of {backbone.patch_size} px"
    some = "" if len(down) * len(across) == rows * columns else f" ({len(down)} x {len(across)} of them)"
    note = f"One panel per patch{some}: its similarity with every patch of the grid"
    for text, rise, font in ((title, 0.4, {"fontsize": 11.5, "color": LINE}), (note, 0.14, _NOTE)):
        figure.text(left / size[0], (bottom + high + rise) / size[1], text, **font)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
    plt.close(figure)


def _mosaic(panels: Float[np.ndarray, "R C r c"]) -> tuple[np.ndarray, list[float], list[float]]:
    """Panels side by side with NaN between them, and where their centres are."""
    down, across, rows, columns = panels.shape
    cell = max(1, _CELL // max(1, max(rows, columns) // 8))
    high, wide, gap = rows * cell, columns * cell, round(_GAP * max(rows, columns) * cell)
    mosaic = np.full((down * (high + gap) - gap, across * (wide + gap) - gap), np.nan)
    for i in range(down):
        for j in range(across):
            top, left = i * (high + gap), j * (wide + gap)
            mosaic[top : top + high, left : left + wide] = panels[i, j].repeat(cell, axis=0).repeat(cell, axis=1)
    centres = [[(n * (size + gap) + (size - 1) / 2) for n in range(k)] for k, size in ((down, high), (across, wide))]
    return mosaic, centres[0], centres[1]
