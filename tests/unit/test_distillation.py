"""DINO's loss against its specification in nested loops, with gradients; Sinkhorn-Knopp; the head."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.models.heads import ProjectionHead
from ssl_vit.objectives.distillation import LastLayer, Teaching, cross_view_loss, sinkhorn_knopp
from torch import Tensor


def rows(layer: LastLayer) -> Tensor:
    return layer.gain * F.normalize(layer.direction, dim=1)


def random_layer(outputs: int, g: torch.Generator | None = None, width: int = 4) -> LastLayer:
    parts = (torch.randn(outputs, width, generator=g), 0.5 + torch.rand(outputs, 1, generator=g))
    return LastLayer(*(p.double().requires_grad_() for p in parts))


def specification(
    student: Tensor, layer: LastLayer, teacher: Tensor, given: LastLayer, centre: Tensor, cold: float, warm: float
) -> Tensor:
    loss, pairs = student.new_zeros(()), 0
    w, w_teacher = rows(layer), rows(given).detach()
    for i, t in enumerate(teacher):
        p = F.softmax((t @ w_teacher.T - centre) / cold, dim=-1)
        for j, s in enumerate(student):
            if i != j:
                loss = loss - (p * F.log_softmax(s @ w.T / warm, dim=-1)).sum(dim=-1).mean()
                pairs += 1
    return loss / pairs


@given(
    views=st.integers(2, 6), given_=st.integers(1, 2), batch=st.integers(1, 5), outputs=st.integers(2, 9),
    chunk=st.integers(1, 6), seed=st.integers(0, 1000),
)  # fmt: skip
def test_loss_and_gradients_are_those_of_the_nested_loops(
    views: int, given_: int, batch: int, outputs: int, chunk: int, seed: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    student = torch.randn(views, batch, 4, generator=g, dtype=torch.float64).requires_grad_()
    layer, given = random_layer(outputs, g), random_layer(outputs, g)
    teacher, centre = torch.randn(given_, batch, 4, generator=g).double(), torch.randn(outputs, generator=g).double()
    expected = specification(student, layer, teacher, given, centre, 0.3, 0.5)
    wanted = torch.autograd.grad(3.0 * expected, (student, *layer))
    with torch.no_grad():
        teaching = Teaching(teacher, LastLayer(*(t.detach() for t in given)), centre, 0.3, None)
    parts = cross_view_loss(student, layer, teaching, temperature=0.5, chunk=chunk)
    found = torch.autograd.grad(3.0 * parts.loss, (student, *layer))
    torch.testing.assert_close(parts.loss, expected, rtol=0.0, atol=1e-12)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-12)
    p = F.softmax((teacher @ rows(given).detach().T - centre) / 0.3, dim=-1)
    torch.testing.assert_close(parts.marginal, p.mean(dim=(0, 1)), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(parts.entropy, -(p * p.log()).sum(-1).mean(), rtol=0.0, atol=1e-12)


def fixed(layer: LastLayer) -> LastLayer:
    return LastLayer(*(t.detach() for t in layer))


def test_only_what_is_trained_gets_a_gradient() -> None:
    student = torch.randn(3, 2, 4, dtype=torch.float64)
    layer = LastLayer(random_layer(5).direction, torch.ones(5, 1, dtype=torch.float64))
    teaching = Teaching(student[:2], fixed(random_layer(5)), torch.zeros(5).double(), 0.1, None)
    cross_view_loss(student, layer, teaching, temperature=0.1, chunk=2).loss.backward()
    assert layer.direction.grad is not None and layer.direction.grad.abs().max() > 0
    assert student.grad is None and layer.gain.grad is None


def test_extreme_outputs_stay_finite() -> None:
    student, layer = (1e3 * torch.randn(3, 2, 4).double()).requires_grad_(), random_layer(5)
    teaching = Teaching(
        1e3 * torch.randn(2, 2, 4).double(), fixed(random_layer(5)), torch.zeros(5).double(), 0.04, None
    )
    parts = cross_view_loss(student, layer, teaching, temperature=0.1, chunk=2)
    parts.loss.backward()
    assert student.grad is not None
    assert all(bool(torch.isfinite(t).all()) for t in (*parts, student.grad))


@pytest.mark.parametrize("chunk", [1, 4])
def test_loss_takes_given_targets(chunk: int) -> None:
    student, layer = torch.randn(3, 4, 6, dtype=torch.float64), fixed(random_layer(5, width=6))
    targets = torch.softmax(torch.randn(2, 4, 5, dtype=torch.float64), -1)
    teaching = Teaching(student[:2], layer, torch.zeros(5, dtype=torch.float64), 0.1, targets)
    parts = cross_view_loss(student, layer, teaching, temperature=0.2, chunk=chunk)
    logs = F.log_softmax(student @ rows(layer).T / 0.2, -1)
    pairs = [-(targets[i] * logs[j]).sum(-1).mean() for i in range(2) for j in range(3) if i != j]
    torch.testing.assert_close(parts.loss, torch.stack(pairs).mean())


def test_head_and_loss_agree_on_the_last_layer() -> None:
    head = ProjectionHead(6, 10, hidden=8, bottleneck=4, fixed_gain=False).double()
    with torch.no_grad():
        head.gain.copy_(torch.linspace(0.5, 2.0, 10)[:, None])
    layer, x = LastLayer(head.direction, head.gain), torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(layer.outputs(head.bottleneck(x), layer.scale()), head(x))


def test_sinkhorn_knopp_uses_every_output_equally_often() -> None:
    outputs = torch.randn(2, 40, 8, dtype=torch.float64) + torch.arange(8.0)  # the last ones would win everything
    q = sinkhorn_knopp(outputs, 1.0, iterations=60)
    torch.testing.assert_close(q.sum(-1), torch.ones(2, 40, dtype=torch.float64))
    torch.testing.assert_close(q.sum((0, 1)), torch.full((8,), 10.0, dtype=torch.float64), rtol=1e-3, atol=0.0)


def test_sinkhorn_knopp_by_hand() -> None:
    """Two images, two outputs, one iteration: columns to 1, then rows to 1."""
    outputs = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64).log()
    q = torch.tensor([[3 / 4, 1 / 2], [1 / 4, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(sinkhorn_knopp(outputs, 1.0, iterations=1), q / q.sum(1, keepdim=True))


def test_head_can_be_copied_saved_and_loaded() -> None:
    head = ProjectionHead(6, 10, hidden=8, bottleneck=4, fixed_gain=False)
    other = copy.deepcopy(head)
    other.load_state_dict(head.state_dict())
    x = torch.randn(3, 6)
    assert torch.equal(head(x), other(x))
    assert set(head.state_dict()) >= {"direction", "gain"}


def test_rows_of_the_last_layer_have_the_length_of_their_gain() -> None:
    head = ProjectionHead(6, 10, hidden=8, bottleneck=4, fixed_gain=False)
    with torch.no_grad():
        head.gain.copy_(torch.linspace(0.5, 2.0, 10)[:, None])
    torch.testing.assert_close(head.prototypes().norm(dim=1), head.gain[:, 0])
    assert head(torch.randn(5, 6)).abs().max() <= 2.0 + 1e-6


def test_number_of_layers_and_parameters() -> None:
    """FACTS of the official head for ViT-S: 22,352,128 with the gain of 65,536 outputs, which is fixed."""
    with torch.device("meta"):
        head = ProjectionHead(384, 65536, hidden=2048, bottleneck=256)
    assert sum(p.numel() for p in head.parameters()) == 22_352_128
    assert sum(p.numel() for p in head.parameters() if p.requires_grad) == 22_352_128 - 65_536
    one = ProjectionHead(6, 10, hidden=8, bottleneck=4, layers=1)
    assert [tuple(p.shape) for p in one.mlp.parameters()] == [(4, 6), (4,)]


@pytest.mark.parametrize(("dtype", "most"), [(None, 2e-6), (torch.bfloat16, 2.5e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("chunk", [3, 8])
def test_gradients_in_lower_precision_are_those_of_double_precision(
    dtype: torch.dtype | None, most: float, chunk: int
) -> None:
    """The relative error of what the bottleneck and the last layer get; fp16 has no place for most of its values."""

    def gradients(wide: torch.dtype, low: torch.dtype | None) -> list[Tensor]:
        g = torch.Generator().manual_seed(0)
        student = F.normalize(torch.randn(6, 8, 64, generator=g), dim=-1).to(wide).requires_grad_()
        teacher = F.normalize(torch.randn(2, 8, 64, generator=g), dim=-1).to(wide)
        direction = (0.02 * torch.randn(4096, 64, generator=g)).to(wide).requires_grad_()
        gain = torch.ones(4096, 1, dtype=wide, requires_grad=True)
        given = LastLayer(1.1 * direction.detach(), gain.detach())
        teaching = Teaching(teacher, given, torch.zeros(4096, dtype=wide), 0.04, None)
        with torch.autocast("cpu", low, enabled=low is not None):
            parts = cross_view_loss(student, LastLayer(direction, gain), teaching, temperature=0.1, chunk=chunk)
        parts.loss.backward()
        assert student.grad is not None and direction.grad is not None and gain.grad is not None
        assert direction.grad.dtype == student.grad.dtype == wide
        return [student.grad.double(), direction.grad.double(), gain.grad.double()]

    for found, exact in zip(gradients(torch.float32, dtype), gradients(torch.float64, None), strict=True):
        assert (found - exact).norm() < most * exact.norm()
