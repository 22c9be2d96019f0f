"""Lines whose numbers arrive later, as from a GPU: written when they are there, bad ones told at one step by all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import Diverged
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.log import TrainingLog, _Line
from ssl_vit.training.metering import Meter
from ssl_vit.training.progress import TrainingProgress

CPU = torch.device("cpu")
GOOD = {"loss": torch.tensor(1.0)}
WEIGHTS = [torch.nn.Parameter(torch.zeros(2))]


class Arriving:
    """An event of a device that this machine may not have."""

    def __init__(self) -> None:
        self.there = False

    def query(self) -> bool:
        return self.there

    def synchronize(self) -> None:
        self.there = True


def log_with_a_line(place: Path, finite: float, world: int = 2) -> tuple[TrainingLog, Arriving]:
    """The line of step 5 is on its way."""
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    loader = Loader(pool, batch_size=64, micro_batch=64, seed=0, device=CPU)
    loader.world = world
    log = TrainingLog(RunDir(place, True), loader, TrainingProgress(12, 0, 64, False), Meter(CPU, 1.0, 1.0), 0)
    event = Arriving()
    log._pending = _Line(5, 0.1, ["loss"], torch.tensor([0.5, finite]), event, {}, 0, {})  # type: ignore[arg-type]
    return log, event


def steps(place: Path) -> list[int]:
    path = place / "metrics.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_line_is_written_once_it_is_there(tmp_path: Path) -> None:
    log, event = log_with_a_line(tmp_path, 1.0)
    log.note(6, GOOD, {})
    assert steps(tmp_path) == []
    event.there = True
    log.note(7, GOOD, {})
    assert steps(tmp_path) == [5]


def test_a_line_is_written_before_weights_are_saved(tmp_path: Path) -> None:
    log, _ = log_with_a_line(tmp_path, 1.0)
    assert log.is_sound(WEIGHTS, together=False)
    assert steps(tmp_path) == [5]


def test_what_diverged_on_another_process_is_told_where_all_are(tmp_path: Path) -> None:
    log, event = log_with_a_line(tmp_path, 0.5)
    event.there = True
    log.note(6, GOOD, {})  # the other process may not know yet
    assert not log.is_sound(WEIGHTS, together=False)  # so nothing is saved
    with pytest.raises(Diverged, match=r"between steps 0 and 5; lower"):
        log.finish_line()
    assert steps(tmp_path) == []


def test_a_lone_process_is_told_at_once(tmp_path: Path) -> None:
    log, event = log_with_a_line(tmp_path, 0.0, world=1)
    event.there = True
    with pytest.raises(Diverged):
        log.note(6, GOOD, {})


def test_weights_that_are_no_numbers_are_told_by_the_next_line(tmp_path: Path) -> None:
    log, _ = log_with_a_line(tmp_path, 1.0)
    assert not log.is_sound([torch.nn.Parameter(torch.tensor([1.0, float("inf")]))], together=False)
    assert steps(tmp_path) == [5]  # whose own loss was a number
    with pytest.raises(Diverged, match="between steps 5 and 10"):
        log.begin_line(10, 0.1, GOOD, {})


def test_only_who_saves_names_the_newest_checkpoint(tmp_path: Path) -> None:
    log, _ = log_with_a_line(tmp_path, 0.0)
    log.run = RunDir(tmp_path, False)
    assert "checkpoint" not in str(log.divergence(6, 0))
