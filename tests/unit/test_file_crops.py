"""Random crops cut from files by loader processes: the same boxes, pixels at native scale, in any process."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from ssl_vit.configs import DataConfig, LoadingConfig, ResolvedAugment
from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import make_key
from ssl_vit.data.boxes import random_resized_crop
from ssl_vit.data.decoding import decode as decoding
from ssl_vit.data.decoding import jpeg
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Format, Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading import workers as processes
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.file_crops import FileCrops, file_crops
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.folder import FileRows
from ssl_vit.views.training import train_images

CPU = torch.device("cpu")
RGB = Format(3, 8)
SCALE = PixelScale((0.5, 0.4, 0.3), (0.2, 0.3, 0.25), 8)
AUGMENT = ResolvedAugment((0.2, 1.0), flip=True, policy="none", erasing=0.0)
CROPS = FileCrops(48, (0.2, 1.0), (3 / 4, 4 / 3), "bicubic")


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Smooth colours, of which a shift by a pixel can be seen."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def file_set(
    root: Path, sizes: list[tuple[int, int]], *, broken: tuple[int, ...] = (), cut: tuple[int, ...] = ()
) -> ImageSet:
    """PNG files; of broken ones not even the header can be read, of cut ones only that."""
    root.mkdir()
    for i, (height, width) in enumerate(sizes):
        raw = encode(picture(height, width, i))
        (root / f"{i:03}.png").write_bytes(b"" if i in broken else raw[: len(raw) // 2] if i in cut else raw)
    rows = FileRows(root, [f"{i:03}.png" for i in range(len(sizes))])
    same = len(set(sizes)) == 1
    known = Sizes(sizes[0] if same else None, min(map(min, sizes)))
    return ImageSet("files", rows, np.arange(len(sizes)), RGB, known, "").on_canvas(None, 48)


def decode_crop(raw: bytes, form: Format, box: tuple[int, int, int, int], side: int, kernel: Any) -> np.ndarray:
    return decoding.decode_crop(raw, decoding.open_image(raw), form, box, side, kernel)


VARIOUS = [(60, 80), (95, 70), (50, 50), (120, 64), (81, 77), (66, 90), (70, 130)]


def load(images: ImageSet, crops: FileCrops | None = CROPS, *, batch: int = 7, micro: int | None = None,
         workers: int = 0, seed: int = 5) -> Loader:  # fmt: skip
    return Loader(images, batch_size=batch, micro_batch=micro or batch, seed=seed, device=CPU, workers=workers,
                  cache="auto" if crops else "none", crops=crops)  # fmt: skip


def shown(batches: list[Batch]) -> list[tuple[int, int, bytes]]:
    return [
        (epoch, i, pixels.numpy().tobytes())
        for b in batches
        for epoch, i, pixels in zip(b.epoch.tolist(), b.index.tolist(), b.images, strict=True)
    ]


def test_a_crop_is_the_box_of_the_visit_resized_from_the_files_own_pixels(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", VARIOUS)
    assert images.canvas is not None
    loader = load(images)
    assert loader.kept == "every visit's crop is cut from the file"
    visits = 0
    for batch in loader.batches(0, 3):
        assert batch.cropped
        assert batch.images.shape == (7, 3, 48, 48)
        for epoch, i, pixels in zip(batch.epoch.tolist(), batch.index.tolist(), batch.images, strict=True):
            whole = torch.from_numpy(np.asarray(picture(*VARIOUS[i], i)).copy()).permute(2, 0, 1)[None]
            key = make_key(5, "crop", torch.tensor([epoch]), torch.tensor([i]))
            box = random_resized_crop(key, torch.tensor([VARIOUS[i]]).float(), CROPS.scale, CROPS.ratio)
            top, left, height, width = box[0].int().tolist()
            inside = whole[:, :, top : top + height, left : left + width]
            assert torch.equal(pixels, F.interpolate(inside, (48, 48), mode="bicubic", antialias=True)[0])
            visits += 1
    assert visits == 21
    assert len(set(shown(list(loader.batches(0, 3))))) == 21  # every visit another crop


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_images_of_one_size_give_what_they_give_from_the_canvas(tmp_path: Path, interpolation: str) -> None:
    images = file_set(tmp_path / "images", [(70, 90)] * 6)
    assert images.canvas is None
    cfg = replace(AUGMENT, interpolation=interpolation)
    views = []
    for crops in (file_crops(DataConfig(crop_from="file"), images, cfg, 48), None):
        batches = load(images, crops, batch=6).batches(0, 2)
        views.append(torch.cat([train_images(b, 5, SCALE, cfg, 48, torch.float32) for b in batches]))
    assert torch.equal(*views)
    assert not torch.equal(views[0][:6].sort(0).values, views[0][6:].sort(0).values)


def test_a_batch_of_more_files_than_are_held_together(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", [(50, 50 + i % 3) for i in range(70)], broken=(40,))
    together = shown(list(load(images, batch=70).batches(0, 1)))
    apart = [visit for batch in load(images, batch=10).batches(0, 7) for visit in shown([batch])]
    assert together == apart
    assert len(together) == 70


def test_crops_are_the_same_in_any_process_and_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = file_set(tmp_path / "images", VARIOUS, broken=(3,))
    whole = shown(list(load(images, batch=6).batches(0, 5)))
    for workers in (1, 2):
        assert shown(list(load(images, batch=6, workers=workers).batches(0, 5))) == whole
    assert shown(list(load(images, batch=6).batches(3, 5))) == whole[18:]
    assert shown(list(load(images, batch=6, seed=6).batches(0, 5))) != whole
    shares = []
    for rank in range(2):
        monkeypatch.setattr("ssl_vit.data.loading.loader.rank_and_world", lambda rank=rank: (rank, 2))
        shares.append([shown([b]) for b in load(images, batch=6, micro=3).batches(0, 5)])
    assert [visit for step in zip(*shares, strict=True) for share in step for visit in share] == whole
    assert dist.rank_and_world() == (0, 1)


@pytest.mark.parametrize("damage", ["broken", "cut"])
def test_the_next_readable_image_takes_the_place_of_an_unreadable_one(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    images = file_set(tmp_path / "images", VARIOUS, **{damage: (6,)})
    loader = load(images)
    (batch,) = loader.batches(0, 1)
    assert sorted(batch.index.tolist()) == [0, 0, 1, 2, 3, 4, 5]
    first, second = (p for i, p in zip(batch.index.tolist(), batch.images, strict=True) if i == 0)
    assert torch.equal(first, second)  # one name, one crop
    assert list(loader.unreadable.reasons) == [6]
    assert "006.png" in capsys.readouterr().err


# Decoded at a part of the size


@pytest.mark.parametrize("orientation", [1, 6, 8, 3])
@pytest.mark.parametrize("grey", [False, True])
def test_a_large_crop_of_a_large_jpeg_is_decoded_at_a_part_of_its_size(
    monkeypatch: pytest.MonkeyPatch, orientation: int, grey: bool
) -> None:
    image = picture(600, 803)
    exif = Image.Exif()
    exif[0x0112] = orientation
    raw, form = (
        encode(image.convert("L") if grey else image, "JPEG", quality=95, exif=exif),
        Format(1 if grey else 3, 8),
    )
    whole, _ = decode(raw, form, None)
    steps = []
    part_for = jpeg.part_for

    def spied(image: Image.Image, canvas: tuple[int, int]) -> int:
        steps.append(part_for(image, canvas))
        return steps[-1]

    monkeypatch.setattr(jpeg, "part_for", spied)
    for box, step in (((31, 42, 540, 500), 4), ((100, 203, 300, 350), 2), ((100, 203, 120, 90), 1)):
        crop = decode_crop(raw, form, box, 88, "bicubic")
        assert steps.pop() == step
        top, left, height, width = box
        inside = torch.from_numpy(whole)[None, :, top : top + height, left : left + width]
        expected = F.interpolate(inside, (88, 88), mode="bicubic", antialias=True)[0].numpy()
        far = np.abs(crop.astype(int) - expected)
        assert far.mean() < (1.5 if step > 1 else 1e-9)
        moved = np.abs(np.roll(crop, 2, axis=2).astype(int) - expected)
        assert moved.mean() > 1.5 * far.mean()  # a crop beside the box would be seen


def test_files_of_other_kinds_are_cut_too(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (40, 50), dtype=np.uint16)
    crop = decode_crop(encode(Image.fromarray(deep)), Format(1, 16), (3, 5, 20, 30), 16, "bilinear")
    assert crop.dtype == np.uint16
    plane = Image.fromarray(deep[3:23, 5:35].astype(np.float32)).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(crop[0], np.rint(np.asarray(plane)).astype(np.uint16))
    same = decode_crop(encode(picture(40, 50)), RGB, (3, 5, 16, 16), 16, "bicubic")
    assert np.array_equal(same, np.asarray(picture(40, 50)).transpose(2, 0, 1)[:, 3:19, 5:21])


def test_a_header_that_lies_is_unreadable() -> None:
    raw = encode(picture(40, 50))
    header = decoding.open_image(raw)[0]
    with pytest.raises(Unreadable, match="50 x 40 pixels, but its header says 60 x 40"):
        decoding.decode_crop(raw, (header._replace(width=60), None), RGB, (0, 0, 20, 20), 16, "bicubic")


# The decision


def on_disk(n: int, side: int) -> ImageSet:
    sizes = Sizes((side, side), side)
    return ImageSet("files", FileRows(Path(), ["a.png"]), np.zeros(n, dtype=np.int64), RGB, sizes, "")


def test_left_open_only_sets_that_nobody_keeps_are_cut_from_files() -> None:
    small, large = on_disk(1000, 400), on_disk(64 * 10**9 // (3 * 400 * 400) + 1, 400)
    assert file_crops(DataConfig(), small, AUGMENT, 224) is None
    assert file_crops(DataConfig(), large, AUGMENT, 224) == replace(CROPS, side=224)
    assert file_crops(LoadingConfig(crop_from="file"), small, AUGMENT, 224) == replace(CROPS, side=224)
    assert file_crops(DataConfig(crop_from="canvas"), large, AUGMENT, 224) is None
    assert file_crops(DataConfig(crop_from="canvas", cache="ram"), large, AUGMENT, 224) is None
    assert file_crops(DataConfig(cache="ram"), small, AUGMENT, 224) is None
    with pytest.raises(UserError, match=r"--data\.crop_from canvas is given, which --data\.cache device needs"):
        file_crops(LoadingConfig(cache="device"), large, AUGMENT, 224)
    assert file_crops(DataConfig(), large, replace(AUGMENT, crop="pad"), 224) is None


def test_what_contradicts_cutting_from_files_is_named() -> None:
    images, asked = on_disk(10, 400), DataConfig(crop_from="file")
    arrays = replace(images, rows=ArrayRows(np.zeros((10, 3, 8, 8), dtype=np.uint8), "a"))
    cases = [
        (asked, arrays, AUGMENT, "in memory already"),
        (asked, images.on_canvas(None, 48, 64), AUGMENT, r"--data\.window"),
        (asked, images, replace(AUGMENT, crop_scale=(1.0, 1.0)), r"--augment\.crop_scale"),
        (asked, images, replace(AUGMENT, crop="pad", crop_scale=(1.0, 1.0)), r"--augment\.crop pad"),
    ]
    for loading, given, augment, message in cases:
        with pytest.raises(UserError, match=rf"--data\.crop_from file: .*{message}.*leave it out"):
            file_crops(loading, given, augment, 48)
    with pytest.raises(UserError, match=r"--data\.crop_from file .*--data\.cache ram .*one or the other"):
        file_crops(replace(asked, cache="ram"), images, AUGMENT, 48)


def test_room_in_shared_memory_is_reckoned_for_crops() -> None:
    images = on_disk(10, 32)
    batch, held = (np.arange(5), np.zeros(5, dtype=np.int64)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "in_processes", lambda *given: iter(()))
        patch.setattr(processes, "_has_room", lambda size, count: bool(held.append(size)))
        for crops in (None, replace(CROPS, side=224)):
            assert not list(processes.decoded(images, [batch], 1, crops=crops))
    assert held == [5 * 3 * 32 * 32, 5 * 3 * 224 * 224]
