"""Methods on one process against two, in double precision; and a run that ends and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from made_teacher import save_teacher

SMALL = ["--model.width", "16", "--model.depth", "2", "--model.heads", "2"]
COMMON = ["--fit.batch_size", "32", "--fit.epochs", "0.2", "--fit.log_every", "1", "--fit.precision", "fp64"]
CASES = {
    "simmim": SMALL,
    "simmim-resnet": ["--model.name", "test_resnet"],
    "lejepa": [*SMALL, "--crops.local_crops", "2", "--lejepa.drop_path", "0.1", "--lejepa.slices", "32"],
    "diet": [*SMALL, "--augment.erasing", "0.5"],
    "distill": [*SMALL, "--teacher", "teacher"],
    "beit": [*SMALL, "--beit.words", "16"],
}


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_what_one_trains(case: str, tmp_path: Path, launch, losses) -> None:
    """Losses, weights, statistics of batch normalisation and the looks at features."""
    states, script = [], f"recipes/{case.partition('-')[0]}.py"
    save_teacher(tmp_path / "teacher")
    for processes in (1, 2):
        done = launch(processes, script, *CASES[case], *COMMON, "--run.dir", str(processes), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        saved = next((tmp_path / str(processes) / "checkpoints").glob("*.pt"))
        states.append(torch.load(saved, weights_only=True)["objective"])
        assert (tmp_path / str(processes) / "health.jsonl").read_text().count("effective_rank") == 1
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 9
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    for name, value in states[0].items():
        assert (value - states[1][name]).abs().max() <= 1e-8, name


@pytest.mark.parametrize("case", ["simmim", "lejepa", "diet", "distill", "beit"])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(case: str, tmp_path: Path, launch) -> None:
    """Everything after the newest checkpoint is lost, as after SIGKILL, and made again."""
    save_teacher(tmp_path / "teacher")
    words = [
        *CASES[case],
        *COMMON,
        "--fit.precision",
        "fp32",
        "--fit.checkpoint_steps",
        "4",
        "--fit.keep_checkpoints",
        "9",
    ]
    for name in ("whole", "cut"):
        done = launch(1, f"recipes/{case}.py", *words, "--run.dir", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    *earlier, last = sorted((tmp_path / "cut" / "checkpoints").glob("*.pt"))
    assert len(earlier) == 2
    last.unlink()
    again = launch(1, f"recipes/{case}.py", *words, "--run.dir", "cut", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 8 of 9" in again.stdout
    for name in ("metrics.jsonl", "health.jsonl", "backbone/model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
