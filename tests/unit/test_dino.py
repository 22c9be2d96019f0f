"""DINO's rules of a step: momentum, one update of teacher and centre, frozen layer, exports; collapses and health."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from ssl_vit.configs import DINOConfig, ModelConfig
from ssl_vit.errors import UserError
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.health import Observations, collapse_kind, effective_rank
from ssl_vit.optim import clip_each
from ssl_vit.schedules import base_momentum, teacher_momentum, teacher_temperature
from torch import Tensor

MODEL = ModelConfig("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "sincos", "cls")
CFG = DINOConfig(out_dim=32, head_hidden=24, head_bottleneck=12, teacher_temp=0.07, teacher_warmup=0.0,
                 check_steps=1, freeze_last_layer=0.0)  # fmt: skip


def build(cfg: DINOConfig = CFG, batch: int = 8) -> DINO:
    torch.manual_seed(0)
    return DINO(build_backbone(MODEL, 1), cfg, pool="cls", batch_size=batch, freeze_positions=True).double()


def crops(batch: int = 8, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"globals": (2, 1, 16, 16), "locals": (3, 1, 8, 8)}
    return {k: torch.randn(batch, *s, generator=g, dtype=torch.float64) for k, s in shapes.items()}


def step(dino: DINO, inputs: list[dict[str, Tensor]], clock: Clock, optimizer: torch.optim.Optimizer) -> float:
    """One optimiser step over micro-batches, as the loop does it."""
    dino.begin_step(clock)
    loss = 0.0
    for part in inputs:
        output = dino(part)
        (output.loss / len(inputs)).backward()
        loss += float(output.loss.detach()) / len(inputs)
    dino.after_backward(clock)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    dino.after_step(clock)
    return loss


def sgd(dino: DINO, rate: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in dino.parameters() if p.requires_grad], lr=rate)


def test_accumulation_is_the_whole_batch_with_one_centre_and_one_teacher_update() -> None:
    whole, parts = build(), build()
    inputs = crops()
    halves = [{k: v[s] for k, v in inputs.items()} for s in (slice(0, 4), slice(4, 8))]
    a, b = sgd(whole), sgd(parts)
    for i in range(3):
        clock = Clock(i, 10, 2.0)
        assert abs(step(whole, [inputs], clock, a) - step(parts, halves, clock, b)) < 1e-12
        assert whole.observed() == pytest.approx(parts.observed(), abs=1e-6)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value, rtol=0.0, atol=1e-12)
    assert whole.centre.abs().max() > 0


def test_teacher_and_centre_follow_their_rules() -> None:
    dino = build(replace(CFG, momentum=0.9, centre_momentum=0.8))
    before = {k: v.clone() for k, v in dino.teacher.state_dict().items()}
    inputs = crops()
    with torch.no_grad():
        outputs = dino.teacher.head(dino.teacher.features(inputs["globals"], None))
    step(dino, [inputs], Clock(0, 10, 2.0), sgd(dino))
    torch.testing.assert_close(dino.centre, 0.2 * outputs.mean(dim=(0, 1)), rtol=0.0, atol=1e-12)
    for name, now in dino.teacher.state_dict().items():
        expected = 0.9 * before[name] + 0.1 * dino.student.state_dict()[name]
        torch.testing.assert_close(now, expected, rtol=0.0, atol=1e-12)


def test_last_layer_is_frozen_in_the_first_epochs_only() -> None:
    dino = build(replace(CFG, freeze_last_layer=1.0))
    optimizer, first = sgd(dino), dino.student.head.direction.detach().clone()
    for i in range(2):
        step(dino, [crops()], Clock(i, 10, 2.0), optimizer)
        assert torch.equal(dino.student.head.direction, first)
    step(dino, [crops()], Clock(2, 10, 2.0), optimizer)
    assert not torch.equal(dino.student.head.direction, first)


def test_views_of_one_size_are_one_batch() -> None:
    dino = build()
    sizes: list[int] = []
    inner = dino.student.backbone.forward_pooled

    def counted(images: Tensor, **options: object) -> Tensor:
        sizes.append(len(images))
        return inner(images, **options)  # pyright: ignore[reportArgumentType]

    dino.student.backbone.forward_pooled = counted  # pyright: ignore[reportAttributeAccessIssue]
    dino(crops())
    same = crops()
    same["locals"] = torch.randn(8, 3, 1, 16, 16, dtype=torch.float64)
    dino(same)
    assert sizes == [16, 24, 40]


def test_works_without_local_crops_and_with_sinkhorn() -> None:
    dino = build(replace(CFG, centring="sinkhorn"))
    inputs = {"globals": crops()["globals"]}
    first = step(dino, [inputs], Clock(0, 10, 2.0), sgd(dino))
    assert math.isfinite(first)


def test_export_is_the_teacher_unless_asked_otherwise() -> None:
    dino = build()
    assert dino.exported() is dino.teacher.backbone
    dino = build(replace(CFG, export="student"))
    assert dino.exported() is dino.student.backbone


def test_teacher_is_never_trained() -> None:
    dino = build()
    assert not any(p.requires_grad for p in dino.teacher.parameters())
    dino(crops()).loss.backward()
    assert all(p.grad is None for p in dino.teacher.parameters())


def test_drop_path_reaches_the_student_alone() -> None:
    dino = build()
    inputs = crops()
    plain = dino(inputs)
    none = torch.zeros(8, 2, 2, 2, dtype=torch.float64)
    dropped = dino(inputs | {"drop_globals": none, "drop_locals": torch.zeros(8, 3, 2, 2, dtype=torch.float64)})
    assert abs(float((plain.loss - dropped.loss).detach())) > 1e-6
    assert torch.equal(plain.metrics["teacher_entropy"], dropped.metrics["teacher_entropy"])


@pytest.mark.parametrize(("batch", "steps", "expected"), [(1024, 10**6, 0.996), (512, 10**6, 0.996**0.5),
                                                           (128, 1000, 0.98), (64, 10, 0.0)])  # fmt: skip
def test_momentum_from_batch_and_steps(batch: int, steps: int, expected: float) -> None:
    assert base_momentum(batch, steps) == pytest.approx(expected)
    assert 1.0 / (1.0 - base_momentum(batch, steps)) <= max(1.0, 0.05 * steps) + 1e-9
    assert teacher_momentum(steps, total_steps=steps, base=expected) == pytest.approx(1.0)


def test_temperature_grows_by_whole_epochs() -> None:
    values = [teacher_temperature(e, start=0.04, final=0.07, warmup_epochs=4.0) for e in (0.0, 0.9, 1.0, 3.0, 9.0)]
    assert values == pytest.approx([0.04, 0.04, 0.05, 0.07, 0.07])
    assert teacher_temperature(0.0, start=0.04, final=0.07, warmup_epochs=0.0) == 0.07


def test_clip_each_scales_every_parameter_by_itself() -> None:
    a, b, c = (torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)) for _ in range(3))
    a.grad, b.grad = torch.tensor([3.0, 0.0, 4.0]).double(), torch.tensor([0.1, 0.0, 0.0]).double()
    clip_each([a, b, c], 2.0)
    torch.testing.assert_close(a.grad, torch.tensor([3.0, 0.0, 4.0]).double() * 2.0 / (5.0 + 1e-6))
    torch.testing.assert_close(b.grad, torch.tensor([0.1, 0.0, 0.0]).double())
    assert c.grad is None


def look(features: Tensor, p: Tensor) -> dict[str, float]:
    seen = Observations()
    entropy = -torch.special.xlogy(p, p).sum(-1).mean()
    seen.add(features, p.mean(0), entropy, torch.zeros(()))
    return seen.read(torch.zeros(p.shape[1]))


def test_health_of_known_features_and_outputs() -> None:
    x = torch.zeros(40, 6)
    x[torch.arange(40), torch.arange(40) % 4] = 1.0  # four directions, equally often
    health = look(x, torch.eye(4).repeat(10, 1))
    assert health["effective_rank"] == pytest.approx(4.0, abs=1e-3)
    assert health["feature_std"] == pytest.approx(math.sqrt(0.75))
    assert health["teacher_entropy"] == pytest.approx(0.0)
    assert health["marginal_entropy"] == pytest.approx(math.log(4.0), abs=1e-6)
    assert collapse_kind(health) is None
    assert effective_rank(torch.eye(5)) == pytest.approx(5.0)


def test_health_knows_both_collapses() -> None:
    same = torch.ones(40, 6)
    uniform = look(same, torch.full((40, 32), 1 / 32))
    assert collapse_kind(uniform) == "uniform"
    assert uniform["feature_std"] == pytest.approx(0.0, abs=1e-3)
    assert uniform["effective_rank"] == pytest.approx(1.0, abs=1e-3)
    one = torch.zeros(40, 32)
    one[:, 3] = 1.0
    assert collapse_kind(look(same, one)) == "dominant"


def collapsing(kind: str, cfg: DINOConfig) -> DINO:
    """A DINO whose teacher has collapsed for good: it answers the same to every image."""
    dino = build(replace(cfg, momentum=1.0, centre_momentum=0.99999 if kind == "dominant" else 0.9))
    last = dino.teacher.head.mlp[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_().add_(1.0)
        if kind == "uniform":  # the centre has caught up with the one answer
            dino.centre.copy_(dino.teacher.head(torch.zeros(1, 24, dtype=torch.float64))[0])
        else:
            dino.teacher.head.direction.zero_()
            dino.teacher.head.direction[0] = 1.0
            dino.centre.zero_()
    return dino


@pytest.mark.parametrize("kind", ["uniform", "dominant"])
def test_a_collapse_that_lasts_stops_the_run_and_names_itself(kind: str) -> None:
    dino = collapsing(kind, replace(CFG, collapse_patience=0.25))
    optimizer, taken = sgd(dino, 0.5), 0
    with pytest.raises(UserError, match=f"collapsed \\({kind}\\): since step .*--dino"):
        for taken in range(400):
            step(dino, [crops()], Clock(taken, 400, 4.0), optimizer)
    assert 100 <= taken < 200


def test_a_warning_is_given_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    dino = collapsing("dominant", replace(CFG, collapse_patience=0.1, on_collapse="warn"))
    for i in range(70):
        step(dino, [crops()], Clock(i, 70, 4.0), sgd(dino))
    assert capsys.readouterr().err.count("DINO has collapsed (dominant)") == 1


def test_how_long_a_collapse_has_lasted_survives_a_restart() -> None:
    dino = collapsing("dominant", replace(CFG, collapse_patience=0.5))
    for i in range(5):
        step(dino, [crops()], Clock(i, 20, 4.0), sgd(dino))
    again = collapsing("dominant", replace(CFG, collapse_patience=0.5))
    again.load_state_dict(dino.state_dict())
    assert int(again.collapsed_since) == 0


def test_a_healthy_run_is_left_alone() -> None:
    dino = build(replace(CFG, collapse_patience=0.5))
    optimizer = torch.optim.AdamW([p for p in dino.parameters() if p.requires_grad], lr=2e-3)
    for i in range(60):
        inputs = crops(seed=i % 3)
        # Views of one image resemble each other, and images differ.
        base = torch.randn(8, 1, 1, 4, 4, generator=torch.Generator().manual_seed(i % 3)).double()
        inputs["globals"] = 0.3 * inputs["globals"] + base.repeat_interleave(4, 3).repeat_interleave(4, 4)
        inputs["locals"] = 0.3 * inputs["locals"] + base.repeat_interleave(2, 3).repeat_interleave(2, 4)
        step(dino, [inputs], Clock(i, 60, 4.0), optimizer)
    assert int(dino.collapsed_since) == -1
    assert dino.observed()["marginal_entropy"] > 1.0
