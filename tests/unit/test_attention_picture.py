"""The picture of the class token's attention, and the images that pictures are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.configs import FiguresConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading.loader import some_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.figures.attention import save_attention
from ssl_vit.figures.pixels import omitted, planes
from ssl_vit.figures.shown import Shown, open_shown
from ssl_vit.models.build import make_backbone
from ssl_vit.models.vit import ViTBackbone
from torch import Tensor

SCALE = PixelScale((0.5,) * 3, (0.25,) * 3, 8)
YELLOW, PURPLE = np.array([253, 231, 36]), np.array([68, 1, 84])


def make(heads: int = 2, channels: int = 3) -> ViTBackbone:
    torch.manual_seed(0)
    args = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": heads, "in_chans": channels}
    return make_backbone("vit_tiny_patch16_224", args)


class Planted(ViTBackbone):
    """Attends to the first patch alone with its first head, to all evenly with the other, half of it to patches."""

    def attention(self, images: Tensor) -> Tensor:
        maps = torch.zeros(len(images), 2, 4)
        maps[:, 0, 0] = 1.0
        maps[:, 1] = 0.125
        return maps


def panels(path: Path, across: int, down: int) -> list[list[np.ndarray]]:
    """The pixels inside each panel: panels are 1.15 to 2.3 inches with 0.08 between, 0.2 from the left."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    side = min(2.3, max(1.15, 6.9 / max(across, down)))
    pitch, bottom = side + 0.08, len(pixels) / 160 - 0.2
    found = []
    for row in range(down):
        low = bottom + 0.08 - (down - row) * (side + 0.08 + 0.17) + side
        spans = [(low - side, low), *((0.2 + c * pitch, 0.2 + c * pitch + side) for c in range(across))]
        (top, end), *columns = [(round(160 * a) + 4, round(160 * b) - 4) for a, b in spans]
        found.append([pixels[top:end, left:right] for left, right in columns])
    return found


def test_every_patch_is_one_square_of_its_colour(tmp_path: Path) -> None:
    plain = make()
    path = tmp_path / "new" / "attention.png"
    backbone = Planted(plain.vit, plain.architecture, plain.model_args)
    save_attention(backbone, Shown(torch.randn(3, 3, 8, 8), SCALE, "some images", backbone), path)
    for row in panels(path, across=4, down=3):
        _, _, peaked, even = row
        half = len(peaked) // 2
        quarters = [peaked[:half, :half], peaked[:half, half:], peaked[half:, :half], peaked[half:, half:]]
        for quarter, colour in zip(quarters, (YELLOW, PURPLE, PURPLE, PURPLE), strict=True):
            inner = quarter[8:-8, 8:-8].reshape(-1, 3)
            assert np.abs(inner - colour).max() <= 3
        assert np.ptp(even.reshape(-1, 3), axis=0).max() <= 2


@pytest.mark.parametrize(("heads", "channels", "columns"), [(1, 3, 3), (4, 1, 6), (8, 3, 8), (2, 6, 7)])
def test_one_column_per_plane_head_and_their_mean(heads: int, channels: int, columns: int, tmp_path: Path) -> None:
    scale = PixelScale((0.5,) * channels, (0.25,) * channels, 8)
    backbone = make(heads, channels)
    shown = Shown(torch.randn(2, channels, 16, 16), scale, "images", backbone)
    save_attention(backbone, shown, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        side = min(2.3, max(1.15, 6.9 / columns))
        assert picture.width / 160 == pytest.approx(0.2 + columns * (side + 0.08) - 0.08 + 1.05, abs=0.02)


def test_without_class_token_there_is_no_picture(tmp_path: Path) -> None:
    args = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 2, "class_token": False,
            "global_pool": "avg", "fc_norm": False}  # fmt: skip
    backbone = make_backbone("vit_tiny_patch16_224", args)
    with pytest.raises(ValueError, match="no class token"):
        save_attention(backbone, Shown(torch.zeros(1, 3, 8, 8), SCALE, "", backbone), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_planes_are_colour_for_photographs_and_grey_by_range_for_others() -> None:
    images = torch.linspace(-1, 1, 2 * 3 * 16).reshape(2, 3, 4, 4)
    [(name, colour)] = planes(images, SCALE)
    assert (name, colour.shape) == ("image", (2, 4, 4, 3))
    names, grey = zip(*planes(images, PixelScale((0.5,) * 3, (0.25,) * 3, 16)), strict=True)
    assert names == ("channel 1", "channel 2", "channel 3")
    for plane in grey:
        assert (plane[..., 0] == plane[..., 2]).all()
        assert (plane.min(), plane.max()) == (0.0, 1.0)
    assert (omitted(3, 8), omitted(4, 16), omitted(1, 8)) == ("", "", "")
    assert omitted(6, 8) == "Channels 5 to 6 are not shown."


def image_set(count: int) -> ImageSet:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(8, 2).repeat(8, 3)
    return ImageSet("some", ArrayRows(pixels, "some"), np.arange(count), Format(1, 8), Sizes((8, 8), 8), "x")


@pytest.mark.parametrize(("count", "wanted", "found"), [(11, 3, [0, 5, 10]), (2, 6, [0, 1]), (5, 1, [0])])
def test_images_are_evenly_spaced(count: int, wanted: int, found: list[int]) -> None:
    batch, unreadable = some_images(image_set(count), wanted, torch.device("cpu"))
    assert batch.images[:, 0, 0, 0].tolist() == found
    assert unreadable == []


def test_one_of_many_processes_draws_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssl_vit.data.loading.loader.rank_and_world", lambda: (0, 16))
    batch, _ = some_images(image_set(20), 8, torch.device("cpu"))
    assert len(batch.index) == 8


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(9):
        Image.fromarray(np.full((20 + i, 24, 3), 25 * i, dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def exported(tmp_path: Path, about: dict):
    export_backbone(make(), tmp_path / "backbone", SCALE, "cls", about)
    return load_backbone(str(tmp_path))


def test_unreadable_images_are_named_and_left_out(tmp_path: Path, photos: Path, capsys) -> None:
    backbone = exported(tmp_path, {})
    (photos / "4.png").write_bytes(b"no image")
    shown = open_shown(backbone, str(photos), FiguresConfig(img_size=12, count=3))
    assert (
        capsys.readouterr().err
        == f"warning: {photos / '4.png'} cannot be read (not an image that Pillow can read); it is left out\n"
    )
    assert shown.words == "2 of 9 images of photos at 12 px"
    assert shown.pixels.shape == (2, 3, 12, 12)
    assert SCALE.restore(shown.pixels)[:, 0, 0, 0].tolist() == pytest.approx([0.0, 200 / 255])
    for i in (0, 8):
        (photos / f"{i}.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"none of the chosen images can be read: .*0\.png .*8\.png"):
        open_shown(backbone, str(photos), FiguresConfig(count=3))


def test_the_runs_own_images_unless_others_are_named(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(UserError, match="does not say what it was trained on; name images with --images"):
        open_shown(exported(tmp_path, {}), None, FiguresConfig())
    windowed = exported(tmp_path, {"data": {"path": str(photos), "window": 12}})
    assert open_shown(windowed, None, FiguresConfig()).words == "6 of 9 images of photos at 8 px"
    # A larger input than the window sees more of each image, at its own scale.
    assert open_shown(windowed, str(photos), FiguresConfig(img_size=20)).pixels.shape == (6, 3, 20, 20)
    gone = exported(tmp_path, {"data": {"path": str(tmp_path / "gone")}})
    with pytest.raises(
        UserError, match=r"the backbone was trained on cannot be opened \(there is no .*name others with"
    ):
        open_shown(gone, None, FiguresConfig())
    assert len(open_shown(gone, str(photos), FiguresConfig()).pixels) == 6
