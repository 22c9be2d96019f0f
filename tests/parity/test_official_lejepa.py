"""The official LeJEPA's tensors in float64: SIGReg, agreement, their weighted sum and its gradients."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from ssl_vit.objectives.lejepa import disagreement, sketched_gaussianity

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())
TENSORS = load_file(FIXTURES / "lejepa.safetensors")
EXACT = {"rtol": 0.0, "atol": 1e-9}


def test_loss_and_gradients() -> None:
    """Against ``exact.*``: the official buffers are rounded to float32. There all four views are in the centre."""
    weight = GOLDEN["lejepa"]["config"]["lamb"]
    z = TENSORS["proj"].requires_grad_()
    apart, odd = disagreement(z, len(z)), sketched_gaussianity(z, TENSORS["directions"])
    for found, name in ((odd, "exact.sigreg"), ((1 - weight) * apart + weight * odd, "exact.lejepa"), (apart, "inv")):
        torch.testing.assert_close(found, TENSORS[name], **EXACT)
        gradient = "grad.inv" if name == "inv" else name.replace(".", ".grad.")
        torch.testing.assert_close(torch.autograd.grad(found, z, retain_graph=True)[0], TENSORS[gradient], **EXACT)


def test_what_the_official_buffers_make_of_it_is_close() -> None:
    found = sketched_gaussianity(TENSORS["proj"], TENSORS["directions"])
    torch.testing.assert_close(found, TENSORS["official.sigreg"], rtol=0.0, atol=1e-6)


def test_a_collapse_costs_what_it_costs_there() -> None:
    zeros = torch.zeros(1, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(sketched_gaussianity(zeros, TENSORS["directions"]), TENSORS["exact.zeros"], **EXACT)
