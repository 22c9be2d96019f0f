"""Park et al. 2023 (naver-ai/cl-vs-mim), recorded in float64: attention distance, mutual information, Fourier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.questions.metrics import amplitudes, attention_distance, attention_information, patch_distances

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())["metrics_attention"]["config"]
ATTENTION = load_file(FIXTURES / "metrics_attention.safetensors")
FOURIER = load_file(FIXTURES / "metrics_fourier.safetensors")
EXACT = {"rtol": 0.0, "atol": 1e-9}
GRID, PATCH = (GOLDEN["grid"], GOLDEN["grid"]), GOLDEN["patch_size"]
N = GOLDEN["grid"] ** 2


def closed(name: str) -> torch.Tensor:
    """The recorded closed cases, as maps without a class token."""
    rows = torch.zeros(N, N, dtype=torch.float64)
    if name == "uniform":
        rows += 1 / N
    elif name == "two_keys":
        rows[: N // 2, 0] = rows[N // 2 :, -1] = 1
    elif name == "one_key":
        rows[:, 0] = 1
    else:
        rows = torch.eye(N, dtype=torch.float64)
        rows = rows.flip(0) if name == "reversal" else rows
    return rows[None, None]


def test_distances_between_patches() -> None:
    torch.testing.assert_close(patch_distances(GRID, PATCH), ATTENTION["distance_matrix"], **EXACT)


def test_random_attention_with_a_class_token() -> None:
    rows = ATTENTION["attention"]
    torch.testing.assert_close(attention_distance(rows, GRID, PATCH, prefix=1), ATTENTION["random.distance"], **EXACT)
    torch.testing.assert_close(attention_information(rows, prefix=1), ATTENTION["random.nmi"], **EXACT)


@pytest.mark.parametrize("name", ["identity", "uniform", "one_key", "two_keys", "reversal"])
def test_closed_cases(name: str) -> None:
    rows = closed(name)
    torch.testing.assert_close(attention_distance(rows, GRID, PATCH, prefix=0), ATTENTION[f"{name}.distance"], **EXACT)
    torch.testing.assert_close(attention_information(rows, prefix=0), ATTENTION[f"{name}.nmi"], **EXACT)


@pytest.mark.parametrize("side", [6, 7])
def test_amplitudes_of_even_and_odd_grids(side: int) -> None:
    features = FOURIER[f"features{side}"][:, 1:].transpose(1, 2).unflatten(2, (side, side))
    torch.testing.assert_close(amplitudes(features).mean(dim=0), FOURIER[f"random{side}"], **EXACT)
