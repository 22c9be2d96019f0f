"""What features tell apart: their first three principal components as colours."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.figures.panels import sheet
from ssl_vit.figures.pixels import omitted, planes
from ssl_vit.figures.shown import Shown, network
from ssl_vit.models.backbone import Backbone

_ENDS = (0.01, 0.99)
"""Quantiles of a component that get none and all of its colour."""
_ROUNDING = 1e-6  # of single precision: what is smaller than this share of the features is no component


class Components(NamedTuple):
    """The first three principal components of features."""

    scores: Float[Tensor, "n 3"]
    """Zero in components that the features do not have."""
    share: float
    """Of the variance that the three hold together, in [0, 1]."""


def principal_components(features: Float[Tensor, "n D"]) -> Components:
    """Centres features, a row per place, and projects them onto the three directions of largest variance.

    A component's sign is free; here the entry of its direction with the largest magnitude is positive, so that the
    same features always get the same colours.
    """
    x = features.cpu().double()
    u, s, directions = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)
    s = s * (s > _ROUNDING * x.norm())
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))[:, 0]
    scores = (u * s * largest.sign())[:, :3]
    total = float((s**2).sum())
    share = float((s[:3] ** 2).sum()) / total if total else 0.0
    return Components(torch.nn.functional.pad(scores, (0, 3 - scores.shape[1])), share)


def as_colours(scores: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    """Each component from its 1st to its 99th percentile as 0 to 1; a constant one becomes one half."""
    low, high = (torch.from_numpy(np.quantile(scores.numpy(), q, axis=0)) for q in _ENDS)
    spread = high - low
    return torch.where(spread > 0, (scores - low) / spread, torch.tensor(0.5).double()).clamp(0.0, 1.0)


@torch.inference_mode()
def save_components(backbone: Backbone, shown: Shown, path: Path) -> None:
    """Draws every image, and beside it a square per place, coloured by the components of its feature.

    Args:
        backbone: Any.
        shown: The images.
        path: PNG to write.
    """
    features = backbone.eval().feature_map(shown.pixels)
    count, _, rows, columns = features.shape
    found = principal_components(features.movedim(1, 3).flatten(0, 2))
    colours = as_colours(found.scores).reshape(count, rows, columns, 3).numpy()
    pictures = [*planes(shown.pixels, shown.scale), ("features", colours)]
    notes = [
        f"{shown.words}.",
        f"Red, green and blue are the first three principal components of all {count} x {rows} x {columns} features, "
        f"{found.share:.0%} of their variance; a colour means the same in every image.",
        omitted(shown.pixels.shape[1], shown.scale.bits),
    ]
    title = f"Features of the last layer as colours: {network(backbone, rows, columns)}"
    stacked = count < len(pictures)  # few images one below the other, so that the picture is never taller than wide
    size, room = ((count, len(pictures)), {"head": 0.22}) if stacked else ((len(pictures), count), {"left": 0.9})
    page = sheet(*size, title=title, notes=notes, **room)
    for line, (name, images) in enumerate(pictures):
        for number, image in enumerate(images):
            page.draw(*((number, line) if stacked else (line, number)), image)
        (page.name_column if stacked else page.name_row)(line, name)
    page.save(path)
