"""Batches that make training blow up are left out, and the run is one in which they were never drawn."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedAugment, ResolvedFit, ResolvedModel, ResolvedOptim
from ssl_vit.core.errors import Diverged, UserError
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock, StepOutput
from ssl_vit.objectives.mae import MAE, mae_view
from ssl_vit.runs import diverged
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch, loop
from ssl_vit.training.divergence import KEPT, LEAST, Soundness, Unsound
from torch import Tensor, nn

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, 2, 16, 2, 2, "sincos", "mean")
FIT = ResolvedFit(
    epochs=0.5, batch_size=64, precision="fp32", log_every=2, min_steps=0, on_divergence="skip", checkpoint_steps=3
)
OPTIM = ResolvedOptim(base_lr=4e-3, warmup=0.2)


class Poisoned(MAE):
    """MAE that reads what the view says of a batch: how its loss goes wrong."""

    stop_at: int | None = None

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        how = inputs.pop("how", None)
        output = super().forward(inputs)
        if how is None:
            return output
        if how == "gradient":
            output.loss.register_hook(lambda grad: grad * float("inf"))
            return output
        return StepOutput(output.loss * float("nan" if how == "loss" else 1e6), output.metrics)

    def after_step(self, clock: Clock) -> None:
        if clock.step == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


def build(seed: int = 0) -> Poisoned:
    torch.manual_seed(seed)
    return Poisoned(build_backbone(MODEL, 1), ResolvedMAE(0.5, False, 16, 1, 2), freeze_positions=True)


def run(
    path: Path, poison: dict[int, str], objective: Poisoned | None = None, cfg: ResolvedFit = FIT
) -> tuple[Poisoned, list[int]]:
    """Trains where batches of these numbers (as if none were left out) are poisoned; the numbers that were drawn."""
    objective = objective or build()
    accelerator = launch.join("fp32")
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    micro = launch.micro_batch_size(cfg, 1)
    loader = Loader(pool, batch_size=cfg.batch_size, micro_batch=micro, seed=3, device=accelerator.device)
    augment = ResolvedAugment((1.0, 1.0), flip=False, policy="none", erasing=0.0)
    view = mae_view(measure_scale(pool), augment, size=8, patches=16, kept=8, dtype=torch.float32)
    plain = Loader(pool, batch_size=cfg.batch_size, micro_batch=cfg.batch_size, seed=3, device=accelerator.device)
    wanted = [plain.positions(number, 0) for number in range(40)]
    begins = {(int(index[0]), int(epoch[0])): number for number, (index, epoch) in enumerate(wanted)}
    drawn: list[int] = []

    def poisoning(batch: Batch, seed: int) -> dict[str, Tensor]:
        inputs = view(batch, seed)
        number = begins.get((int(batch.index[0]), int(batch.epoch[0])))
        if number is not None and len(batch.index) == cfg.batch_size:
            drawn.append(number)
        if number in poison:
            inputs["how"] = poison[number]  # type: ignore[assignment]
        return inputs

    path.mkdir(exist_ok=True)
    loop.fit(
        objective, loader, poisoning, fit=cfg, optim=OPTIM, run=RunDir(path, True), accelerator=accelerator, seed=3
    )
    return objective, drawn


def never_drawn(path: Path, batches: list[int]) -> Path:
    """A run's folder that leaves out these batches from its beginning."""
    path.mkdir()
    for batch in batches:
        diverged.tell(path, {"batch": batch})
    return path


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def metrics(path: Path) -> str:
    return (path / "metrics.jsonl").read_text()


def told(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (path / diverged.NAME).read_text().splitlines()]


@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_a_run_that_skipped_is_one_in_which_the_batch_was_never_drawn(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped, _ = run(tmp_path / "a", {1: how, 7: how})
    reference, drawn = run(never_drawn(tmp_path / "b", [1, 7]), {1: how, 7: how})
    assert equal(skipped, reference)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert drawn[-1] == 13
    assert {1, 7} & set(drawn) == set()
    lines = [json.loads(line) for line in metrics(tmp_path / "a").splitlines()]
    assert [line.get("skipped_batches", 0) for line in lines] == [1, 1, 1, 2, 2, 2]
    assert [record["step"] for record in told(tmp_path / "a")] == [2, 7]
    assert [record["back_to"] for record in told(tmp_path / "a")] == [0, 6]
    said = capsys.readouterr().out
    assert "never drawn" not in said


def test_what_is_recorded_names_every_image_with_its_key(tmp_path: Path) -> None:
    run(tmp_path, {4: "loss"})
    (record,) = told(tmp_path)
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    loader = Loader(pool, batch_size=64, micro_batch=64, seed=3, device=torch.device("cpu"))
    index, epoch = loader.positions(4, 0)
    assert record["batch"] == 4
    assert record["why"] == "the loss is no finite number"
    assert record["loss"] is None
    assert record["seed"] == 3
    assert record["images"] == [
        {"image": pool.where(i), "index": i, "epoch": e} for i, e in zip(index.tolist(), epoch.tolist(), strict=True)
    ]


@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_a_later_start_leaves_it_out_as_well(stop_at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference, _ = run(never_drawn(tmp_path / "b", [4]), {4: "loss"})
    stopped = build()
    stopped.stop_at = stop_at
    with pytest.raises(SystemExit):
        run(tmp_path / "a", {4: "loss"}, stopped)
    again, _ = run(tmp_path / "a", {4: "loss"}, build(seed=9))
    assert equal(reference, again)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert len(told(tmp_path / "a")) == 1
    assert ("1 batch(es) are left out" in capsys.readouterr().out) == (stop_at > 4)


def test_a_run_that_stopped_goes_on_by_skipping(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="stopped being a finite number"):
        run(tmp_path / "a", {4: "loss"}, cfg=replace(FIT, on_divergence="stop"))
    again, _ = run(tmp_path / "a", {4: "loss"}, build(seed=9))
    reference, _ = run(never_drawn(tmp_path / "b", [4]), {})
    assert equal(reference, again)


def test_spikes_are_for_runs_that_skip(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--fit.spike 3 is for --fit.on_divergence skip"):
        run(tmp_path / "a", {}, cfg=replace(FIT, on_divergence="stop", spike=3.0))


def test_a_run_that_skipped_goes_on_without_the_option(tmp_path: Path) -> None:
    stopped = build()
    stopped.stop_at = 8
    with pytest.raises(SystemExit):
        run(tmp_path / "a", {4: "loss"}, stopped)
    again, drawn = run(tmp_path / "a", {4: "loss"}, build(seed=9), replace(FIT, on_divergence="stop"))
    reference, _ = run(never_drawn(tmp_path / "b", [4]), {})
    assert equal(reference, again)
    assert drawn[-1] == 12


def test_no_more_are_skipped_than_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"step 6: .* 1 batch\(es\) are left out already \(--fit.most_skips 1"):
        run(tmp_path, {2: "loss", 6: "gradient"}, cfg=replace(FIT, most_skips=1))
    assert [record.get("batch") for record in told(tmp_path)] == [2, None]
    assert diverged.batches_left_out(tmp_path) == [2]


def test_micro_batches_of_one_step_are_left_out_together(tmp_path: Path) -> None:
    cfg = replace(FIT, micro_batch=16)
    skipped, _ = run(tmp_path / "a", {4: "loss"}, cfg=cfg)
    reference, _ = run(never_drawn(tmp_path / "b", [4]), {}, cfg=cfg)
    assert equal(skipped, reference)
    assert len(told(tmp_path / "a")[0]["images"]) == 64  # type: ignore[arg-type]


def test_spikes_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    cfg = replace(FIT, epochs=1.2, spike=10.0)
    skipped, _ = run(tmp_path / "a", {24: "spike"}, cfg=cfg)
    reference, _ = run(never_drawn(tmp_path / "b", [24]), {}, cfg=cfg)
    assert equal(skipped, reference)
    assert str(told(tmp_path / "a")[0]["why"]).startswith("the loss is ")
    free, _ = run(tmp_path / "c", {24: "spike"}, cfg=replace(cfg, spike=None))
    assert not equal(skipped, free)
    assert not (tmp_path / "c" / diverged.NAME).exists()


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_the_rule_of_spikes() -> None:
    judged = Soundness(spike=3.0)
    for _ in range(LEAST - 1):
        judged.judge(scalar(1.0), scalar(2.0))
    judged.judge(scalar(100.0), scalar(2.0))  # too early to tell
    judged.judge(scalar(300.0), scalar(6.0))
    with pytest.raises(Unsound, match=r"the loss is 901, more than 3 times the largest \(300\) of the 21 steps before"):
        judged.judge(scalar(901.0), scalar(2.0))
    with pytest.raises(Unsound, match=r"the gradient norm is 18\.1, more than 3 times the largest"):
        judged.judge(scalar(1.0), scalar(18.1))
    assert len(judged.recent) == 21  # what is not sound is not remembered
    for _ in range(KEPT):
        judged.judge(scalar(-1.0), scalar(2.0))
    judged.judge(scalar(5.0), scalar(2.0))  # losses below zero have no multiples
    with pytest.raises(Unsound, match="gradient is no finite"):
        judged.judge(scalar(1.0), scalar(float("inf")))


def test_what_the_rule_remembers_is_saved() -> None:
    judged, again = Soundness(2.0), Soundness(2.0)
    for i in range(KEPT + 7):
        judged.judge(scalar(float(i)), scalar(1.0))
    again.load(json.loads(json.dumps(judged.state())))
    assert again.recent == judged.recent
    assert len(again.recent) == KEPT


def test_later_batches_move_up() -> None:
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    loader = Loader(pool, batch_size=64, micro_batch=32, seed=3, device=torch.device("cpu"))
    usual = [loader.positions(step, micro) for step in range(40) for micro in (0, 1)]
    loader.leave_out([5, 0])
    loader.leave_out([6, 5])
    assert loader.left_out == [0, 5, 6]
    assert [loader.number(step) for step in range(6)] == [1, 2, 3, 4, 7, 8]
    for step in range(30):
        for micro in (0, 1):
            for one, other in zip(loader.positions(step, micro), usual[2 * loader.number(step) + micro], strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "rubbish",
    [b'{"batch": 1', b"\xff\x00", b"[]\n", b'{"batch": "2"}\n', b"3\n", b"\n", b'{"batch": true}\n', b"[" * 100_000,
     b'{"batch": [1]}\n', b'{"batch": -1}\n'],
)  # fmt: skip
def test_a_half_line_is_no_batch_and_spoils_no_other(rubbish: bytes, tmp_path: Path) -> None:
    diverged.tell(tmp_path, {"batch": 7})
    with (tmp_path / diverged.NAME).open("ab") as file:
        file.write(rubbish)
    diverged.tell(tmp_path, {"batch": 4})
    assert diverged.batches_left_out(tmp_path) == [4, 7]
