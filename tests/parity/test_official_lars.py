"""Three steps of LARS as facebookresearch/mae takes them, recorded in float64."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from ssl_vit.training.optim import LARS

FIXTURES = Path(__file__).parent / "fixtures"
TENSORS = load_file(FIXTURES / "lars.safetensors")
SETTINGS = json.loads((FIXTURES / "lars.json").read_text())


def test_matrices_and_biases_follow_the_official_steps() -> None:
    weight, bias = (torch.nn.Parameter(TENSORS[name].clone()) for name in ("w0", "b0"))
    optimizer = LARS(
        [weight, bias], SETTINGS["lr"], momentum=SETTINGS["momentum"], weight_decay=SETTINGS["weight_decay"],
        trust=SETTINGS["trust_coefficient"],
    )  # fmt: skip
    for step in range(3):
        weight.grad, bias.grad = TENSORS[f"grad{step}.w"], TENSORS[f"grad{step}.b"]
        optimizer.step()
        assert (weight - TENSORS[f"w{step + 1}"]).abs().max() <= 1e-9
        assert (bias - TENSORS[f"b{step + 1}"]).abs().max() <= 1e-9


def test_a_matrix_of_zeros_takes_a_plain_step() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    weight.grad = torch.full((2, 3), 0.5)
    LARS([weight], 0.1).step()
    assert torch.allclose(weight, torch.full((2, 3), -0.05))
