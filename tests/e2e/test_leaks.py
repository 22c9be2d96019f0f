"""Pools that hold the images to judge on: refused, declared, or gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MAE = "recipes/mae.py"


@pytest.fixture
def split_photos(tmp_path: Path) -> Path:
    """40 training and 20 test images of two classes."""
    rng = np.random.default_rng(0)
    for n in range(60):
        path = tmp_path / "photos" / ("train" if n < 40 else "test") / ("cat", "dog")[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(40 * (n % 2), 200, (12, 12)).astype(np.uint8)).save(path)
    return tmp_path / "photos"


def test_a_pool_that_holds_the_test_split(split_photos: Path, script, small: list[str]) -> None:
    words = [*small, "--data.path", "photos", "--data.split", "train+test", "--fit.epochs", "0.5", "--run.dir", "run"]
    status, _, err = script(MAE, *words)
    assert status == 1
    assert "error: the pool photos holds 20 of the 20 images of photos that will be judged on" in err
    assert "--data.transductive true" in err
    assert "--data.on_leak warn" in err
    assert not Path("run").exists()
    status, out, err = script(MAE, *words, "--data.transductive", "true")
    assert status == 0, err
    assert "note: pre-training on 20 of the 20 test images, as declared" in err
    assert "transductive" not in out.partition("the same network without pre-training")[2]
    assert json.loads(Path("run/backbone/config.json").read_text())["ssl_vit"]["transductive"] is True
    status, _, err = script("eval/knn.py", "--backbone", "run", "--eval.baselines", "false")
    assert status == 0, err
    assert "note: pre-training on 20 of the 20 test images was declared" in err
    assert "warning" not in err
    result = json.loads(Path("run/results/knn.json").read_text())
    assert result["test_images_seen_in_pre_training"] == 20
    assert result["backbone"]["transductive"] is True
