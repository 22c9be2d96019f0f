"""Pictures of reconstructions: photographs in colour, other channels each for itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.data.scale import PixelScale
from ssl_vit.figures.reconstructions import _draw


def drawn(path: Path, channels: int, bits: int, *, leak: bool = False) -> np.ndarray:
    images = torch.rand(8, channels, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.01  # a dark set
    masked = images.clone()
    masked[:, :, :4] = torch.nan
    scale = PixelScale((0.0,) * channels, (1.0,) * channels, bits)
    _draw([("original", images), ("visible", masked), ("reconstructed", images)], scale, path, leak=leak)
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


@pytest.mark.parametrize(("channels", "bits", "blocks"), [(1, 8, 1), (3, 8, 1), (3, 16, 3), (2, 8, 2), (6, 16, 4)])
def test_one_block_of_rows_for_colour_and_one_per_channel_for_the_rest(
    channels: int, bits: int, blocks: int, tmp_path: Path
) -> None:
    height = drawn(tmp_path / "a.png", channels, bits).shape[0]
    one = drawn(tmp_path / "b.png", 1, 8).shape[0]
    assert round((height - one) / (160 * 1.23 * 3)) == blocks - 1


def test_colour_only_for_photographs_and_dark_images_are_visible(tmp_path: Path) -> None:
    photo, cells = drawn(tmp_path / "a.png", 3, 8), drawn(tmp_path / "b.png", 3, 16)
    tint = np.abs(cells - np.array([0.78, 0.86, 0.95]) * 255).max(axis=2) < 3
    assert tint.mean() > 0.05  # hidden patches
    assert np.ptp(cells[~tint], axis=1).max() < 40  # grey but for antialiasing at the tint's edges
    assert np.ptp(photo, axis=2).max() > 200
    assert (photo.min(axis=2) < 60).mean() > 0.02
