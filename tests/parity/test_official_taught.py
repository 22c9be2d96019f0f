"""DeiT's distillation and token labelling against tensors recorded from their authors' code: losses and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from ssl_vit.objectives.taught import distillation_loss, soft_cross_entropy
from torch import Tensor

FIXTURES = Path(__file__).parent / "fixtures"
DEIT, TOKENS = load_file(FIXTURES / "deit_distillation.safetensors"), load_file(FIXTURES / "token_labeling.safetensors")
EXACT = {"rtol": 0.0, "atol": 1e-9}
CLASSES = 6


@pytest.mark.parametrize("kind", ["hard_a0.5_t1.0", "soft_a0.5_t3.0", "soft_a0.1_t1.0", "none_a0.5_t1.0"])
@pytest.mark.parametrize("base", ["ce", "soft_target", "smooth"])
def test_distillation(base: str, kind: str) -> None:
    """All losses on labels are one soft cross-entropy here, of what the view makes of labels."""
    labels = torch.nn.functional.one_hot(DEIT["labels"], 10).double()
    targets = {"ce": labels, "soft_target": DEIT["soft_targets"], "smooth": 0.9 * labels + 0.1 / 10}[base]
    outputs, distilled = (DEIT[name].clone().requires_grad_() for name in ("outputs", "outputs_kd"))
    what, alpha, temperature = kind.split("_")
    share, recorded = float(alpha[1:]), f"{base}.{kind}."
    loss = soft_cross_entropy(outputs, targets)
    if what != "none":
        apart = distillation_loss(distilled, DEIT["teacher"], what, float(temperature[1:]))  # pyright: ignore[reportArgumentType]
        loss = (1 - share) * loss + share * apart
    torch.testing.assert_close(loss, DEIT[f"{recorded}loss"], **EXACT)
    loss.backward()
    torch.testing.assert_close(outputs.grad, DEIT[f"{recorded}grad.outputs"], **EXACT)
    if what != "none":
        torch.testing.assert_close(distilled.grad, DEIT[f"{recorded}grad.outputs_kd"], **EXACT)


def with_truth(wanted: Tensor, truth: Tensor) -> Tensor:
    """Scores mixed with the label: .9 of them where their first class is another one, else .5."""
    share = 0.9 - 0.4 * (wanted.argmax(-1) == truth.argmax(-1)).double()[..., None]
    return share * wanted + (1 - share) * truth


@pytest.mark.parametrize(
    ("name", "box", "truth", "weights"),
    [
        ("dense", 0, False, (1.0, 1.0)),
        ("dense_mix", 4, False, (1.0, 1.0)),
        ("dense_gt", 0, True, (1.0, 1.0)),
        ("dense_weights", 4, True, (2.0, 0.5)),
        ("flat", 0, False, (1.0, 1.0)),
        ("flat_mix", 4, False, (1.0, 1.0)),
    ],
)
def test_token_labelling(name: str, box: int, truth: bool, weights: tuple[float, float]) -> None:
    """The class target alone is mixed, by the share of the box in the patches, and with the label."""
    outputs, places = (TOKENS[key].clone().requires_grad_() for key in ("output", "aux_output"))
    if name.startswith("flat"):
        wanted = TOKENS["target2"]
        of_places = wanted[:, None].expand(-1, places.shape[1], -1)
    else:
        given = TOKENS["target3"].transpose(1, 2)
        label, wanted, of_places = given[:, 0], given[:, 1], given[:, 2:]
        if truth:
            wanted = with_truth(wanted, label)
    share = 1.0 - box / places.shape[1]
    mixed = share * wanted + (1.0 - share) * wanted.flip(0)
    loss = weights[0] * soft_cross_entropy(outputs, mixed) + weights[1] * soft_cross_entropy(places, of_places)
    torch.testing.assert_close(loss, TOKENS[f"{name}.loss"], **EXACT)
    loss.backward()
    torch.testing.assert_close(outputs.grad, TOKENS[f"{name}.grad.output"], **EXACT)
    torch.testing.assert_close(places.grad, TOKENS[f"{name}.grad.aux_output"], **EXACT)
