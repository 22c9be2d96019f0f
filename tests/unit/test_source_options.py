"""Options that a source cannot follow are refused by their name; a first image that is gone stops nothing."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import measure
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.sources import opening
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.data.sources.part import Part

SAME = LabelledDataConfig()
OPTIONS: dict[str, Any] = {"image_column": "x", "label_column": "x", "target": "class", "group": "x", "stream": True}


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def folder(root: Path, *names: str) -> Path:
    for n, name in enumerate(names or [f"{c}/{i}.png" for c in "ab" for i in range(10)]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png(n))
    return root


def frame(n: int = 20) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"image": [png(i) for i in range(n)], "label": [i % 2 for i in range(n)]})


def opened(path: Any, dataset: Any = None, labelled: bool = True, **options: Any) -> dict[str, Part]:
    return open_source(SourceConfig(path=str(path), **options), labelled=labelled, dataset=dataset)


def refusal(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Options without effect


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_say_nothing_about_a_source(option: str, tmp_path: Path) -> None:
    chosen = {option: OPTIONS[option]}
    words = f"--data.{option} (--eval.data.{option}) "
    for labelled in (False, True):
        assert refusal(opened, "digits", labelled=labelled, **chosen).startswith(words)
    root = folder(tmp_path / "photos")
    if option != "group":
        for labelled in (False, True):
            text = refusal(opened, root, labelled=labelled, **chosen)
            assert text.startswith(words)
            assert f"{root} is a folder of images" in text
    if option == "stream":
        assert refusal(opened, "given", frame(), **chosen).startswith(words)
        frame().save_to_disk(tmp_path / "saved")
        assert refusal(opened, tmp_path / "saved", **chosen).startswith(words)
        (tmp_path / "a.csv").write_text("image,label\nphotos/a/0.png,1\n")
        assert refusal(opened, tmp_path / "a.csv", **chosen).startswith(words)
    assert list(opened("digits", stream=False)) == list(opened(root, stream=False)) == ["all"]


def test_a_table_beside_images_is_what_columns_are_of(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    (root / "labels.csv").write_text("image,kind\na/0.png,1\na/1.png,2\n")
    (root / ".hidden.csv").write_text("x")
    assert f"give --data.labels {root}/labels.csv" in refusal(opened, root, label_column="kind")
    assert opened(root / "labels.csv", label_column="kind")["all"].classes == ("1", "2")
    assert "labels.csv" not in refusal(opened, root, stream=True)


def test_split_options_do_apply_to_folders(tmp_path: Path) -> None:
    root = folder(tmp_path, *(f"{s}/{c}/{i}.png" for s in ("train", "val", "test") for c in "ab" for i in range(2)))
    found = open_labelled(DataConfig(path=str(root), test_split="val"), SAME)
    assert found.split == "its own val split"
    assert len(open_pool(DataConfig(path=str(root), split="train+val+train"), SAME)[0]) == 8


def test_one_column_of_groups(tmp_path: Path) -> None:
    data = frame().add_column("a", [0, 1] * 10, new_fingerprint="x").add_column("b", [0, 1] * 10, new_fingerprint="y")
    assert "--data.group a,b names 2 columns of given; give one" in refusal(opened, "given", data, group="a,b")
    assert opened("given", data, group=" b ")["all"].groups is not None


# The option that is named


def test_messages_name_the_option_that_was_given(tmp_path: Path) -> None:
    files = [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in "ab" for i in range(2)]
    path, none = str(folder(tmp_path / "photos", *files)), tmp_path / "none.parquet"
    one = pyarrow.table({"image": [png(0), png(1)], "split": ["test", "val"], "label": [0, 1]})
    pyarrow.parquet.write_table(one, none)
    for data, labelled, words in (
        (DataConfig(path=path, split="trian"), SAME, "--data.split trian"),
        (DataConfig(path=path, test_split="tst"), SAME, "--data.test_split tst"),
        (DataConfig(path=path), LabelledDataConfig(test_split="tst"), "--eval.data.test_split tst"),
        (DataConfig(path=str(none)), SAME, "no train; name one with --data.split"),
    ):
        assert words in refusal(open_pool, data, labelled)
    for data, labelled, words in (
        (DataConfig(path=path), LabelledDataConfig(split="trian"), "--eval.data.split trian"),
        (DataConfig(path=path, split="trian"), LabelledDataConfig(split="trian"), "--data.split trian"),
        (DataConfig(path=path), LabelledDataConfig(test_split="tst"), "--eval.data.test_split tst"),
        (DataConfig(path=path, test_split="tst"), SAME, "--data.test_split tst"),
        (DataConfig(path=str(none)), SAME, "no train; name one with --eval.data.split"),
    ):
        text = refusal(open_labelled, data, labelled)
        assert re.search(f"(^| ){re.escape(words)}", text), text
        assert words.startswith("--eval") or "--eval.data.split trian" not in text


def test_a_split_of_training_under_another_word_is_not_judged_on(tmp_path: Path) -> None:
    root = folder(tmp_path, *(f"{s}/{c}/{i}.png" for s in ("train", "valid") for c in "ab" for i in range(5)))
    found = open_labelled(DataConfig(path=str(root)), LabelledDataConfig(split="train+validation"))
    assert (len(found.train), len(found.test)) == (16, 4)


# Odd places


def test_folders_with_an_error_and_a_table(tmp_path: Path) -> None:
    """Only a folder without images may be read as tables of names; another error must not be hidden by one."""
    root = folder(tmp_path / "mixed", "train/a/0.png", "extra/1.png")
    (root / "names.csv").write_text("image,label\ntrain/a/0.png,1\n")
    assert "mixes split folders" in refusal(opened, root)
    root = folder(tmp_path / "grouped")
    (root / "names.csv").write_text("image,label\na/0.png,1\n")
    assert "finds no group" in refusal(opened, root, group="patient")


def test_what_datasets_wrote_beside_parquet_files(tmp_path: Path) -> None:
    frame().to_parquet(str(tmp_path / "train-0.parquet"))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": {}, "splits": {}}))
    assert len(opened(tmp_path)["train"].rows) == 20


@pytest.mark.parametrize("file", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow", "dataset_dict.json"])
@pytest.mark.parametrize("content", [None, "", "{", "{}", "[]", "null", "1", '{"splits": 3}', '{"splits": ["train"]}'])
def test_saved_data_sets_that_are_broken(file: str, content: str | None, tmp_path: Path) -> None:
    root = tmp_path / "saved"
    datasets.DatasetDict(train=frame()).save_to_disk(root)
    if file != "dataset_dict.json":
        root = root / "train"
    if content is None:
        (root / file).unlink()
    else:
        (root / file).write_text(content)
    try:
        opened(root)
    except UserError as error:
        assert "\n" not in str(error)
        assert str(root) in str(error)


# The first image


def first_is_gone(kind: str, root: Path) -> SourceConfig:
    folder(root / "photos", *(f"{i:03}.png" for i in range(150)))
    if kind == "tar":
        with tarfile.open(root / "a.tar", "w") as tar:
            for i in range(150):
                for ending in ("left.png", "right.png")[(i == 0) :]:
                    info = tarfile.TarInfo(f"{i:03}.{ending}")
                    info.size = len(png(i))
                    tar.addfile(info, io.BytesIO(png(i)))
        return SourceConfig(path=str(root / "a.tar"), image_column="left.png,right.png")
    if kind == "csv":
        (root / "a.csv").write_text("\n".join(["image", *(f"photos/{i:03}.png" for i in range(150))]))
    (root / "photos" / "000.png").unlink()
    if kind == "link":
        (root / "photos" / "000.png").symlink_to(root / "nowhere.png")
    return SourceConfig(path=str(root / "a.csv" if kind == "csv" else root / "photos"))


@pytest.mark.parametrize("cache", ["ram", "none"])
@pytest.mark.parametrize("kind", ["csv", "link", "tar"])
def test_a_first_image_that_is_gone_is_replaced(
    kind: str, cache: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = first_is_gone(kind, tmp_path)
    assert cfg.path is not None
    pool, _ = open_pool(DataConfig(path=cfg.path, image_column=cfg.image_column), SAME)
    assert pool.sizes.common is None
    pool = pool.on_canvas(4, 4)
    loader = Loader(pool, batch_size=50, micro_batch=50, seed=0, device=torch.device("cpu"), cache=cache, workers=0)
    seen = [int(i) for batch in loader.batches(0, 3) for i in batch.index]
    assert sorted(set(seen)) == list(range(1, 150))
    assert capsys.readouterr().err.count("cannot be read") == 1


# What is measured


class Counted:
    """Images that count how often each is read."""

    def __init__(self, n: int) -> None:
        self.read = np.zeros(n, dtype=int)

    def __len__(self) -> int:
        return len(self.read)

    def raw(self, row: int) -> bytes:
        self.read[row] += 1
        return png(0)

    def where(self, row: int) -> str:
        return f"row {row}"


def test_few_blocks_are_touched_to_measure_a_set() -> None:
    blocks = np.repeat(np.arange(50), 40)
    rows = Counted(2000)
    measure(rows, "counted", blocks)
    touched = np.unique(blocks[rows.read > 0])
    assert len(touched) == 16
    assert (touched[0], touched[-1]) == (0, 49)
    assert rows.read.sum() == 512
    few = Counted(300)  # so few that all are looked at, as without blocks
    assert measure(few, "counted", np.arange(300)) == measure(Counted(300), "counted")
    assert few.read.all()
    plain = Counted(2000)
    measure(plain, "counted")
    assert plain.read.sum() == 512
    assert len(np.unique(blocks[plain.read > 0])) == 50


def test_a_made_split_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def counting(rows: Any, name: str, blocks: Any) -> Any:
        measured.append(name)
        return measure(rows, name, blocks)

    monkeypatch.setattr(opening, "measure", counting)
    data = DataConfig(path=str(folder(tmp_path / "photos")))
    open_labelled(data, SAME)
    assert len(measured) == 1
    open_pool(data, SAME)
    assert len(measured) == 2
