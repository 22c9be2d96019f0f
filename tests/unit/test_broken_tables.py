"""Table files that are broken or odd: each is refused by name with the reason."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.decode import Unreadable
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import Part


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def opened(path: Path, labelled: bool = True, **options: Any) -> dict[str, Part]:
    return open_source(SourceConfig(path=str(path), **options), labelled=labelled)


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        opened(path, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "no bytes": ("a.csv", b"", "Empty CSV"),
    "only a header": ("a.csv", b"image,label\n", "no rows"),
    "a ragged row": ("a.csv", b"image,label\n0.png,1\n1.png\n", "Expected 2 columns, got 1"),
    "a long row": ("a.csv", b"image,label\n0.png,1,2\n", "Expected 2 columns, got 3"),
    "a column twice": ("a.csv", b"image,label,label\n0.png,0,1\n", "two columns called label"),
    "latin-1": ("a.csv", "image,label\né.png,1\n".encode("latin-1"), "not UTF-8 text (byte 12)"),
    "utf-16": ("a.csv", "image,label\n0.png,1\n".encode("utf-16"), "not UTF-8"),
    "zero bytes": ("a.tsv", b"image\tlabel\n\0.png\t1\n", "zero bytes"),
    "empty lines": ("a.jsonl", b"\n\n", "a.jsonl"),
    "a cut line": ("a.jsonl", b'{"image": "0.png", "label": 1}\n{"image": "1.p', "a.jsonl cannot be read as jsonl"),
    "numbers and text": ("a.jsonl", b'{"image": "0.png", "label": 1}\n{"image": "1.png", "label": "a"}', "/label"),
    "a field twice": ("a.jsonl", b'{"image": "0.png", "image": "1.png"}\n', "twice"),
    "no json": ("a.json", b"[{]", "cannot be read as json"),
    "lists in lists": ("a.json", b"[" * 100_000, "cannot be read as json: lists within lists, too many"),
    "objects in objects": ("a.json", b'[{"a":' * 50_000, "cannot be read as json"),
    "many levels": ("a.json", b'[{"image":' + b"[" * 900 + b"]" * 900 + b"}]", "a.json"),
    "lines of lists": ("a.jsonl", b'{"image":' + b"[" * 100_000, "a.jsonl"),
    "an object": ("a.json", b'{"image": []}', "list of objects"),
    "no objects": ("a.json", b"[1, 2]", "list of objects"),
    "an empty list": ("a.json", b"[]", "no rows"),
    "no arrow": ("a.arrow", b"ARROW1 or not", "cannot be read as arrow"),
    "an empty arrow file": ("a.arrow", b"", "a.arrow"),
    "no images": ("a.csv", b"text,label\nhello,1\n", "no column with images; columns: text, label"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_named_with_the_reason(kind: str, tmp_path: Path) -> None:
    name, data, words = BROKEN[kind]
    (tmp_path / name).write_bytes(data)
    text = refusal(tmp_path / name)
    assert name in text
    assert words in text


@pytest.mark.parametrize("stream", [False, True])
def test_parquet_files_that_are_odd(stream: bool, tmp_path: Path) -> None:
    image, number = pyarrow.array([png(0)]), pyarrow.array([1])
    twice = pyarrow.Table.from_arrays([image, number, number], names=["image", "label", "label"])
    for name, found, words in (
        ("twice.parquet", twice, "two columns called label"),
        ("empty.parquet", pyarrow.table({"image": image}).slice(0, 0), "no rows"),
    ):
        pyarrow.parquet.write_table(found, tmp_path / name)
        assert words in refusal(tmp_path / name, stream=stream)
    for n, columns in enumerate(({"image": image}, {"picture": image})):
        (tmp_path / "shards").mkdir(exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "shards" / f"{n}.parquet")
    if stream:
        assert "1.parquet has no column image" in refusal(tmp_path / "shards", stream=True, image_column="image")
    else:  # the rows of the second file have no image, which loading will say
        rows = opened(tmp_path / "shards", image_column="image")["all"].rows
        assert (rows.raw(0), rows.raw(1)) == (png(0), b"")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_labels_may_begin_late(name: str, tmp_path: Path) -> None:
    """Types of columns must not be guessed from the first megabyte alone."""
    lines = {
        "a.csv": ["image,note,label", *["x.png,,1"] * 150_000, "x.png,late,2"],
        "a.jsonl": [*['{"image": "x.png", "note": null}'] * 40_000, '{"image": "x.png", "note": "late", "label": 2}'],
    }[name]
    (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "x.png").write_bytes(b"")
    assert len(opened(tmp_path / name, labelled=False)["all"].rows) == len(lines) - (name == "a.csv")


def test_fields_that_only_later_objects_have(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"image": "0.png"}, {"image": "1.png", "label": 1}]')
    (tmp_path / "0.png").write_bytes(png(0))
    (tmp_path / "1.png").write_bytes(png(1))
    labels = opened(tmp_path / "a.json")["all"].labels
    assert labels is not None
    assert labels.tolist() == [-1, 0]


def test_a_damaged_row_group_costs_its_own_images(tmp_path: Path) -> None:
    cells = [png(i) + bytes([i]) * 2000 for i in range(6)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"image": cells, "label": [0, 1] * 3}), path, row_group_size=2, compression="snappy"
    )
    data = bytearray(path.read_bytes())
    about = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(0)
    first = about.dictionary_page_offset or about.data_page_offset
    data[first : first + about.total_compressed_size] = b"\xff" * about.total_compressed_size
    path.write_bytes(data)
    rows = opened(path, stream=True)["all"].rows
    for i in (0, 1, 4, 5):
        assert rows.raw(i) == cells[i]
    for i in (2, 3):
        with pytest.raises((Unreadable, OSError)):  # both are named and replaced by loading
            rows.raw(i)
        assert f"row group 1 row {i - 2}" in rows.where(i)
