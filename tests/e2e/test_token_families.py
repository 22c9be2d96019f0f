"""Families with tokens, words and teachers as whole commands on digits, a few steps each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch

ROOT = Path(__file__).resolve().parents[2]
FEW = ["--fit.epochs", "0.1", "--fit.batch_size", "64", "--fit.log_every", "1"]
LABELLED = ["--eval.labels", "60", "--fit.epochs", "1", "--fit.min_steps", "3", "--fit.batch_size", "16"]


def losses(run: str) -> list[float]:
    return [json.loads(line)["loss"] for line in Path(run, "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("method", "name"),
    [("dino", "cct_micro"), ("dino", "resnet_micro"), ("mae", "beit_micro"), ("mae", "relative_micro"),
     ("mae", "deit_micro"), ("beit", "beit_micro"), ("simmim", "hybrid_micro"), ("simmim", "mobilevit_micro"),
     ("lejepa", "dat_micro")],
)  # fmt: skip
def test_a_family_by_a_method(method: str, name: str, script) -> None:
    status, out, err = script(f"recipes/{method}.py", "--model.name", name, *FEW, "--run.dir", "run")
    assert status == 0, err
    assert f"network         {name} (" in out
    assert len(losses("run")) >= 2 and all(0 <= loss < 1e3 for loss in losses("run"))
    if name == "beit_micro":
        assert ("reconstructions.png" in out) == (method == "mae")
        status, out, err = script("eval/figures.py", "--backbone", "run")
        assert status == 0, err
        assert Path("run/figures/attention.png").exists()
        assert "No positions.png" in out
    status, _, err = script("eval/knn.py", "--backbone", "run", "--eval.labels", "20", "--eval.baselines", "false")
    assert status == 0, err


def test_the_printed_command_loads_it_from_another_folder(script, tmp_path: Path) -> None:
    for name, modules in (("cct_micro", "timm, ssl_vit.families"), ("swin_micro", "timm")):
        status, out, err = script("recipes/dino.py", "--model.name", name, *FEW, "--run.dir", f"run of {name}")
        assert status == 0, err
        command = next(line.strip() for line in out.splitlines() if "create_model" in line)
        place = tmp_path / f"run of {name}" / "backbone"
        assert command == (
            f"python -c \"import {modules}; timm.create_model('local-dir:{place}', pretrained=True)\""
        )  # fmt: skip
        if name == "swin_micro":
            continue
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, shell=True, cwd=elsewhere, env=os.environ | found, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr


def test_beit_keeps_its_words(script) -> None:
    words = ["--model.name", "vit_micro", "--beit.words", "8", *FEW, "--run.dir", "run"]
    status, out, err = script("recipes/beit.py", *words)
    assert status == 0, err
    assert "8 words" in out
    kept = Path("run/words.safetensors").read_bytes()
    assert script("recipes/beit.py", *words)[0] == 0
    assert Path("run/words.safetensors").read_bytes() == kept


def test_a_teacher_and_its_student(script) -> None:
    status, _, err = script("recipes/supervised.py", "--model.name", "resnet_micro", *LABELLED, "--run.dir", "teacher")
    assert status == 0, err
    words = ["--teacher", "teacher", "--model.name", "deit_micro", "--taught.token_weight", "0.5", *LABELLED]
    status, out, err = script("recipes/taught.py", *words, "--run.dir", "student")
    assert status == 0, err
    assert "labels and a teacher" in out and "taught by resnet_micro" in out
    assert "\nteacher         resnet_micro " in out
    result = json.loads(Path("student/results/taught.json").read_text())
    assert result["rows"][0]["method"] == "taught by resnet_micro"
    about = json.loads(Path("student/backbone/config.json").read_text())["ssl_vit"]
    assert about["teacher"]["architecture"] == "resnet_small_images"
    card = Path("student/classifier/README.md").read_text()
    for row in (
        f"| teacher | resnet_micro (resnet_small_images) at 8 px, weights {about['teacher']['weights']}, ",
        "| what the teacher adds | distillation hard, weight 0.5, temperature 1.0, token_weight 0.5 |",
    ):
        assert f"\n{row}" in card
    last = json.loads(Path("student/metrics.jsonl").read_text().splitlines()[-1])
    assert {"labels", "teacher", "places"} <= set(last)
    model = timm.create_model("local-dir:student/classifier", pretrained=True).eval()
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    status, _, err = script("eval/predict.py", "--classifier", "student", "--data.path", "digits", "--out", "out.csv")
    assert status == 0, err
    status, _, err = script("recipes/taught.py", *words, "--run.dir", "student")  # is there already
    assert status == 0, err
    # A teacher, too: two heads, softly, for a network of one.
    more = ["--teacher", "student", "--taught.distillation", "soft", "--model.name", "vit_micro", *LABELLED]
    status, _, err = script("recipes/taught.py", *more, "--run.dir", "next")
    assert status == 0, err
    status, out, err = script("eval/runs.py", ".")
    assert status == 0, err
    assert "taught" in out


def test_a_teacher_of_other_classes(script, photos: Path) -> None:
    status, _, err = script("recipes/supervised.py", "--model.name", "resnet_micro", *LABELLED, "--run.dir", "teacher")
    assert status == 0, err
    status, _, err = script("recipes/taught.py", "--teacher", "teacher", "--data.path", str(photos), *LABELLED[2:])
    assert status == 1
    assert err.startswith(
        "error: --teacher teacher was trained on other classes than these 2: it does not know bright,"
    )
    assert err.strip().count("\n") == 0


@pytest.mark.parametrize("name", ["hybrid_micro", "cct_micro", "swin_micro"])
@pytest.mark.parametrize("method", ["mae", "beit"])
def test_what_cannot_hide_patches_says_what_it_can(name: str, method: str, script) -> None:
    status, _, err = script(f"recipes/{method}.py", "--model.name", name)
    assert status == 1
    assert f"--model.name {name} does not go with a method that leaves out or replaces patches" in err
    assert "It goes with dino, simmim" in err and "training on labels (supervised, taught, finetune)" in err
    assert err.strip().count("\n") == 0
