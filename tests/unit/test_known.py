"""Labels of images that are looked at: of all, of some splits, of none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.known import KnownLabels, open_known


def save(path: Path, level: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), level, dtype=np.uint8)).save(path)


def test_columns_of_every_kind() -> None:
    classes = KnownLabels("class", ("a", "b"), np.array([1, -1, 0]))
    assert classes.given.tolist() == [True, False, True]
    assert classes.columns() == {"label": ["b", None, "a"]}
    several = KnownLabels("multilabel", ("x", "y"), np.array([[1.0, 1.0], [np.nan, np.nan], [0.0, 0.0]]))
    assert several.columns() == {"label": ["x;y", None, ""]}
    one = KnownLabels("regression", ("age",), np.array([[0.5], [np.nan]]))
    assert one.columns() == {"label": [0.5, None]}
    two = KnownLabels("regression", ("age", "size"), np.array([[0.5, 2.0], [np.nan, np.nan]]))
    assert two.columns() == {"label age": [0.5, None], "label size": [2.0, None]}
    assert two.subset(np.array([1])).columns() == {"label age": [None], "label size": [None]}


def test_class_folders_and_none(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        save(tmp_path / "sorted" / name)
    images, known = open_known(DataConfig(path=str(tmp_path / "sorted")))
    assert known is not None
    assert known.columns()["label"] == [Path(images.where(i)).parent.name for i in range(3)]
    assert images.labels is None
    for name in ("1.png", "2.png"):
        save(tmp_path / "flat" / name)
    assert open_known(DataConfig(path=str(tmp_path / "flat")))[1] is None


def test_all_splits_in_one_order_with_their_labels(tmp_path: Path) -> None:
    for name in ("test/b/1.png", "train/a/1.png", "train/b/2.png"):
        save(tmp_path / name)
    images, known = open_known(DataConfig(path=str(tmp_path)))
    assert known is not None
    assert [Path(images.where(i)).parts[-3] for i in range(3)] == ["train", "train", "test"]
    assert known.columns()["label"] == ["a", "b", "b"]
    only = open_known(DataConfig(path=str(tmp_path), split="test"))[1]
    assert only is not None
    assert only.columns()["label"] == ["b"]


def test_labels_of_every_split_of_a_table(tmp_path: Path) -> None:
    """Also of those that would neither be trained nor judged on; where one has none, the others keep theirs."""
    lines = ["image,label,split"]
    for i in range(12):
        save(tmp_path / f"{i}.png", i)
        lines.append(f"{i}.png,{'ab'[i % 2]},{('train', 'val', 'test')[i // 4]}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    known = open_known(DataConfig(path=str(tmp_path / "t.csv")))[1]
    assert known is not None
    assert known.columns()["label"] == ["a", "b"] * 6
    for i in range(4, 8):
        lines[i + 1] = f"{i}.png,,val"
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    known = open_known(DataConfig(path=str(tmp_path / "t.csv")))[1]
    assert known is not None
    assert known.columns()["label"] == [*["a", "b"] * 2, *[None] * 4, *["a", "b"] * 2]


def test_labels_that_cannot_be_read_are_left_out_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", i)
    table = tmp_path / "table.csv"
    table.write_text("image,label\n0.png,1\n1.png,-1\n2.png,0\n")
    images, known = open_known(DataConfig(path=str(table)))
    assert (len(images), known) == (3, None)
    err = capsys.readouterr().err
    assert err.startswith("note: no labels are read: ")
    assert err.count("\n") == 1
    with pytest.raises(UserError, match="row 1 of column label"):
        open_known(DataConfig(path=str(table), label_column="label"))
