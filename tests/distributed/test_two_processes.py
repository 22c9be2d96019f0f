"""One process against two at the same global batch, with the real launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]


MAE = [
    "--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.batch_size", "32", "--fit.epochs",
    "0.44", "--fit.log_every", "1", "--optim.lr", "0.002",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, launch) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for precision in ("fp64", "fp32"):
        for processes in (1, 2):
            words = [*MAE, "--fit.precision", precision, "--run.dir", f"{precision}-{processes}"]
            done = launch(processes, "recipes/mae.py", *words, cwd=folder)
            assert done.returncode == 0, done.stderr
            assert f"32 = {processes} process(es) x {32 // processes} per device x 1" in done.stdout
    return folder


def test_float64_losses_and_weights(runs: Path, losses) -> None:
    one, two = losses(runs / "fp64-1"), losses(runs / "fp64-2")
    assert len(one) == len(two) == 20
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    states = [
        torch.load(next((runs / f"fp64-{n}" / "checkpoints").glob("*.pt")), weights_only=True)["objective"]
        for n in (1, 2)
    ]
    assert any(v.dtype == torch.float64 for v in states[0].values())
    for name in states[0]:
        assert (states[0][name] - states[1][name]).abs().max() <= 1e-9, name


def test_float32_losses(runs: Path, losses) -> None:
    one, two = losses(runs / "fp32-1"), losses(runs / "fp32-2")
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-5
    assert one[-1] < one[0]


def test_evaluation_counts_every_image_once_on_two_processes(runs: Path, launch) -> None:
    found = []
    for processes in (1, 2):
        done = launch(
            processes, "eval/knn.py", "--backbone", "fp32-1", "--eval.batch_size", "50",
            "--run.dir", f"knn-{processes}", cwd=runs,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads((runs / f"knn-{processes}" / "results" / "knn.json").read_text()))
    assert [row["images"] for row in found[0]["rows"]] == [359] * 12
    for a, b in zip(found[0]["rows"], found[1]["rows"], strict=True):
        assert a == b


def test_exports_are_equal_in_float32(runs: Path) -> None:
    one, two = (load_file(runs / f"fp64-{n}" / "backbone" / "model.safetensors") for n in (1, 2))
    for name in one:
        assert torch.allclose(one[name], two[name], atol=1e-6), name


@pytest.mark.parametrize("policy", ["3-augment", "randaugment"])
def test_labels_mixing_and_accumulation(policy: str, tmp_path: Path, launch, losses) -> None:
    """Labels with crops, colour, erasing, mixup, CutMix and stochastic depth: 1 x 16 against 2 x (4 + 4)."""
    rng = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 40)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = (level + rng.integers(0, 60, (24 + i % 3, 24, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    words = [
        "--data.path", "photos", "--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.epochs", "1",
        "--fit.min_steps", "10", "--fit.batch_size", "16", "--fit.log_every", "1", "--fit.precision", "fp64",
        "--supervised.mixup", "0.8", "--supervised.cutmix", "1", "--augment.policy", policy,
        "--augment.erasing", "0.5", "--augment.repeats", "2" if policy == "3-augment" else "1",
    ]  # fmt: skip
    for processes, micro in ((1, 16), (2, 4)):
        done = launch(
            processes, "recipes/supervised.py", *words, "--fit.micro_batch", str(micro), "--run.dir", str(processes),
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 10
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9


def test_batch_norm_of_a_convolutional_network(tmp_path: Path, launch, losses) -> None:
    """Statistics of all processes: 1 x 16 and 2 x 8 train the same network, running statistics included."""
    words = ["--model.name", "test_resnet", "--eval.labels", "32", "--fit.batch_size", "16", "--fit.epochs", "1",
             "--fit.min_steps", "4", "--fit.log_every", "1", "--fit.precision", "fp64"]  # fmt: skip
    states = []
    for processes in (1, 2):
        done = launch(processes, "recipes/supervised.py", *words, "--run.dir", str(processes), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        saved = next((tmp_path / str(processes) / "checkpoints").glob("*.pt"))
        states.append(torch.load(saved, weights_only=True)["objective"])
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 4
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    assert any("running_var" in name for name in states[0])
    for name in states[0]:
        assert (states[0][name] - states[1][name]).abs().max() <= 1e-9, name


def test_linear_probe_with_batch_norm_and_lars(runs: Path, launch, losses) -> None:
    """MAE's probe: batch statistics of all processes, so that 1 x 64 and 2 x 32 train the same head."""
    words = ["--backbone", "fp64-1", "--linear.protocol", "aug-mae", "--fit.precision", "fp64", "--fit.batch_size",
             "64", "--fit.epochs", "0.4", "--fit.min_steps", "8", "--fit.log_every", "1", "--optim.lr", "5",
             "--eval.baselines", "false"]  # fmt: skip
    states, results = [], []
    for processes in (1, 2):
        folder = runs / f"probe-{processes}"
        done = launch(processes, "eval/linear_probe.py", *words, "--run.dir", folder.name, cwd=runs)
        assert done.returncode == 0, done.stderr
        trained = next((folder / "linear_probe").glob("*/backbone"))
        states.append(torch.load(next((trained / "checkpoints").glob("*.pt")), weights_only=True)["objective"])
        results.append((losses(trained), json.loads((folder / "results" / "linear-aug-mae.json").read_text())["rows"]))
    assert len(results[0][0]) == 9
    assert max(abs(a - b) for a, b in zip(results[0][0], results[1][0], strict=True)) <= 1e-9
    assert results[0][1] == results[1][1]
    for name in states[0]:
        assert (states[0][name] - states[1][name]).abs().max() <= 1e-9, name
    assert (states[0]["head.0.mean"]).abs().max() > 1e-3  # the running statistics have moved


def test_fewer_images_than_processes(runs: Path) -> None:
    """A process without images takes part in the gathering and adds nothing; as torchrun starts and ends both."""
    words = ["--backbone", "fp32-1", "--eval.labels", "1", "--eval.baselines", "false", "--run.dir", "one-label"]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*command, str(ROOT / "eval/knn.py"), *words], cwd=runs, env=environment | {"ACCELERATE_USE_CPU": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((runs / "one-label" / "results" / "knn-1-labels-draw-0.json").read_text())
    assert (result["labels_used"], result["rows"][0]["images"]) == (1, 359)


@pytest.mark.parametrize("way", ["--num_processes", "--config_file"])
def test_two_processes_asked_for_and_one_started(way: str, tmp_path: Path) -> None:
    """``accelerate launch --cpu --num_processes 2`` starts a single process; it must not train something else."""
    file = tmp_path / "accelerate.yaml"
    file.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\nmixed_precision: 'no'\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        way,
        "2" if way == "--num_processes" else str(file),
    ]
    done = subprocess.run(
        [*command, str(ROOT / "recipes/mae.py"), *MAE], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode != 0
    assert "error: 2 processes were asked for, but this job has 1" in done.stderr
    assert not (tmp_path / "runs").exists()
