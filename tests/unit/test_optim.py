"""Parameter groups and learning rates."""

from __future__ import annotations

import torch
from ssl_vit.configs import ResolvedOptim
from ssl_vit.training.optim import make_optimizer, parameter_groups, peak_learning_rate
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


def test_learning_rate_scales_with_the_effective_batch_unless_given() -> None:
    assert peak_learning_rate(ResolvedOptim(base_lr=1e-3), 1024) == 4e-3
    assert peak_learning_rate(ResolvedOptim(lr=0.5, base_lr=1e-3), 1024) == 0.5


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
