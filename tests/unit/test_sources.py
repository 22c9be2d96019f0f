"""Folders, parquet files and digits: what is found, what is skipped, what is said where something is wrong."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.folder import SUFFIXES
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.data.sources.splits import made_split

SAME = LabelledDataConfig()


def png(value: int, size: tuple[int, int] = (4, 4)) -> bytes:
    file = io.BytesIO()
    Image.new("L", size, value).save(file, "PNG")
    return file.getvalue()


def fill(root: Path, *paths: str) -> Path:
    """Images named by their paths; the n-th one has grey level n."""
    for n, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(png(n))
    return root


def class_folders(root: Path, images: int = 10, classes: tuple[str, ...] = ("ape", "bee", "cow")) -> Path:
    return fill(root, *(f"{name}/{i:02}.png" for name in classes for i in range(images)))


def pool_of(path: Path | str, judged_on: LabelledDataConfig = SAME, **options: Any) -> ImageSet:
    return open_pool(DataConfig(path=str(path), **options), judged_on)[0]


def labelled_of(path: Path | str, **options: Any) -> Labelled:
    return open_labelled(DataConfig(path=str(path), **options), SAME)


def values(images: ImageSet) -> list[int]:
    return [int(images.read(i)[0][0, 0, 0]) for i in range(len(images))]


def names(images: ImageSet) -> list[str]:
    return [Path(images.where(i)).name for i in range(len(images))]


def named(images: ImageSet) -> list[str]:
    """Every image's class by name."""
    assert images.labels is not None
    return [images.classes[k] for k in images.labels]


def refusal(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    text = str(raised.value)
    assert "couldn't reach" not in text.lower()
    assert "\n" not in text
    return text


# Digits


def test_digits_are_scikit_learns_and_exact() -> None:
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    found = labelled_of("digits")
    assert len(found.train) + len(found.test) == 1797
    assert found.train.classes == found.test.classes == tuple("0123456789")
    assert found.train.form == Format(1, 8)
    assert found.train.sizes.common == (8, 8)
    for part in (found.train, found.test):
        assert part.labels is not None
        assert np.array_equal(part.labels, bunch.target[part.ids])
        for i in (0, len(part) - 1):
            pixels, size = part.read(i)
            assert size == (8, 8)
            assert np.array_equal(pixels[0], bunch.images[part.ids[i]] * 15)
    pool = pool_of("digits")
    assert np.array_equal(pool.ids, found.train.ids)
    assert "digits row" in pool.where(0)


# Folders


def test_a_flat_folder_is_a_pool_without_labels(tmp_path: Path) -> None:
    root = fill(tmp_path / "flat", "b.png", "a.png", "c.png")
    pool, note = open_pool(DataConfig(path=str(root)), SAME)
    assert names(pool) == ["a.png", "b.png", "c.png"]
    assert values(pool) == [1, 0, 2]
    assert pool.labels is None
    with pytest.raises(ValueError, match="flat were opened without their labels"):
        _ = pool.truth
    assert pool.classes == ()
    assert note == "every image"
    assert "--eval.data.path" in refusal(labelled_of, root)


def test_class_folders_give_labels(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "classes")
    found = labelled_of(root)
    assert found.train.classes == found.test.classes == ("ape", "bee", "cow")
    for part in (found.train, found.test):
        assert named(part) == [Path(part.where(i)).parent.name for i in range(len(part))]
    assert sorted(values(found.train) + values(found.test)) == list(range(30))
    assert len(found.test) == 6


def test_a_class_is_the_first_folder_however_deep_the_file(tmp_path: Path) -> None:
    root = fill(tmp_path / "deep", *(f"{c}/session{i}/x/{i}.png" for c in ("ape", "bee") for i in range(5)))
    found = labelled_of(root)
    assert found.train.classes == ("ape", "bee")
    assert np.bincount(np.concatenate([found.train.labels, found.test.labels])).tolist() == [5, 5]


@pytest.mark.parametrize("held", ["test", "val"])
def test_split_folders_are_used_as_they_are(tmp_path: Path, held: str) -> None:
    root = tmp_path / "splits"
    paths = [f"{split}/{c}/{i}.png" for split in ("train", held) for c in ("ape", "bee") for i in range(3)]
    fill(root, *paths)
    pool, note = open_pool(DataConfig(path=str(root)), SAME)
    assert values(pool) == list(range(6))
    assert f"6 {held}" in note
    found = labelled_of(root)
    assert values(found.train) == list(range(6))
    assert values(found.test) == list(range(6, 12))
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert held in found.split


def test_test_is_preferred_to_val(tmp_path: Path) -> None:
    root = tmp_path / "three"
    fill(root, *(f"{split}/{c}/{i}.png" for split in ("train", "val", "test") for c in "ab" for i in range(3)))
    found = labelled_of(root)
    assert values(found.test) == list(range(12, 18))
    assert values(pool_of(root)) == list(range(6))


def test_split_folders_without_classes_are_a_pool_of_train(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", "train/a.png", "train/b.png", "test/c.png")
    assert names(pool_of(root)) == ["a.png", "b.png"]
    assert "labels are needed" in refusal(labelled_of, root)


def test_a_train_folder_next_to_other_images_is_refused(tmp_path: Path) -> None:
    root = fill(tmp_path / "mixed", "train/ape/a.png", "extra/b.png")
    assert "extra/b.png" in refusal(pool_of, root)


def test_split_folders_without_train_are_refused(tmp_path: Path) -> None:
    root = fill(tmp_path / "onlytest", "test/ape/a.png", "test/bee/b.png")
    assert "train" in refusal(pool_of, root)


def test_hidden_and_junk_files_are_skipped(tmp_path: Path) -> None:
    root = fill(tmp_path / "junk", "ape/a.png", "bee/b.PNG", "ape/._a.png", ".cache/c.png", "bee/.hidden/d.png")
    for name in ("Thumbs.db", "ape/desktop.ini", ".DS_Store", "notes.txt", "labels.csv"):
        (root / name).write_text("x")
    assert names(pool_of(root)) == ["a.png", "b.PNG"]


def test_every_suffix_is_found_in_any_case(tmp_path: Path) -> None:
    root = tmp_path / "suffixes"
    fill(root, *(f"x{suffix}" for suffix in SUFFIXES), *(f"y{suffix.upper()}" for suffix in SUFFIXES))
    assert len(pool_of(root)) == 2 * len(SUFFIXES)


def test_linked_folders_are_followed(tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", "1.png", "2.png")
    root = fill(tmp_path / "links", "bee/3.png")
    (root / "ape").symlink_to(tmp_path / "elsewhere")
    assert names(pool_of(root, LabelledDataConfig(path="digits"))) == ["1.png", "2.png", "3.png"]


def test_a_wrong_path_names_its_close_neighbours(tmp_path: Path) -> None:
    fill(tmp_path / "flowers", "a.png")
    text = refusal(pool_of, tmp_path / "flower")
    assert "did you mean flowers?" in text
    assert str(tmp_path / "flower") in text


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    text = refusal(pool_of, tmp_path / "nowhere" / "flowers")
    assert str(tmp_path / "nowhere") in text


def test_a_word_that_is_no_path_is_not_looked_up_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "cifar10" in refusal(pool_of, "cifar10")


def test_the_word_digits_is_proposed_where_it_was_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "did you mean digits?" in refusal(pool_of, "digit")


@pytest.mark.parametrize("kind", ["folder", "class folders", "other files"])
def test_a_folder_without_images_is_refused(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "empty"
    (root / "ape").mkdir(parents=True)
    if kind == "other files":
        (root / "ape" / "readme.txt").write_text("x")
    text = refusal(pool_of, root)
    assert "no images" in text
    assert ("readme.txt" in text) == (kind == "other files")


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "a.png")
    assert "parquet" in refusal(pool_of, tmp_path / "a.png")


def test_labels_of_one_class_are_refused(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "one", classes=("ape",))
    assert "labels are needed" in refusal(labelled_of, root)
    assert len(pool_of(root)) == 10


def test_one_image_per_class_cannot_be_split(tmp_path: Path) -> None:
    assert "held out" in refusal(labelled_of, class_folders(tmp_path / "single", images=1))


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path / "mine", "a.png")
    assert len(pool_of("~/mine")) == 1


def test_a_deleted_file_is_unreadable_by_name(tmp_path: Path) -> None:
    from ssl_vit.data.decoding.decode import Unreadable

    root = fill(tmp_path / "gone", "a.png", "b.png")
    pool = pool_of(root)
    (root / "a.png").unlink()
    with pytest.raises(Unreadable, match="opened"):
        pool.read(0)
    assert pool.where(0) == str(root / "a.png")


# What the pool may see


def test_the_pool_never_carries_labels(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "classes")
    for judged_on in (SAME, LabelledDataConfig(path=str(root)), LabelledDataConfig(path="digits")):
        pool = pool_of(root, judged_on)
        assert pool.labels is None
        assert pool.classes == ()


def kept_out(pool: ImageSet, judged: Labelled) -> None:
    """The pool and the test images share nothing and together are the source."""
    assert len(judged.test)
    assert not set(values(pool)) & set(values(judged.test))
    assert sorted(values(pool)) == sorted(values(judged.train))


def test_the_pool_leaves_out_exactly_the_test_images(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "classes")
    kept_out(pool_of(root), labelled_of(root))


def test_the_pool_is_everything_where_another_source_is_judged_on(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "classes")
    assert len(pool_of(root, LabelledDataConfig(path="digits"))) == 30


@pytest.mark.parametrize("spelling", ["{}/", "{}/.", "{}/ape/..", "relative"])
def test_the_same_source_in_other_letters_is_the_same_source(
    tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = class_folders(tmp_path / "classes")
    monkeypatch.chdir(tmp_path)
    path = "classes" if spelling == "relative" else spelling.format(root)
    judged_on = LabelledDataConfig(path=path)
    kept_out(pool_of(root, judged_on), open_labelled(DataConfig(path=str(root)), judged_on))


def test_a_train_folder_alone_is_split_for_evaluation_and_pool_alike(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "alone" / "train").parent
    kept_out(pool_of(root), labelled_of(root))


def test_the_pool_follows_the_label_column_of_the_evaluation(tmp_path: Path) -> None:
    root = tmp_path / "two.parquet"
    columns = {"image": [{"bytes": png(i), "path": None} for i in range(40)], "label": [i % 2 for i in range(40)]}
    table(root, columns | {"kind": [i // 10 for i in range(40)]})
    for column in ("label", "kind"):
        judged_on = LabelledDataConfig(label_column=column)
        kept_out(pool_of(root, judged_on), open_labelled(DataConfig(path=str(root)), judged_on))


def test_the_pool_follows_a_label_column_that_only_the_evaluation_names(tmp_path: Path) -> None:
    root = tmp_path / "kinds.parquet"
    images = [{"bytes": png(i), "path": None} for i in range(40)]
    table(root, {"image": images, "kind": [i // 10 for i in range(40)]})
    judged_on = LabelledDataConfig(label_column="kind")
    kept_out(pool_of(root, judged_on), open_labelled(DataConfig(path=str(root)), judged_on))


# Parquet


def table(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A parquet file without Hugging Face's metadata, as pandas or Spark write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def huggingface(path: Path, first: int, labels: list[int], classes: list[str], image: str = "image") -> Path:
    """A parquet file as the Hugging Face hub has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {image: [{"bytes": png(first + i), "path": f"{i}.png"} for i in range(len(labels))], "label": labels}
    features = datasets.Features({image: datasets.Image(), "label": datasets.ClassLabel(names=classes)})
    datasets.Dataset.from_dict(columns, features=features).to_parquet(str(path))
    return path


def rows(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"bytes": png(first + i), "path": None} for i in range(n)]


def test_a_huggingface_file_has_images_labels_and_class_names(tmp_path: Path) -> None:
    path = huggingface(tmp_path / "pets.parquet", 0, [0, 1] * 10, ["dog", "cat"])
    found = labelled_of(path)
    assert found.train.classes == ("dog", "cat")  # their order, not the alphabet's
    for part in (found.train, found.test):
        assert part.labels is not None
        assert [v % 2 for v in values(part)] == part.labels.tolist()
    kept_out(pool_of(path), found)
    assert pool_of(path).labels is None
    assert "pets.parquet row" in found.train.where(0)


def test_a_folder_of_huggingface_files_keeps_its_splits(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    for shard in range(2):
        huggingface(root / f"train-0000{shard}-of-00002.parquet", 10 * shard, [0, 1, 0, 1, 1], ["dog", "cat"])
    huggingface(root / "test-00000-of-00001.parquet", 100, [1, 0, 1], ["dog", "cat"])
    pool, note = open_pool(DataConfig(path=str(root)), SAME)
    assert values(pool) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert "3 test" in note
    found = labelled_of(root)
    assert values(found.test) == [100, 101, 102]
    assert found.test.labels is not None
    assert found.test.labels.tolist() == [1, 0, 1]
    assert found.train.classes == ("dog", "cat")


def test_shards_without_split_names_are_one_source(tmp_path: Path) -> None:
    root = tmp_path / "shards"
    for shard in range(3):
        table(root / f"part-{shard}.parquet", {"image": rows(4, 10 * shard), "label": [0, 1, 0, 1]})
    found = labelled_of(root)
    assert sorted(values(found.train) + values(found.test)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


@pytest.mark.parametrize("form", ["struct", "bytes", "path"])
def test_plain_columns_hold_images(tmp_path: Path, form: str) -> None:
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    cells: dict[str, list[Any]] = {
        "struct": rows(6),
        "bytes": [png(i) for i in range(6)],
        "path": [{"bytes": None, "path": str(tmp_path / f"{i}.png")} for i in range(6)],
    }
    columns = {"picture": cells[form], "label": [0, 0, 0, 1, 1, 1]}
    if form == "path":  # a column of nothing but nulls has no type of its own
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        columns["picture"] = pyarrow.array(cells["path"], kind)
    path = table(tmp_path / "plain.parquet", columns)
    found = labelled_of(path)
    assert sorted(values(found.train) + values(found.test)) == list(range(6))


def test_integer_labels_become_classes_in_numeric_order(tmp_path: Path) -> None:
    path = table(tmp_path / "ints.parquet", {"image": rows(12), "label": [10, 9, 200] * 4})
    found = labelled_of(path)
    assert found.train.classes == ("9", "10", "200")
    assert found.train.labels is not None
    assert [("10", "9", "200")[v % 3] for v in values(found.train)] == [
        found.train.classes[k] for k in found.train.labels
    ]


def test_text_labels_become_classes_in_alphabetic_order(tmp_path: Path) -> None:
    path = table(tmp_path / "texts.parquet", {"image": rows(12), "class": ["dog", "cat", "ape"] * 4})
    found = labelled_of(path)
    assert found.train.classes == ("ape", "cat", "dog")
    assert named(found.train) == [("dog", "cat", "ape")[v % 3] for v in values(found.train)]


def test_splits_agree_on_what_a_number_means(tmp_path: Path) -> None:
    root = tmp_path / "texts"
    table(root / "train.parquet", {"image": rows(6), "label": ["dog", "cat"] * 3})
    table(root / "test.parquet", {"image": rows(3, 50), "label": ["ape", "dog", "cat"]})
    found = labelled_of(root)
    assert named(found.test) == ["ape", "dog", "cat"]
    assert found.train.classes == found.test.classes


def test_class_numbers_are_matched_by_name_between_splits(tmp_path: Path) -> None:
    root = tmp_path / "orders"
    huggingface(root / "train.parquet", 0, [0, 1] * 3, ["dog", "cat"])
    huggingface(root / "test.parquet", 50, [0, 1], ["cat", "dog"])
    try:
        found = labelled_of(root)
    except UserError:
        return  # to refuse is right too
    assert named(found.train) == ["dog", "cat"] * 3
    assert named(found.test) == ["cat", "dog"]


def test_the_named_columns_are_used(tmp_path: Path) -> None:
    path = table(
        tmp_path / "named.parquet",
        {"left": rows(8), "right": rows(8, 100), "a": [0, 1] * 4, "b": ["x"] * 4 + ["y"] * 4},
    )
    found = labelled_of(path, image_column="right", label_column="b")
    assert found.train.classes == ("x", "y")
    assert sorted(values(found.train) + values(found.test)) == list(range(100, 108))
    judged_on = LabelledDataConfig(path=str(path), image_column="left", label_column="a")
    other = open_labelled(DataConfig(path="digits"), judged_on)
    assert other.train.classes == ("0", "1")
    assert sorted(values(other.train) + values(other.test)) == list(range(8))


def test_several_image_columns_are_ambiguous(tmp_path: Path) -> None:
    path = table(tmp_path / "two.parquet", {"left": rows(4), "right": rows(4), "label": [0, 1, 0, 1]})
    text = refusal(pool_of, path)
    for word in ("left", "right", "--data.image_column"):
        assert word in text
    assert len(pool_of(path, LabelledDataConfig(path="digits"), image_column="right")) == 4
    image = table(tmp_path / "image.parquet", {"mask": rows(4, 50), "image": rows(4)})
    assert values(pool_of(image)) == [0, 1, 2, 3]


def test_no_image_column_is_said_with_the_columns(tmp_path: Path) -> None:
    path = table(tmp_path / "none.parquet", {"text": ["a", "b"], "label": [0, 1]})
    text = refusal(pool_of, path)
    assert "no column with images" in text
    assert "text, label" in text


def test_wrong_column_names_are_answered_with_close_ones(tmp_path: Path) -> None:
    path = table(tmp_path / "wrong.parquet", {"image": rows(4), "species": [0, 1, 0, 1]})
    assert "did you mean image?" in refusal(pool_of, path, image_column="imag")
    assert "did you mean species?" in refusal(labelled_of, path, label_column="specie")
    assert "holds no images" in refusal(pool_of, path, image_column="species")


def test_labels_asked_for_where_there_are_none(tmp_path: Path) -> None:
    path = table(tmp_path / "unlabelled.parquet", {"image": rows(4)})
    text = refusal(labelled_of, path)
    assert "labels are needed" in text
    assert "--eval.data.path" in text
    assert values(pool_of(path)) == [0, 1, 2, 3]


def test_labels_that_are_none_are_named_with_their_row(tmp_path: Path) -> None:
    path = table(tmp_path / "holes.parquet", {"image": rows(5), "label": [0, 1, 0, -1, 1]})
    text = refusal(labelled_of, path)
    assert "row 3" in text
    assert "column label" in text
    assert "a cell without a label is empty" in text


def test_fractions_are_numbers_to_predict_unless_classes_were_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path / "floats.parquet", {"image": rows(40), "label": [0.5 + i for i in range(40)]})
    found = labelled_of(path)
    assert (found.train.kind, found.train.classes) == ("regression", ("label",))
    assert found.train.labels is not None
    assert [v + 0.5 for v in values(found.train)] == found.train.labels[:, 0].tolist()
    assert "0.5" in refusal(labelled_of, path, target="class")


def test_missing_labels_do_not_stop_a_pool_that_is_judged_on_other_images(tmp_path: Path) -> None:
    path = table(tmp_path / "few.parquet", {"image": rows(6), "label": [0, 1, None, None, None, None]})
    assert values(pool_of(path, LabelledDataConfig(path="digits"))) == list(range(6))


def test_an_unlabelled_test_split_does_not_stop_the_pool(tmp_path: Path) -> None:
    root = tmp_path / "hub"  # the hub marks hidden test labels by -1
    huggingface(root / "train.parquet", 0, [0, 1] * 3, ["dog", "cat"])
    huggingface(root / "test.parquet", 50, [-1] * 3, ["dog", "cat"])
    assert values(pool_of(root)) == list(range(6))
    assert "row 0" in refusal(labelled_of, root)


def test_hidden_parquet_files_are_skipped(tmp_path: Path) -> None:
    root = table(tmp_path / "mac" / "part-0.parquet", {"image": rows(4)}).parent
    (root / "._part-0.parquet").write_bytes(b"\0\5\26\7 AppleDouble")
    assert values(pool_of(root)) == [0, 1, 2, 3]


def test_parquet_files_without_a_train_split_are_refused(tmp_path: Path) -> None:
    root = table(tmp_path / "only" / "test-0.parquet", {"image": rows(4), "label": [0, 1, 0, 1]}).parent
    assert "train" in refusal(pool_of, root)
    assert "train" in refusal(labelled_of, root)


def test_a_file_name_that_only_begins_like_a_split_is_none(tmp_path: Path) -> None:
    root = table(tmp_path / "words" / "valley-0.parquet", {"image": rows(4)}).parent
    table(root / "valley-1.parquet", {"image": rows(4, 10)})
    assert values(pool_of(root)) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_train_parquet_alone_is_split_for_evaluation_and_pool_alike(tmp_path: Path) -> None:
    root = table(tmp_path / "alone" / "train-0.parquet", {"image": rows(40), "label": [0, 1] * 20}).parent
    kept_out(pool_of(root), labelled_of(root))


def test_split_files_next_to_other_parquet_files_are_refused(tmp_path: Path) -> None:
    root = table(tmp_path / "mixed" / "train-0.parquet", {"image": rows(4)}).parent
    table(root / "extra.parquet", {"image": rows(4)})
    assert "extra.parquet" in refusal(pool_of, root)


def test_shards_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    root = table(tmp_path / "odd" / "part-0.parquet", {"image": rows(4), "label": [0, 1, 0, 1]}).parent
    table(root / "part-1.parquet", {"image": rows(4), "label": ["a", "b", "a", "b"]})
    assert str(root) in refusal(labelled_of, root)


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 not really")
    assert str(path) in refusal(pool_of, path)


def test_a_row_without_an_image_is_unreadable_by_name(tmp_path: Path) -> None:
    from ssl_vit.data.decoding.decode import Unreadable

    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    cells = [*rows(2), None, {"bytes": None, "path": None}, {"bytes": None, "path": "/nowhere/x.png"}]
    path = table(tmp_path / "holes.parquet", {"image": pyarrow.array(cells, kind)})
    pool = pool_of(path)
    for i in (2, 3, 4):
        with pytest.raises(Unreadable):
            pool.read(i)
        assert f"row {i}" in pool.where(i)


# Format, sizes and fingerprints


def test_the_widest_format_holds_the_set(tmp_path: Path) -> None:
    root = fill(tmp_path / "formats", "a.png", "b.png")
    assert pool_of(root).form == Format(1, 8)
    Image.new("RGB", (4, 4), (1, 2, 3)).save(root / "c.png")
    assert pool_of(root).form == Format(3, 8)
    Image.fromarray(np.full((4, 4), 40000, dtype=np.uint16)).save(root / "d.png")
    pool = pool_of(root)
    assert pool.form == Format(3, 16)
    assert [int(pool.read(i)[0][0, 0, 0]) for i in range(4)] == [0, 257, 257, 40000]


def test_sizes_decide_on_a_canvas(tmp_path: Path) -> None:
    root = fill(tmp_path / "sizes", "a.png", "b.png")
    same = pool_of(root)
    assert same.sizes.common == (4, 4)
    assert same.on_canvas(None, 32).canvas is None
    assert same.on_canvas(16, 32).canvas == (16, 16)
    for i, size in enumerate([(100, 40), (60, 80), (50, 50)]):
        (root / f"{i}.png").write_bytes(png(9, size))
    pool = pool_of(root)
    assert pool.sizes.common is None
    assert pool.sizes.short_side == 40  # of 40, 60, 50, 4 and 4
    assert pool.on_canvas(None, 32).canvas == (40, 40)
    assert pool.on_canvas(None, 16).canvas == (32, 32)  # at most twice the model's input
    assert pool.on_canvas(None, 64).canvas == (64, 64)  # at least the model's input
    assert pool.on_canvas(48, 16).canvas == (48, 48)
    pixels, size = pool.on_canvas(None, 32).read(0)
    assert pixels.shape == (1, 40, 40)
    assert size == (40, 100)


def test_one_unreadable_header_does_not_decide_the_format(tmp_path: Path) -> None:
    root = fill(tmp_path / "broken", "a.png", "b.png")
    (root / "c.png").write_bytes(b"<html>")
    pool = pool_of(root)
    assert pool.form == Format(1, 8)
    assert pool.sizes.common is None  # what the third one is is not known
    (root / "a.png").write_bytes(b"")
    (root / "b.png").write_bytes(b"x")
    text = refusal(pool_of, root)
    assert "empty file" in text
    assert "a.png" in text


def test_fingerprints_change_with_files_rows_and_labels(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "prints")
    found = labelled_of(root)
    before = {pool_of(root).fingerprint, found.train.fingerprint, found.test.fingerprint}
    assert len(before) == 3
    again = labelled_of(root)
    assert (again.train.fingerprint, again.test.fingerprint) == (found.train.fingerprint, found.test.fingerprint)
    (root / "ape" / "00.png").rename(root / "ape" / "zz.png")
    renamed = labelled_of(root)
    assert before.isdisjoint({pool_of(root).fingerprint, renamed.train.fingerprint, renamed.test.fingerprint})


def test_made_splits_are_of_the_labels_alone(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "hash")
    found = labelled_of(root)
    train, test = made_split(np.repeat(np.arange(3), 10))
    assert np.array_equal(found.train.ids, train)
    assert np.array_equal(found.test.ids, test)


def test_names_that_are_no_utf8_are_told_in_one_line(tmp_path: Path) -> None:
    """As old archives leave them; neither tables nor pages could hold them."""
    fill(tmp_path, "a.png", "caf\udce9.png", "ü.png")
    with pytest.raises(UserError, match=r"1 image\(s\) whose name is not UTF-8, e\.g\. 'caf\\udce9\.png'; give them"):
        open_pool(DataConfig(path=str(tmp_path)), SAME)
    (tmp_path / "caf\udce9.png").unlink()
    assert len(open_pool(DataConfig(path=str(tmp_path)), SAME)[0]) == 2


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its images would be missing without a word."""
    fill(tmp_path, "a/1.png", "b/2.png")
    listed = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr("os.scandir", scandir)
    with pytest.raises(UserError, match=r"b cannot be read \(Permission denied\), and images in it would be missing"):
        open_pool(DataConfig(path=str(tmp_path)), SAME)


def test_a_path_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    place = tmp_path / "data [v2] *?"
    place.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"image": [png(i) for i in range(4)]}), place / "train.parquet")
    for path in (place, place / "train.parquet"):
        assert len(open_pool(DataConfig(path=str(path)), SAME)[0]) == 4
