"""Pools and training images that show the images to judge on: left out, refused, declared, or gone on with."""

from __future__ import annotations

import csv
import json
import shutil
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
    status, _, err = script(MAE, *words, "--data.on_leak", "stop")
    assert status == 1
    assert "error: 20 of the 60 images of the pool show 20 of the 20 test images of photos, e.g. photos/test/" in err
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


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """A folder of 90 images and a table beside it that names 40 of them."""
    rng = np.random.default_rng(1)
    (tmp_path / "cells").mkdir()
    lines = ["file,phase"]
    for n in range(90):
        Image.fromarray(rng.integers(0, 200, (12, 12)).astype(np.uint8)).save(tmp_path / "cells" / f"{n:02}.png")
        lines += [f"cells/{n:02}.png,{('G1', 'G2')[n % 2]}"] if n < 40 else []
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_folder_whose_images_a_table_names(cells: Path, script, small: list[str]) -> None:
    """Test images stay out of the pool, the list is in the run, it goes on as it was, and k-NN knows."""
    words = [*small, "--data.path", "cells", "--eval.data.path", "labels.csv", "--run.dir", "run"]
    words += ["--eval.data.label_column", "phase"]
    status, out, err = script(MAE, *words, "--fit.epochs", "0.5")
    assert status == 0, err
    line = "leak guard      8 of 90 images of the pool are left out, because they show test images (8 the same file)"
    assert out.splitlines()[0] == f"{line}: left_out_pool.csv"
    listed = list(csv.DictReader(Path("run/left_out_pool.csv").read_text().splitlines()))
    assert len(listed) == 8
    assert all(one["image"] in one["test_image"] for one in listed)
    about = json.loads(Path("run/backbone/config.json").read_text())["ssl_vit"]
    assert about["left_out"] == {"images": 8, "of": 90}
    first = Path("run/metrics.jsonl").read_text()
    status, out, err = script(MAE, *words, "--fit.epochs", "1")  # the same pool, though it is looked at again
    assert status == 0, err
    assert Path("run/metrics.jsonl").read_text().startswith(first)
    status, out, err = script(MAE, *words, "--fit.epochs", "1", "--data.on_leak", "warn")
    assert status == 1
    assert "holds a run on other images" in err
    status, out, err = script("eval/knn.py", "--backbone", "run", "--eval.baselines", "false")
    assert status == 0, err
    assert "pre-training has seen" not in err
    assert json.loads(Path("run/results/knn.json").read_text())["test_images_seen_in_pre_training"] == 0


def test_training_images_that_show_test_images(split_photos: Path, script, small: list[str]) -> None:
    """Dropped alike from scratch, for k-NN, for probes and in fine-tuning, so that their numbers stand in one table."""
    for n in (3, 8):
        photo = Image.open(next(split_photos.glob(f"train/*/{n}.png")))
        photo.rotate(90).save(split_photos / "test" / "cat" / f"turned{n}.png")
    assert script(MAE, *small, "--data.path", "photos", "--fit.epochs", "0.5", "--run.dir", "run")[0] == 0
    few = ["--fit.epochs", "1", "--fit.min_steps", "2"]
    commands = {
        "eval/knn.py": ["--backbone", "run", "--eval.baselines", "false"],
        "eval/linear_probe.py": ["--backbone", "run", "--linear.protocol", "cached"],
        "eval/finetune.py": ["--backbone", "run", *few, "--run.dir", "tuned"],
        "recipes/supervised.py": [*small, "--data.path", "photos", *few, "--run.dir", "scratch"],
    }
    results = {}
    for name, words in commands.items():
        status, out, err = script(name, *words)
        assert status == 0, err
        assert "leak guard      2 of 40 training images are left out, because they show test images (2 nearly" in out
        results[name] = json.loads(Path(out.rpartition("Result: ")[2].split()[0]).read_text())
    assert {result["labels_used"] for result in results.values()} == {38}
    assert len({result["protocol"]["train"] for result in results.values()}) == 1
    assert {str(result["left_out"]) for result in results.values()} == {"{'images': 2, 'of': 40}"}
    listed = list(csv.DictReader(Path("scratch/left_out_train.csv").read_text().splitlines()))
    assert {Path(one["image"]).stem for one in listed} == {"3", "8"}
    assert {one["change"] for one in listed} <= {"turned by 90 degrees", "turned by 270 degrees"}
    # The default said aloud is no other set; images that were kept all the same are named in the number's protocol.
    knn = ["eval/knn.py", "--backbone", "run", "--eval.baselines", "false"]
    clean = Path("run/results/knn.json").read_text()
    status, out, err = script(*knn, "--eval.data.on_leak", "drop")
    assert status == 0, err
    assert out.rpartition("Result: ")[2].split()[0] == "run/results/knn.json"
    assert json.loads(Path("run/results/knn.json").read_text())["rows"] == json.loads(clean)["rows"]
    status, out, err = script(*knn, "--eval.data.on_leak", "warn")
    assert status == 0 and "warning: 2 of the 40 training images show 2 of the" in err
    place = Path(out.rpartition("Result: ")[2].split()[0])
    kept = json.loads(place.read_text())
    assert place != Path("run/results/knn.json") and "left_out" not in kept and kept["labels_used"] == 40
    assert kept["protocol"]["training_images_that_show_test_images"] == 2
    assert "training_images_that_show_test_images" not in json.loads(clean)["protocol"]
    # Each set has its list.
    first = Path("run/left_out_train.csv").read_text()
    shutil.copytree("photos", "others")
    next(Path("others/test/cat").glob("turned3.png")).unlink()
    status, out, err = script(*knn, "--eval.data.path", "others")
    assert status == 0, err
    listed = out.partition("left out        ")[2].split()[0]
    assert listed.startswith("run/on-") and listed.endswith("-left_out_train.csv")
    assert len(Path(listed).read_text().splitlines()) == 2
    assert Path("run/left_out_train.csv").read_text() == first
