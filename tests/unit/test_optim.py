"""Parameter groups and learning rates."""

from __future__ import annotations

from typing import Any, cast

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import ModelConfig, ResolvedOptim, networks
from ssl_vit.configs.networks import FAMILIES
from ssl_vit.core.errors import UserError
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.training.optim import (
    make_optimizer,
    parameter_groups,
    peak_learning_rate,
    warmup_steps,
    warn_of_rate,
)
from ssl_vit.training.stepping import learning_rate
from torch import nn


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)


def decays(tokens: bool) -> dict[str, float]:
    groups = parameter_groups(Toy().named_parameters(), weight_decay=0.3, decays_tokens=tokens)
    return {name: g["weight_decay"] for g in groups for name in g["names"]}


def test_matrices_decay_and_tokens_by_recipe() -> None:
    plain = {"linear.weight": 0.3, "linear.bias": 0.0, "norm.weight": 0.0, "norm.bias": 0.0}
    assert decays(True) == {**plain, "cls_token": 0.3}
    assert decays(False) == {**plain, "cls_token": 0.0}


@pytest.mark.parametrize("name", ["vit_micro", *(name for name in FAMILIES if name.endswith("_micro"))])
def test_what_timm_does_not_decay_is_not_decayed_in_training_on_labels(name: str) -> None:
    asked = ModelConfig(name)
    cfg = networks.resolve_model(asked, 32, model_facts(*networks.wanted(asked, 32)))
    backbone = build_backbone(cfg, 3)
    exempt = {f"{place}.{own}".lstrip(".") for place, module in backbone.named_modules()
              if hasattr(module, "no_weight_decay") for own in cast(Any, module).no_weight_decay()}  # fmt: skip
    groups = parameter_groups(backbone.named_parameters(), weight_decay=0.1, decays_tokens=False)
    decayed = {own for group in groups if group["weight_decay"] for own in group["names"]}
    assert decayed and not decayed & exempt


@pytest.mark.parametrize(
    "name", ["swinv2_tiny_window8_256", "mvitv2_tiny", "levit_128s", "coat_tiny", "crossvit_tiny_240"]
)
def test_what_other_networks_do_not_decay(name: str) -> None:
    """By the names that timm has for it; with tokens that decay, everything does."""
    with torch.device("meta"):
        model: Any = timm.create_model(name, num_classes=0)
    backbone = object.__new__(PooledBackbone)
    nn.Module.__init__(backbone)
    backbone.model = model
    named = [(f"model.{own}", p) for own, p in model.named_parameters()]
    exempt = {f"model.{own}" for own in model.no_weight_decay()} & {own for own, _ in named}
    assert exempt and exempt <= backbone.undecayed()
    for tokens in (False, True):
        groups = parameter_groups(named, weight_decay=0.1, decays_tokens=tokens, undecayed=backbone.undecayed())
        decayed = {own for group in groups if group["weight_decay"] for own in group["names"]}
        assert decayed and bool(decayed & exempt) is tokens


def test_learning_rate_scales_with_the_effective_batch_unless_given() -> None:
    assert peak_learning_rate(ResolvedOptim(base_lr=1e-3), 1024) == 4e-3
    assert peak_learning_rate(ResolvedOptim(lr=0.5, base_lr=1e-3), 1024) == 0.5


@pytest.mark.parametrize(
    ("optim", "batch", "warned"),
    [
        (ResolvedOptim(base_lr=1e-3), 4096, "--optim.base_lr 0.001 x 4,096 / 256 images is a learning rate of 0.016;"),
        (ResolvedOptim(base_lr=1e-3), 1024, ""),
        (ResolvedOptim(base_lr=1.5e-4), 4096, ""),
        (ResolvedOptim(base_lr=1e-3, lr=0.016), 4096, ""),
        (ResolvedOptim(base_lr=0.1, name="lars"), 16384, ""),
        (ResolvedOptim(base_lr=0.1, name="sgd"), 1024, ""),
    ],
)
def test_only_rates_that_scaling_made_too_large_for_adamw_are_warned_of(
    optim: ResolvedOptim, batch: int, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_rate(optim, batch)
    said = capsys.readouterr().err
    assert warned in said
    assert said.count("\n") == bool(warned)


@given(epochs=st.floats(1, 20), longer=st.floats(1.01, 20), per_epoch=st.floats(5, 50))
def test_a_warm_up_in_epochs_does_not_depend_on_the_length(epochs: float, longer: float, per_epoch: float) -> None:
    short, long = (max(2, round(n * epochs * per_epoch)) for n in (2.0, 2.0 * longer))
    optim = ResolvedOptim(base_lr=1e-3, warmup=0.3, warmup_epochs=epochs)
    steps = warmup_steps(optim, short, per_epoch)
    assert steps == warmup_steps(optim, long, per_epoch) == round(epochs * per_epoch)
    for schedule in ("peak_once", "peak_twice"):
        rated = ResolvedOptim(base_lr=1e-3, warmup_epochs=epochs, schedule=schedule)
        rates = [learning_rate(rated, 1e-3, per_epoch, step, long) for step in range(steps + 1)]
        assert max(rates) == rates[-1] == 1e-3
        assert rates == sorted(rates)
    share = ResolvedOptim(base_lr=1e-3, warmup=0.3)
    assert warmup_steps(share, long, per_epoch) == round(0.3 * long)
    with pytest.raises(UserError, match=r"--fit\.epochs"):
        warmup_steps(optim, max(1, steps), per_epoch)


def test_one_step_is_adamw_by_hand() -> None:
    toy = Toy().double()
    before = {n: p.detach().clone() for n, p in toy.named_parameters()}
    groups = parameter_groups(toy.named_parameters(), weight_decay=0.1)
    optimizer = make_optimizer(groups, ResolvedOptim(betas=(0.9, 0.95), base_lr=1e-3))
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    (toy.linear(torch.ones(2, 4, dtype=torch.float64)) + toy.cls_token).square().sum().backward()
    optimizer.step()
    # The first step of Adam moves by lr * g / (|g| + eps), whatever the betas; decay is decoupled.
    for name, parameter in toy.named_parameters():
        if parameter.grad is None:
            continue
        decay = 0.1 if name in ("linear.weight", "cls_token") else 0.0
        wanted = before[name] * (1 - 0.01 * decay) - 0.01 * parameter.grad / (parameter.grad.abs() + 1e-8)
        assert (parameter - wanted).abs().max() <= 1e-12
