"""Networks that are no plain ViT, from training on labels to every evaluation that one vector is enough for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import timm
import torch
import yaml
from ssl_vit.configs import parse
from ssl_vit.configs.networks import wanted
from ssl_vit.methods.supervised import SupervisedRecipe

SHORT = ["--eval.labels", "30", "--fit.epochs", "1", "--fit.min_steps", "3", "--fit.batch_size", "16"]


def test_resnet_on_digits(script) -> None:
    status, out, err = script("recipes/supervised.py", "--model.name", "resnet18", *SHORT, "--run.dir", "run")
    assert status == 0, err
    assert "px32-cpu, 32 px for resnet18" in out
    assert "stochastic depth" not in err  # timm gives it to ResNets, too
    again = Path("run/config.yaml").read_text()
    assert "patch_size: null" in again
    config = json.loads(Path("run/backbone/config.json").read_text())
    assert (config["architecture"], config["pretrained_cfg"]["input_size"]) == ("resnet18", [1, 32, 32])
    assert timm.create_model("local-dir:run/classifier", pretrained=True)(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    words = ["--backbone", "run", "--eval.labels", "20", "--eval.baselines", "false"]
    status, out, err = script("eval/knn.py", *words)
    assert status == 0, err
    assert json.loads(Path("run/results/knn-20-labels-draw-0.json").read_text())["rows"][0]["images"] == 359


@pytest.mark.parametrize("more", [[], ["--eval.data.path", "labelled"], ["--model.args", '{"kernel_size": 3}']])
def test_what_is_to_be_typed_next_names_a_family_as_it_was_typed(
    more: list[str], script, save_photos, tmp_path: Path
) -> None:
    """cct_micro, not timm's name with a line of arguments; and the command makes the same network."""
    if "labelled" in more:
        save_photos(tmp_path).rename(tmp_path / "labelled")
    short = ["--model.name", "cct_micro", "--fit.batch_size", "16", "--fit.epochs", "0.01", "--fit.min_steps", "1"]
    status, out, err = script("recipes/simmim.py", *short, *more, "--run.dir", "run")
    assert status == 0, err
    line = out.partition("and the same network without pre-training:\n")[2].splitlines()[0]
    words = shlex.split(line.partition("recipes/supervised.py")[2])
    assert words.count("--model.name") == 1 and words[words.index("--model.name") + 1] == "cct_micro"
    assert ("--model.args" in words) == ("--model.args" in more)
    model = wanted(parse(SupervisedRecipe, "", words).model)
    made = yaml.safe_load(Path("run/config.yaml").read_text())["model"]
    assert model == (made["name"], made["args"])


@pytest.fixture
def run(script) -> str:
    words = ["--model.name", "test_resnet", *SHORT, "--run.dir", "run"]
    status, _, err = script("recipes/supervised.py", *words)
    assert status == 0, err
    return "run"


def test_every_evaluation(run: str, script) -> None:
    words = ["--backbone", run, "--eval.labels", "30"]
    for protocol, name, more in (
        ("cached", "linear-cached", ["--linear.min_steps", "20", "--linear.passes", "1"]),
        ("logistic", "logistic", ["--eval.baselines", "false"]),
        ("aug-mae", "linear-aug-mae", ["--fit.epochs", "1", "--fit.min_steps", "2"]),
    ):
        status, _, err = script("eval/linear_probe.py", *words, "--linear.protocol", protocol, *more)
        assert status == 0, err
        found = json.loads(Path(f"run/results/{name}-30-labels-draw-0.json").read_text())
        assert found["rows"][0]["pool"] == "mean"
    status, _, err = script(
        "eval/finetune.py", "--backbone", run, *SHORT, "--model.img_size", "64", "--run.dir", "tuned"
    )
    assert status == 0, err
    config = json.loads(Path("tuned/classifier/config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [1, 64, 64]
    status, _, err = script("eval/predict.py", "--classifier", "tuned", "--data.path", "digits", "--out", "out.csv")
    assert status == 0, err
    assert len(Path("out.csv").read_text().splitlines()) == 1798


def test_what_needs_tokens_says_so(run: str, script) -> None:
    words = ["--backbone", run]
    status, _, err = script("eval/linear_probe.py", *words, "--linear.protocol", "attentive")
    assert status == 1
    assert "needs the tokens of an image, and test_resnet gives one vector per image" in err
    assert err.strip().count("\n") == 0
    status, out, err = script("eval/figures.py", *words)
    assert status == 0, err
    assert "No attention.png" in out
    assert {path.name for path in Path(run, "figures").iterdir()} == {"pca.png", "training.png"}
    for more in (["--supervised.pool", "cls"], ["--model.patch_size", "4"]):
        status, _, err = script("eval/finetune.py", *words, *SHORT, *more)
        assert status == 1
        assert more[0] in err
    status, _, err = script("eval/linear_probe.py", *words, "--linear.pool", "cls")
    assert status == 1
    assert "--linear.pool cls needs a class token" in err
    for name, why in (
        ("resnet50", "it is a ResNet, whose convolutions"),
        ("hybrid_micro", "its stem, a HybridEmbed, looks beyond"),
    ):
        status, _, err = script("recipes/mae.py", "--model.name", name)
        assert status == 1
        assert f"does not go with a method that leaves out or replaces patches: {why}" in err
        assert "It goes with dino, simmim, lejepa" in err
        assert err.strip().count("\n") == 0


def test_options_that_would_do_nothing_or_cannot_be_are_refused(script) -> None:
    """One image per pass has no variance, and from random weights no block has a rate of its own."""
    plain = ["--supervised.mixup", "0", "--supervised.cutmix", "0", "--fit.batch_size", "2", "--fit.micro_batch", "1"]
    for said, *command in (
        ("one value per channel with --fit.micro_batch 1", "supervised", "--model.name", "resnet10t", *plain),
        ("--optim.layer_decay 0.5 is for networks that begin with weights", "mae", "--optim.layer_decay", "0.5"),
    ):
        status, _, err = script(f"recipes/{command[0]}.py", *command[1:], "--fit.epochs", "0.1", "--fit.min_steps", "1")
        assert (status, err.strip().count("\n")) == (1, 0), err
        assert said in err


def test_running_statistics_are_saved_and_resumed(script) -> None:
    words = ["--model.name", "test_resnet", *SHORT, "--fit.min_steps", "4", "--fit.checkpoint_steps", "2"]
    command = ["recipes/supervised.py", *words, "--fit.keep_checkpoints", "9", "--run.dir", "run"]
    assert script(*command)[0] == 0
    weights, newest = Path("run/backbone/model.safetensors"), Path("run/checkpoints/step_000000004.pt")
    whole = weights.read_bytes()
    state = torch.load(newest, weights_only=True)["objective"]
    for part in ("net", "average"):
        assert (state[f"{part}.backbone.model.layer1.0.bn2.running_var"] - 1).abs().max() > 1e-3
    newest.unlink()
    weights.unlink()
    status, out, err = script(*command)
    assert status == 0, err
    assert "continues after step 2 of 4" in out
    assert weights.read_bytes() == whole
