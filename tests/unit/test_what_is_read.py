"""Which files a source is read from, and which would be taken for it if they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from ssl_vit.configs import LabelledDataConfig
from ssl_vit.data.sources.locate import is_read


@pytest.mark.parametrize(
    ("path", "labels", "file", "expected"),
    [
        ("table.csv", None, "table.csv", True),
        ("images", "table.csv", "./table.csv", True),
        ("images", None, "table.csv", False),
        ("images", None, "images/metadata.csv", True),
        ("images", None, "images/train/metadata.csv", True),
        ("images", None, "images/mine.csv", False),  # beside image files, tables are read where --data.labels says so
        ("images", None, "images/vectors.npz", False),
        ("images", None, "images/vectors.parquet", True),  # the next reading would take it for the images
        ("images", None, "images/more/vectors.parquet", False),
        ("shards", None, "shards/train-1.parquet", True),
        ("shards", None, "shards/data/train-0.parquet", True),
        ("shards", None, "vectors.parquet", False),
        ("lists", None, "lists/test.csv", True),
        ("lists", None, "lists/other.CSV", True),
        ("not/there", None, "not/there.csv", False),
        (None, None, "a.csv", False),
    ],
)
def test_files_of_a_source(
    path: str | None, labels: str | None, file: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("images/train", "shards/data", "lists"):
        Path(folder).mkdir(parents=True)
    Image.new("L", (2, 2)).save("images/train/0.png")
    for table in ("table.csv", "shards/train-1.parquet", "shards/data/train-0.parquet", "lists/test.csv"):
        Path(table).touch()
    assert is_read(LabelledDataConfig(path=path, labels=labels), Path(file)) is expected
