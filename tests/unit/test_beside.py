"""A table of labels beside image files: which image a name means, which images have a label, and what stays out."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.opening import labels_here, open_labelled, open_pool
from ssl_vit.data.sources.part import Part, file_of
from ssl_vit.data.sources.told import label_lines, unnamed_table

SAME = LabelledDataConfig()
CLASSES = ("G1", "S", "M")


def picture(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("L", (4, 4), value % 256).save(file, "PNG")
    path.write_bytes(file.getvalue())


def table(path: Path, columns: tuple[str, ...], *rows: tuple[Any, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """60 images, and labels.csv beside the folder with names and classes of every third."""
    monkeypatch.chdir(tmp_path)
    for i in range(60):
        picture(tmp_path / "cells" / f"{i:03}.png", i)
    table(Path("labels.csv"), ("name", "class"), *((f"{i:03}.png", CLASSES[i % 2]) for i in range(0, 60, 3)))
    return tmp_path / "cells"


def opened(path: str = "cells", labels: str = "labels.csv", labelled: bool = True, **options: Any) -> dict[str, Part]:
    return open_source(SourceConfig(path=path, labels=labels, **options), labelled=labelled)


def known(part: Part) -> dict[str, str]:
    """Class by file name, of images that have one."""
    assert part.labels is not None
    return {
        Path(file_of(part.rows, i) or "").name: part.classes[label]
        for i, label in enumerate(part.labels.tolist()) if label >= 0
    }  # fmt: skip


def refusal(*words: str, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        opened(*words, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


EXPECTED = {f"{i:03}.png": CLASSES[i % 2] for i in range(0, 60, 3)}


# Which image a name means


@pytest.mark.parametrize(
    "called",
    [
        "{i:03}.png", "cells/{i:03}.png", "./cells/{i:03}.png", "{i:03}", "old/place/{i:03}.png", "{i:03}.TIF",
        r"C:\old\place\{i:03}.png", "{root}/cells/{i:03}.png",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["labels.csv", "cells/labels.csv", "elsewhere/labels.csv"])
def test_names_are_found_however_they_are_written(called: str, place: str, cells: Path) -> None:
    rows = ((called.format(i=i, root=cells.parent), CLASSES[i % 2]) for i in range(0, 60, 3))
    table(Path(place), ("name", "class"), *rows)
    assert known(opened(labels=place)["all"]) == EXPECTED


def test_folders_inside_and_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for plate in ("p1", "p2"):
        for i in range(4):
            picture(Path("cells", plate, f"{plate}{i}.png"))
    picture(Path("cells/p1/same.png"))
    picture(Path("cells/p2/same.png"))
    table(Path("labels.csv"), ("name", "class"), ("p10.png", "a"), ("p21.png", "b"), ("same.png", "a"), ("x.png", "b"))
    assert known(opened()["all"]) == {"p10.png": "a", "p21.png": "b"}  # of two images of one name none is meant
    err = capsys.readouterr().err
    assert "column name of labels.csv names 4 images: 2 found by the file's name alone; 2 are no images there: " in err
    assert "same.png, x.png" in err
    found = known(opened(root="cells/p2")["all"])
    assert found == {"p10.png": "a", "p21.png": "b", "same.png": "a"}
    assert "2 found in cells/p2, 1 found by the file's name alone" in capsys.readouterr().err


@given(chosen=st.lists(st.integers(0, 59), unique=True, min_size=1), random=st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_in_any_order_label_exactly_the_images_they_name(chosen: list[int], random: Any, cells: Path) -> None:
    random.shuffle(chosen)
    table(Path("some.csv"), ("class", "id", "name"), *(("ab"[i % 2], i, f"{i:03}.png") for i in chosen))
    part = opened(labels="some.csv", label_column="class")["all"]
    assert known(part) == {f"{i:03}.png": "ab"[i % 2] for i in chosen}
    assert part.fingerprint == open_source(SourceConfig(path="cells"), labelled=False)["all"].fingerprint


def test_the_column_that_names_images_is_the_one_whose_names_differ(cells: Path) -> None:
    for i in (1, 2):
        picture(cells / f"{i}.png")
    table(Path("t.csv"), ("class", "file"), *(((1, 2)[i % 2], f"{i:03}.png") for i in range(20)))
    assert len(known(opened(labels="t.csv")["all"])) == 20


# What is refused, and how


def test_what_a_table_cannot_be(cells: Path) -> None:
    assert "there is no file or folder labels.cvs; did you mean labels.csv?" in refusal(labels="labels.cvs")
    assert "cells is no table" in refusal(labels="cells")
    table(Path("other.csv"), ("name", "class"), ("a.png", "x"), ("b.png", "y"))
    text = refusal(labels="other.csv")
    for words in (
        "names no image of cells",
        "name (a.png, b.png)",
        "000.png",
        "--data.root",
        "--eval.data.path other.csv",
    ):
        assert words in text
    table(Path("twice.csv"), ("name", "class"), ("000.png", "a"), ("001.png", "b"), ("000.png", "b"))
    assert "rows 0 and 2 of twice.csv both name " in refusal(labels="twice.csv")
    table(Path("same.csv"), ("name", "class"), ("000.png", "a"), ("001.png", "b"), ("000.png", "a"))
    assert len(known(opened(labels="same.csv")["all"])) == 2
    assert "digits keeps images otherwise" in refusal("digits")
    table(Path("empty.csv"), ("name", "class"), ("000.png", ""), ("a.png", "x"), ("b.png", "y"))
    assert "of the images that empty.csv names none has a label (column class" in refusal(labels="empty.csv")
    Path("bare.csv").write_text("000.png,a\n001.png,b\n")
    assert "begins with 000.png, not with names of columns" in refusal(labels="bare.csv")
    table(Path("many.csv"), ("name", "kind", "plate"), *((f"{i:03}.png", "ab"[i % 2], f"p{i % 3}") for i in range(12)))
    assert "--data.label_column kind" in refusal(labels="many.csv")
    Path("semicolons.csv").write_text("name;class\n000.png;a\n001.png;b\n")
    assert known(opened(labels="semicolons.csv")["all"]) == {"000.png": "a", "001.png": "b"}


# What has a label, and what is kept out of the pool


@pytest.mark.parametrize("way", ["beside", "every row", "inside the folder", "metadata.csv"])
def test_a_pool_takes_all_images_and_labels_are_taken_where_they_are(way: str, cells: Path) -> None:
    data = DataConfig(path="cells", labels="labels.csv")
    if way == "every row":
        rows = ((f"cells/{i:03}.png", EXPECTED.get(f"{i:03}.png", "")) for i in range(60))
        data = DataConfig(path=str(table(Path("all.csv"), ("name", "class"), *rows)))
    elif way != "beside":
        name = "metadata.csv" if way == "metadata.csv" else "labels.csv"
        columns = ("file_name", "class")
        data = DataConfig(path="cells", labels=str(table(cells / name, columns, *EXPECTED.items())))
    found = open_labelled(data, SAME)
    assert len(found.train) + len(found.test) == 20
    assert found.labels.endswith(": 20 of 60 images have a label")
    for images in (found.train, found.test):
        for i in range(len(images)):
            name = f"{images.read(i)[0][0, 0, 0]:03}.png"
            assert images.classes[int(images.truth[i])] == EXPECTED[name]
    pool, note = open_pool(data, SAME)
    assert len(pool) == 60 - len(found.test)
    assert note == f"{len(found.test)} images stay out as a test split"
    assert pool.shared_with(found.test) == 0
    assert found.test.shared_with(open_pool(data, LabelledDataConfig(path="digits"))[0]) == len(found.test)


def test_both_ways_of_naming_some_labels_choose_the_same_test_images(cells: Path) -> None:
    rows = ((f"cells/{i:03}.png", EXPECTED.get(f"{i:03}.png", "")) for i in range(60))
    table(Path("all.csv"), ("name", "class"), *rows)
    few, all_rows = (
        open_labelled(data, SAME).test
        for data in (DataConfig(path="cells", labels="labels.csv"), DataConfig(path="all.csv"))
    )  # fmt: skip
    assert [int(few.read(i)[0][0, 0, 0]) for i in range(len(few))] == [
        int(all_rows.read(i)[0][0, 0, 0]) for i in range(len(all_rows))
    ]


def test_a_column_split_takes_the_images_apart(cells: Path) -> None:
    rows = ((name, label, "test" if i % 4 == 0 else "train") for i, (name, label) in enumerate(EXPECTED.items()))
    table(Path("labels.csv"), ("name", "class", "split"), *rows)
    data = DataConfig(path="cells", labels="labels.csv")
    found = open_labelled(data, SAME)
    assert (len(found.train), len(found.test), found.split) == (15, 5, "its own test split")
    pool, note = open_pool(data, SAME)
    assert (len(pool), note) == (55, "train split (5 test images stay out)")


def test_groups_of_the_table_are_kept_whole(cells: Path) -> None:
    rows = ((name, label, f"p{i // 3}") for i, (name, label) in enumerate(EXPECTED.items()))
    table(Path("labels.csv"), ("name", "class", "patient"), *rows)
    found = open_labelled(DataConfig(path="cells", labels="labels.csv", group="patient"), SAME)
    assert found.train.groups is not None
    assert found.test.groups is not None
    assert not np.intersect1d(found.train.groups, found.test.groups).size
    assert len(open_pool(DataConfig(path="cells", labels="labels.csv", group=r"(\d)\.png"), SAME)[0]) < 60


def test_a_group_that_is_no_column_of_the_table_is_told_with_its_columns(cells: Path) -> None:
    table(Path("labels.csv"), ("name", "class", "patient_id"), *((name, c, "p") for name, c in EXPECTED.items()))
    found = "--data.group patient finds no group in .*; it must match every file's path"
    columns = "labels.csv has no column patient; did you mean patient_id?; columns: name, class, patient_id"
    with pytest.raises(UserError, match=f"^{found}. If it means a column: {re.escape(columns)}$"):
        opened(group="patient")


def test_a_labelled_table_of_its_own_finds_names_in_the_pool(cells: Path, capsys: Any) -> None:
    found = open_labelled(DataConfig(path="cells"), LabelledDataConfig(path="labels.csv"))
    assert len(found.train) + len(found.test) == 20
    assert "column name of labels.csv names 20 files: 0 found in ., 20 found in cells" in capsys.readouterr().err
    with pytest.raises(
        UserError, match=r"20 files, and none is there: 000\.png, .*cells holds them: add --data\.root cells"
    ):
        open_labelled(DataConfig(), LabelledDataConfig(path="labels.csv"))
    table(Path("lost.csv"), ("name", "class"), ("lost.png", "G1"), ("gone.png", "S"))
    with pytest.raises(UserError, match=r"names 2 files, and none is there: lost\.png, .*--data\.root FOLDER"):
        open_labelled(DataConfig(), LabelledDataConfig(path="lost.csv"))
    found = open_labelled(DataConfig(), LabelledDataConfig(path="labels.csv", root="cells"))
    assert len(found.train) + len(found.test) == 20


def test_a_metadata_file_that_names_some_images_says_what_is_not_read(cells: Path, capsys: Any) -> None:
    table(cells / "metadata.csv", ("file_name", "class"), *EXPECTED.items())
    assert len(open_source(SourceConfig(path="cells"), labelled=True)["all"].rows) == 20
    note = "metadata.csv names 20 of 60 images in cells, and the others are not read; --data.labels cells/metadata.csv"
    assert note in capsys.readouterr().err
    assert len(opened(labels="cells/metadata.csv")["all"].rows) == 60
    assert "not read" not in capsys.readouterr().err


def test_a_table_that_nobody_named_is_offered(cells: Path) -> None:
    def offered() -> str:
        return unnamed_table(open_pool(DataConfig(path="cells"), SAME)[0])

    assert offered().endswith("labels.csv names images of cells; --data.labels labels.csv takes labels from it")
    Path("labels.csv").unlink()
    table(Path("notes.csv"), ("what", "when"), ("000.png", "today"), ("nothing", "else"))
    assert offered() == ""
    # What this project itself writes of images are guesses and vectors.
    table(Path("a.csv"), ("file", "prediction", "certainty", "x"), *((f"{name}", "x", ".5", ".5") for name in EXPECTED))
    table(Path("b.csv"), ("path", "label", "v0", "v1"), *((f"cells/{name}", "", "1", "2") for name in EXPECTED))
    assert offered() == ""
    table(
        Path("numbers.csv"), ("method", "labels", "top1"), *(("knn", str(int(name[:3])), name[:3]) for name in EXPECTED)
    )
    assert offered() == ""
    table(cells / "table.tsv", ("name",), ("cells/004.png",), ("cells/005.png",))
    assert "--data.labels cells/table.tsv" in offered()
    table(Path("more.csv"), ("name",), ("004.png",), ("005.png",))
    assert offered().startswith("note: more.csv, cells/table.tsv name images of cells; --data.labels more.csv ")


def test_a_table_of_labels_that_seems_to_have_none_is_refused(cells: Path) -> None:
    table(Path("few.csv"), ("name", "finding"), ("000.png", "a"), ("001.png", "b"), ("002.png", "c"))
    with pytest.raises(
        UserError, match=r"no column of few\.csv looks like labels, .*: finding \(a, b, c\)\. Name one: --"
    ):
        opened(labels="few.csv")
    assert opened(labels="few.csv", label_column="finding")["all"].labels is not None


def test_the_first_lines_of_a_run(cells: Path) -> None:
    judged = labels_here(DataConfig(path="cells", labels="labels.csv"), SAME)
    assert judged is not None
    assert dict(label_lines(judged)) == {
        "labels": "column class of labels.csv: 20 of 60 images have a label",
        "classes": "2: G1 10, S 10",
        "test split": "4 images, 20% of every class, chosen by a fixed hash; 16 to learn from",
        "metric": "accuracy",
    }
    assert labels_here(DataConfig(path="cells"), SAME) is None


def test_a_rows_number_is_no_name_where_another_column_has_names(cells: Path) -> None:
    """As pandas writes an index: 0, 1, 2 would be 000.png, 001.png, 002.png by the name alone."""
    rows = [(k, f"{i:03}.png", CLASSES[i % 2]) for k, i in enumerate(range(59, -1, -3))]
    wanted = {name: label for _, name, label in rows}
    table(Path("index.csv"), ("", "file", "class"), *rows)
    assert known(opened(labels="index.csv")["all"]) == wanted
    Path("elsewhere").mkdir()
    table(Path("elsewhere/index.csv"), ("id", "file", "class"), *((k, f"old/{name}", c) for k, name, c in rows))
    assert known(opened(labels="elsewhere/index.csv")["all"]) == wanted


def test_two_columns_that_may_be_names_are_told(cells: Path) -> None:
    table(Path("two.csv"), ("id", "number", "class"), *((i, 59 - i, CLASSES[i % 2]) for i in range(60)))
    assert "in two.csv both id and number may name images, and they name different ones; say which with" in refusal(
        labels="two.csv"
    )
    assert len(known(opened(labels="two.csv", image_column="id")["all"])) == 60


def test_a_table_of_something_else_in_the_folder_is_passed_over(cells: Path, capsys: Any) -> None:
    """ISIC's archive has images beside a metadata.csv of names without endings."""
    table(cells / "metadata.csv", ("isic_id", "dx"), *((Path(name).stem, label) for name, label in EXPECTED.items()))
    assert len(open_source(SourceConfig(path="cells"), labelled=False)["all"].rows) == 60
    assert "--data.labels cells/metadata.csv takes labels from it" in capsys.readouterr().err
    assert known(opened(labels="cells/metadata.csv")["all"]) == EXPECTED


def test_what_is_no_table_beside_the_images_is_not_opened(cells: Path) -> None:
    pool = open_pool(DataConfig(path="cells"), SAME)[0]
    Path("labels.csv").unlink()
    Path("old.csv").symlink_to("gone.csv")
    Path("spark.csv").mkdir()
    os.mkfifo("pipe.csv")
    assert unnamed_table(pool) == ""


def test_accents_of_another_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac may write an accent as a sign of its own in file names, and a table as one with its letter."""
    monkeypatch.chdir(tmp_path)
    names = ["cafe\u0301.png", "caf\u00e8.png"]
    for name in names:
        picture(tmp_path / "cells" / name)
    table(Path("t.csv"), ("file", "class"), ("caf\u00e9.png", "a"), ("cells/cafe\u0300.png", "b"))
    assert known(opened(labels="t.csv")["all"]) == dict(zip(names, "ab", strict=True))


def test_names_of_other_folders_are_not_taken_for_those_that_are_there(tmp_path: Path) -> None:
    """A table of all patients, of whom one is here: 0.png of another is no image of this one."""
    for i in range(4):
        picture(tmp_path / "scans" / "p1" / f"{i}.png", i)
    some = [("p1/0.png", "a"), ("p1/1.png", "a"), ("p2/2.png", "b"), ("p2/3.png", "b"), ("p2/0.png", "b")]
    labels = table(tmp_path / "scans.csv", ("file", "label"), *some)
    found = opened(str(tmp_path / "scans"), str(labels))["all"]
    assert known(found) == {"0.png": "a", "1.png": "a"}


def test_two_names_for_one_file_name_mean_neither(tmp_path: Path) -> None:
    for i in range(3):
        picture(tmp_path / "flat" / f"{i}.png", i)
    rows = [("old/p1/0.png", "a"), ("old/p2/0.png", "b"), ("old/p1/1.png", "a"), ("old/p2/2.png", "b")]
    labels = table(tmp_path / "flat.csv", ("file", "label"), *rows)
    assert known(opened(str(tmp_path / "flat"), str(labels))["all"]) == {"1.png": "a", "2.png": "b"}
