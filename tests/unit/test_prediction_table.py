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
from ssl_vit.evaluation.predict import SUFFIXES, prediction_table, write_table
from ssl_vit.exports.classifier import Labelling

PIXELS = np.zeros((3, 1, 2, 2), dtype=np.uint8)
IMAGES = ImageSet("x", ArrayRows(PIXELS, "x"), np.arange(3), Format(1, 8), Sizes((2, 2), 2), "")
BROKEN = {1: "cut off, in the middle"}


def test_classes() -> None:
    answers = np.array([[0.2, 0.8], [np.nan, np.nan], [0.6, 0.4]])
    columns = prediction_table(IMAGES, Labelling("class", ("no", "unreadable"), None), answers, BROKEN)
    assert list(columns) == ["file", "prediction", "no", "unreadable (probability)", "unreadable"]
    assert columns["file"] == ["x row 0", "x row 1", "x row 2"]
    assert columns["prediction"] == ["unreadable", None, "no"]
    assert columns["no"] == [0.2, None, 0.6]
    assert columns["unreadable"] == [None, BROKEN[1], None]


def test_several_labels() -> None:
    answers = np.array([[0.2, 0.8], [0.7, 0.9], [0.5, 0.4]])
    columns = prediction_table(IMAGES, Labelling("multilabel", ("a", "b"), None), answers, {})
    assert columns["prediction"] == ["b", "a;b", "(none)"]
    assert columns["b"] == [0.8, 0.9, 0.4]


def test_numbers() -> None:
    scale = TargetScale((0.0, 0.0), (1.0, 1.0))
    answers = np.array([[1.0, 2.0], [np.nan, np.nan], [5.0, 6.0]])
    columns = prediction_table(IMAGES, Labelling("regression", ("age", "size"), scale), answers, BROKEN)
    assert list(columns) == ["file", "predicted age", "predicted size", "unreadable"]
    assert columns["predicted size"] == [2.0, None, 6.0]


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    answers = np.array([[0.1, 0.9], [np.nan, np.nan], [1 / 3, 2 / 3]])
    columns = prediction_table(IMAGES, Labelling("class", ('a "b"', "ü;,"), None), answers, BROKEN)
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
