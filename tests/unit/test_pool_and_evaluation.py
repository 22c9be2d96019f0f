"""One source opened twice: pre-training and evaluation must see the same splits, and count what they share."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tifffile
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import forget
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.opening import open_images, open_labelled, open_pool
from ssl_vit.exports.origin import as_decoded, own_data, recorded_data
from ssl_vit.leaks.guard import seen_in_pre_training

IMAGES = 40
SAME = LabelledDataConfig()


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def values(images: ImageSet) -> list[int]:
    return [int(images.read(i)[0][0, 0, 0]) for i in range(len(images))]


def parquet(path: Path, splits: list[str], first: int = 0, **more: Any) -> Path:
    """Grey level i in row i, in row groups of seven, in the split that these words give in turn."""
    columns: dict[str, list[Any]] = {
        "image": [png(first + i) for i in range(IMAGES)],
        "label": [i // 4 % 2 for i in range(IMAGES)],
    }
    if splits:
        words = [splits[i % len(splits)] for i in range(IMAGES)]
        labels = [None if w == "unlabeled" else k for w, k in zip(words, columns["label"], strict=True)]
        columns |= {"split": words, "label": labels}
    pyarrow.parquet.write_table(pyarrow.table(columns | more), path, row_group_size=7)
    return path


def csv(root: Path, splits: list[str]) -> Path:
    for i in range(IMAGES):
        (root / f"{i}.png").write_bytes(png(i))
    words = [splits[i % len(splits)] for i in range(IMAGES)]
    lines = [f"{i}.png,{'' if w == 'unlabeled' else 'ab'[i // 4 % 2]},{w}" for i, w in enumerate(words)]
    (root / "all.csv").write_text("\n".join(["image,label,split", *lines]))
    return root / "all.csv"


# A column of splits


@pytest.mark.parametrize("tests", [["test"], []])
@pytest.mark.parametrize("kind", ["csv", "parquet", "stream", "streamed pool", "streamed evaluation"])
def test_an_unlabelled_split_of_a_table_joins_the_pool(kind: str, tests: list[str], tmp_path: Path) -> None:
    splits = ["train", "unlabeled", "train", *tests]
    path = csv(tmp_path, splits) if kind == "csv" else parquet(tmp_path / "all.parquet", splits)
    data = DataConfig(path=str(path), split="train+unlabeled", stream=kind in ("stream", "streamed pool"))
    judged_on = LabelledDataConfig(stream={"streamed pool": False, "streamed evaluation": True}.get(kind))
    pool, note = open_pool(data, judged_on)
    found = open_labelled(data, judged_on)
    held = set(values(found.test))
    assert sorted(values(pool)) == sorted(set(range(IMAGES)) - held)
    assert not held & set(values(found.train))
    unlabelled = {i for i in range(IMAGES) if splits[i % len(splits)] == "unlabeled"}
    assert unlabelled <= set(values(pool))
    assert ("10 test images stay out" in note) == bool(tests)
    assert found.test.shared_with(pool) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_options_do_not_decide_whether_a_table_has_splits(stream: bool, tmp_path: Path) -> None:
    path = str(parquet(tmp_path / "wood.parquet", ["wood", "stone"]))
    for data, judged_on in (
        (DataConfig(path=path, split="wood", stream=stream), SAME),
        (DataConfig(path=path, stream=stream), LabelledDataConfig(split="wood")),
    ):
        option = "--data.split" if data.split else "--eval.data.split"
        with pytest.raises(UserError, match=f"^{option} wood: .* has no splits"):
            open_pool(data, judged_on)
    assert len(open_pool(DataConfig(path=path, stream=stream), SAME)[0]) == IMAGES * 8 // 10


def test_options_by_which_one_source_reads_differently_are_refused(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(IMAGES):
            ending = "left.png" if i % 2 else "right.png"
            for name, content in ((f"{i:02}.{ending}", png(i)), (f"{i:02}.cls", b"%d" % (i // 4 % 2))):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    data = DataConfig(path=str(tmp_path / "a.tar"))
    with pytest.raises(UserError, match=r"read .*a.tar differently \(split all: 40 images, and 20\)"):
        open_pool(data, LabelledDataConfig(image_column="left.png"))
    assert len(open_pool(replace(data, image_column="left.png"), SAME)[0]) == 16


# Options of one source named twice


def test_options_carry_over_where_the_same_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patients = [f"p{i // 5}" for i in range(IMAGES)]
    path = parquet(tmp_path / "all.parquet", [], kind=[i // 3 % 2 for i in range(IMAGES)], patient=patients)
    monkeypatch.chdir(tmp_path)
    data = DataConfig(path=str(path), group="patient")
    judged_on = LabelledDataConfig(label_column="kind")
    pool, _ = open_pool(data, judged_on)
    about: dict[str, Any] = recorded_data(DataConfig(path="all.parquet", group="patient"), judged_on)
    about |= {"pool_fingerprint": pool.fingerprint}
    for named in (None, str(path), "all.parquet", f"{tmp_path}/./all.parquet"):
        found = open_labelled(*own_data(about, LabelledDataConfig(path=named)))
        assert not set(values(found.test)) & set(values(pool))
        assert len(found.test) + len(pool) == IMAGES
        assert seen_in_pre_training(about, found.test) == 0
    own, told = own_data(about, LabelledDataConfig(path=str(path), label_column="label"))
    assert (own.group, told.label_column) == ("patient", "label")
    other = parquet(tmp_path / "other.parquet", [])
    assert own_data(about, LabelledDataConfig(path=str(other)))[1] == LabelledDataConfig(path=str(other))


# What two sets share


def test_a_pool_of_train_and_test_has_seen_every_test_image(tmp_path: Path) -> None:
    for stream in (False, True):
        path = str(parquet(tmp_path / "all.parquet", ["train", "test", "val"]))
        found = open_labelled(DataConfig(path=path, stream=stream), SAME)
        assert found.test.shared_with(found.train) == 0
        for mixed in (stream, not stream):
            seen, _ = open_pool(DataConfig(path=path, split="train+test", stream=mixed), SAME)
            assert found.test.shared_with(seen) == len(found.test)
            unseen, _ = open_pool(DataConfig(path=path, split="train+val", stream=mixed), SAME)
            assert found.test.shared_with(unseen) == 0
    made = open_labelled(DataConfig(path=str(parquet(tmp_path / "made.parquet", []))), SAME)
    assert made.test.shared_with(made.train) == 0
    assert made.test.shared_with(made.test) == len(made.test)
    assert made.test.shared_with(made.test.subset(np.array([1, 4]))) == 2


def test_what_cannot_be_known_is_not_none_shared(tmp_path: Path) -> None:
    path = parquet(tmp_path / "all.parquet", [])
    before, _ = open_pool(DataConfig(path=str(path)), LabelledDataConfig(path="digits"))
    parquet(path, [], first=100)  # other images under the same name
    found = open_labelled(DataConfig(path=str(path)), SAME)
    assert found.test.name == before.name
    assert found.test.shared_with(before) is None
    bare = ImageSet(
        "a", ArrayRows(np.zeros((2, 1, 4, 4), np.uint8), "a"), np.arange(2), Format(1, 8), Sizes(None, 4), ""
    )
    assert bare.shared_with(bare) is None


def test_streamed_tables_of_file_names_are_counted_or_unknown(tmp_path: Path) -> None:
    for i in range(IMAGES):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    columns = {"image": [f"{i}.png" for i in range(IMAGES)], "label": [i % 2 for i in range(IMAGES)]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "names.parquet")
    data = DataConfig(path=str(tmp_path / "names.parquet"))
    test = open_labelled(data, SAME).test
    assert test.shared_with(open_pool(data, LabelledDataConfig(path="digits"))[0]) == len(test)
    streamed, _ = open_pool(replace(data, stream=True), LabelledDataConfig(path="digits"))
    assert test.shared_with(streamed) in (None, len(test))


# Every image


def test_every_image_comes_in_the_usual_order_of_splits(tmp_path: Path) -> None:
    for n, split in enumerate(("dev", "test", "train")):
        (tmp_path / "a" / split).mkdir(parents=True)
        (tmp_path / "a" / split / "0.png").write_bytes(png(n))
    assert values(open_images(DataConfig(path=str(tmp_path / "a")))) == [2, 0, 1]
    assert values(open_images(DataConfig(path=str(tmp_path / "a"), split="test+train"))) == [1, 2]
    path = parquet(tmp_path / "b.parquet", ["unlabeled", "test", "val", "train"])
    found = values(open_images(DataConfig(path=str(path), stream=True)))
    assert [v % 4 for v in found[::10]] == [3, 2, 1, 0]


def test_a_window_that_is_asked_for_takes_the_place_of_a_canvas_on_record() -> None:
    about = {"data": {"canvas": 256, "window": None}}
    assert as_decoded(about, DataConfig()) == (256, None)
    assert as_decoded(about, DataConfig(window=224)) == (None, 224)
    assert as_decoded({}, DataConfig(canvas=64)) == (64, None)


def listed(folder: Path, test: range, name: str = "t.csv") -> Path:
    """A table that names 30 images and says which are to test on."""
    lines = ["file,label,split"]
    for i in range(30):
        path = folder / f"{i}.png"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (12, 12), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
        lines.append(f"{i}.png,{'ab'[i % 2]},{'test' if i in test else 'train'}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def test_splits_that_were_drawn_anew_are_other_images(tmp_path: Path) -> None:
    """Of one table, with files and a column that did not change in size: what was seen is told all the same."""
    data = DataConfig(path=str(listed(tmp_path / "x", range(20, 30))))
    pool = open_pool(data, SAME)[0]
    about = recorded_data(data, SAME) | {"pool_fingerprint": pool.fingerprint}
    test = open_labelled(data, SAME).test
    assert seen_in_pre_training(about, test) == 0
    listed(tmp_path / "x", range(10))
    assert open_pool(data, SAME)[0].fingerprint != pool.fingerprint
    assert seen_in_pre_training(about, open_labelled(data, SAME).test) is None


def test_a_table_over_folders_of_splits_keeps_them(tmp_path: Path) -> None:
    """As the hub has it: one metadata.csv above train/ and test/."""
    lines = ["file_name,label"]
    for split in ("train", "test"):
        for i in range(8):
            path = tmp_path / "m" / split / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i + 10 * len(split)).integers(0, 256, (12, 12), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
            lines.append(f"{split}/{i}.png,{'ab'[i % 2]}")
    (tmp_path / "m" / "metadata.csv").write_text("\n".join(lines) + "\n")
    data = DataConfig(path=str(tmp_path / "m"))
    pool, found = open_pool(data, SAME)[0], open_labelled(data, SAME)
    assert found.split == "its own test split"
    for images, split in ((pool, "train"), (found.train, "train"), (found.test, "test")):
        assert len(images) == 8
        assert all(f"{split}/" in images.where(i) for i in range(8))


def test_images_beside_shards_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget()
    parquet(tmp_path / "all.PARQUET", ["train"])
    Image.new("L", (8, 8)).save(tmp_path / "stray.png")
    assert len(open_pool(DataConfig(path=str(tmp_path)), SAME)[0]) > 1
    assert "images are read from all.PARQUET in" in (said := capsys.readouterr().err)
    assert "the 1 image file(s) there are not" in said


def test_shards_are_read_and_tables_beside_them_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget()
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for i in range(3):
            Image.new("L", (8, 8), 20 * i).save(tmp_path / "one.png")
            tar.add(tmp_path / "one.png", f"{i}.png")
    (tmp_path / "one.png").unlink()
    table = pyarrow.table({"key": ["0", "1", "2"], "url": ["http://example.org/0.png"] * 3})
    pyarrow.parquet.write_table(table, tmp_path / "0.parquet")  # what became of each image, as loaders of URLs write it
    assert len(open_pool(DataConfig(path=str(tmp_path)), SAME)[0]) == 3
    assert capsys.readouterr().err == (
        f"note: images are read from 0.tar in {tmp_path}, and the 1 .parquet file(s) there are not; move one or the "
        "other away\n"
    )


def test_groups_that_lost_their_zeros_are_refused(tmp_path: Path) -> None:
    for split, patients in (("train", ["017", "018"]), ("test", ["017", "x19"])):
        lines = ["file,label,patient"]
        for i in range(4):
            Image.new("L", (8, 8), 10 * i).save(tmp_path / f"{split}{i}.png")
            lines.append(f"{split}{i}.png,{'ab'[i % 2]},{patients[i // 2]}")
        (tmp_path / "lists").mkdir(exist_ok=True)
        (tmp_path / "lists" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    data = DataConfig(path=str(tmp_path / "lists"), root=str(tmp_path), group="patient")
    with pytest.raises(UserError, match="numbers in one file and text in another, where 017 and 17 may be one group"):
        open_labelled(data, SAME)


def saved(folder: Path, channels: int, count: int = 4) -> None:
    for i in range(count):
        path = folder / "ab"[i % 2] / f"{i}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (channels, 8, 8), dtype=np.uint8)
        tifffile.imwrite(path, pixels[0] if channels == 1 else pixels, photometric="minisblack")


@pytest.mark.parametrize(("train", "test"), [(2, 1), (1, 4), (4, 3)])
def test_splits_of_channels_that_do_not_mix_are_refused_before_training(tmp_path: Path, train: int, test: int) -> None:
    saved(tmp_path / "train", train)
    saved(tmp_path / "test", test)
    with pytest.raises(UserError, match=f"different numbers of channels: {train} .* and {test} .*only grey"):
        open_labelled(DataConfig(path=str(tmp_path)), SAME)


def test_grey_and_coloured_splits_mix(tmp_path: Path) -> None:
    saved(tmp_path / "train", 1)
    saved(tmp_path / "test", 3)
    found = open_labelled(DataConfig(path=str(tmp_path)), SAME)
    assert found.train.form == found.test.form == Format(3, 8)


def test_a_canvas_below_the_input_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, 1)
    images = open_images(DataConfig(path=str(tmp_path)))
    forget()
    assert images.on_canvas(16, 32).canvas == (16, 16)
    assert "--data.canvas 16 is smaller than the input of 32 pixels" in capsys.readouterr().err
    forget()
    images.on_canvas(32, 32)
    assert not capsys.readouterr().err
