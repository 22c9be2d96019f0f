"""Data sets that are Python objects: their name is their content, rows are read as files would be, labels stay away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.configs import LabelledDataConfig, PoolConfig, SourceConfig
from ssl_vit.core import notices
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.workers import loader_processes
from ssl_vit.data.sources import objects
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.objects import handed
from ssl_vit.data.sources.opening import open_labelled, open_pool

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (40, 12, 10, 3), dtype=np.uint8)
LABELS = [i % 4 for i in range(40)]


@pytest.fixture(autouse=True)
def nothing_handed() -> Iterator[None]:
    yield
    objects._handed.clear()
    notices.forget()


class Pairs(torch.utils.data.Dataset[Any]):
    """Images with what ``change`` makes of them, and labels."""

    def __init__(self, images: Any, change: Any = lambda image: image, labels: Any = LABELS) -> None:
        self.images, self.change, self.labels, self.read = images, change, labels, 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        self.read += 1
        return self.change(self.images[row]), self.labels[row]


def pool(dataset: Any, **options: Any) -> ImageSet:
    channels = options.pop("channels", None)
    return open_pool(PoolConfig(path=handed(dataset, channels), **options), LabelledDataConfig())[0]


def pixels(dataset: Any, row: int = 0, **options: Any) -> np.ndarray:
    images = pool(dataset, **options)
    return images.read(int(np.flatnonzero(images.ids == row)[0]))[0]


@pytest.mark.parametrize("change", [
    Image.fromarray,
    lambda image: image,
    lambda image: torch.from_numpy(image).permute(2, 0, 1),
    lambda image: image.astype(np.float32) / 255,
    lambda image: torch.from_numpy(image).permute(2, 0, 1).to(torch.float16) / 255,
    lambda image: torch.from_numpy(image).permute(2, 0, 1).float() / 255,
    lambda image: Image.fromarray(image).convert("RGBA"),
], ids=["pil", "array", "tensor", "float", "half", "to_tensor", "rgba"])  # fmt: skip
def test_every_kind_of_item_has_the_pixels_that_its_file_would_have(change: Any) -> None:
    images = pool([change(image) for image in COLOUR])
    assert images.form == (3, 8) and len(images) == 40
    for row in (0, 39):
        np.testing.assert_array_equal(images.read(row)[0], COLOUR[row].transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_a_picture_of_pillow_is_read_as_its_file(mode: str, tmp_path: Path) -> None:
    grey = Image.fromarray(COLOUR[0, :, :, 0])
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 200)
    image = deep if mode == "I;16" else Image.fromarray(COLOUR[0]).convert(mode)
    file = tmp_path / ("0.tif" if mode == "CMYK" else "0.png")
    (image.convert("RGB") if mode == "YCbCr" else image).save(file)  # Pillow 12 does not read its own TIFF of YCbCr
    from_file = open_pool(PoolConfig(path=str(tmp_path)), LabelledDataConfig())[0]
    from_object = pool([image])
    assert from_object.form == from_file.form
    np.testing.assert_array_equal(from_object.read(0)[0], from_file.read(0)[0])


def test_a_picture_is_turned_as_its_exif_says() -> None:
    image = Image.fromarray(COLOUR[0])
    exif = image.getexif()
    exif[0x0112] = 6
    image.info["exif"] = exif.tobytes()
    np.testing.assert_array_equal(pixels([image]), np.rot90(COLOUR[0], -1).transpose(2, 0, 1))


def test_numbers_between_256_steps_are_kept_in_16_bits() -> None:
    fine = RNG.random((20, 9, 9))
    images = pool(list(fine))
    assert images.form == (1, 16)
    assert np.abs(images.read(3)[0][0] / 65535 - fine[3]).max() <= 0.5 / 65535 + 1e-12


def test_grey_and_colour_mix_as_they_do_in_files() -> None:
    mixed = [Image.fromarray(COLOUR[0]), Image.fromarray(COLOUR[1, :, :, 0])]
    images = pool(mixed)
    assert images.form.channels == 3
    np.testing.assert_array_equal(images.read(1)[0], np.repeat(COLOUR[1, None, :, :, 0], 3, axis=0))


@pytest.mark.parametrize(("item", "message"), [
    (COLOUR[0].transpose(2, 0, 1), r"arrays are height x width x channels, and so it would have 10 channels; turn it"),
    (torch.from_numpy(COLOUR[0]), r"tensors are channels x height x width, and so it would have 12 channels"),
    ((COLOUR[0] / 127.5 - 1).astype(np.float32), r"numbers from -\S+ to 1; .* between 0 and 1 \(give them before"),
    (np.full((9, 9), np.nan), r"numbers from nan to nan"),
    (COLOUR[0].astype(np.int64), r"holds no image: image \(array 12 x 10 x 3\)\. Expected are Pillow's images"),
    (np.zeros(64), r"holds no image: image \(array 64\)"),
    ("cells/1.png", r"holds no image: image \(str\)"),
    (Image.new("F", (9, 9)), r"32-bit float pixels"),
])  # fmt: skip
def test_what_is_no_image_is_refused_in_one_line(item: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as found:
        pool([item] * 3)
    assert "\n" not in str(found.value)


def test_the_order_of_channels_can_be_said() -> None:
    many = RNG.integers(0, 256, (5, 9, 9, 20), dtype=np.uint8)
    with pytest.raises(UserError, match="'channels': 'first'"):
        pool(many)
    np.testing.assert_array_equal(pixels(many, 2, channels="last"), many[2].transpose(2, 0, 1))
    np.testing.assert_array_equal(pixels(many.transpose(0, 3, 1, 2), 2, channels="first"), many[2].transpose(2, 0, 1))


def test_labels_keep_a_test_split_out_and_do_not_reach_the_pool() -> None:
    found = pool(Pairs(COLOUR))
    assert len(found) == 32 and found.labels is None and found.classes == ()


def test_a_pool_and_its_evaluation_share_no_image() -> None:
    path = handed(Pairs(COLOUR))
    trained = open_pool(PoolConfig(path=path), LabelledDataConfig())[0]
    judged = open_labelled(PoolConfig(path=path), LabelledDataConfig())
    assert judged.test.shared_with(trained) == 0 and len(judged.test) == 8
    np.testing.assert_array_equal(judged.test.truth, np.array(LABELS)[judged.test.ids])


@pytest.mark.parametrize("label", [3, np.int64(3), torch.tensor(3), "d", [0.0, 1.0], np.array([1, 0, 1]), 0.25])
def test_labels_follow_the_rules_of_tables(label: Any) -> None:
    other = {str: "c", float: 0.75, list: [1.0, 0.0], np.ndarray: np.array([0, 1, 1])}.get(type(label), 0)
    labels = [label, other] * 20
    kind = {float: "regression", list: "multilabel", np.ndarray: "multilabel"}.get(type(label), "class")
    found = open_labelled(PoolConfig(path=handed(Pairs(COLOUR, labels=labels))), LabelledDataConfig())
    assert found.test.kind == kind


def test_names_of_classes_and_listed_labels_are_those_of_torchvision() -> None:
    pairs = Pairs([Image.fromarray(image) for image in COLOUR])
    pairs.targets, pairs.classes = LABELS, ["a", "b", "c", "d"]  # pyright: ignore[reportAttributeAccessIssue]
    path = handed(pairs)
    before = pairs.read
    found = open_source(SourceConfig(path=path), labelled=True)["all"]
    assert found.classes == ("a", "b", "c", "d") and found.labels is not None and found.labels.tolist() == LABELS
    assert pairs.read - before < 4 * 64  # only some rows, not all of them for their labels


def test_listed_labels_that_rows_contradict_are_not_believed() -> None:
    pairs = Pairs(COLOUR)
    pairs.targets = LABELS[::-1]  # pyright: ignore[reportAttributeAccessIssue]
    found = open_source(SourceConfig(path=handed(pairs)), labelled=True)["all"]
    assert found.labels is not None and found.labels.tolist() == LABELS


def test_rows_that_are_dictionaries_have_columns() -> None:
    rows = [{"photo": a, "stage": f"s{LABELS[i]}", "patient": i // 4, "mask": a[:, :, 0]} for i, a in enumerate(COLOUR)]
    with pytest.raises(UserError, match=r"several images: photo \(array 12 x 10 x 3\), .*'image_column': 'photo'"):
        pool(rows)
    with pytest.raises(UserError, match="has no part foto; did you mean photo"):
        pool(rows, image_column="foto")
    cfg = PoolConfig(path=handed(rows), image_column="photo", label_column="stage", group="patient")
    found = open_labelled(cfg, LabelledDataConfig())
    assert found.train.classes == ("s0", "s1", "s2", "s3")
    assert found.train.groups is not None and not set(found.train.groups) & set(found.test.groups)


def test_splits_are_given_by_name() -> None:
    path = handed({"training": Pairs(COLOUR[:30]), "test": Pairs(COLOUR[30:])})
    found = open_labelled(PoolConfig(path=path), LabelledDataConfig())
    assert (len(found.train), len(found.test)) == (30, 10) and "own test split" in found.split
    assert len(open_pool(PoolConfig(path=path), LabelledDataConfig())[0]) == 30


def test_a_name_is_made_of_content_and_nothing_else() -> None:
    path = handed(Pairs(COLOUR))
    assert path.startswith("python:Pairs-") and handed(Pairs(COLOUR.copy())) == path
    changed = COLOUR.copy()
    changed[0, 0, 0, 0] ^= 1
    others = [Pairs(changed), Pairs(COLOUR[:-1]), Pairs(COLOUR, labels=LABELS[::-1]), {"train": Pairs(COLOUR)}]
    assert len({handed(other) for other in others} - {path}) == len(others)
    prints = {pool(one).source for one in (Pairs(COLOUR), Pairs(COLOUR.copy()), Pairs(changed))}
    assert len(prints) == 2


def test_random_transforms_are_refused() -> None:
    def flipped(image: np.ndarray) -> np.ndarray:
        return image[:, ::-1] if torch.rand(()) < 0.5 else image

    with pytest.raises(UserError, match=r"row \d+ of Pairs is not the same .* without its random"):
        handed(Pairs(COLOUR, flipped))


def test_what_cannot_be_read_by_row_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(COLOUR)

    loader = torch.utils.data.DataLoader(Pairs(COLOUR))
    for wrong, message in (
        (Stream(), "Stream can only be read from its beginning"),
        (loader, r"DataLoader is no data set; .*; perhaps its \.dataset is meant"),
        (3, "int is no data set"),
        ([], "list has no rows"),
        ({}, "nothing names no splits"),
    ):
        with pytest.raises(UserError, match=message):
            handed(wrong)


def test_a_class_of_its_own_that_fails_is_named() -> None:
    def broken(image: np.ndarray) -> np.ndarray:
        raise KeyError("pixels")

    with pytest.raises(UserError, match=r"row 0 of Pairs cannot be read \(KeyError: 'pixels'\)"):
        handed(Pairs(COLOUR, broken))


def test_another_process_is_told_what_to_do() -> None:
    with pytest.raises(UserError, match=r"python:Cells-3fa91c02 is an object .* ssl_vit\.evaluate\(run, data="):
        open_source(SourceConfig(path="python:Cells-3fa91c02"), labelled=False)


def test_objects_are_read_by_this_process_unless_others_are_asked_for() -> None:
    images = pool({"train": Pairs(COLOUR), "val": Pairs(COLOUR[:20])}, split="train+val")
    assert loader_processes(images, None) == 0 and loader_processes(images, 2) == 2


def test_a_dataset_of_hugging_face_is_a_table() -> None:
    columns = {"image": [Image.fromarray(image) for image in COLOUR], "label": LABELS}
    names = datasets.ClassLabel(names=["a", "b", "c", "d"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    table = datasets.Dataset.from_dict(columns, features=features)
    found = open_labelled(PoolConfig(path=handed(table)), LabelledDataConfig())
    assert found.train.classes == ("a", "b", "c", "d")
    np.testing.assert_array_equal(pixels(table, 1), COLOUR[1].transpose(2, 0, 1))
    split = table.train_test_split(0.25, seed=0)
    assert len(open_labelled(PoolConfig(path=handed(split)), LabelledDataConfig()).test) == 10
    noise = table.with_transform(lambda rows: {"image": [torch.rand(3, 9, 9)] * len(rows["image"])})
    assert handed(noise) == handed(table)  # its own images, as its files have them


def test_a_dataset_of_hugging_face_may_hold_arrays() -> None:
    features = datasets.Features({"x": datasets.Array3D((12, 10, 3), "uint8"), "y": datasets.Value("int64")})
    table = datasets.Dataset.from_dict({"x": COLOUR, "y": LABELS}, features=features)
    np.testing.assert_array_equal(pixels(table, 1), COLOUR[1].transpose(2, 0, 1))
    found = open_labelled(PoolConfig(path=handed(table), label_column="y"), LabelledDataConfig())
    assert len(found.train.classes) == 4
