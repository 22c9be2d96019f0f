"""The loop: schedule, accumulation, logging, stopping, continuing."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.schedules import warmup_cosine
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock, StepOutput
from ssl_vit.objectives.mae import MAE, mae_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.script import mistakes_told
from ssl_vit.training import launch, loop, stopping
from torch import Tensor, nn

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, 2, 16, 2, 2, "sincos", "mean")
FIT = ResolvedFit(epochs=0.5, batch_size=64, precision="fp64", log_every=2, min_steps=0)
OPTIM = ResolvedOptim(base_lr=4e-3, warmup=0.2)


class Stepping(MAE):
    """MAE that can fail or be interrupted after a named step."""

    fail_at: int | None = None
    signal: signal.Signals = signal.SIGTERM
    signal_at: int | None = None

    def after_step(self, clock: Clock) -> None:
        if clock.step == self.signal_at:
            os.kill(os.getpid(), self.signal)

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        output = super().forward(inputs)
        self.calls = getattr(self, "calls", 0) + 1
        return StepOutput(output.loss * float("nan"), {}) if self.calls - 1 == self.fail_at else output


def build(seed: int = 0) -> Stepping:
    torch.manual_seed(seed)
    return Stepping(build_backbone(MODEL, 1), ResolvedMAE(0.5, False, 16, 1, 2), freeze_positions=True)


def run(path: Path, objective: MAE | None = None, cfg: ResolvedFit = FIT, optim: ResolvedOptim = OPTIM) -> MAE:
    objective = objective or build()
    accelerator = launch.join("fp32")
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    micro = launch.micro_batch_size(cfg, 1)
    loader = Loader(pool, batch_size=cfg.batch_size, micro_batch=micro, seed=3, device=accelerator.device)
    augment = ResolvedAugment((1.0, 1.0), flip=False, policy="none", erasing=0.0)
    view = mae_view(
        measure_scale(pool), augment, size=8, patches=16, kept=8, dtype=launch.DTYPES.get(cfg.precision, torch.float32)
    )
    path.mkdir(exist_ok=True)
    loop.fit(objective, loader, view, fit=cfg, optim=optim, run=RunDir(path, True), accelerator=accelerator, seed=3)
    return objective


def metrics(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_logs_follow_the_schedule(tmp_path: Path) -> None:
    run(tmp_path)
    found = metrics(tmp_path)
    assert [m["step"] for m in found] == [2, 4, 6, 8, 10, 12]  # 0.5 epochs of 1,438 images in batches of 64
    for m in found:
        rate = warmup_cosine(int(m["step"]) - 1, total_steps=12, warmup_steps=2, peak=1e-3, final=0.0)
        assert m["lr"] == pytest.approx(rate, abs=1e-15)
        assert m["epoch"] == pytest.approx(m["step"] * 64 / 1438)
    assert found[-1]["loss"] < found[0]["loss"]
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert [t["step"] for t in timing] == [m["step"] for m in found]


def test_accumulation_equals_one_large_batch(tmp_path: Path) -> None:
    whole = run(tmp_path / "a")
    parts = run(tmp_path / "b", cfg=replace(FIT, micro_batch=16))
    for x, y in zip(whole.parameters(), parts.parameters(), strict=True):
        assert (x - y).abs().max() <= 1e-9
    for x, y in zip(metrics(tmp_path / "a"), metrics(tmp_path / "b"), strict=True):
        assert x["loss"] == pytest.approx(y["loss"], abs=1e-12)  # the mean over micro-batches, not the last one


def repeated(folder: Path, capsys: pytest.CaptureFixture[str]) -> MAE:
    """A run that is complete, typed again: nothing is trained, and its files stay."""
    before = (folder / "metrics.jsonl").read_text()
    again = build(seed=5)
    again.fail_at = 0  # any step would fail
    found = run(folder, again)
    assert (folder / "metrics.jsonl").read_text() == before
    assert "already complete" in capsys.readouterr().out
    return found


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGHUP, 75), (signal.SIGINT, 130)]
)
def test_a_signal_loses_nothing(
    number: signal.Signals, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, handler = run(tmp_path / "a"), signal.getsignal(number)
    interrupted = build()
    interrupted.signal, interrupted.signal_at = number, 4
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path / "b", interrupted)
    assert stopped.value.code == status
    assert "stopped after step 5" in capsys.readouterr().err
    # Other random weights show that everything comes from the checkpoint.
    resumed = run(tmp_path / "b", build(seed=9))
    assert equal(whole, resumed)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert signal.getsignal(number) == handler


def test_a_run_that_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup starts it
    try:
        steady = build()
        steady.signal, steady.signal_at = signal.SIGHUP, 4
        run(tmp_path, steady)
        assert metrics(tmp_path)[-1]["step"] == 12
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_steps_after_the_checkpoint_are_repeated_identically(tmp_path: Path) -> None:
    whole = run(tmp_path / "a")
    cfg = replace(FIT, checkpoint_steps=5)
    broken = build()
    broken.fail_at = 8
    with pytest.raises(UserError, match="between steps 8 and 10"):
        run(tmp_path / "b", broken, cfg)
    resumed = run(tmp_path / "b", build(seed=9), cfg)
    assert equal(whole, resumed)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


def test_a_loss_that_is_no_number_is_never_saved(tmp_path: Path) -> None:
    broken = build()
    broken.fail_at = 2
    with pytest.raises(UserError, match=r"--optim\.lr"):
        run(tmp_path, broken, replace(FIT, checkpoint_steps=1))
    assert sorted(p.name for p in (tmp_path / "checkpoints").glob("*.pt")) == ["step_000000001.pt", "step_000000002.pt"]


@pytest.mark.parametrize("step", [4, 5], ids=["between lines", "at a line"])
def test_a_wish_to_stop_is_not_lost_where_training_fails(
    step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = build()
    broken.fail_at = broken.signal_at = step
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, broken)
    assert stopped.value.code == 128 + signal.SIGTERM
    said = capsys.readouterr().err
    assert f"error: the loss stopped being a finite number between steps 4 and {step + 1}; lower" in said
    assert "which is saved" not in said
    assert not (tmp_path / "checkpoints").exists()
    assert [m["step"] for m in metrics(tmp_path)] == [2, 4]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_a_signal_during_the_last_save_is_not_lost_and_the_run_is_complete(
    number: signal.Signals, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    save = loop.Saving.save

    def signalled(self: loop.Saving, step: int) -> None:
        save(self, step)
        if step == 12:
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
    whole, went_on = build(), list[str]()
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped, mistakes_told():
        patch.setattr(loop.Saving, "save", signalled)
        run(tmp_path, whole)
        went_on.append("evaluation")
    assert (stopped.value.code, went_on) == (status, [])
    assert capsys.readouterr().err.count("the same command continues") == 1
    assert json.loads((tmp_path / "environment.json").read_text())["unreadable_images"] == []
    assert equal(whole, repeated(tmp_path, capsys))


def test_the_end_of_the_time_is_no_signal_to_send_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "age", lambda: 1e12)
    sent = list[int]()
    monkeypatch.setattr(stopping, "raise_signal", sent.append)
    for noted in (None, signal.SIGTERM):
        with stopping.stop_requests(max_time="1h") as wish:
            wish.received = noted
            assert wish.heard() == (noted or stopping.TIME_OVER)
    assert sent == [signal.SIGTERM]  # nobody has sent the other


def test_a_finished_run_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path)
    assert equal(first, repeated(tmp_path, capsys))


def test_a_shorter_run_than_already_trained_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(UserError, match=r"already trained 12 steps, more than the 3 .* --fit\.epochs"):
        run(tmp_path, cfg=replace(FIT, epochs=0.1))


def planned(step: int, steps: int) -> float:
    """The rate that ``OPTIM`` plans for a step, counted from 1 as it is logged."""
    return warmup_cosine(step - 1, total_steps=steps, warmup_steps=round(0.2 * steps), peak=1e-3, final=0.0)


def test_a_finished_run_can_be_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    before = metrics(tmp_path)
    run(tmp_path, build(seed=5), replace(FIT, epochs=1.0))
    found = metrics(tmp_path)
    assert [m["step"] for m in found] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 23]
    assert found[:6] == before
    for m in found:
        assert m["lr"] == pytest.approx(planned(int(m["step"]), 12 if m["step"] <= 12 else 23), abs=1e-15)
    said = capsys.readouterr().out
    jump = f"{planned(12, 12):.3g} at the last step, {planned(13, 23):.3g} at the next"
    assert planned(13, 23) > 10 * planned(12, 12)
    assert "continues after step 12 of 23; the learning rate follows the schedule of 23 steps instead of 12" in said
    assert jump in said


def test_continuing_an_interrupted_extension_announces_no_second_jump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    interrupted = build()
    interrupted.signal_at = 15
    with pytest.raises(SystemExit):
        run(tmp_path, interrupted, replace(FIT, epochs=1.0))
    capsys.readouterr()
    run(tmp_path, cfg=replace(FIT, epochs=1.0))
    said = capsys.readouterr().out
    assert "continues after step 16 of 23" in said
    assert "schedule" not in said


def test_a_run_cut_to_what_is_already_trained_says_that_its_rate_was_planned_for_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted = build()
    interrupted.signal_at = 11
    with pytest.raises(SystemExit):
        run(tmp_path, interrupted, replace(FIT, epochs=1.0))
    run(tmp_path)
    assert "is already complete, though its learning rate follows a schedule of 23 steps" in capsys.readouterr().out


def test_the_floor_of_steps(tmp_path: Path) -> None:
    run(tmp_path, cfg=replace(FIT, min_steps=20))
    assert metrics(tmp_path)[-1]["step"] == 20


class Overflowing(Stepping):
    """Its gradients are too large for fp16 in some steps, its loss is not."""

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        output = super().forward(inputs)
        if self.calls - 1 in (3, 7):
            output.loss.register_hook(lambda grad: grad * float("inf"))
        return output


@pytest.mark.parametrize("again", [False, True])
def test_steps_that_fp16_skips_are_counted(again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def join(precision: str) -> Any:
        accelerator = joined(precision)
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return accelerator

    joined = launch.join
    monkeypatch.setattr(launch, "join", join)
    torch.manual_seed(0)
    objective = Overflowing(build_backbone(MODEL, 1), ResolvedMAE(0.5, False, 16, 1, 2), freeze_positions=True)
    cfg = replace(FIT, precision="fp32", log_every=1)
    if again:
        objective.signal_at = 5
        with pytest.raises(SystemExit):
            run(tmp_path, objective, cfg)
        objective.signal_at = None
        run(tmp_path, objective, cfg)
    else:
        run(tmp_path, objective, cfg)
    assert [m["skipped_steps"] for m in metrics(tmp_path)] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]


def test_only_fp16_counts_skipped_steps(tmp_path: Path) -> None:
    run(tmp_path)
    assert "skipped_steps" not in metrics(tmp_path)[-1]


def test_a_warm_up_in_epochs_is_as_long_in_a_longer_run(tmp_path: Path) -> None:
    optim = replace(OPTIM, warmup_epochs=0.25)
    for epochs, steps in ((0.5, 12), (1.0, 23)):
        run(tmp_path / str(epochs), cfg=replace(FIT, epochs=epochs), optim=optim)
        for m in metrics(tmp_path / str(epochs)):
            rate = warmup_cosine(int(m["step"]) - 1, total_steps=steps, warmup_steps=6, peak=1e-3, final=0.0)
            assert m["lr"] == pytest.approx(rate, abs=1e-15)
    with pytest.raises(UserError, match=r"--optim\.warmup_epochs 0\.25 is all of the run's 0\.\d+ epochs"):
        run(tmp_path / "short", cfg=replace(FIT, epochs=0.25), optim=optim)


def test_clipping_bounds_the_step(tmp_path: Path) -> None:
    free, held = build(), build()
    run(tmp_path / "a", free, replace(FIT, epochs=0.05), ResolvedOptim(lr=1e-3, warmup=0.0, base_lr=1e-3))
    run(
        tmp_path / "b",
        held,
        replace(FIT, epochs=0.05, clip_grad=1e-12),
        ResolvedOptim(lr=1e-3, warmup=0.0, base_lr=1e-3),
    )
    start = build().double()

    def moved(model: nn.Module) -> float:
        pairs = zip(model.parameters(), start.parameters(), strict=True)
        return max(float((a - b).detach().abs().max()) for a, b in pairs if a.requires_grad and a.ndim == 1)

    # Adam divides by the gradient's own size except where that is far below its epsilon (1e-8).
    assert moved(held) < 0.01 * moved(free)


@pytest.mark.parametrize(("micro", "words"), [(48, "--fit.micro_batch 48"), (128, "--fit.batch_size 64")])
def test_micro_batches_that_do_not_divide(tmp_path: Path, micro: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        run(tmp_path, cfg=replace(FIT, micro_batch=micro))


def test_another_number_of_processes_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match=r"4 processes were asked for, but this job has 1.*torchrun"):
        dist.check_world_size(1)
    monkeypatch.delenv("WORLD_SIZE")
    dist.check_world_size(1)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"config_file": "own.yaml"}, 2),
        ({"config_file": "own.json"}, 3),
        ({"config_file": "own.yaml", "num_processes": "1"}, None),
        ({"config_file": "own.yaml", "cpu": "own.yaml"}, 2),
        ({}, 4),  # what accelerate config wrote
        ({"cpu": "recipes/mae.py"}, None),  # and the launcher does not read
        ({"config_file": "without.yaml"}, None),
    ],
)
def test_the_launchers_file_asks_for_processes_too(
    options: dict[str, str], asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 2\n")
    Path("own.json").write_text('{"distributed_type": "MULTI_CPU", "num_processes": 3}')
    Path("usual.yaml").write_text("num_processes: 4\n")
    Path("without.yaml").write_text("distributed_type: 'NO'\n")
    monkeypatch.setattr("accelerate.commands.config.default_config_file", "usual.yaml")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(dist, "_accelerate_launcher", lambda: (options, {}))
    if asked is None:
        dist.check_world_size(1)
    else:
        with pytest.raises(UserError, match=f"^{asked} processes were asked for, but this job has 1"):
            dist.check_world_size(1)
