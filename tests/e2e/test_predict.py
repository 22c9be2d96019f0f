"""From labelled images to a table of predictions for others."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import timm
import torch
from PIL import Image

from made_scripts import ROOT, InProcess

SHORT = ["--fit.epochs", "1", "--fit.min_steps", "40", "--run.dir"]


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, save_photos, small: list[str]) -> Path:
    """A classifier of photographs, beside them."""
    folder = tmp_path_factory.mktemp("trained")
    save_photos(folder)
    with pytest.MonkeyPatch.context() as patch:
        script = InProcess(patch, folder)
        status, out, err = script("recipes/supervised.py", *small, "--data.path", "photos", *SHORT, "run")
    assert status == 0, err
    assert "Classifier: run/classifier" in out
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Path("run")


def test_a_trained_classifier_is_applied_to_images(run: Path, script) -> None:
    # Two splits and no classes, one file that is no image, one of another size than all others.
    for i in range(6):
        folder = Path("new") / ("train" if i % 2 else "test")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"photos/{'dark' if i < 3 else 'bright'}/{i:02d}.png", folder / f"{i}.png")
    Path("new/test/broken.png").write_bytes(b"no image")
    Image.fromarray(np.full((90, 33, 3), 200, dtype=np.uint8)).save("new/train/7.png")
    words = ["--classifier", "run", "--data.path", "new", "--predict.order", "source"]
    status, out, err = script("eval/predict.py", *words)
    assert status == 0, err
    assert "8 images" in out
    assert "1 of them could not be read" in out
    rows = rows_of("predictions.csv")
    names = [f"new/train/{i}.png" for i in (1, 3, 5, 7)] + [f"new/test/{i}.png" for i in (0, 2, 4, "broken")]
    assert [row["file"] for row in rows] == names
    assert list(rows[0]) == ["file", "prediction", "certainty", "bright", "dark", "unreadable"]
    for row in rows:
        if "broken" in row["file"]:
            assert row["unreadable"]
            assert {row["prediction"], row["certainty"], row["bright"], row["dark"]} == {""}
            continue
        assert row["unreadable"] == ""
        assert row["prediction"] == ("dark" if row["file"][-5] in "012" else "bright")
        assert float(row["bright"]) + float(row["dark"]) == pytest.approx(1, abs=1e-9)
        assert float(row[row["prediction"]]) > 0.5
    status, _, err = script("eval/predict.py", *words, "--out", "t.parquet")
    assert status == 0, err
    table = pyarrow.parquet.read_table("t.parquet").to_pylist()
    assert [row["prediction"] or "" for row in table] == [row["prediction"] for row in rows]


def test_a_grey_image_is_the_same_alone_and_among_coloured_ones(run: Path, script) -> None:
    for folder in ("grey", "both"):
        Path(folder).mkdir()
        for i in range(4):
            Image.open(f"photos/{'dark' if i < 2 else 'bright'}/{i:02d}.png").convert("L").save(f"{folder}/{i}.png")
    shutil.copy("photos/dark/05.png", "both/5.png")
    found, vectors = {}, {}
    for folder in ("grey", "both"):
        words = ["--data.path", folder, "--predict.order", "source", "--out", f"{folder}.csv"]
        status, _, err = script("eval/predict.py", "--classifier", "run", *words)
        assert status == 0, err
        found[folder] = [[float(row["dark"]), float(row["bright"])] for row in rows_of(f"{folder}.csv")]
        words = ["--data.path", folder, "--out", f"{folder}.npz"]
        status, _, err = script("eval/embed.py", "--backbone", "run", *words)
        assert (status, err) == (0, "")
        vectors[folder] = np.load(f"{folder}.npz")["vector"]
    assert len(found["grey"]) == 4
    np.testing.assert_allclose(found["grey"], found["both"][:4], atol=1e-4)
    np.testing.assert_allclose(vectors["grey"], vectors["both"][:4], atol=1e-4)


def test_several_processes_write_the_same_table(run: Path, script, tmp_path: Path, warm) -> None:
    words = ["--classifier", "run", "--data.path", "photos", "--predict.batch_size", "7", "--predict.order", "source"]
    status, _, err = script("eval/predict.py", *words)
    assert status == 0, err
    done = warm(ROOT / "eval" / "predict.py", *words, "--out", "two.csv", cwd=tmp_path, processes=2)
    assert done.returncode == 0, done.stderr
    one, two = rows_of("predictions.csv"), rows_of("two.csv")
    assert len(one) == 60  # training and test images, each once
    assert [row["file"] for row in one] == [row["file"] for row in two]
    for a, b in zip(one, two, strict=True):
        assert float(a["dark"]) == pytest.approx(float(b["dark"]), abs=1e-6)


def test_what_does_not_fit_is_refused(run: Path, script) -> None:
    Path("deep").mkdir()
    Image.fromarray(np.full((32, 32), 999, dtype=np.uint16)).save("deep/0.png")
    for words, expected in (
        (["run", "deep"], "deep has images of 1 channel(s), but the backbone was built for 3"),
        (["run"], "photos has a label; name others with --data.path"),
        (["--data.path", "photos"], "--classifier is missing"),
        (["--classifier", "photos", "--data.path", "photos"], "--classifier photos holds no classifier"),
        (["--classifier", "run", "--data.path", "photos", "--out", "x.txt"], "--out x.txt must end in"),
    ):
        status, _, err = script("eval/predict.py", *words)
        assert status == 1
        assert expected in err
        assert err.count("\n") == 1


def test_the_page_beside_the_table_replaces_its_own_kind_alone(run: Path, script) -> None:
    Path("mine.html").write_text("<h1>my own page</h1>")
    words = ["--classifier", "run", "--data.path", "photos", "--out", "mine.csv"]
    status, _, err = script("eval/predict.py", *words)
    assert status == 1 and "would replace mine.html, which is another" in err
    assert Path("mine.html").read_text() == "<h1>my own page</h1>"
    status, _, err = script("eval/predict.py", *words, "--predict.pictures", "0")
    assert status == 0, err
    Path("mine.html").unlink()
    for _ in range(2):
        status, out, err = script("eval/predict.py", *words)
        assert status == 0 and "mine.html: what to label next" in out, err


def test_fine_tuning_at_another_resolution_and_patch_size(run: Path, script) -> None:
    sizes = ["--model.img_size", "48", "--model.patch_size", "8"]
    status, _, err = script("eval/finetune.py", "--backbone", "run", *sizes, *SHORT, "tuned")
    assert status == 0, err
    config = json.loads(Path("tuned/classifier/config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [3, 48, 48]
    assert config["model_args"]["patch_size"] == 8
    before = json.loads(Path("run/classifier/config.json").read_text())
    assert config["pretrained_cfg"]["mean"] == before["pretrained_cfg"]["mean"]
    assert json.loads(Path("tuned/results/finetune.json").read_text())["rows"][0]["top1"] > 90
    for folder, width in (("backbone", 16), ("classifier", 2)):
        model = timm.create_model(f"local-dir:tuned/{folder}", pretrained=True)
        assert model(torch.zeros(1, 3, 48, 48)).shape == (1, width)
    status, _, err = script("eval/predict.py", "--classifier", "tuned", "--data.path", "photos")
    assert status == 0, err
    right = [row["prediction"] == row["file"].split("/")[1] for row in rows_of("predictions.csv")]
    assert np.mean(right) > 0.9
    status, _, err = script("eval/finetune.py", "--backbone", "run", "--model.img_size", "30", *SHORT, "no")
    assert status == 1
    assert "--model.img_size 30 is not a multiple of --model.patch_size 4" in err
