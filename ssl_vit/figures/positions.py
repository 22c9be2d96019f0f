"""How alike the position embeddings of patches are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ssl_vit.core.errors import UserError
from ssl_vit.figures.panels import sheet
from ssl_vit.figures.shown import network
from ssl_vit.models.backbone import TokenBackbone

_PANELS = 8  # at most so many per row or column stay readable


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
    # The colours reach down to the least similarity of this table: sine-cosine ones never come near -1.
    low = min(float(np.floor(10 * maps.min()) / 10), 0.9)
    name = {"sincos": "Sine-cosine"}.get(kind, kind.capitalize())
    some = "" if len(down) * len(across) == rows * columns else f" ({len(down)} x {len(across)} of them)"
    page = sheet(
        len(down), len(across), title=f"{name} position embeddings: {network(backbone, rows, columns)}",
        notes=[f"One panel per patch{some}: its similarity with every patch of the grid."], left=0.65, right=1.15,
        head=0.22,
    )  # fmt: skip
    for i, row in enumerate(down):
        page.name_row(i, f"row {row + 1}")
        for j, column in enumerate(across):
            page.name_column(j, f"column {column + 1}")
            page.draw(i, j, maps[row, column], cmap="viridis", vmin=low, vmax=1.0)
    page.colour_bar("cosine similarity", more=False)
    page.save(path)
