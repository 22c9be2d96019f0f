"""From no argument at all to a judged backbone, exactly as the README types it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from ssl_vit.training.launch import auto_precision

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, launched) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The first command of the README, shortened only in its length."""
    folder = tmp_path_factory.mktemp("first")
    done = launched("recipes/mae.py", "--fit.epochs", "3", cwd=folder, launcher=True)
    assert done.returncode == 0, done.stderr
    return next((folder / "runs").iterdir()), done


def test_the_first_command_makes_everything_it_promises(pretrained) -> None:
    run, done = pretrained
    assert run.name.startswith("mae-digits-")
    for name in ("config.yaml", "environment.json", "metrics.jsonl", "backbone/config.json"):
        assert (run / name).stat().st_size > 0
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all({"step", "epoch", "loss", "lr"} <= set(r) for r in records)
    # The launcher lists its own defaults when nobody ran "accelerate config"; nothing else may be said.
    assert not [line for line in done.stderr.splitlines() if re.search(r"warn(ing)?:", line, re.IGNORECASE)]
    assert "images/s" in done.stderr
    for command in ("eval/knn.py", "eval/linear_probe.py", "eval/finetune.py"):
        typed = re.search(rf"accelerate launch (\S*{command}) --backbone (\S+)\n", done.stdout)
        assert typed, done.stdout
        assert (run.parents[1] / typed[1]).resolve() == ROOT / command  # as seen from where the command was typed
        assert (run.parents[1] / typed[2]).resolve() == run / "backbone"
    assert "effective batch 128 = 1 process(es) x 128 per device x 1 accumulation" in done.stdout
    assert "1,438 from digits" in done.stdout
    with Image.open(run / "figures" / "reconstructions.png") as picture:
        assert min(picture.size) > 300
        assert np.asarray(picture.convert("L")).std() > 20  # it shows something


def test_plain_timm_loads_the_backbone(pretrained) -> None:
    run, _ = pretrained
    model = timm.create_model(f"local-dir:{run / 'backbone'}", pretrained=True)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 64)


def test_the_stored_config_repeats_the_run(pretrained, script, tmp_path: Path) -> None:
    run, _ = pretrained
    status, _, err = script(
        "recipes/mae.py", "--config", str(run / "config.yaml"), "--run.dir", str(tmp_path / "again")
    )
    assert status == 0, err
    stored = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    again = [json.loads(line) for line in (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in stored] == [r["step"] for r in again]
    # Other thread counts round differently, coarsely where the CPU chooses bf16; nothing else may.
    rel = 1e-5 if auto_precision() == "fp32" else 1e-3
    assert [r["loss"] for r in again] == pytest.approx([r["loss"] for r in stored], rel=rel)


def test_knn_and_linear_probe_on_the_runs_own_data(pretrained, script) -> None:
    run, _ = pretrained
    short = ["--linear.min_steps", "100", "--linear.passes", "1"]
    for method, name, words in (("eval/knn.py", "knn", []), ("eval/linear_probe.py", "linear-cached", short)):
        status, out, err = script(method, "--backbone", str(run / "backbone"), *words)
        assert status == 0, err
        result = json.loads((run / "results" / f"{name}.json").read_text())
        methods = {row["method"] for row in result["rows"]}
        assert methods == {"MAE", "random weights", "raw pixels"}
        assert methods <= set(re.findall(r"MAE|random weights|raw pixels", out))
        assert {row["images"] for row in result["rows"]} == {359}
        assert re.search(r"No gain: raw pixels score \d+\.\d points above MAE", out)
        assert result["labels_used"] == 1438
        assert {"protocol", "protocol_hash", "backbone", "data", "seed", "made_with", "selection"} <= set(result) | {
            "selection"
        }
        pixels = next(r for r in result["rows"] if r["method"] == "raw pixels")
        assert pixels["top1"] > 90
        assert set(pixels["per_class"]) == set("0123456789")
        assert f"| MAE | {name} |" in (run / "backbone" / "README.md").read_text()


def test_few_labels_of_a_draw(pretrained, script, tmp_path: Path) -> None:
    run, _ = pretrained
    words = ["--backbone", str(run), "--eval.labels", "20", "--eval.draw", "3", "--run.dir", str(tmp_path / "few")]
    status, out, err = script("eval/knn.py", *words, "--eval.baselines", "false")
    assert status == 0, err
    result = json.loads((tmp_path / "few" / "results" / "knn-20-labels-draw-3.json").read_text())
    assert result["labels_used"] == 20
    assert "all 20" in out  # fewer images than neighbours is said


def test_finetune_and_the_labelled_baseline(pretrained, script, small: list[str]) -> None:
    run, _ = pretrained
    short = ["--fit.epochs", "1", "--fit.min_steps", "30", "--eval.labels", "50"]
    status, out, err = script("eval/finetune.py", "--backbone", str(run / "backbone"), *short)
    assert status == 0, err
    assert "fine-tuned" in out
    tuned = next((run / "finetune").iterdir())
    for folder in (tuned / "classifier", tuned / "backbone", run / "backbone"):
        card = (folder / "README.md").read_text()
        assert "| finetune |" in card and "judged it yet" not in card and "Not judged yet" not in card
    trained = (tuned / "classifier" / "README.md").read_text()
    assert "| number of images | 50 |" in trained and ", 30 steps |" in trained
    assert json.loads((tuned / "results" / "finetune.json").read_text())["rows"][0]["steps"] == 30
    assert timm.create_model(f"local-dir:{tuned / 'backbone'}", pretrained=True) is not None
    status, out, err = script("recipes/supervised.py", *small, *short, "--run.dir", "scratch")
    assert status == 0, err
    assert "from scratch" in out
    result = json.loads(Path("scratch/results/supervised.json").read_text())
    assert result["labels_used"] == 50
    assert result["rows"][0]["images"] == 359


def test_own_folder_from_pre_training_to_k_nn(photos: Path, script, small: list[str]) -> None:
    """Images of different sizes; a pool beside a labelled set; channels and sizes come from the data."""
    status, out, err = script(
        "recipes/mae.py", *small, "--data.path", "photos", "--fit.epochs", "2", "--run.dir", "run"
    )
    assert status == 0, err
    assert "48 from photos" in out
    assert "12 images stay out as a test split" in out
    config = json.loads(Path("run/backbone/config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [3, 24, 24]
    status, out, err = script("eval/knn.py", "--backbone", "run/backbone")
    assert status == 0, err
    rows = json.loads(Path("run/results/knn.json").read_text())["rows"]
    assert next(r for r in rows if r["method"] == "raw pixels")["images"] == 12
    # The same backbone judged on other images.
    status, out, err = script("eval/knn.py", "--backbone", "run", "--eval.data.path", "photos", "--run.dir", "other")
    assert status == 0, err


def test_killed_and_started_again(launched, tmp_path: Path, small: list[str]) -> None:
    """SIGKILL after step 13 (checkpoints every 5): the rest is the same bit for bit."""
    words = [*small, "--fit.epochs", "0.5", "--fit.log_every", "1", "--fit.checkpoint_steps", "5", "--run.dir"]
    whole = launched("recipes/mae.py", *words, "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    killer = tmp_path / "killer.py"
    killer.write_text(
        "import os, runpy, signal, sys\n"
        "from ssl_vit.objectives.mae import MAE\n"
        "def after_step(self, clock):\n"
        "    if clock.step == 13:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "MAE.after_step = after_step\n"
        f"sys.argv = ['mae.py', *{[*words, 'killed']!r}]\n"
        f"runpy.run_path({str(ROOT / 'recipes/mae.py')!r}, run_name='__main__')\n"
    )
    died = launched(killer, cwd=tmp_path)
    assert died.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "backbone").exists()
    again = launched("recipes/mae.py", *words, "killed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 10" in again.stdout
    assert (tmp_path / "killed" / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()
    weights = [(tmp_path / n / "backbone" / "model.safetensors").read_bytes() for n in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_named_timm_model_in_bf16(launched, tmp_path: Path) -> None:
    """A named timm model, shrunk to small images, in mixed precision; the masters and the export stay float32."""
    words = [
        "--model.name",
        "vit_small_patch16_224",
        "--model.img_size",
        "8",
        "--model.width",
        "24",
        "--model.depth",
        "1",
    ]
    done = launched(
        "recipes/mae.py", *words, "--fit.precision", "bf16", "--fit.epochs", "0.3", "--run.dir", "run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "bf16 on cpu" in done.stdout
    model = timm.create_model(f"local-dir:{tmp_path / 'run' / 'backbone'}", pretrained=True)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    config = json.loads((tmp_path / "run" / "backbone" / "config.json").read_text())
    assert config["architecture"] == "vit_small_patch16_224"


def test_help_comes_before_torch() -> None:
    program = (
        "import runpy, sys\n"
        "sys.argv = ['mae.py', '--help']\n"
        "try:\n"
        f"    runpy.run_path({str(ROOT / 'recipes/mae.py')!r}, run_name='__main__')\n"
        "except SystemExit as stopped:\n"
        "    heavy = {'torch', 'timm', 'accelerate', 'datasets', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "    sys.exit(f'imported {heavy}' if heavy or stopped.code else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--mae.mask_ratio" in done.stdout
