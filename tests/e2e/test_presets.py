"""Naming a preset, and extending a finished run, as a user does both."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

MAE = "recipes/mae.py"


def config(run: str) -> dict[str, dict[str, object]]:
    return yaml.safe_load((Path(run) / "config.yaml").read_text())


def test_a_named_preset_resizes_the_images_and_reaches_the_baseline(photos: Path, script, small: list[str]) -> None:
    words = [*small, "--data.path", "photos", "--fit.epochs", "0.5"]
    status, out, err = script(MAE, *words, "--preset", "px64", "--mae.mask_ratio", "0.6", "--run.dir", "named")
    assert status == 0, err
    assert "preset px64, 64 px = 64 patches of 8 px" in out  # of images of 20 to 26 px
    found = config("named")
    assert (found["preset"], found["model"]["img_size"], found["mae"]["mask_ratio"]) == ("px64", 64, 0.6)
    typed = re.search(r"recipes/supervised.py (.*)", out)
    assert typed
    again = shlex.split(typed[1])
    assert again[:2] == ["--preset", "px64"]
    status, out, err = script("recipes/supervised.py", *again, "--fit.min_steps", "1", "--fit.epochs", "0.5",
                              "--fit.batch_size", "32", "--run.dir", "scratch")  # fmt: skip
    assert status == 0, err
    assert "preset          px64, 64 px in patches of 8 px" in out
    assert config("scratch")["model"] == found["model"]
    assert config("scratch")["preset"] == "px64"


def test_fine_tuning_keeps_the_preset_of_its_backbone(script, small: list[str]) -> None:
    """A preset that the size of the input would not have chosen counts on both sides of the comparison."""
    status, out, err = script(MAE, *small, "--preset", "digits", "--model.img_size", "24", "--model.patch_size", "6",
                              "--fit.epochs", "0.1", "--run.dir", "run")  # fmt: skip
    assert status == 0, err
    short = ["--fit.min_steps", "1", "--fit.epochs", "0.05", "--eval.labels", "100"]
    for name, run in (("recipes/supervised", "scratch"), ("eval/finetune", "tuned"), ("eval/finetune", "again")):
        typed = re.search(rf"{name}.py (.*)", out)
        assert typed
        words = ["--backbone", "tuned"] if run == "again" else shlex.split(typed[1])
        status, _, err = script(f"{name}.py", *words, *short, "--run.dir", run)
        assert status == 0, err
    scratch, *tuned = (config(run) for run in ("scratch", "tuned", "again"))
    for one in tuned:
        assert one["augment"] == scratch["augment"]
        assert one["fit"] == scratch["fit"]
        assert {k: v for k, v in one["supervised"].items() if k != "pool"} == {
            k: v for k, v in scratch["supervised"].items() if k != "pool"
        }
    assert scratch["augment"]["crop_scale"] == [1, 1]  # px32, the preset for 24 px, has crops
    assert tuned[0]["optim"]["base_lr"] == 2e-3  # the preset's own, not that of narrow networks


def test_naming_the_preset_that_would_be_chosen_is_the_same_run(script, small: list[str]) -> None:
    words = [*small, "--fit.epochs", "0.2"]
    status, _, err = script(MAE, *words)
    assert status == 0, err
    (run,) = Path("runs").iterdir()
    assert config(str(run))["preset"] == "digits"
    status, out, err = script(MAE, *words, "--preset", "digits")
    assert status == 0, err
    assert list(Path("runs").iterdir()) == [run]
    assert "is already complete" in out


def test_the_baseline_of_another_network_has_its_sizes(script) -> None:
    words = ["--fit.batch_size", "32", "--fit.epochs", "0.05", "--model.depth", "1", "--model.width", "32"]
    status, out, err = script(MAE, *words, "--model.name", "vit_small", "--run.dir", "run")
    assert status == 0, err
    typed = re.search(r"recipes/supervised.py (.*)", out)
    assert typed
    words = [*shlex.split(typed[1]), "--fit.min_steps", "1", "--fit.epochs", "0.05"]
    status, _, err = script("recipes/supervised.py", *words, "--run.dir", "scratch")
    assert status == 0, err
    assert config("scratch")["model"] == config("run")["model"]
    assert config("run")["model"]["img_size"] == 8


def test_a_finished_run_is_extended_and_never_shortened(script, small: list[str]) -> None:
    words = [*small, "--run.dir", "run", "--fit.log_every", "1", "--optim.warmup", "0.2"]
    status, _, err = script(MAE, *words, "--fit.epochs", "0.5")
    assert status == 0, err
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    first, weights = len(lines), Path("run/backbone/model.safetensors").read_bytes()

    status, out, err = script(MAE, *words, "--fit.epochs", "1")
    assert status == 0, err
    after = Path("run/metrics.jsonl").read_text().splitlines()
    steps = len(after)
    assert steps == 2 * first - 1  # 45 steps an epoch
    assert after[:first] == lines
    rates = [json.loads(line)["lr"] for line in after]
    assert f"continues after step {first} of {steps}; the learning rate follows the schedule of {steps}" in out
    assert f"{rates[first - 1]:.3g} at the last step, {rates[first]:.3g} at the next" in out
    assert rates[first] > 10 * rates[first - 1]
    assert "the backbone will be replaced" in out
    assert Path("run/backbone/model.safetensors").read_bytes() != weights

    status, _, err = script(MAE, *words, "--fit.epochs", "1", "--run.dir", "whole")
    assert status == 0, err
    whole = [json.loads(line)["lr"] for line in Path("whole/metrics.jsonl").read_text().splitlines()]
    assert rates[first:] == whole[first:]

    assert config("run")["fit"]["epochs"] == 1.0
    about = json.loads(Path("run/environment.json").read_text())
    starts = [about["command"], *(entry["command"] for entry in about["continued"])]
    assert [re.search(r"--fit.epochs (\S+)", command)[1] for command in starts] == ["0.5", "1"]

    status, _, err = script(MAE, *words, "--fit.epochs", "0.5")
    assert status == 1
    assert f"already trained {steps} steps, more than the {first} asked for" in err
    assert err.strip().splitlines()[-1].startswith("error: ")
    assert config("run")["fit"]["epochs"] == 1.0  # a refused start leaves no trace
    assert len(json.loads(Path("run/environment.json").read_text())["continued"]) == 1


@pytest.mark.parametrize("recipe", [MAE, "recipes/supervised.py"])
def test_the_table_ends_the_script_at_once(recipe: str, script, tmp_path: Path) -> None:
    status, out, err = script(recipe, "--preset")
    assert (status, err) == (0, "")
    assert "px224" in out
    assert list(tmp_path.iterdir()) == []
