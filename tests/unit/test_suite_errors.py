"""What is wrong with the images or labels of a set, in the words of a suite."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.transfer.opened import open_set


def picture(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), 9, dtype=np.uint8)).save(place)
    return place


def told(path: Path) -> str:
    with pytest.raises(UserError) as error:
        open_set(DataConfig(), LabelledDataConfig(path=str(path)))
    assert "--" not in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("folders", [("heron",), ("train/heron", "test/heron")])
def test_a_folder_of_one_class(folders: tuple[str, ...], tmp_path: Path) -> None:
    for folder in folders:
        picture(tmp_path / "birds" / folder / "1.png")
        picture(tmp_path / "birds" / folder / "2.png")
    found = told(tmp_path / "birds")
    assert found.startswith(f"{tmp_path / 'birds'} has only one class (heron), and two are needed; ")
    assert "(path:)" in found and "(label_column:)" in found


def test_a_table_of_one_class(tmp_path: Path) -> None:
    cells = [{"bytes": picture(tmp_path / f"{i}.png").read_bytes(), "path": None} for i in range(4)]
    datasets.Dataset.from_dict({"image": cells, "label": ["heron"] * 4}).to_parquet(tmp_path / "birds.parquet")
    found = told(tmp_path / "birds.parquet")
    assert "labels of one class only (heron)" in found and "(path:)" in found and "(label_column:)" in found


def test_images_without_labels(tmp_path: Path) -> None:
    picture(tmp_path / "flat" / "1.png")
    found = told(tmp_path / "flat")
    assert found.startswith("labels are needed, but ") and "only one class" not in found
    assert "a column with label_column:, or other images with path: (keys of a suite file)" in found
