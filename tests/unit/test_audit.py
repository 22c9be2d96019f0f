"""The leak guard on sets with planted copies, relatives and shared images."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter
from ssl_vit.configs import DataConfig, LabelledDataConfig, PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.leaks.audit import Audit, Finding, audit, guard, picture

SAME = LabelledDataConfig()
WARN, STOP = PoolConfig(on_leak="warn"), PoolConfig(on_leak="stop")


def scene(seed: int, height: int = 40, width: int = 40) -> np.ndarray:
    """A picture with structure at several scales, uint8 [3, H, W]."""
    rng = np.random.default_rng(seed)
    layers = [gaussian_filter(rng.normal(size=(3, height, width)), (1, blur, blur)) for blur in (6, 2.5, 0.8)]
    whole = sum(layer / layer.std() for layer in layers)
    return np.clip(128 + 35 * whole, 0, 255).astype(np.uint8)


def save(pixels: np.ndarray, path: Path, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.transpose(1, 2, 0)).save(path, **options)


def folder(root: Path, count: int = 30) -> Path:
    """Training images 0 to 29 and test images 100 to 129 of two classes."""
    for split, first in (("train", 0), ("test", 100)):
        for i in range(count):
            save(scene(first + i), root / split / ("cat", "dog")[i % 2] / f"{first + i}.png")
    return root


def opened(root: Path, **options: Any) -> tuple[ImageSet, Labelled]:
    data = PoolConfig(path=str(root), **options)
    return open_pool(data, SAME)[0], open_labelled(data, SAME)


def named(found: Audit, kind: str, between: str) -> Finding:
    return next(f for f in found.findings if (f.kind, f.between) == (kind, between))


def test_nothing_is_found_where_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool, data = opened(folder(tmp_path / "<b>&photos"))
    found = guard(pool, data.train, data.test, STOP)
    assert (found.findings, found.affected, found.examples) == ((), (), ())
    assert found.images == {"pool": 30, "train": 30, "test": 30, "different": 60}
    assert "No copies or near copies were found among 60 images" in capsys.readouterr().out


def test_planted_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder(tmp_path / "<b>&photos")
    planted = {
        "exact.png": (0, scene(0), {}),
        "other_file.png": (2, scene(2), {"compress_level": 1}),
        "encoded.jpg": (4, scene(4), {"quality": 60}),
        "mirrored.png": (6, scene(6)[:, :, ::-1], {}),
        "brighter.png": (8, np.clip(scene(8) * 0.8 + 40, 0, 255).astype(np.uint8), {}),
    }
    for name, (_, pixels, options) in planted.items():
        save(pixels, root / "test" / "cat" / name, **options)
    large = Image.fromarray(scene(10).transpose(1, 2, 0)).resize((90, 60))
    large.save(root / "test" / "cat" / "resized.png")
    pool, data = opened(root)
    found = audit(pool, data.train, data.test, WARN)
    place = {Path(data.test.where(i)).name: i for i in range(len(data.test))}
    for between in ("test-train", "test-pool"):
        exact, near = named(found, "exact", between), named(found, "near", between)
        assert exact.test == tuple(sorted(place[n] for n in ("exact.png", "other_file.png")))
        assert near.test == tuple(
            sorted(place[n] for n in ("encoded.jpg", "mirrored.png", "brighter.png", "resized.png"))
        )
        assert (exact.images, exact.pairs, exact.leak, near.pairs, near.leak) == (2, 2, True, 4, True)
    assert found.affected == tuple(sorted(place[n] for n in (*planted, "resized.png")))
    assert {f.between for f in found.findings} == {"test-train", "test-pool"}
    shown = {Path(e.first.where).name: e for e in found.examples}
    assert set(shown) == {*planted, "resized.png"}
    assert (shown["exact.png"].same_file, shown["other_file.png"].same_file) == (True, False)
    assert {name for name, e in shown.items() if e.change == "mirrored"} == {"mirrored.png"}
    for name, (source, _, _) in planted.items():
        assert Path(shown[name].second.where).name == f"{source}.png"
    told = json.loads(json.dumps(found.to_dict()))
    assert told["affected"] == list(found.affected)
    assert told["affected_images"] == [data.test.where(i) for i in found.affected]
    assert len(told["affected_images"]) == 6
    assert told["cures"] == ["have copies left out with --data.on_leak drop"]
    assert "<b>&photos" in told["examples"][0]["first"]["where"]
    for example in told["examples"]:
        image = Image.open(io.BytesIO(base64.b64decode(example["first"]["png"])))
        assert image.format == "PNG"
        assert max(image.size) == 96
    with pytest.raises(UserError) as stopped:
        guard(pool, data.train, data.test, STOP)
    message = str(stopped.value)
    assert "\n" not in message
    assert "6 of 36 test images leak: 2 as exact copies among the training images, 4 as near duplicates" in message
    assert "exact.png = " in message
    assert "--data.on_leak warn" in message
    assert "the pool" not in message  # what is in it as training images is told once
    capsys.readouterr()
    assert guard(pool, data.train, data.test, WARN).findings == found.findings
    captured = capsys.readouterr()
    assert "warning: 6 of 36 test images leak" in captured.err
    assert "4 of 36 test images have a near duplicate among the training images." in captured.out


def test_duplicates_within_a_set_are_told_and_stop_nothing(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    for n in range(2):
        save(scene(1), root / "train" / "dog" / f"again{n}.png")
    save(scene(101)[:, :, ::-1], root / "test" / "dog" / "turned.png")
    pool, data = opened(root)
    found = guard(pool, data.train, data.test, STOP)
    assert (named(found, "exact", "within train").pairs, named(found, "exact", "within train").images) == (3, 3)
    assert (named(found, "near", "within test").pairs, named(found, "near", "within test").images) == (1, 2)
    assert found.leaks == found.affected == ()
    assert named(found, "exact", "within train").sentence() == (
        "3 of 32 training images have an exact copy among themselves (3 pairs)."
    )
    names = [e.first.where for e in found.examples if e.between.startswith("within") and e.kind == "exact"]
    assert len(names) == len(set(names))  # not once more for the pool


def test_a_pool_with_the_test_images(tmp_path: Path) -> None:
    pool, data = opened(folder(tmp_path / "photos"), split="train+test")
    found = audit(pool, data.train, data.test, WARN)
    assert [(f.kind, f.between, f.images) for f in found.findings] == [("same", "test-pool", 30)]
    assert found.affected == tuple(range(30))
    with pytest.raises(UserError, match=r"30 of 30 test images leak: 30 as they are.*--data.transductive true"):
        guard(pool, data.train, data.test, STOP)
    declared = guard(pool, data.train, data.test, replace(STOP, transductive=True))
    assert declared.leaks == declared.affected == ()
    assert declared.findings[0].test == tuple(range(30))
    assert declared.sentences() == ["30 of 30 test images are themselves among the images of the pool, as declared "
                                    "(transductive)."]  # fmt: skip
    told = json.loads(json.dumps(declared.to_dict()))
    assert (told["transductive"], told["cures"], told["affected_images"]) == (True, [], [])


def test_declaring_does_not_excuse_leaks_into_training(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    save(scene(3), root / "test" / "dog" / "copy.png")
    pool, data = opened(root)
    with pytest.raises(UserError, match="1 of 31 test images leak: 1 as exact copies among the training images"):
        guard(pool, data.train, data.test, replace(STOP, transductive=True))


def test_groups_on_both_sides(tmp_path: Path) -> None:
    for n in range(40):
        split = "test" if n >= 28 else "train"
        save(scene(n), tmp_path / split / ("sick", "well")[n % 2] / f"patient{n // 5}_{n}.png")
    pool, data = opened(tmp_path, group=r"patient(\d)")  # patient 5: images 25, 26, 27 | 28, 29
    found = audit(pool, data.train, data.test, WARN)
    for between in ("test-train", "test-pool"):
        finding = named(found, "group", between)
        assert (finding.pairs, finding.images, finding.leak) == (1, 2, True)
        assert all("patient5_" in data.test.where(i) for i in finding.test)
    example = next(e for e in found.examples if e.kind == "group")
    assert "patient5_" in example.first.where
    assert "patient5_" in example.second.where
    assert (example.first.set, example.second.set) == ("test", "train")
    with pytest.raises(UserError, match=r"2 by their group among the training images.*keeps groups together"):
        guard(pool, data.train, data.test, STOP)
    made = open_labelled(DataConfig(path=str(tmp_path / "train"), group=r"patient(\d)"), SAME)
    assert not audit(None, made.train, made.test, WARN).findings


def test_groups_of_a_pool_of_its_own_go_by_name(tmp_path: Path) -> None:
    for n in range(12):
        save(scene(n), tmp_path / "pool" / f"patient{n // 3 + 4}_{n}.png")  # patients 4 to 7
    for n in range(12, 32):
        split = "test" if n >= 26 else "train"
        save(scene(n), tmp_path / "judged" / split / ("sick", "well")[n % 2] / f"patient{n // 4 - 2}_{n}.png")
    pool_cfg = DataConfig(path=str(tmp_path / "pool"), group=r"patient(\d)")
    judged = LabelledDataConfig(path=str(tmp_path / "judged"), group=r"patient(\d)")
    pool, data = open_pool(pool_cfg, judged)[0], open_labelled(pool_cfg, judged)
    finding = named(audit(pool, data.train, data.test, WARN), "group", "test-pool")
    assert (finding.pairs, finding.images, finding.leak) == (2, 6, True)  # patients 4 and 5
    away = replace(judged, group=None)
    found = audit(open_pool(pool_cfg, away)[0], open_labelled(pool_cfg, away).train, data.test, WARN)
    assert not [f for f in found.findings if f.kind == "group"]


def arrays(pixels: np.ndarray, name: str) -> ImageSet:
    form = Format(pixels.shape[1], pixels.dtype.itemsize * 8)
    size = (pixels.shape[2], pixels.shape[3])
    return ImageSet(name, ArrayRows(pixels, name), np.arange(len(pixels)), form, Sizes(size, min(size)), name)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("bits", [8, 16])
def test_any_channels_and_depths(channels: int, bits: int) -> None:
    def some(first: int) -> np.ndarray:
        planes = np.stack(
            [np.concatenate([scene(1000 * c + i)[:1] for c in range(channels)]) for i in range(first, first + 25)]
        )
        return planes if bits == 8 else planes.astype(np.uint16) * 9 + 200

    train, test = some(0), some(100)
    test[3], test[7] = train[4], train[5]
    test[7, 0] = test[7, 0] // 2 * 2
    found = audit(None, arrays(train, "a"), arrays(test, "b"), WARN)
    assert [(f.kind, f.between, f.test) for f in found.findings] == [
        ("exact", "test-train", (3,)), ("near", "test-train", (7,)),
    ]  # fmt: skip
    assert found.examples[0].same_file is False  # pixels are no files


def test_sets_of_unlike_formats_and_canvases(tmp_path: Path) -> None:
    """8-bit grey among 16-bit grey is multiplied; what training decodes to changes nothing; three and five channels."""
    for n in range(50):
        pixels = scene(9 if n == 27 else n)[0]
        name = f"{'train' if n < 25 else 'test'}/{'ab'[n % 2]}/{n}.png"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels if n < 25 else pixels.astype(np.uint16) * 257).save(tmp_path / name)
    _, data = opened(tmp_path)
    narrow = replace(data.train, form=Format(1, 8))
    windows = replace(narrow, window=8, sizes=Sizes((8, 8), 8))
    for train in (data.train, narrow, replace(narrow, canvas=(16, 16)), windows):
        found = audit(None, train, data.test, WARN)
        assert [(f.kind, f.between) for f in found.findings] == [("exact", "test-train")]
        assert found.examples[0].same_file is False
    grey = np.stack([scene(i)[:1] for i in range(50)])
    grey[27] = grey[9]
    five, three = arrays(np.repeat(grey[:25], 5, axis=1), "a"), arrays(np.repeat(grey[25:], 3, axis=1), "b")
    assert [(f.kind, f.test) for f in audit(None, five, three, WARN).findings] == [("near", (2,))]


def test_blank_images_are_nobodys_copies() -> None:
    train = np.stack([scene(i)[:1] for i in range(20)])
    test = np.stack([scene(i)[:1] for i in range(100, 120)])
    train[3:6], test[4], test[5] = 0, 0, 7
    assert not audit(None, arrays(train, "a"), arrays(test, "b"), WARN).findings


def test_unreadable_images_are_left_out_and_counted(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    (root / "test" / "cat" / "100.png").write_bytes(b"")
    (root / "train" / "cat" / "0.png").write_bytes(b"")
    pool, data = opened(root)
    found = audit(pool, data.train, data.test, WARN)
    assert not found.findings
    assert sorted(Path(line.partition(" cannot")[0]).name for line in found.unreadable) == ["0.png", "100.png"]
    assert found.sentences()[-1] == "2 images could not be read and compared."


def test_folders_that_only_look_the_same(tmp_path: Path) -> None:
    """Uncompressed images of equal names and sizes: their splits have one hash, but they are not the same images."""
    for name, first in (("a", 0), ("b", 100)):
        for i in range(24):
            save(scene(first + i), tmp_path / name / ("cat", "dog")[i % 2] / f"{i}.bmp")
    pool, _ = opened(tmp_path / "a")
    other = open_labelled(DataConfig(path=str(tmp_path / "b")), SAME)
    assert pool.pieces == opened(tmp_path / "b")[0].pieces
    assert not audit(pool, other.train, other.test, WARN).findings


def test_loader_processes_find_the_same(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    save(scene(4), root / "test" / "cat" / "copy.jpg", quality=70)
    pool, data = opened(root)
    one, two = (audit(pool, data.train, data.test, replace(WARN, workers=n)) for n in (0, 2))
    assert one == two
    assert len(one.affected) == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "mode", "size"),
    [
        ((1, 8, 8), np.uint8, "L", (96, 96)),
        ((3, 200, 100), np.uint8, "RGB", (48, 96)),
        ((1, 30, 300), np.uint16, "L", (96, 10)),
        ((5, 40, 40), np.uint16, "RGB", (96, 96)),
        ((2, 40, 40), np.uint8, "L", (96, 96)),
    ],
)
def test_pictures(shape: tuple[int, ...], dtype: Any, mode: str, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(20, 200, shape).astype(dtype)
    image = Image.open(io.BytesIO(picture(pixels)))
    assert (image.mode, image.size) == (mode, size)
    assert np.ptp(np.asarray(image)) > 100
    assert Image.open(io.BytesIO(picture(np.zeros(shape, dtype)))).size == size
