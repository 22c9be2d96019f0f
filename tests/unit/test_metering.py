"""Counting what a pass takes, splitting a batch by it, and the page on where time goes."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ssl_vit.configs import (
    DataConfig,
    LabelledDataConfig,
    ResolvedAugment,
    ResolvedFit,
    ResolvedModel,
    ResolvedOptim,
)
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Objective
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.mae import MAE, mae_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch, loop, micro_batch
from ssl_vit.training.metering import Meter, try_pass, with_every_branch
from torch import Tensor

WIDTH, DEPTH, DECODER = 16, 2, 8
MODEL = ResolvedModel("vit_tiny_patch16_224", 8, 2, WIDTH, DEPTH, 2, "sincos", "mean")
FIT = ResolvedFit(epochs=1.0, batch_size=24, precision="fp64", log_every=1, min_steps=0)


def mae() -> MAE:
    torch.manual_seed(0)
    return MAE(build_backbone(MODEL, 1), ResolvedMAE(0.5, False, DECODER, 1, 2), freeze_positions=True)


def inputs(images: int) -> dict[str, Tensor]:
    ids = torch.arange(16).expand(images, -1)
    return {"images": torch.zeros(images, 1, 8, 8), "keep_ids": ids[:, :8], "mask_ids": ids[:, 8:]}


def block(tokens: int, width: int, asked: int | None = None) -> int:
    """Multiplications of a block in one forward pass, of which only some tokens' output is asked for."""
    asked = asked or tokens
    keys = 2 * tokens * width**2
    return keys + asked * width * (width + width + 8 * width) + 2 * asked * tokens * width


def test_operations_of_mae_by_hand() -> None:
    counted = try_pass(mae(), inputs(3), nullcontext()).flops
    encoder = DEPTH * block(9, WIDTH)
    decoder = block(17, DECODER, 8) + 9 * WIDTH * DECODER + 8 * DECODER * 4
    patches = 8 * 4 * WIDTH
    # Twice a multiplication; backwards twice the forward, but nothing flows into pixels. Attention's own recomputation
    # and what an attention kernel counts may differ by some per cent.
    by_hand = 3 * 2 * (3 * (encoder + decoder) + 2 * patches)
    assert counted == pytest.approx(by_hand, rel=0.06)


def test_counts_grow_with_images() -> None:
    few, many = (try_pass(mae(), inputs(n), nullcontext()) for n in (2, 8))
    assert many.flops == 4 * few.flops
    assert many.kept == pytest.approx(4 * few.kept, rel=0.1)


def dino() -> DINO:
    torch.manual_seed(0)
    cfg = ResolvedDINO(
        out_dim=32, head_hidden=16, head_bottleneck=8, centring="mean", teacher_temp=0.04,
        warmup_teacher_temp=0.04, teacher_warmup=0.0, drop_path=0.0,
    )  # fmt: skip
    return DINO(build_backbone(replace(MODEL, pool="cls"), 1), cfg, pool="cls", batch_size=4)


def crops(images: int) -> dict[str, Tensor]:
    return {"globals": torch.rand(images, 2, 1, 8, 8), "locals": torch.rand(images, 2, 1, 4, 4)}


def norms() -> DINO:
    torch.manual_seed(0)
    model = ResolvedModel("resnet18", 32, None, None, None, None, None, "mean")
    return DINO(build_backbone(model, 1), dino().cfg, pool="mean", batch_size=4)


@pytest.mark.parametrize("make", [mae, dino, norms])
def test_a_tried_pass_leaves_no_trace(make: Any) -> None:
    objective = make().train()
    before, attributes = copy.deepcopy(objective.state_dict()), dict(vars(objective))
    try_pass(objective, inputs(2) if isinstance(objective, MAE) else crops(2), nullcontext())
    assert all(torch.equal(before[name], value) for name, value in objective.state_dict().items())
    assert all(p.grad is None for p in objective.parameters())
    assert all(vars(objective)[name] is value for name, value in attributes.items())


def test_the_meter_reads_shares() -> None:
    meter = Meter(torch.device("cpu"), flops=10.0, ceiling=1e9)
    meter.started -= 2.0
    meter.waited = 0.5
    read = meter.read(images=1000, world=2)
    assert read["images_per_second"] == pytest.approx(500, rel=0.1)
    assert read["data_wait"] == pytest.approx(0.25, rel=0.1)
    assert read["mfu"] == pytest.approx(read["images_per_second"] / 2 * 10.0 / 1e9)  # of one process's device
    assert meter.waited == 0.0
    assert meter.least_seconds(100) == pytest.approx(1e-6)


def loader_of(cfg: ResolvedFit) -> tuple[Loader, Any]:
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    pool = pool.subset(np.arange(48))
    device = launch.join("fp32").device
    assert cfg.batch_size
    loader = Loader(pool, batch_size=cfg.batch_size, micro_batch=launch.micro_batch_size(cfg, 1), seed=3, device=device)
    augment = ResolvedAugment((1.0, 1.0), flip=False, policy="none", erasing=0.0)
    return loader, mae_view(measure_scale(pool), augment, size=8, patches=16, kept=8, dtype=torch.float64)


def run(path: Path, cfg: ResolvedFit, objective: Objective | None = None) -> tuple[Objective, Loader]:
    objective, (loader, view) = objective or mae(), loader_of(cfg)
    path.mkdir()
    loop.fit(
        objective, loader, view, fit=cfg, optim=ResolvedOptim(lr=1e-3, base_lr=1e-3), run=RunDir(path, True),
        accelerator=launch.join("fp32"), seed=3,
    )  # fmt: skip
    return objective, loader


def memory_for(images: int) -> float:
    """Free memory in which just so many images fit."""
    given = {name: t.double() if t.is_floating_point() else t for name, t in inputs(2).items()}
    kept = try_pass(mae().double(), given, nullcontext()).kept / 2
    state = 24 * sum(p.numel() for p in mae().parameters() if p.requires_grad)
    return ((images + 0.5) * kept + state) / 0.7


@pytest.mark.parametrize(("fitting", "taken"), [(100, 24), (24, 24), (23, 12), (7, 6), (3, 2)])
def test_auto_takes_the_largest_part_that_fits(
    fitting: int, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(micro_batch, "_free_memory", lambda device: memory_for(fitting))
    whole, _ = run(tmp_path / "whole", FIT)
    parts, loader = run(tmp_path / "parts", replace(FIT, micro_batch="auto"))
    assert (loader.micro_batch, loader.accumulation) == (taken, 24 // taken)
    assert f"micro-batch     {taken} per device x {24 // taken} accumulation" in capsys.readouterr().out
    for x, y in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


def test_auto_counts_what_is_kept_where_activations_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More images fit; operations are those of a network that computes everything once."""
    monkeypatch.setattr(micro_batch, "_free_memory", lambda device: memory_for(8))
    counted, taken = list[float](), list[int]()
    for name, again in (("plain", False), ("again", True)):
        _, loader = run(tmp_path / name, replace(FIT, micro_batch="auto", recompute=again))
        counted.append(json.loads((tmp_path / name / "environment.json").read_text())["flops_per_image"])
        taken.append(loader.micro_batch)
    assert taken[0] == 8 < taken[1]
    assert counted[0] == counted[1]
    monkeypatch.setattr(micro_batch, "_free_memory", lambda device: 0.0)
    with pytest.raises(UserError, match=r"not even 2 image.*try a smaller network or input"):
        run(tmp_path / "c", replace(FIT, micro_batch="auto", recompute=True))


def test_auto_says_when_nothing_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "_free_memory", lambda device: memory_for(1))
    with pytest.raises(UserError, match=r"not even 2 image.*--fit\.recompute true"):
        run(tmp_path / "a", replace(FIT, micro_batch="auto"))


def test_auto_never_changes_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "_free_memory", lambda device: memory_for(8))
    with pytest.raises(UserError, match=r"statistics are taken over a forward pass.*--fit\.micro_batch 8"):
        run(tmp_path / "a", replace(FIT, micro_batch="auto", statistics_batch=24))


def test_the_profile_names_parts_and_operations(tmp_path: Path) -> None:
    run(tmp_path / "a", replace(FIT, batch_size=3, profile=True))
    page = (tmp_path / "a" / "profile" / "summary.md").read_text()
    assert page.startswith("# Where the time of a step goes (10 steps, ")
    for part in ("data", "view", "forward", "backward", "optimiser", "objective", "everything else"):
        assert f"\n| {part} | " in page
    assert "aten::addmm | " in page
    trace = json.loads((tmp_path / "a" / "profile" / "trace.json").read_text())
    assert any(event.get("name") == "backward" for event in trace["traceEvents"])


def test_a_short_run_leaves_the_profile_of_what_there_was(tmp_path: Path) -> None:
    run(tmp_path / "a", replace(FIT, batch_size=6, profile=True))  # eight steps
    assert "(3 steps, " in (tmp_path / "a" / "profile" / "summary.md").read_text()


def test_timing_has_all_shares(tmp_path: Path) -> None:
    run(tmp_path / "a", FIT)
    for line in (tmp_path / "a" / "timing.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert set(row) == {"step", "images_per_second", "data_wait", "mfu", "peak_memory"}
        assert 0 < row["mfu"] < 10
        assert 0 <= row["data_wait"] <= 1


def test_operations_are_those_of_all_branches() -> None:
    """Whatever stochastic depth draws for whichever crops."""
    ones = with_every_branch({"images": torch.zeros(2), "drop_globals": torch.zeros(2, 3), "drop": torch.zeros(2)})
    assert {key: float(value.mean()) for key, value in ones.items()} == {"images": 0, "drop_globals": 1, "drop": 1}
