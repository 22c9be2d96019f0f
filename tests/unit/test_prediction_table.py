"""What stands in the table of predictions, for every kind of labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import check_out
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.targets import TargetScale
from ssl_vit.evaluation.predict import SUFFIXES, Predicted, doubtful, prediction_table, write_table
from ssl_vit.exports.classifier import Labelling
from ssl_vit.report.labelling import Answered, Doubtful, page

PIXELS = np.zeros((3, 1, 2, 2), dtype=np.uint8)
IMAGES = ImageSet("x", ArrayRows(PIXELS, "x"), np.arange(3), Format(1, 8), Sizes((2, 2), 2), "")
BROKEN = {1: "cut off, in the middle"}
CLASSES, SEVERAL = Labelling("class", ("no", "unreadable"), None), Labelling("multilabel", ("a", "b"), None)


def said(labelling: Labelling, answers: np.ndarray, reasons: dict[int, str], order=None) -> dict[str, list]:
    found = Predicted(IMAGES, labelling, answers, reasons, "3 images", "")
    return prediction_table(found, found.order() if order is None else order)


def test_classes() -> None:
    answers = np.array([[0.2, 0.8], [np.nan, np.nan], [0.6, 0.4]])
    columns = said(CLASSES, answers, BROKEN, range(3))
    assert list(columns) == ["file", "prediction", "certainty", "no", "unreadable (probability)", "unreadable"]
    assert columns["certainty"] == [0.8, None, 0.6]
    assert columns["file"] == ["x row 0", "x row 1", "x row 2"]
    assert columns["prediction"] == ["unreadable", None, "no"]
    assert columns["no"] == [0.2, None, 0.6]
    assert columns["unreadable"] == [None, BROKEN[1], None]


def test_several_labels() -> None:
    answers = np.array([[0.2, 0.8], [0.7, 0.9], [0.5, 0.4]])
    columns = said(SEVERAL, answers, {}, range(3))
    assert columns["prediction"] == ["b", "a;b", "(none)"]
    assert columns["certainty"] == [0.8, 0.7, 0.5]
    assert columns["b"] == [0.8, 0.9, 0.4]


def test_numbers() -> None:
    scale = TargetScale((0.0, 0.0), (1.0, 1.0))
    answers = np.array([[1.0, 2.0], [np.nan, np.nan], [5.0, 6.0]])
    columns = said(Labelling("regression", ("age", "size"), scale), answers, BROKEN)
    assert list(columns) == ["file", "predicted age", "predicted size", "unreadable"]
    assert columns["predicted size"] == [2.0, None, 6.0]


def test_the_least_certain_come_first_and_the_unreadable_last() -> None:
    answers = np.array([[0.1, 0.9], [np.nan, np.nan], [0.45, 0.55]])
    assert said(CLASSES, answers, BROKEN)["file"] == ["x row 2", "x row 0", "x row 1"]
    found = Predicted(IMAGES, CLASSES, answers, BROKEN, "3 images", "")
    doubts = doubtful(found, 5)
    assert [(file, shares) for file, _, shares in doubts] == [
        ("x row 2", [("unreadable", 0.55), ("no", 0.45)]), ("x row 0", [("unreadable", 0.9), ("no", 0.1)]),
    ]  # fmt: skip
    assert all(png.startswith(b"\x89PNG") for _, png, _ in doubts)
    assert len(doubtful(found, 1)) == 1
    sure = Predicted(IMAGES, SEVERAL, np.array([[0.99, 0.6], [0.1, 0.2], [0.9, 0.95]]), {}, "3 images", "")
    assert doubtful(sure, 1, names=1)[0][2] == [("b", 0.6)]  # what the doubt is about, not what is likeliest


def test_the_page_of_what_to_label_next() -> None:
    answered = Answered(
        "/data/<cells>", 4, "accuracy 81.2 % on 40 test images", [0.5, 0.7, 0.9], ["a", "a", "b"], False
    )
    doubts = [Doubtful("p1/0001 & more.png", b"\x89PNG", [("a<b>", 0.5), ("c", 0.25)])]
    text = page(answered, doubts, "<cells>")
    for words in (
        "the 1 of 4 images that",
        "accuracy 81.2",
        "p1/<wbr>0001 &amp; more.",
        "a&lt;b&gt;",
        "--share: 50.0%",
    ):
        assert words in text
    assert "<cells>" not in text
    assert "What this classifier is worth is not on record." in page(answered._replace(judged=""), [], "cells")
    assert "All 2 images are here." in page(answered._replace(whole=2), 2 * doubts, "cells")


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    answers = np.array([[0.1, 0.9], [np.nan, np.nan], [1 / 3, 2 / 3]])
    columns = said(Labelling("class", ('a "b"', "ü;,"), None), answers, BROKEN)
    for name in ("t.csv", "t.parquet"):
        (tmp_path / name).write_text("old")
        write_table(columns, tmp_path / name)
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table == columns
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for i, row in enumerate(rows):
        for name, values in columns.items():
            value = values[i]
            assert row[name] == ("" if value is None else str(value))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "t.parquet"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for out, expected in (
        ("table.xlsx", r"\.csv or \.parquet"),
        (str(tmp_path / "no" / "t.csv"), "folder that exists"),
    ):
        with pytest.raises(UserError, match=expected):
            check_out(out, SUFFIXES)
