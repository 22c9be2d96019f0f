"""Features as colours: which components, with which sign, on which scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.data.scale import PixelScale
from ssl_vit.figures.pca import as_colours, principal_components, save_components
from ssl_vit.figures.shown import Shown
from ssl_vit.models.build import make_backbone
from torch import Tensor

WIDTHS = (5.0, 3.0, 2.0, 0.5)


def low_rank(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features [40, 6] of four known orthogonal directions, what they were made of, and the directions."""
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(40, 5, dtype=torch.float64, generator=generator)
    random[:, 0] = 1.0  # the others become orthogonal to the mean
    scores = torch.linalg.qr(random)[0][:, 1:] * torch.tensor(WIDTHS).double()
    directions = torch.linalg.qr(torch.randn(6, 4, dtype=torch.float64, generator=generator))[0].T
    return 7.0 + scores @ directions, scores, directions


def test_known_directions_are_found_with_their_share_of_the_variance() -> None:
    features, scores, directions = low_rank()
    found = principal_components(features)
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True))[:, 0].sign()
    assert (found.scores - (scores * signs)[:, :3]).abs().max() <= 1e-12
    squares = np.square(WIDTHS)
    assert found.share == pytest.approx(squares[:3].sum() / squares.sum(), abs=1e-12)


def test_signs_do_not_depend_on_the_order_or_the_rounding_of_features() -> None:
    for seed in range(5):
        features, _, _ = low_rank(seed)
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed))
        assert torch.allclose(
            principal_components(features[order]).scores, principal_components(features).scores[order], atol=1e-12
        )
        assert torch.allclose(
            principal_components(features.float()).scores, principal_components(features).scores, atol=1e-5
        )


@pytest.mark.parametrize(("count", "width", "kept"), [(9, 2, 2), (2, 5, 1), (9, 1, 1)])
def test_fewer_than_three_components_leave_the_rest_at_half(count: int, width: int, kept: int) -> None:
    found = principal_components(torch.randn(count, width, generator=torch.Generator().manual_seed(0)))
    colours = as_colours(found.scores)
    assert found.scores.shape == colours.shape == (count, 3)
    assert found.share == pytest.approx(1.0)
    assert (colours[:, kept:] == 0.5).all()
    assert (colours[:, :kept].amax(0) == 1.0).all()


def test_equal_features_are_grey() -> None:
    found = principal_components(
        torch.ones(8, 4) + 1e-7 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    )
    assert found.share == 0.0
    assert (as_colours(found.scores) == 0.5).all()


def test_a_few_extreme_places_do_not_take_all_the_colours() -> None:
    scores = torch.linspace(-1, 1, 1001).double()[:, None].repeat(1, 3)
    scores[-1] = 1000.0
    colours = as_colours(scores)
    assert colours[500, 0] == pytest.approx(0.5, abs=0.02)
    assert (colours.amin(), colours.amax()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("channels", "bits", "images", "rows", "columns", "left"),
    [(3, 8, 4, 2, 4, 0.9), (1, 8, 1, 1, 2, 0.2), (3, 16, 5, 4, 5, 0.9), (6, 8, 2, 2, 5, 0.2)],
)
def test_every_image_stands_beside_its_colours(
    channels: int, bits: int, images: int, rows: int, columns: int, left: float, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    args = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 2, "in_chans": channels}
    backbone = make_backbone("vit_tiny_patch16_224", args)
    scale = PixelScale((0.5,) * channels, (0.25,) * channels, bits)
    path = tmp_path / "new" / "pca.png"
    shown = Shown(torch.randn(images, channels, 12, 12), scale, "some images", backbone)
    save_components(backbone, shown, path)
    save_components(backbone, shown, tmp_path / "again.png")
    with Image.open(path) as picture, Image.open(tmp_path / "again.png") as again:
        side = min(2.3, max(1.15, 6.9 / max(rows, columns)))
        assert picture.width / 160 == pytest.approx(left + columns * (side + 0.08) - 0.08 + 0.2, abs=0.02)
        assert rows * side < picture.height / 160 < rows * (side + 0.08) + 2.0
        assert np.array_equal(np.asarray(picture), np.asarray(again))
