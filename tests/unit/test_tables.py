"""Arrow, csv, jsonl, saved and given data sets: images by bytes or file names, splits, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.data.sources.part import Part

BINARY = datasets.Features({"image": datasets.Value("binary"), "label": datasets.Value("int64")})


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def pictures(root: Path, n: int = 6) -> Path:
    """Files 0.png, 1.png... in a subfolder, of those grey levels."""
    (root / "photos").mkdir(parents=True)
    for i in range(n):
        (root / "photos" / f"{i}.png").write_bytes(png(i))
    return root


def frame(n: int = 6, first: int = 0) -> datasets.Dataset:
    columns = {"image": [png(first + i) for i in range(n)], "label": [(first + i) % 3 for i in range(n)]}
    return datasets.Dataset.from_dict(columns, features=BINARY)


def opened(path: Any, dataset: Any = None, labelled: bool = True, **options: Any) -> dict[str, Part]:
    return open_source(SourceConfig(path=str(path), **options), labelled=labelled, dataset=dataset)


def holds(part: Part, values: list[int]) -> None:
    """The images of these grey levels, labelled by them modulo 3."""
    assert [part.rows.raw(i) for i in range(len(part.rows))] == [png(v) for v in values]
    assert part.labels is not None
    assert [part.classes[k] for k in part.labels] == [str(v % 3) for v in values]


def refusal(path: Any, dataset: Any = None, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        opened(path, dataset, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Files


def arrow_stream(path: Path) -> None:
    table = frame().data.table
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def arrow_file(path: Path) -> None:
    table = frame().data.table
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def separated(separator: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lines = [separator.join(("image", "label")), *(f"photos/{i}.png{separator}{i % 3}" for i in range(6))]
        path.write_text("\r\n".join(lines))

    return write


def rows() -> list[dict[str, Any]]:
    return [{"image": f"photos/{i}.png", "label": i % 3} for i in range(6)]


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.arrow": arrow_stream,
    "b.arrow": arrow_file,
    "c.csv": separated(","),
    "d.TSV": separated("\t"),
    "e.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, rows()))),
    "f.json": lambda path: path.write_text(json.dumps(rows(), indent=1)),
    "g.parquet": lambda path: pyarrow.parquet.write_table(frame().data.table, path),
    "h.csv": lambda path: path.write_bytes(
        b"\xef\xbb\xbfimage,label\n" + b"".join(b"photos/%d.png,%d\n" % (i, i % 3) for i in range(6))
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_says_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[name](pictures(tmp_path / "data") / name)
    monkeypatch.chdir(tmp_path)  # file names start where the table lies, not where the command is given
    for path in (f"data/{name}", tmp_path / "data" / name):
        holds(opened(path)["all"], list(range(6)))


def test_a_folder_of_tables_beside_folders_of_images(tmp_path: Path) -> None:
    root = tmp_path / "a"
    pictures(root)
    (root / "train.csv").write_text("file,label\nphotos/0.png,0\nphotos/4.png,1\n")
    (root / "test.csv").write_text("file,label\nphotos/5.png,2\n")
    assert list(opened(root)) == ["all"]  # the images themselves, as a folder
    for i in range(6):
        (root / "photos" / f"{i}.png").rename(tmp_path / f"{i}.png")
    for split in ("train", "test"):
        text = (root / f"{split}.csv").read_text()
        (root / f"{split}.csv").write_text(text.replace("photos", str(tmp_path)))
    parts = opened(root)
    holds(parts["train"], [0, 4])
    holds(parts["test"], [5])


def test_absolute_names_and_names_that_begin_with_a_tilde(tmp_path: Path) -> None:
    root = pictures(tmp_path / "a")
    (root / "~0.png").write_bytes(png(3))
    (root / "a.csv").write_text(f"image,label\n{root}/photos/1.png,1\n~0.png,0\n")
    holds(opened(root / "a.csv")["all"], [1, 3])


def test_metadata_beside_images(tmp_path: Path) -> None:
    root = pictures(tmp_path / "a") / "photos"
    (root / "metadata.csv").write_text("file_name,label\n0.png,0\n4.png,1\n")
    holds(opened(root)["all"], [0, 4])
    splits = tmp_path / "b"
    for split, values in (("train", (0, 1)), ("validation", (4, 5))):
        (splits / split).mkdir(parents=True)
        lines = [json.dumps({"file_name": f"{v}.png", "label": v % 3}) for v in values]
        (splits / split / "metadata.jsonl").write_text("\n".join(lines))
        for v in values:
            (splits / split / f"{v}.png").write_bytes(png(v))
    parts = opened(splits)
    holds(parts["train"], [0, 1])
    holds(parts["val"], [4, 5])


def test_several_image_columns_are_channels(tmp_path: Path) -> None:
    root = pictures(tmp_path / "a")
    (root / "a.csv").write_text("dna,rna,label\nphotos/0.png,photos/1.png,0\nphotos/2.png,photos/3.png,1\n")
    assert "dna, rna, label" in refusal(root / "a.csv")
    part = opened(root / "a.csv", image_column="rna, dna")["all"]
    assert part.rows.raw(1) == (png(3), png(2))
    assert "photos/3.png" in part.rows.where(1)
    assert "named as image and as label" in refusal(root / "a.csv", image_column="rna,dna", label_column="dna")
    assert "twice" in refusal(root / "a.csv", image_column="rna,rna")
    assert "did you mean rna" in refusal(root / "a.csv", image_column="rnas,dna")
    assert "holds no images" in refusal(root / "a.csv", image_column="rna,label")


# A column of splits


def with_splits(path: Path, splits: list[str]) -> Path:
    data = frame(len(splits)).add_column("split", splits, new_fingerprint="x")
    pyarrow.parquet.write_table(data.data.table, path, row_group_size=2)
    return path


@pytest.mark.parametrize("stream", [False, True])
def test_a_split_column_takes_a_table_apart(stream: bool, tmp_path: Path) -> None:
    path = with_splits(tmp_path / "a.parquet", ["train", "Validation", "train", "holdout", "train"])
    parts = opened(path, stream=stream)
    assert set(parts) == {"train", "val", "holdout"}
    holds(parts["train"], [0, 2, 4])
    holds(parts["val"], [1])
    assert parts["holdout"].labels is None  # nobody asked for it
    holds(opened(path, stream=stream, test_split="holdout")["holdout"], [3])
    assert len({part.fingerprint for part in parts.values()}) == 3
    pool, note = open_pool(DataConfig(path=str(path), stream=stream), LabelledDataConfig())
    assert [int(pool.read(i)[0][0, 0, 0]) for i in range(len(pool))] == [0, 2, 4]
    assert "1 val" in note
    empty = with_splits(tmp_path / "b.parquet", ["train", "test", " "])
    assert "row 2 of column split" in refusal(empty, stream=stream)
    other = with_splits(tmp_path / "c.parquet", ["wood", "stone", "wood"])
    assert list(opened(other, stream=stream)) == ["all"]


def test_a_missing_image_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    from ssl_vit.data.decoding.decode import Unreadable

    root = pictures(tmp_path / "a")
    (root / "a.csv").write_text("image,label\nphotos/0.png,0\nphotos/nowhere.png,1\nphotos,1\n,0\n")
    found = open_pool(DataConfig(path=str(root / "a.csv")), LabelledDataConfig(path="digits"))[0]
    for i in (1, 2, 3):
        with pytest.raises(Unreadable):
            found.read(i)
    assert found.where(1) == "a.csv row 1 (photos/nowhere.png)"
    assert found.where(3).startswith("a.csv row 3")


def test_fingerprints_follow_the_files_behind_a_table(tmp_path: Path) -> None:
    root = pictures(tmp_path / "a")
    separated(",")(root / "a.csv")
    before = opened(root / "a.csv")["all"].fingerprint
    assert opened(root / "a.csv")["all"].fingerprint == before
    Image.effect_noise((9, 9), 90).save(root / "photos" / "3.png")
    after = opened(root / "a.csv")["all"].fingerprint
    (root / "photos" / "3.png").unlink()
    assert len({before, after, opened(root / "a.csv")["all"].fingerprint}) == 3


# Data sets


def test_an_unlabelled_split_beside_labelled_ones(tmp_path: Path) -> None:
    bare = datasets.Dataset.from_dict({"image": [png(90)] * 9, "label": [None] * 9}, features=BINARY)
    given = datasets.DatasetDict(train=frame(9), test=frame(3, 60), unlabeled=bare)
    parts = opened("given", given)
    holds(parts["train"], list(range(9)))
    assert parts["unlabeled"].labels is None
    given.save_to_disk(tmp_path / "saved")
    data = DataConfig(path=str(tmp_path / "saved"), split="train+unlabeled")
    assert len(open_pool(data, LabelledDataConfig())[0]) == 18
    assert len(open_labelled(data, LabelledDataConfig()).train) == 9
    with pytest.raises(UserError, match=r"no image of the unlabeled split of .* has a label; name another with --eval"):
        open_labelled(data, LabelledDataConfig(split="unlabeled"))


def test_what_save_to_disk_wrote(tmp_path: Path) -> None:
    frame().save_to_disk(tmp_path / "one")
    holds(opened(tmp_path / "one")["all"], list(range(6)))
    datasets.DatasetDict(train=frame(), validation=frame(2, 50)).save_to_disk(tmp_path / "two")
    parts = opened(tmp_path / "two")
    holds(parts["train"], list(range(6)))
    holds(parts["val"], [50, 51])
    next((tmp_path / "one").glob("*.arrow")).unlink()
    assert "not whole" in refusal(tmp_path / "one")
    (tmp_path / "two" / "dataset_dict.json").write_text("{")
    assert "not whole" in refusal(tmp_path / "two")


def test_given_data_sets_whatever_their_rows_and_format() -> None:
    chosen = frame(20).shuffle(seed=1).select([3, 4, 5])
    order = [next(v for v in range(20) if png(v) == cell) for cell in chosen["image"]]
    assert order != sorted(order)
    for data in (chosen, chosen.with_format("torch"), chosen.with_format("arrow"), chosen.with_format("pandas")):
        holds(opened("given", data)["all"], order)
    holds(opened("given", chosen.with_transform(lambda batch: {"x": [0] * len(batch["label"])}))["all"], order)
    decoded = chosen.cast_column("image", datasets.Image())
    holds(opened("given", decoded)["all"], order)
    assert "given row 0" in opened("given", decoded)["all"].rows.where(0)
    other = frame(20).shuffle(seed=2).select([3, 4, 5])
    assert opened("given", other)["all"].fingerprint != opened("given", chosen)["all"].fingerprint


def test_things_that_are_no_data_set() -> None:
    assert "list is no data set" in refusal("given", [1, 2])
    assert "DatasetDict is no data set" in refusal("given", datasets.DatasetDict())
    assert "IterableDataset" in refusal("given", frame().to_iterable_dataset())
    assert "valid, validation" in refusal("given", datasets.DatasetDict(valid=frame(), validation=frame()))
    assert "no rows" in refusal("given", datasets.DatasetDict(train=frame(), test=frame(0)))
    assert "split test" in refusal("given", datasets.DatasetDict(train=frame(), test=frame().remove_columns("image")))


@pytest.mark.parametrize("write", ["stream", "file", "save_to_disk"])
@pytest.mark.parametrize("wrong", [2**31 - 1, -5, 3])
def test_cells_that_lie_outside_of_an_arrow_file_are_refused(write: str, wrong: int, tmp_path: Path) -> None:
    """pyarrow would read beyond the file's memory, and end the process."""
    pictures = [b"12345"] * 4
    table = pyarrow.table({"image": pyarrow.array(pictures, pyarrow.binary()), "label": [0, 1, 0, 1]})
    place = tmp_path / "a.arrow"
    if write == "save_to_disk":
        place = tmp_path / "saved"
        datasets.Dataset(datasets.table.InMemoryTable(table)).save_to_disk(place)
    else:
        make = pyarrow.ipc.new_stream if write == "stream" else pyarrow.ipc.new_file
        with pyarrow.OSFile(str(place), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table)
    damaged = next(place.glob("*.arrow")) if place.is_dir() else place
    raw = damaged.read_bytes()
    before = np.array([0, 5, 10, 15, 20], dtype="<i4")
    after = before.copy()
    after[2] = wrong
    assert raw.count(before.tobytes()) == 1
    damaged.write_bytes(raw.replace(before.tobytes(), after.tobytes()))
    with pytest.raises(UserError, match=r"(cannot be read as arrow|is not whole): .*[Oo]ffset"):
        opened(place, labelled=False)
