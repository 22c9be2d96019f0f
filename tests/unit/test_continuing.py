"""Continued pre-training: what is trained when and how fast, what stops it, and that resuming is exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ssl_vit.configs import (
    ContinuedConfig,
    DataConfig,
    FitConfig,
    LabelledDataConfig,
    ModelConfig,
    OptimConfig,
    ResolvedAugment,
    ResolvedContinued,
    ResolvedModel,
    RunConfig,
    to_dict,
)
from ssl_vit.configs.fit import ResolvedFit, ResolvedOptim
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import METHODS, Facts
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import ModelFacts, build_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.simmim import SimMIM, simmim_view
from ssl_vit.runs import listing
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.identity import identity
from ssl_vit.training import launch, loop
from ssl_vit.training.continuing import Continuing, freeze_below
from ssl_vit.training.drift import Drift
from ssl_vit.training.pretraining import pretrain
from ssl_vit.training.stepping import Stepper
from torch import Tensor

CPU = torch.device("cpu")
PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
USUAL = ResolvedContinued(
    rate=0.1, length=0.1, heads_first=0.25, least_agreement=0.25, least_cka=0.25, look_percent=10.0
)
POOL = open_pool(DataConfig(), LabelledDataConfig())[0].subset(np.arange(160))
SCALE = measure_scale(POOL)
FACTS = Facts(5000, ResolvedModel("vit_tiny_patch16_224", 32, 4, 192, 12, 3, "sincos", "mean"),
              ModelFacts(32, 4, 192, 12, 3))  # fmt: skip


def network(depth: int = 3) -> Backbone:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 8, 2, 24, depth, 2, "sincos", "mean"), 1)


def state_of(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


class Torn(Exception):
    """The run ends between two checkpoints."""


class Spied(Drift):
    """Remembers every state that was looked at."""

    def look(self, backbone: Backbone, done: int) -> dict[str, float]:
        self.states = getattr(self, "states", {}) | {done: state_of(backbone)}
        return super().look(backbone, done)


def trained(
    run: Path, cfg: ResolvedContinued, *, lr: float = 1e-3, breaks_after: int | None = None, **fit: Any
) -> tuple[SimMIM, Spied]:
    """SimMIM on 160 digits, 40 steps."""
    objective = SimMIM(network())
    loader = Loader(POOL, batch_size=8, micro_batch=8, seed=0, device=CPU)
    draw, calls = simmim_view(SCALE, PLAIN, size=8, side=2, kept=6, dtype=torch.float32), iter(range(10**6))

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        if next(calls) == breaks_after:
            raise Torn
        return draw(batch, seed)

    run.mkdir(exist_ok=True)
    drift = Spied(cfg, POOL, SCALE, "mean", 64)
    options: dict[str, Any] = {
        "epochs": 2.0,
        "min_steps": 0,
        "batch_size": 8,
        "precision": "fp32",
        "log_every": 1,
    } | fit
    loop.fit(
        objective, loader, view, fit=ResolvedFit(**options), optim=ResolvedOptim(lr=lr, base_lr=1e-3, layer_decay=0.5),
        run=RunDir(run, True), accelerator=launch.join("fp32"), seed=0, continuing=Continuing(objective, cfg, drift),
    )  # fmt: skip
    return objective, drift


def rows(run: Path, file: str = "health.jsonl") -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / file).read_text().splitlines()]


def test_without_weights_nothing_is_resolved_and_no_name_changes() -> None:
    asked = MAERecipe()
    found = METHODS["mae"].resolve(asked, FACTS, PRESETS["px32"])
    assert found.continued == ContinuedConfig() and found.optim.layer_decay == 1.0
    assert "continued" not in identity(to_dict(found), type(found))
    with pytest.raises(UserError, match=r"^--continued.rate is for pre-training that begins with weights; name them"):
        METHODS["mae"].resolve(replace(asked, continued=ContinuedConfig(rate=0.5)), FACTS, PRESETS["px32"])


@pytest.mark.parametrize("name", METHODS)
def test_weights_lower_rate_and_length_of_every_method(name: str) -> None:
    method = METHODS[name]
    plain, found = (method.resolve(method.recipe(), FACTS._replace(started=s), PRESETS["px32"]) for s in (False, True))
    assert found.fit.epochs == pytest.approx(0.1 * plain.fit.epochs)
    assert (found.optim.base_lr, found.optim.layer_decay) == (plain.optim.base_lr, 0.75)
    assert isinstance(found.continued, ResolvedContinued) and found.continued.rate == 0.1
    named = identity(to_dict(found), type(found))
    assert "blocks" not in named["continued"] and named["continued"]["rate"] == 0.1
    given = replace(
        method.recipe(), fit=FitConfig(epochs=7.0), optim=OptimConfig(layer_decay=0.9),
        continued=ContinuedConfig(rate=0.01, blocks=2),
    )  # fmt: skip
    found = method.resolve(given, FACTS._replace(started=True), PRESETS["px32"])
    assert (found.fit.epochs, found.optim.layer_decay) == (7.0, 0.9)
    assert (found.continued.rate, found.continued.blocks) == (0.01, 2)
    few = method.resolve(method.recipe(), FACTS._replace(started=True, images=10**9), PRESETS["px32"])
    assert few.fit.epochs >= 1.0


def test_groups_have_the_backbones_rates_and_frozen_blocks_are_in_none() -> None:
    objective = SimMIM(network())
    optim = ResolvedOptim(base_lr=1e-3, layer_decay=0.5, weight_decay=0.3)
    continuing = Continuing(objective, replace(USUAL, blocks=2), Drift(USUAL, POOL, SCALE, "mean", 64))
    groups = continuing.groups(objective, optim)
    found = {name: (group["lr_scale"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert found["vit.blocks.2.attn.qkv.weight"] == (0.05, 0.3)
    assert found["vit.blocks.1.attn.qkv.bias"] == (0.025, 0.0)
    assert found["vit.norm.weight"] == (0.1, 0.0)
    assert found["decoder.weight"] == (1.0, 0.3) and found["patch"] == (1.0, 0.3)
    assert not any(name.startswith(("vit.blocks.0", "vit.patch_embed", "vit.cls_token")) for name in found)
    held = {name for group in groups if "held" in group for name in group["names"]}
    assert held == {name for name in found if name.startswith("vit.")}


def test_heads_come_first_and_the_backbones_rate_rises_from_zero() -> None:
    continuing = Continuing(SimMIM(network()), USUAL, Drift(USUAL, POOL, SCALE, "mean", 64))
    paces = [continuing.pace(Clock(step, 16, 4.0)) for step in range(16)]
    assert paces == [0, 0, 0, 0, 0.25, 0.5, 0.75, *[1.0] * 9]
    continuing.cfg = replace(USUAL, heads_first=0.0)
    assert continuing.pace(Clock(0, 16, 4.0)) == 1.0


def stepping(cfg: ResolvedContinued, steps: int, total: int, depth: int = 3) -> tuple[SimMIM, Stepper]:
    objective = SimMIM(network(depth))
    fit = ResolvedFit(epochs=1.0, min_steps=0, batch_size=8, precision="fp32", clip_grad=1.0)
    stepper = Stepper(
        objective, fit=fit, optim=ResolvedOptim(base_lr=1e-3, weight_decay=0.5), accelerator=launch.join("fp32"),
        continuing=Continuing(objective, cfg, Drift(cfg, POOL, SCALE, "mean", 64)),
    )  # fmt: skip
    stepper.prepare(1)
    draw = simmim_view(SCALE, PLAIN, size=8, side=2, kept=6, dtype=torch.float32)
    batches = Loader(POOL, batch_size=8, micro_batch=8, seed=0, device=CPU).batches(0, total)
    for step in range(steps):
        stepper(Clock(step, total, 20.0), 1e-2, lambda: draw(next(batches), 0))
    return objective, stepper


def test_a_held_backbone_does_not_move_and_has_no_optimiser_state() -> None:
    before = state_of(network())
    objective, stepper = stepping(USUAL, 4, 16)
    own = {p for group in stepper.optimizer.param_groups for p in group["params"] if p in stepper.optimizer.state}
    assert same(state_of(objective.backbone), before)
    assert own == {p for name, p in objective.named_parameters() if not name.startswith("backbone.")}
    objective, _ = stepping(USUAL, 5, 16)
    assert not same(state_of(objective.backbone), before)


def test_frozen_blocks_do_not_move_bit_for_bit() -> None:
    before = state_of(network())
    objective, stepper = stepping(replace(USUAL, blocks=1, heads_first=0.0), 8, 8)
    after = state_of(objective.backbone)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith(("vit.blocks.2.", "vit.norm.")) for name in moved)
    frozen = [
        p for name, p in objective.backbone.named_parameters() if not name.startswith(("vit.blocks.2.", "vit.norm."))
    ]
    assert all(p.grad is None and p not in stepper.optimizer.state for p in frozen)
    every = {id(p) for group in stepper.optimizer.param_groups for p in group["params"]}
    assert not every & {id(p) for p in frozen}


def test_blocks_that_cannot_be_frozen_are_refused() -> None:
    with pytest.raises(UserError, match=r"^--continued.blocks 4: vit_tiny_patch16_224 has 3"):
        freeze_below(network(), 4)
    with pytest.raises(UserError, match="test_resnet has batch normalisation"):
        freeze_below(build_backbone(ResolvedModel("test_resnet", 32, pool="mean"), 1), 1)


def test_a_rate_beyond_reason_is_stopped_and_the_state_before_is_left(tmp_path: Path) -> None:
    cfg = replace(USUAL, rate=1.0, heads_first=0.0)
    objective, drift = trained(tmp_path / "run", cfg, lr=0.3)
    assert drift.passed is not None
    ended, kept = drift.passed["step"], drift.kept["step"]
    assert kept == max((step for step in drift.states if step < ended), default=0)
    looks = {row["step"]: row["drift/agreement"] for row in rows(tmp_path / "run")}
    assert list(looks) == [*range(4, ended + 1, 4)] and looks[ended] < 0.25 <= min(1.0, looks.get(kept, 1.0))
    assert rows(tmp_path / "run", "metrics.jsonl")[-1]["step"] == ended < 40
    last = state_of(objective.backbone)
    drift.leave(objective.backbone)
    assert same(state_of(objective.backbone), drift.states.get(kept, state_of(network()))) and kept < ended
    assert not same(state_of(objective.backbone), last)
    _, again = trained(tmp_path / "run", cfg, lr=0.3)  # it is over, and stays so
    assert again.record() == drift.record() and not hasattr(again, "states")


def test_a_low_rate_goes_to_its_end(tmp_path: Path) -> None:
    _, drift = trained(tmp_path / "run", USUAL)
    assert drift.passed is None and drift.kept["step"] == 40
    assert [row["step"] for row in rows(tmp_path / "run")] == [*range(4, 41, 4)]


@pytest.mark.parametrize(("lr", "breaks_after"), [(1e-3, 3), (1e-3, 27), (0.3, 3)])
def test_resuming_is_exact(lr: float, breaks_after: int, tmp_path: Path) -> None:
    """Cut off while the backbone is held, later, and before an alarm."""
    cfg = replace(USUAL, rate=1.0, heads_first=0.0) if lr > 0.1 else USUAL
    whole, drift = trained(tmp_path / "whole", cfg, lr=lr, checkpoint_steps=2)
    with pytest.raises(Torn):
        trained(tmp_path / "torn", cfg, lr=lr, checkpoint_steps=2, breaks_after=breaks_after)
    found, again = trained(tmp_path / "torn", cfg, lr=lr, checkpoint_steps=2)
    assert same(state_of(found), state_of(whole))
    assert again.record() == drift.record() and same(again.kept["weights"], drift.kept["weights"])
    for file in ("health.jsonl", "metrics.jsonl"):
        assert (tmp_path / "torn" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert (drift.passed is not None) == (lr > 0.1)


@pytest.fixture
def continued(tiny_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., RunDir]:
    monkeypatch.chdir(tmp_path)

    def run(name: str, fit: FitConfig | None = None, optim: OptimConfig | None = None, **more: Any) -> RunDir:
        method = METHODS[name]
        asked = method.recipe(
            model=ModelConfig(weights=str(tiny_run)), run=RunConfig(dir=name),
            fit=replace(fit or FitConfig(epochs=1.0), batch_size=32), optim=optim or method.recipe().optim,
            continued=ContinuedConfig(**more),
        )  # fmt: skip
        return pretrain(method, asked)

    return run


@pytest.mark.parametrize("name", ["mae", "dino", "lejepa"])
def test_blocks_stay_as_they_are_in_what_is_exported(name: str, continued, tiny_run: Path) -> None:
    fit = METHODS[name].recipe().fit
    run = continued(name, fit=replace(fit, epochs=0.5, recompute=True), blocks=1, look_percent=50.0)
    before, after = (load_backbone(str(path)).backbone.state_dict() for path in (tiny_run, run.path))
    moved = {key for key, value in after.items() if not torch.equal(value, before[key])}
    assert moved and all(key.startswith(("vit.blocks.1.", "vit.norm.")) for key in moved)
    exported = load_backbone(str(run.path))
    about = exported.about["continued"]
    assert (
        exported.about["started_from"]["objective"] == "MAE"
        and about["passed"] is None
        and about["exported"]["agreement"] > 0.5
    )


def test_a_stopped_run_is_done_and_says_what_it_exports(continued, tiny_run: Path, capsys) -> None:
    wild = {"rate": 1.0, "heads_first": 0.0, "least_agreement": 0.9}
    run = continued("mae", optim=OptimConfig(lr=0.5), **wild)
    said = capsys.readouterr().out
    assert "continued       heads alone for 0 steps, then the backbone at 1 of their rate" in said
    assert "is below --continued.least_agreement 0.9" in said and "labels had no part in this" in said
    about = load_backbone(str(run.path)).about["continued"]
    assert about["passed"]["agreement"] < 0.9 <= about["exported"]["agreement"]
    assert json.loads((run.path / "environment.json").read_text())["drift"]["passed"] == about["passed"]
    found = listing.read(run.path)
    assert isinstance(found, listing.Run) and found.told.endswith("(ended by its drift alarm)")
    assert (found.state, found.step) == ("done", about["passed"]["step"])
    weights = (run.backbone / "model.safetensors").read_bytes()
    continued("mae", optim=OptimConfig(lr=0.5), **wild)
    assert "is already complete: its drift alarm ended it" in capsys.readouterr().out
    assert (run.backbone / "model.safetensors").read_bytes() == weights


def test_other_weights_are_another_run(continued, tiny_run: Path) -> None:
    run = continued("mae", fit=FitConfig(epochs=0.1))
    made_of = json.loads((run.path / "environment.json").read_text())["data_fingerprint"]
    assert made_of.startswith(f"{load_backbone(str(tiny_run)).weights_hash}-")
