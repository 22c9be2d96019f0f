"""LeJEPA in closed cases: what is Gaussian, what agrees; directions of a step; arithmetic under autocast."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm
from ssl_vit.configs import ResolvedModel
from ssl_vit.methods.lejepa import ResolvedLeJEPA
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.lejepa import LeJEPA, disagreement, sketched_gaussianity
from torch import Tensor


def build(seed: int = 0) -> LeJEPA:
    torch.manual_seed(0)
    net = build_backbone(ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "learnable", "cls"), 2)
    cfg = ResolvedLeJEPA(weight=0.02, out_dim=6, head_hidden=16, head_layers=3, slices=64, drop_path=0.0)
    return LeJEPA(net, cfg, pool="cls", seed=seed)


def crops(images: int = 8) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {"globals": torch.randn(images, 2, 2, 16, 16), "locals": torch.randn(images, 3, 2, 8, 8)}


def on_one_axis(values: Tensor) -> Tensor:
    """One view of embeddings of one number, seen along their only direction."""
    return sketched_gaussianity(values.view(1, -1, 1), torch.ones(1, 1, dtype=torch.float64))


def test_the_quantiles_of_a_normal_cost_nothing_and_everything_else_does() -> None:
    quantiles = torch.from_numpy(norm.ppf((torch.arange(2000) + 0.5).numpy() / 2000))
    assert on_one_axis(quantiles) < 1e-3
    assert on_one_axis(quantiles + 0.5) > 50
    assert on_one_axis(quantiles * 2) > 50
    assert on_one_axis(quantiles.sign()) > 5


def test_one_answer_to_all_costs_in_proportion_to_the_batch() -> None:
    """With phi_N = 1 the integral has a closed form: that of (1 - exp(-t^2 / 2))^2 exp(-t^2 / 2)."""
    whole = math.sqrt(2 * math.pi) * (1 - 2 / math.sqrt(2) + 1 / math.sqrt(3))
    for images in (10, 1000):
        assert float(on_one_axis(torch.zeros(images, dtype=torch.float64))) / images == pytest.approx(whole, rel=0.06)


def test_every_view_is_judged_by_itself() -> None:
    torch.manual_seed(0)
    z, directions = torch.randn(3, 50, 4).double(), torch.nn.functional.normalize(torch.randn(4, 9).double(), dim=0)
    each = [sketched_gaussianity(view[None], directions) for view in z]
    assert (sketched_gaussianity(z, directions) - torch.stack(each).mean()).abs() <= 1e-12
    alone = [sketched_gaussianity(z, directions[:, i : i + 1]) for i in range(9)]
    assert (sketched_gaussianity(z, directions) - torch.stack(alone).mean()).abs() <= 1e-12


def test_equal_views_agree_and_global_ones_are_the_centre() -> None:
    z = torch.randn(1, 6, 4).double()
    assert disagreement(z.expand(5, -1, -1), 2) == 0
    views = torch.tensor([1.0, 3.0, 2.0, 6.0]).view(4, 1, 1)
    assert float(disagreement(views, 2)) == pytest.approx((1 + 1 + 0 + 16) / 4)


def test_directions_are_those_of_seed_and_step() -> None:
    one, other = build(), build()
    for step in (0, 7):
        one.begin_step(Clock(step, 10, 1.0))
        kept = one.directions.clone()
        torch.testing.assert_close(kept.norm(dim=0), torch.ones(64))
        other.begin_step(Clock(step, 99, 3.0))
        assert torch.equal(kept, other.directions)
    other.begin_step(Clock(8, 99, 3.0))
    assert not torch.equal(kept, other.directions)
    again = build(seed=1)
    again.begin_step(Clock(7, 10, 1.0))
    assert not torch.equal(kept, again.directions)
    assert not [name for name in one.state_dict() if "directions" in name]
    assert (kept @ kept.T / 64 - torch.eye(6) / 6).abs().max() < 0.08  # no axis is preferred


def test_the_loss_is_the_weighted_sum_of_what_is_logged() -> None:
    objective = build().double()
    loss, metrics = objective({name: views.double() for name, views in crops().items()})
    assert (loss - (0.98 * metrics["invariance"] + 0.02 * metrics["sigreg"])).abs() <= 1e-12
    assert not any(value.requires_grad for value in metrics.values())


def test_locals_of_the_global_size_and_none_at_all() -> None:
    objective, inputs = build(), crops()
    alone = objective({"globals": inputs["globals"]})
    assert torch.isfinite(alone.loss)
    large = {"globals": inputs["globals"], "locals": inputs["globals"]}
    assert (objective(large).metrics["invariance"] - alone.metrics["invariance"]).abs() <= 1e-4


def test_statistics_are_in_single_precision_under_autocast() -> None:
    objective, inputs = build(), crops()
    whole = objective(inputs).loss
    with torch.autocast("cpu", torch.bfloat16):
        half = objective(inputs).loss
    assert half.dtype == torch.float32
    assert float(half.detach()) == pytest.approx(float(whole.detach()), rel=0.05)
    z = torch.randn(3, 64, 6)
    exact = objective.judge(z).loss
    with torch.autocast("cpu", torch.bfloat16):
        assert objective.judge(z).loss == exact
