"""Every mistake gets one clear line, no traceback, and loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MAE = "recipes/mae.py"


def one_line(err: str) -> str:
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data.path", "photoss"], "there is no file or folder photoss; did you mean photos"),
        (["--data.path", "no/such/place"], "there is no file or folder no/such/place"),
        (["--data.path", "empty"], "the folder empty has no images"),
        (["--data.path", ""], "the path to the images is empty"),
        (["--data.path", "notes"], "it has 1 other files, e.g. readme.txt"),
        (["--model.img_size", "10", "--model.patch_size", "4"], "--model.img_size 10 is not a multiple"),
        (["--mae.mask_ratio", "0"], "keeps everything of 16 patches"),
        (["--mae.mask_ratio", "0.99"], "keeps nothing of 16 patches"),
        (["--mae.mask_ratio", "1.5"], "keeps nothing"),
        (["--model.name", "vit_smal_patch16_224"], "did you mean vit_small_patch16_224"),
        (["--model.name", "resnet50"], "leaves out or replaces patches: it is a ResNet"),
        (["--model.name", "cct_micro"], "--model.name cct_micro does not go with a method that leaves out"),
        (["--model.name", "cct_mirco"], "neither a short name nor a timm model; did you mean cct_micro"),
        (["--model.width", "62", "--model.heads", "31"], "multiple of 4"),
        (["--mae.decoder_width", "30"], "--mae.decoder_width 30"),
        (["--fit.batch_size", "0"], "--fit.batch_size 0 must be at least 1"),
        (["--fit.batch_size", "10", "--fit.micro_batch", "3"], "--fit.batch_size 10 is not a multiple"),
        (["--augment.crop_scale", "[0.9,0.1]"], "--augment.crop_scale"),
        (["--fit.epochs", "-1"], "--fit.epochs -1 must be positive"),
        (["--data.workers", "-2"], "--data.workers -2 must be at least 0"),
        (["--optim.warmup", "1.5"], "--optim.warmup 1.5 must be at least 0 and at most 0.999"),
        (["--fit.precision", "fp16"], "--fit.precision fp16 needs a GPU"),
        (["--fit.precision", "tf32"], "--fit.precision tf32 is arithmetic of NVIDIA GPUs"),
        (["--optim.lr", "1e30", "--fit.epochs", "1"], "the loss stopped being a finite number between steps"),
    ],
)
def test_pre_training(words: list[str], expected: str, photos: Path, script, small: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no image")
    status, _, err = script(MAE, *small, *words, "--run.dir", "run")
    assert status == 1
    assert expected in one_line(err)
    if "--optim.lr" not in words:
        assert not (tmp_path / "run" / "checkpoints").exists()
    assert len(list(photos.rglob("*.png"))) == 60


def test_one_unreadable_image_is_named_replaced_and_counted(photos: Path, script, small: list[str]) -> None:
    broken = sorted((photos / "dark").iterdir())[3]
    broken.write_bytes(broken.read_bytes()[:60])
    words = [*small, "--fit.epochs", "2", "--data.path", str(photos), "--eval.data.path", "digits"]
    for cache in ("ram", "none"):
        status, _, err = script(MAE, *words, "--data.cache", cache, "--run.dir", cache)
        assert status == 0, err
        warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
        assert len(warnings) == 1, err
        assert str(broken) in warnings[0]
        assert "another image takes its place" in warnings[0]
        assert json.loads(Path(cache, "environment.json").read_text())["unreadable_images"] == [
            warnings[0].removeprefix("warning: ").partition(";")[0]
        ]
    assert Path("ram/metrics.jsonl").read_text() == Path("none/metrics.jsonl").read_text()


def test_more_than_one_percent_stops_with_the_list(photos: Path, script, small: list[str]) -> None:
    broken = sorted((photos / "dark").iterdir())[3:6]
    for path in broken:
        path.write_bytes(b"<html>404</html>")
    words = [*small, "--fit.epochs", "2", "--data.path", str(photos), "--eval.data.path", "digits"]
    for cache in ("ram", "none"):
        status, _, err = script(MAE, *words, "--data.cache", cache, "--run.dir", cache)
        assert status == 1
        assert "of 60 images cannot be read, more than 1%" in one_line(err)
        assert sum(str(path) in err.partition("error: ")[2] for path in broken) >= 2
        assert not Path(cache, "backbone").exists()


def test_a_run_directory_with_another_config(script, small: list[str]) -> None:
    words = [*small, "--fit.epochs", "0.1", "--run.dir", "run"]
    status, _, err = script(MAE, *words)
    assert status == 0, err
    before = {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file() and p.name != "environment.json"}
    status, _, err = script(MAE, *words, "--mae.mask_ratio", "0.6")
    assert status == 1
    assert "already holds a run with another config (mae.mask_ratio 0.5 -> 0.6)" in one_line(err)
    assert {p: p.read_bytes() for p in before} == before
    card = Path("run/backbone/README.md")
    card.write_text(f"{card.read_text()}\nLicence: mine.\n")
    status, out, err = script(MAE, *words)
    assert status == 0, err
    assert "already complete" in out and card.read_text().endswith("\nLicence: mine.\n")


def test_labels_asked_for_where_there_are_none(photos: Path, script, small: list[str], tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, path in enumerate(photos.rglob("*.png")):
        path.rename(flat / f"{i}.png")
    status, out, err = script(MAE, *small, "--fit.epochs", "0.5", "--data.path", "flat", "--run.dir", "run")
    assert status == 0, err
    assert "60 from flat" in out
    assert "--backbone run/backbone --eval.data.path LABELLED_IMAGES" in out
    for name in ("eval/knn.py", "eval/linear_probe.py", "eval/finetune.py"):
        status, _, err = script(name, "--backbone", "run/backbone")
        assert status == 1
        assert "labels are needed, but" in one_line(err)
        assert "--eval.data.path" in err
    status, _, err = script("recipes/supervised.py", "--data.path", "flat")
    assert status == 1
    assert "one folder per class" in one_line(err)
    assert not Path("runs").exists()


@pytest.mark.parametrize("deep", [False, True])
def test_grey_and_16_bit_images_are_used_as_they_are(deep: bool, script, small: list[str], tmp_path: Path) -> None:
    """Values around 300 to 2,000 of 65,535 would all be white if they were clipped to 8 bits."""
    rng = np.random.default_rng(1)
    for name, level in (("a", 300), ("b", 1500)):
        (tmp_path / "cells" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(level, level + 500, (16, 16)) if deep else rng.integers(level // 20, 200, (16, 16))
            image = Image.fromarray(pixels.astype(np.uint16 if deep else np.uint8))
            image.save(tmp_path / "cells" / name / f"{i}.png")
    words = [*small, "--fit.epochs", "2", "--data.path", "cells", "--run.dir", "run", "--augment.policy", "3-augment"]
    status, _, err = script(MAE, *words)
    assert status == 0, err
    config = json.loads(Path("run/backbone/config.json").read_text())
    assert config["ssl_vit"]["bits"] == (16 if deep else 8)
    assert config["pretrained_cfg"]["input_size"][0] == 1
    if deep:
        assert config["pretrained_cfg"]["mean"][0] * 65535 == pytest.approx(1150, rel=0.02)
    status, _, err = script("eval/knn.py", "--backbone", "run")
    assert status == 0, err
    rows = json.loads(Path("run/results/knn.json").read_text())["rows"]
    if deep:
        assert next(r for r in rows if r["method"] == "raw pixels" and r["headline"])["top1"] == 100.0


def test_images_of_another_kind_than_the_backbones(photos: Path, script, backbone: str) -> None:
    status, _, err = script("eval/knn.py", "--backbone", backbone, "--eval.data.path", "photos")
    assert status == 0, err
    assert "trained on images of 1 channel(s) and 8 bits; for photos, images of 3 channel(s) and 8 bits, its" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--backbone is missing"),
        (["--backbone", "nowhere"], "--backbone nowhere does not exist"),
        (["--backbone", "."], "holds no config.json"),
    ],
)
def test_backbones_that_are_none(words: list[str], expected: str, script) -> None:
    for name in ("eval/knn.py", "eval/linear_probe.py", "eval/finetune.py"):
        status, _, err = script(name, *words)
        assert status == 1
        assert expected in one_line(err)


def test_more_labels_than_there_are(script, backbone: str) -> None:
    status, _, err = script("eval/knn.py", "--backbone", backbone, "--eval.labels", "5000")
    assert status == 1
    assert "--eval.labels 5000 of 1438 training labels" in one_line(err)


def test_mistyped_options_answer_before_torch_is_loaded(launched, tmp_path: Path) -> None:
    done = launched(MAE, "--mae.mask_rato", "0.5", cwd=tmp_path, cold=True)
    assert done.returncode == 2
    assert done.stderr == "error: unknown option --mae.mask_rato; did you mean --mae.mask_ratio? (--help lists all)\n"


def test_partners_that_are_one_image(script) -> None:
    words = ["--fit.batch_size", "8", "--augment.repeats", "5", "--supervised.mixup", "0.8", "--run.dir", "run"]
    status, _, err = script("recipes/supervised.py", "--data.path", "digits", "--model.name", "vit_micro", *words)
    assert status == 1
    assert "--augment.repeats 5 may be half of --fit.batch_size 8 at most" in one_line(err)


def test_a_length_that_varies_images_more_is_another_run(photos: Path, script) -> None:
    words = ["recipes/supervised.py", "--data.path", str(photos), "--model.name", "vit_micro", "--run.dir", "run"]
    status, _, err = script(*words, "--fit.epochs", "0.1", "--augment.policy", "jitter")
    assert status == 0, err
    status, _, err = script(*words, "--fit.epochs", "30000", "--augment.policy", "jitter")
    assert status == 1
    line = one_line(err)
    assert (
        "augment.crop pad -> random_resized" in line and "how images vary follows from how many training sees" in line
    )
