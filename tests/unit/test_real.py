"""Several right answers per image: the form of their file, whose they are, and what answers are worth by them."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import join, name_of
from ssl_vit.evaluation.transfer.real import Right, real_accuracy, right_answers
from ssl_vit.evaluation.transfer.real_file import read_answers

CLASSES = ("a", "b", "c")


def images(names: list[str], classes: tuple[str, ...] = CLASSES, where: str = "/somewhere/") -> ImageSet:
    class Named(ArrayRows):
        def file(self, row: int) -> str:
            return where + names[row]

    rows = Named(np.zeros((len(names), 1, 2, 2), dtype=np.uint8), "made")
    labels = np.zeros(len(names), dtype=np.int64)
    form, sizes = Format(1, 8), Sizes((2, 2), 2)
    return ImageSet("made", rows, np.arange(len(names)), form, sizes, "made", labels=labels, classes=classes)


def right(content: object, folder: Path, names: list[str], where: str = "/somewhere/") -> Right:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "real.json").write_text(text)
    return right_answers(folder / "real.json", images(names, where=where))


def refused(content: object, folder: Path, names: list[str], where: str = "/somewhere/") -> str:
    with pytest.raises(UserError) as error:
        right(content, folder, names, where)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_images_without_a_right_answer_are_skipped(tmp_path: Path) -> None:
    sets = right({"1.png": ["a", "c"], "2.png": [], "3.png": [1]}, tmp_path, ["1.png", "2.png", "3.png", "4.png"])
    assert sets == ([{0, 2}, set(), {1}, set()], 3, 0)
    assert real_accuracy(np.array([2, 0, 0, 1]), sets.of_each) == (50.0, 2, 2)
    assert real_accuracy(np.array([0, 1, 1, 1]), sets.of_each) == (100.0, 2, 2)
    with pytest.raises(UserError, match="none of the test images has a label"):
        real_accuracy(np.array([0]), [frozenset()])


def test_the_form_of_imagenets_labels(tmp_path: Path) -> None:
    content = [[0], [1, 2], []]
    names = [f"ILSVRC2012_val_{n:08d}.JPEG" for n in (2, 3, 1)]
    assert right(content, tmp_path, names) == ([{1, 2}, set(), {0}], 0, 0)
    assert right(content, tmp_path, ["x.png", "y.png", "z.png"]).of_each == [{0}, {1, 2}, set()]  # in their order
    told = "lists 3 images by their order, and there are 2 test images that are not named"
    assert told in refused(content, tmp_path, ["x.png", "y.png"])
    assert "lists 3 images by their order" in refused(content, tmp_path, [names[0], "y.png", "z.png"])
    assert "lists 3 images, and image 9 is to be judged" in refused(content, tmp_path, ["ILSVRC2012_val_00000009.JPEG"])


def test_images_of_one_name_in_several_folders(tmp_path: Path) -> None:
    """Each gets what its own path says, by the longest name that fits; one that fits several is refused."""
    names = ["test/a/1.png", "test/b/1.png", "test/c/1.png"]
    told = {"a/1.png": ["a", "b"], "b/1.png": ["b"], "1.png": ["c"]}
    assert right(told, tmp_path, names).of_each == [{0, 1}, {1}, {2}]
    assert right({"a/1.png": ["a"]}, tmp_path, names).of_each == [{0}, set(), set()]
    assert right({"/somewhere/test/b/1.png": ["a"]}, tmp_path, names).of_each == [set(), {0}, set()]
    found = refused({"1.png": ["a"]}, tmp_path, names)
    assert "1.png may be the test image /somewhere/test/a/1.png or /somewhere/test/b/1.png; write as much" in found
    assert "names one image as a/1.png and as ./a/1.png" in refused({"a/1.png": [0], "./a/1.png": [1]}, tmp_path, names)


def test_images_that_are_known_by_bare_names(tmp_path: Path) -> None:
    assert right({"test/a/1.png": ["b"], "2.png": [0]}, tmp_path, ["1.png", "2.png"], where="").of_each == [{1}, {0}]
    found = refused({"a/1.png": [0], "b/1.png": [1]}, tmp_path, ["1.png"], where="")
    assert "the test image 1.png may be a/1.png or b/1.png, and its folder is not known" in found


def test_names_that_are_no_test_images_are_counted(tmp_path: Path) -> None:
    assert right({"1.png": [0], "a/2.png": [1], "3.png": []}, tmp_path, ["1.png", "b/2.png"]) == ([{0}, set()], 3, 2)
    found = refused({"x/1.png": [0]}, tmp_path, ["y/1.png"])
    assert "has a label in " in found and found.endswith("such as x/1.png, and theirs such as /somewhere/y/1.png")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"1.png": ["d"]}, "has the class 'd', which none of the 3 classes is"),
        ({"1.png": [3]}, "has the class 3, which none"),
        ({"1.png": 1}, "the right answers of an image are a list, and 1 is none"),
        ({"1.png": [True]}, "a class is a name or a number, and True is neither"),
        ([[True]], "a class is a name or a number, and True is neither"),
        ([[0.0]], "a class is a name or a number, and 0.0 is neither"),
        ([1], "the right answers of an image are a list, and 1 is none"),
        ('{"1.png": [0], "1.png": [1]}', "has the name 1.png twice"),
        ("[" * 100_000, "cannot be read as JSON"),
        (3, "is neither a list of lists of classes nor a mapping"),
    ],
)
def test_wrong_right_answers(content: object, told: str, tmp_path: Path) -> None:
    assert told in refused(content, tmp_path, ["1.png"])
    if "which none" not in told:  # all but the classes is known without the images
        with pytest.raises(UserError):
            read_answers(tmp_path / "real.json")


def test_names_that_a_table_keeps_beside_bytes(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "1.png")
    cell = {"bytes": (tmp_path / "1.png").read_bytes(), "path": "ILSVRC2012_val_00000007_n01440764.JPEG"}
    rows = {"image": [cell] * 2, "label": [0, 1]}
    for split in ("train", "test"):
        datasets.Dataset.from_dict(rows).to_parquet(tmp_path / f"{split}.parquet")
    parts = open_source(SourceConfig(path=str(tmp_path)), labelled=True)
    assert name_of(join(list(parts.values())).rows, 3) == cell["path"]
