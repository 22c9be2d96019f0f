"""eval/figures.py draws a trained run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

TRAIN = ["--fit.epochs", "0.1", "--model.width", "16", "--model.depth", "1", "--model.heads", "2"]
PICTURES = ("positions.png", "attention.png", "pca.png", "training.png")


def announced(folder: str, names: tuple[str, ...] = PICTURES) -> str:
    return "".join(f"Picture: {folder}/{name}\n" for name in names)


def test_pictures_go_beside_the_run_or_where_asked(script, tmp_path: Path) -> None:
    status, _, err = script("recipes/mae.py", *TRAIN, "--model.positions", "factorised", "--run.dir", "run")
    assert status == 0, err
    status, out, err = script("eval/figures.py", "--backbone", "run")
    assert (status, out) == (0, announced("run/figures")), err
    words = ["--images", "digits", "--figures.img_size", "12", "--figures.count", "2", "--out", "elsewhere/new"]
    status, out, err = script("eval/figures.py", "--backbone", "run/backbone", *words)
    assert (status, out) == (0, announced("elsewhere/new")), err
    for name in PICTURES:
        for folder in ("run/figures", "elsewhere/new"):
            with Image.open(tmp_path / folder / name) as picture:
                assert min(picture.size) > 200
    assert (tmp_path / "run/figures/reconstructions.png").exists()


def test_a_run_without_positions_trains_and_says_so(script, tmp_path: Path) -> None:
    status, _, err = script("recipes/mae.py", *TRAIN, "--model.positions", "none", "--run.dir", "run")
    assert status == 0, err
    status, out, err = script("eval/figures.py", "--backbone", "run")
    said = "No positions.png: the backbone has no position embedding that could be drawn.\n"
    assert (status, out) == (0, said + announced("run/figures", PICTURES[1:])), err
    assert not (tmp_path / "run/figures/positions.png").exists()


def test_a_network_without_class_token_has_no_attention_to_draw(script, tmp_path: Path) -> None:
    name = "vit_base_patch16_siglip_gap_224"
    status, _, err = script("recipes/mae.py", *TRAIN, "--model.name", name, "--model.img_size", "8",
                            "--model.patch_size", "2", "--model.pool", "mean", "--run.dir", "run")  # fmt: skip
    assert status == 0, err
    status, out, err = script("eval/figures.py", "--backbone", "run")
    said = "No attention.png: the backbone has no class token whose attention could be drawn.\n"
    assert (status, out) == (0, said + announced("run/figures", (PICTURES[0], *PICTURES[2:]))), err


def test_curves_of_runs_are_drawn_from_their_folders_alone(script, tmp_path: Path) -> None:
    for seed, name in enumerate(("first", "second")):
        words = ["--fit.log_every", "2", "--fit.watch", "knn", "--seed", str(seed), "--run.dir", f"runs/{name}"]
        status, _, err = script("recipes/mae.py", *TRAIN, *words)
        assert status == 0, err
    status, out, err = script("eval/figures.py", "runs/first")
    assert (status, out) == (0, announced("runs/first/figures")), err
    status, out, err = script("eval/figures.py", "runs/first", "runs/second", "--out", "both")
    assert (status, out) == (0, "Picture: both/training.png\n"), err
    with Image.open(tmp_path / "both/training.png") as picture:
        assert picture.width > 1000
    status, out, err = script("eval/figures.py", "runs/first", "runs/second")
    assert (status, out) == (1, "")
    assert err == "error: a picture of several runs needs a folder of its own: name one with --out FOLDER\n"
    shutil.rmtree(tmp_path / "runs/second/backbone")  # as if it were still in training
    status, out, err = script("eval/figures.py", "runs/second")
    assert (status, out) == (0, "Picture: runs/second/figures/training.png\n"), err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--images", "photo"], "error: there is no file or folder photo; did you mean photos"),
        (
            ["--figures.img_size", "11"],
            "--figures.img_size 11 is not a multiple of the backbone's patches of 2 px; use 10 or 12",
        ),
        (["--figures.count", "0"], "--figures.count 0 must be at least 1 and at most 12"),
        (["--backbone", "moved"], "the backbone was trained on cannot be opened (there is no file or folder /gone"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(
    script, backbone: str, photos: Path, words: list[str], expected: str
) -> None:
    config = json.loads(Path("run/backbone/config.json").read_text())
    config["ssl_vit"]["data"]["path"] = "/gone/images/of/long/ago"
    Path("moved").mkdir()
    Path("moved/config.json").write_text(json.dumps(config))
    Path("moved/model.safetensors").write_bytes(Path("run/backbone/model.safetensors").read_bytes())
    status, out, err = script("eval/figures.py", "--backbone", "run", *words, "--out", "new")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert expected in err
    assert not Path("new").exists()
