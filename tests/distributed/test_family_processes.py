"""Families of networks on one process against two, in double precision; and what is made of the images once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

COMMON = ["--fit.batch_size", "32", "--fit.epochs", "0.1", "--fit.log_every", "1", "--fit.precision", "fp64"]
CASES = {
    "mae beit": ["--model.name", "beit_micro"],
    "mae relative": ["--model.name", "relative_micro"],
    "mae deit": ["--model.name", "deit_micro"],
    "beit vit": ["--model.name", "vit_micro", "--model.patch_size", "2"],
    "beit beit": ["--model.name", "beit_micro", "--beit.words", "16"],
    **{
        f"simmim {name}": ["--model.name", f"{name}_micro"]
        for name in (
            "cct",
            "cvt",
            "pvt",
            "t2t",
            "dat",
            "swin",
            "mobilevit",
            "hybrid",
            "resnet",
            "relative",
            "deit",
            "beit",
            "convnext",
            "pvtv2",
        )
    },
    "dino cct": ["--model.name", "cct_micro", "--dino.out_dim", "64"],
    "lejepa swin": ["--model.name", "swin_micro"],
}
SUMS = 1e-8
"""Ten times a plain ViT's: sums run over more places, and batch normalisation's over all processes."""


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_what_one_trains(case: str, tmp_path: Path, launch, losses) -> None:
    states = []
    for processes in (1, 2):
        script = f"recipes/{case.partition(' ')[0]}.py"
        done = launch(processes, script, *CASES[case], *COMMON, "--run.dir", str(processes), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        saved = next((tmp_path / str(processes) / "checkpoints").glob("*.pt"))
        states.append(torch.load(saved, weights_only=True)["objective"])
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 5
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= SUMS
    for name, value in states[0].items():
        assert (value - states[1][name]).abs().max() <= 10 * SUMS, name
    if case.startswith("beit"):
        words = [load_file(tmp_path / str(n) / "words.safetensors")["words"] for n in (1, 2)]
        assert torch.equal(*words)
        assert torch.equal(states[1]["words"], words[0].float().to(states[1]["words"].dtype))


def test_a_teacher_on_two_processes(tmp_path: Path, launch, losses) -> None:
    few = ["--eval.labels", "64", "--fit.epochs", "2", "--fit.min_steps", "4", "--fit.batch_size", "32"]
    exact = [*few, "--fit.log_every", "1", "--fit.precision", "fp64"]
    done = launch(1, "recipes/supervised.py", "--model.name", "vit_micro", *few, "--run.dir", "teacher", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    states = []
    for processes in (1, 2):
        words = ["--teacher", "teacher", "--model.name", "deit_micro", "--taught.token_weight", "0.5", *exact]
        done = launch(processes, "recipes/taught.py", *words, "--run.dir", str(processes), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        saved = next((tmp_path / str(processes) / "checkpoints").glob("*.pt"))
        states.append(torch.load(saved, weights_only=True)["objective"])
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) >= 4
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= SUMS
    for name, value in states[0].items():
        assert (value - states[1][name]).abs().max() <= 10 * SUMS, name
