"""DINO's rules of a step: momentum, one update of teacher and centre, frozen layer, exports; collapses and health."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.schedules import base_momentum, teacher_temperature
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.health import Observations, Watch, collapse_kind
from ssl_vit.training.optim import clip_each
from torch import Tensor

MODEL = ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "sincos", "cls")
CFG = ResolvedDINO(out_dim=32, head_hidden=24, head_bottleneck=12, teacher_temp=0.07, warmup_teacher_temp=0.04,
                 teacher_warmup=0.0, check_steps=1, freeze_last_layer=0.0, drop_path=0.0, centring="mean")  # fmt: skip


def build(cfg: ResolvedDINO = CFG, batch: int = 8) -> DINO:
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
        outputs = dino.teacher.head(dino.teacher.features([(inputs["globals"], None)]))
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
    sizes: list[list[int]] = []
    inner = dino.student.backbone.forward_sizes

    def counted(images: Sequence[Tensor], **options: object) -> list[Tensor]:
        sizes.append([len(part) for part in images])
        return inner(images, **options)  # pyright: ignore[reportArgumentType]

    dino.student.backbone.forward_sizes = counted  # pyright: ignore[reportAttributeAccessIssue]
    dino(crops())
    same = crops()
    same["locals"] = torch.randn(8, 3, 1, 16, 16, dtype=torch.float64)
    dino(same)
    assert sizes == [[16, 24], [40]]


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


def look(p: Tensor) -> dict[str, float]:
    seen = Observations()
    entropy = -torch.special.xlogy(p, p).sum(-1).mean()
    seen.add(p.mean(0), entropy, torch.zeros(()))
    return seen.read(torch.zeros(p.shape[1]))


def test_health_of_known_outputs() -> None:
    health = look(torch.eye(4).repeat(10, 1))
    assert health["teacher_entropy"] == pytest.approx(0.0)
    assert health["marginal_entropy"] == pytest.approx(math.log(4.0), abs=1e-6)
    assert collapse_kind(health) is None


def test_health_knows_both_collapses() -> None:
    assert collapse_kind(look(torch.full((40, 32), 1 / 32))) == "uniform"
    one = torch.zeros(40, 32)
    one[:, 3] = 1.0
    assert collapse_kind(look(one)) == "dominant"
    answer = torch.softmax(torch.linspace(0.0, 4.0, 32), 0)  # the same for all, ahead of the centre
    assert collapse_kind(look(answer.repeat(40, 1))) == "dominant"


def test_answers_that_tell_images_apart_are_no_collapse() -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    soft = torch.softmax(x @ torch.randn(6, 32, generator=torch.Generator().manual_seed(1)), 1)
    assert collapse_kind(look(soft)) is None
    assert collapse_kind(look(torch.eye(2).repeat(20, 1))) is None  # two outputs, used equally often


def test_numbers_that_are_not_finite_are_left_out() -> None:
    seen = Observations()
    seen.add(torch.full((8,), 1 / 8), torch.full((), torch.nan), torch.zeros(()))
    health = seen.read(torch.zeros(8))
    assert set(health) == {"ln_out_dim", "kl", "marginal_entropy", "centre_norm"}
    assert collapse_kind(health) is None
    assert collapse_kind({}) is None


def test_the_watch_forgives_one_look_and_tells_kinds_apart() -> None:
    watch = Watch()
    assert watch.look("uniform", 10) == 10
    assert watch.look(None, 20) is None
    assert watch.look("uniform", 30) == 10  # one healthy look between
    assert watch.look("dominant", 40) == 40
    assert watch.look(None, 50) is watch.look(None, 60) is None
    assert watch.look("dominant", 70) == 70
    again = Watch()
    again.load_state_dict(watch.state_dict())
    assert again.look("dominant", 80) == 70


def collapsing(kind: str, cfg: ResolvedDINO) -> DINO:
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


def run(dino: DINO, steps: int, rate: float, seed: int = 0) -> int:
    """Steps until it asks to stop, on noise; all of them where it does not."""
    optimizer = torch.optim.AdamW([p for p in dino.parameters() if p.requires_grad], lr=rate)
    for i in range(steps):
        step(dino, [structured(i % 7 + 10 * seed)], Clock(i, steps, 4.0), optimizer)
        if dino.stop_reason() is not None:
            return i + 1
    return steps


def structured(seed: int) -> dict[str, Tensor]:
    """Views of one image resemble each other, and images differ."""
    inputs = crops(seed=seed)
    base = torch.randn(8, 1, 1, 4, 4, generator=torch.Generator().manual_seed(seed)).double()
    inputs["globals"] = 0.3 * inputs["globals"] + base.repeat_interleave(4, 3).repeat_interleave(4, 4)
    inputs["locals"] = 0.3 * inputs["locals"] + base.repeat_interleave(2, 3).repeat_interleave(2, 4)
    return inputs


@pytest.mark.parametrize("kind", ["uniform", "dominant"])
def test_a_collapse_that_lasts_stops_the_run_and_names_itself(kind: str) -> None:
    dino = collapsing(kind, replace(CFG, collapse_patience=0.25))
    taken = run(dino, 400, 1e-3)
    assert 200 <= taken < 300  # a quarter does not count, a quarter must pass
    reason = dino.stop_reason()
    assert reason is not None
    assert re.match(rf"DINO has collapsed \({kind}\): since step \d+ .* Try .*--dino", reason)


def test_a_run_that_collapses_by_itself_is_noticed() -> None:
    """Without a centre nothing keeps one output from winning everything (section 5.3 of the paper)."""
    dino = build(replace(CFG, centre_momentum=0.999999, momentum=0.9, collapse_patience=0.1))
    assert run(dino, 300, 2e-3) < 300
    assert "(dominant)" in (dino.stop_reason() or "")


def test_a_healthy_run_is_left_alone() -> None:
    dino = build(replace(CFG, collapse_patience=0.1, teacher_temp=0.04, momentum=0.99))
    assert run(dino, 300, 5e-4) == 300
    health = dino.observed()
    assert health["marginal_entropy"] - health["teacher_entropy"] > 0.1
    assert dino.watch.state.tolist()[0] == -1


def test_a_warning_is_given_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    dino = collapsing("dominant", replace(CFG, collapse_patience=0.1, on_collapse="warn"))
    assert run(dino, 80, 1e-3) == 80
    assert capsys.readouterr().err.count("DINO has collapsed (dominant)") == 1


def test_a_restarted_run_stops_at_the_same_step() -> None:
    cfg = replace(CFG, collapse_patience=0.25)
    whole, first, second = (collapsing("dominant", cfg) for _ in range(3))
    stops = run(whole, 400, 1e-3)
    optimizer = sgd(first, 0.0)
    for i in range(stops - 10):
        step(first, [structured(i % 7)], Clock(i, 400, 4.0), optimizer)
    second.load_state_dict(first.state_dict())
    optimizer = sgd(second, 0.0)
    for i in range(stops - 10, stops):
        assert second.stop_reason() is None
        step(second, [structured(i % 7)], Clock(i, 400, 4.0), optimizer)
    assert second.stop_reason() is not None
