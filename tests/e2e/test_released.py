"""A file of released weights through every command that takes one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import timm
import torch
import yaml
from ssl_vit.configs import parse
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.released.starts import read_start

STEPS = ["--fit.batch_size", "16", "--fit.epochs", "0.02", "--optim.lr", "1e-12", "--optim.weight_decay", "0"]
SMALL_HEADS = {"dino": ["--dino.out_dim", "64"]}


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """DINOv2's layout of a small network, where the commands are run."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    args = {"img_size": 28, "patch_size": 4, "embed_dim": 64, "depth": 2, "num_heads": 1, "num_classes": 0}
    model = timm.create_model("vit_small_patch14_dinov2", **args)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape))
    torch.save({**model.state_dict(), "mask_token": torch.zeros(1, 64)}, "official.pth")
    return "official.pth"


@pytest.mark.parametrize("method", ["mae", "simmim", "dino", "lejepa"])
def test_every_method_goes_on_from_it(method: str, official: str, script) -> None:
    words = ["--model.weights", official, "--model.img_size", "16", *STEPS, *SMALL_HEADS.get(method, [])]
    status, out, err = script(f"recipes/{method}.py", *words, "--run.dir", "run")
    assert status == 0, err
    assert f"ViT of 2 blocks of width 64, patches of 4 px at 16 px; goes on from {official}" in out
    assert "--model.weights" not in out  # the command of the baseline, which makes the same network
    line = out.partition("and the same network without pre-training:\n")[2].splitlines()[0]
    baseline = parse(SupervisedRecipe, "", shlex.split(line.partition("supervised.py")[2])).model
    kept = yaml.safe_load(Path("run/config.yaml").read_text())["model"]
    for part in ("name", "width", "depth", "heads", "patch_size", "img_size", "pool"):
        assert getattr(baseline, part) == kept[part], part
    start, made = read_start(f"{official}@16"), load_backbone("run")
    expected = start.backbone.timm_state()
    expected["patch_embed.proj.weight"] = expected["patch_embed.proj.weight"].sum(dim=1, keepdim=True)
    for name, value in made.backbone.timm_state().items():
        assert torch.allclose(value, expected[name], rtol=0, atol=1e-6), name
    told = json.loads(Path("run/environment.json").read_text())
    weights_hash = read_start(official).weights_hash
    assert told["started_from"] == made.about["started_from"]
    assert told["started_from"] == {
        "weights": official, "hash": weights_hash, "objective": "public weights", "layout": "DINOv2",
        "beside": ["mask_token"],
    }  # fmt: skip
    assert "| begins with | official.pth (DINOv2) |" in Path("run/backbone/README.md").read_text()
    assert told["data_fingerprint"].startswith(f"{weights_hash}-")
    assert yaml.safe_load(Path("run/config.yaml").read_text())["model"]["width"] == 64


def test_a_run_is_known_by_what_the_weights_are(official: str, script) -> None:
    words = ["--model.img_size", "8", *STEPS]
    assert script("recipes/mae.py", "--model.weights", official, *words)[0] == 0
    (run,) = Path("runs").iterdir()
    Path(official).rename("moved.pth")
    status, _, err = script("recipes/mae.py", "--model.weights", "moved.pth", *words)
    assert status == 0, err
    assert [*Path("runs").iterdir()] == [run]
    status, _, err = script("recipes/mae.py", "--model.weights", str(run), *STEPS)  # and on from what it left
    assert status == 0, err
    assert len([*Path("runs").iterdir()]) == 2
    status, _, err = script("recipes/mae.py", "--model.weights", str(run), *words, "--run.dir", str(run))
    assert status == 1
    assert f"--run.dir {run} holds a run from other weights (they have changed)" in err


def test_every_evaluation(official: str, photos: Path, script) -> None:
    judged = ["--eval.data.path", str(photos), "--eval.labels", "20"]
    for name, more in (
        ("knn", []),
        ("linear_probe", ["--linear.min_steps", "20", "--linear.passes", "1"]),
        ("finetune", ["--fit.epochs", "1", "--fit.min_steps", "2", "--model.img_size", "16"]),
    ):
        status, out, err = script(f"eval/{name}.py", "--backbone", official, *judged, *more)
        assert status == 0, err
        assert "public weights" in out
    (kept,) = Path("runs/released").iterdir()
    assert {path.name for path in kept.iterdir()} >= {"backbone", "results", "features", "finetune"}
    status, _, err = script("eval/embed.py", official, str(photos), "--out", "features.csv")
    assert status == 0, err
    status, _, err = script("eval/figures.py", official, str(photos), "--out", "pictures")
    assert status == 0, err
    assert {path.name for path in Path("pictures").iterdir()} == {"attention.png", "positions.png", "pca.png"}
    status, _, err = script("eval/export.py", official, "--out", "exported")
    assert status == 0, err
    assert [*Path("runs/released").iterdir()] == [kept]


def test_images_of_other_channels(official: str, script) -> None:
    words = ["--eval.data.path", "digits", "--eval.labels", "20"]
    status, out, err = script("eval/knn.py", "--backbone", f"{official}@8", *words)
    assert status == 0, err
    assert "patches of 4 px at 8 px" in out
    status, _, err = script("eval/figures.py", official, "digits", "--out", "pictures")
    assert status == 0, err
    assert Path("pictures/attention.png").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["recipes/supervised.py"], "--model.weights official.pth is for pre-training"),
        (
            ["recipes/mae.py", "--model.width", "32"],
            "--model.width cannot be given beside --model.weights official.pth",
        ),
        (["recipes/mae.py", "--model.img_size", "30"], "--model.img_size 30 is not a multiple of --model.patch_size 4"),
        (["recipes/mae.py", "--model.weights", "oficial.pth"], "--model.weights oficial.pth does not exist"),
    ],
)
def test_mistakes(words: list[str], expected: str, official: str, script) -> None:
    status, _, err = script(words[0], "--model.weights", official, *words[1:])
    assert status == 1
    assert err.startswith("error: ") and expected in err
    assert err.strip().count("\n") == 0


def test_dinov3_is_timms_own_network(official: str, script) -> None:
    args = {"patch_size": 4, "embed_dim": 64, "depth": 2, "num_heads": 4, "num_classes": 0, "num_reg_tokens": 4}
    model = timm.create_model("vit_small_patch16_dinov3", **args)
    names = {"gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma", "reg_token": "storage_tokens"}
    state = model.state_dict()
    for own, theirs in names.items():
        state = {name.replace(own, theirs): value for name, value in state.items()}
    torch.save(state, "dinov3.pth")
    words = ["--model.weights", "dinov3.pth", "--model.img_size", "16", *STEPS, *SMALL_HEADS["dino"]]
    status, out, err = script("recipes/dino.py", *words, "--crops.local_crops", "0", "--run.dir", "run")
    assert status == 0, err
    assert "ViT of 2 blocks of width 64, patches of 4 px at 16 px; goes on from dinov3.pth" in out
    config = json.loads(Path("run/backbone/config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [1, 16, 16]
    assert timm.create_model("local-dir:run/backbone", pretrained=True)(torch.zeros(2, 1, 16, 16)).shape == (2, 64)
    status, _, err = script("eval/knn.py", "run", "--eval.labels", "20")
    assert status == 0, err
    status, _, err = script("recipes/mae.py", *words[:4])
    assert status == 1
    assert "--model.weights vit_small_patch16_dinov3 does not go with a method that leaves out or replaces" in err
    assert "it is an Eva" in err
