"""What a source says by itself: once, and early."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool

SAME = LabelledDataConfig()


def table(path: Path, **columns: list) -> Path:
    """A csv of pictures; the n-th has grey level n."""
    n = len(next(iter(columns.values())))
    for i in range(n):
        Image.new("L", (4, 4), i).save(path.parent / f"{i}.png")
    lines = [
        ",".join(["file", *columns]),
        *(",".join([f"{i}.png", *(str(c[i]) for c in columns.values())]) for i in range(n)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def labelled_of(path: Path, **options: object) -> Labelled:
    return open_labelled(DataConfig(path=str(path), **options), SAME)  # pyright: ignore[reportArgumentType]


def test_further_image_columns_are_named_once(capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    features = datasets.Features({c: datasets.Image() for c in ("image", "dna")} | {"label": datasets.Value("int64")})
    picture = Image.new("L", (4, 4), 9)
    data = datasets.Dataset.from_dict({"image": [picture] * 8, "dna": [picture] * 8, "label": [0, 1] * 4}, features)
    data.to_parquet(str(tmp_path / "cells.parquet"))
    open_pool(DataConfig(path=str(tmp_path / "cells.parquet")), SAME)
    labelled_of(tmp_path / "cells.parquet")
    said = capsys.readouterr().err
    assert said.count("note: column image of") == 1
    assert "dna could too (--data.image_column image,dna makes them channels of one image)" in said


def test_a_wrong_group_is_found_before_the_evaluation(tmp_path: Path) -> None:
    path = table(tmp_path / "list.csv", label=[0, 1] * 10, patient=list(range(20)))
    with pytest.raises(UserError, match=r"no column patint; did you mean patient\?"):
        open_pool(DataConfig(path=str(path), group="patint"), LabelledDataConfig(path="digits"))


def test_one_word_among_numbers_is_a_mistake(tmp_path: Path) -> None:
    values: list = [f"{i}.5" for i in range(20)]
    assert labelled_of(table(tmp_path / "all.csv", label=values)).train.kind == "regression"
    values[7] = "n/a?"
    with pytest.raises(UserError, match="holds 'n/a\\?' among numbers"):
        labelled_of(table(tmp_path / "one.csv", label=values))


def test_a_class_of_one_image_is_said_to_be_never_judged(tmp_path: Path) -> None:
    found = labelled_of(table(tmp_path / "list.csv", label=["ape"] * 10 + ["bee"] * 10 + ["cat"]))
    assert found.split.endswith("; cat has one image and is never judged")


def test_groups_of_a_given_split_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = ["train"] * 10 + ["test"] * 10
    columns = {"label": [0, 1] * 10, "split": split}
    apart = labelled_of(table(tmp_path / "apart.csv", **columns, scene=list(range(20))), group="scene")
    assert apart.split == "its own test split, no scene on both sides"
    shared = labelled_of(table(tmp_path / "shared.csv", **columns, scene=[i % 12 for i in range(20)]), group="scene")
    assert "8 groups (scene) on both sides" in shared.split
    assert "warning: 8 groups occur in the training and in the test split" in capsys.readouterr().err
    assert isinstance(shared.train.groups, np.ndarray)


def test_a_table_beside_images_is_pointed_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path / "list.csv", label=[0, 1] * 3)
    open_pool(DataConfig(path=str(tmp_path)), LabelledDataConfig(path="digits"))
    assert f"--data.labels {tmp_path / 'list.csv'} takes labels from it" in capsys.readouterr().err
