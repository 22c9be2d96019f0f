"""DINO on one process against two: loss, centre, teacher and what is observed; accumulation too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

WORDS = [
    "--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.batch_size", "32", "--fit.epochs",
    "0.22", "--fit.log_every", "1", "--optim.lr", "0.0002", "--dino.out_dim", "64", "--dino.check_steps", "5",
    "--dino.freeze_last_layer", "0.1", "--dino.centring", "mean", "--dino.teacher_temp", "0.04", "--dino.drop_path",
    "0.1", "--crops.local_crops", "4",
]  # fmt: skip
CASES = {"one": (1, 32), "two": (2, 16), "two-in-parts": (2, 4)}
"""Processes and images per forward pass."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, launch) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for precision in ("fp64", "fp32"):
        for name, (processes, micro) in CASES.items():
            words = [*WORDS, "--fit.precision", precision, "--fit.micro_batch", str(micro)]
            done = launch(processes, "recipes/dino.py", *words, "--run.dir", f"{precision}-{name}", cwd=folder)
            assert done.returncode == 0, done.stderr
    return folder


def state(run: Path) -> dict[str, Any]:
    return torch.load(next((run / "checkpoints").glob("*.pt")), weights_only=True)["objective"]


def health(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "health.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("other", ["two", "two-in-parts"])
def test_float64_loss_centre_and_teacher(runs: Path, other: str, losses) -> None:
    one, two = losses(runs / "fp64-one"), losses(runs / f"fp64-{other}")
    assert len(one) == len(two) == 10
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    first, second = state(runs / "fp64-one"), state(runs / f"fp64-{other}")
    assert first["centre"].dtype == torch.float64
    assert first["centre"].abs().max() > 1e-3
    assert any(name.startswith("teacher.") for name in first)
    for name in first:
        assert (first[name] - second[name]).abs().max() <= 1e-9, name


@pytest.mark.parametrize("other", ["two", "two-in-parts"])
def test_float32_loss(runs: Path, other: str, losses) -> None:
    one, two = losses(runs / "fp32-one"), losses(runs / f"fp32-{other}")
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-5


@pytest.mark.parametrize("other", ["two", "two-in-parts"])
def test_what_is_observed_is_that_of_the_whole_batch(runs: Path, other: str) -> None:
    one, two = health(runs / "fp64-one"), health(runs / f"fp64-{other}")
    assert [row["step"] for row in one] == [5, 10]
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_sinkhorn_knopp_normalises_over_all_processes(tmp_path: Path, launch, losses) -> None:
    for processes in (1, 2):
        words = [*WORDS, "--fit.precision", "fp64", "--dino.centring", "sinkhorn", "--run.dir", str(processes)]
        done = launch(processes, "recipes/dino.py", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9


def test_batch_normalisation_over_all_processes(tmp_path: Path, launch, losses) -> None:
    """A network that is no plain ViT: statistics of student and teacher are those of the whole batch."""
    words = ["--model.name", "test_resnet", "--fit.batch_size", "16", "--fit.epochs", "0.07", "--fit.log_every", "1",
             "--dino.out_dim", "64", "--crops.local_crops", "2", "--dino.centring", "mean", "--fit.precision",
             "fp64"]  # fmt: skip
    for processes in (1, 2):
        done = launch(processes, "recipes/dino.py", *words, "--run.dir", str(processes), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 7
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    first, second = state(tmp_path / "1"), state(tmp_path / "2")
    assert any("running_mean" in name for name in first)
    for name in first:
        assert (first[name] - second[name]).abs().max() <= 1e-9, name
