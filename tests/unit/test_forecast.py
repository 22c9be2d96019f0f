"""What training will take: counting, the hour of a CPU, words, and the lines of a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import FitConfig, ModelConfig
from ssl_vit.configs.networks import NETWORKS
from ssl_vit.core.text import duration
from ssl_vit.data.decoding.formats import Format
from ssl_vit.methods import METHODS
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.training import forecast, progress
from ssl_vit.training.forecast import HOUR, RATE, Forecast, count, network_of, rounded_down, within_an_hour
from ssl_vit.training.progress import TrainingProgress

from made_teacher import save_teacher

RGB = Format(3, 8)
MAE = METHODS["mae"]
TIMING = {"data_wait": 0.034, "mfu": 0.417, "peak_memory": 1.5 * 2**30}


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Any:
    def have(number: int) -> None:
        monkeypatch.setattr(forecast, "cores", lambda: number)

    have(2)
    return have


def hours(asked: Any, images: int, side: int, form: Format, method: Any = MAE) -> float:
    """What a recipe costs on two cores, by the rule's own numbers."""
    facts, preset = network_of(method, asked, images, side, cpu=True)
    cfg = method.resolve(asked, facts, preset)
    return cfg.fit.epochs * images * count(method, cfg, form).operations / (2 * RATE * HOUR)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_digits_stay_as_they_are(method: Any, cores: Any, tmp_path: Path) -> None:
    asked = method.recipe()
    if method.name == "distill":
        asked = replace(asked, distill=replace(asked.distill, teacher=save_teacher(tmp_path / "teacher")))
    for number in (1, 2):
        cores(number)
        assert within_an_hour(method, asked, 1438, 8, Format(1, 8)) == (asked, "")


@pytest.mark.parametrize(("images", "side"), [(50_000, 32), (3_000, 64)])
def test_the_usual_run_on_a_cpu_is_cut_to_an_hour(images: int, side: int, cores: Any) -> None:
    asked = MAERecipe()
    assert hours(asked, images, side, RGB) > 1
    found, note = within_an_hour(MAE, asked, images, side, RGB)
    assert found.model.name in NETWORKS
    assert found.fit.epochs is not None
    assert 0.85 < hours(found, images, side, RGB) <= 1
    assert replace(found, model=asked.model, fit=asked.fit) == asked  # nothing else was touched
    assert found.model.name in note
    assert f"{found.fit.epochs:g} epochs" in note
    assert "an hour at most on 2 idle cores" in note
    assert within_an_hour(MAE, asked, images, side, RGB) == (found, note)


def test_more_cores_train_a_larger_network_or_longer(cores: Any) -> None:
    seen = []
    for number in (1, 2, 8, 16):
        cores(number)
        found = within_an_hour(MAE, MAERecipe(), 50_000, 32, RGB).asked
        seen.append((NETWORKS[found.model.name or "vit_tiny"].width, found.fit.epochs))
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


def test_what_is_named_is_kept(cores: Any) -> None:
    long, large = FitConfig(epochs=80), ModelConfig("vit_tiny")
    both = MAERecipe(model=large, fit=long)
    assert within_an_hour(MAE, both, 50_000, 32, RGB) == (both, "")
    preset = MAERecipe(preset="px32")
    assert within_an_hour(MAE, preset, 50_000, 32, RGB) == (preset, "")
    network, note = within_an_hour(MAE, MAERecipe(model=large), 50_000, 32, RGB)
    assert network.model == large
    assert (network.fit.epochs or 99) < 80
    assert "--fit.epochs 80" in note
    length = within_an_hour(MAE, MAERecipe(fit=long), 50_000, 32, RGB).asked
    assert length.fit == long  # and the network is the one of a run without a length, which may be extended
    assert length.model == within_an_hour(MAE, MAERecipe(), 50_000, 32, RGB).asked.model


def test_counting_leaves_no_trace_and_knows_a_network(cores: Any) -> None:
    before = torch.get_rng_state()
    facts, preset = network_of(MAE, MAERecipe(), 50_000, 32, cpu=True)
    cost = count(MAE, MAE.resolve(MAERecipe(), facts, preset), RGB)
    assert torch.equal(before, torch.get_rng_state())
    # Sixteen visible patches and a class token pass 12 blocks of width 192, all 65 tokens 4 of width 96.
    blocks = 12 * 17 * 24 * 192**2 + 4 * 65 * 24 * 96**2
    assert 3 * blocks * 0.9 < cost.flops < 3 * blocks * 1.25  # and attention, patches and pixels beside them
    assert cost.numbers == 3 * 32 * 32


@given(st.floats(1e-3, 1e6))
def test_rounding_down(number: float) -> None:
    found = rounded_down(number)
    assert 0.9 * number <= found <= number * (1 + 1e-9)
    assert float(f"{found:.2g}") == pytest.approx(found)


def test_rounding_down_keeps_what_has_two_digits() -> None:
    assert [rounded_down(x) for x in (80.0, 17.9, 0.286, 422.0, 99.99)] == [80, 17, 0.28, 420, 99]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (55, "55 s"), (99.4, "99 s"), (100, "1.7 min"), (3000, "50 min"), (3600, "60 min"), (9000, "2.5 h"),
     (50_400, "14 h"), (172_799, "2 days"), (3e6, "35 days"), (1e9, "11,574 days")],
)  # fmt: skip
def test_times_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_sentence_of_a_forecast() -> None:
    shares = {"vit_mini": 0.2, "vit_micro": 50 / 840}
    said = Forecast("cpu", 800.0, lambda: shares).words(14 * HOUR)
    assert said == "about 14 h on this CPU; --model.name vit_micro: 50 min; --fit.epochs 57: 60 min"
    assert Forecast("cpu", 800.0, lambda: shares).words(2 * HOUR).split("; ")[1] == "--model.name vit_mini: 24 min"
    assert Forecast("cuda", None).words(2 * HOUR) == "about 2 h on this GPU"
    going_on = Forecast("cpu", 800.0, lambda: shares).words(14 * HOUR, begun=True)
    assert going_on == "about 14 h more on this CPU", "other options would be another run"


def test_a_short_run_asks_for_nothing_lighter() -> None:
    def unasked() -> dict[str, float]:
        raise AssertionError

    assert Forecast("cpu", 5.0, unasked).words(HOUR) == "about 60 min on this CPU"


class Clock:
    """A time that only goes on when it is told to."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    yield found


def test_the_first_steps_tell_of_the_whole_run(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = TrainingProgress(1000, 0, 8, True, Forecast("cpu", None))
    clock.now += 300  # the first step compiles
    shown.update(1)
    for step in range(2, 9):
        clock.now += 2
        shown.update(step)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("forecast")]
    assert lines == ["forecast        about 33 min on this CPU"]


def test_a_log_gets_a_line_a_minute_and_later_one_in_ten(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown, began = TrainingProgress(100_000, 0, 8, True), clock.now
    at = []
    for step in range(1, 8000):
        clock.now += 1
        if step % 10 == 0:
            shown.show(step, 0.25, TIMING)
        shown.update(step)
        at += [clock.now - began] * len(capsys.readouterr().err.splitlines())
    early = [a for a in at if a <= 600]
    assert max(b - a for a, b in zip([0.0, *early], [*early, 600.0], strict=True)) <= 61
    late = [a for a in at if a > 600]
    assert max(b - a for a, b in pairwise(late)) <= 601
    assert len(late) <= (8000 - 600) / 600 + 2


def test_a_line_of_the_clock_has_the_newest_loss(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = TrainingProgress(100_000, 0, 8, True)
    shown.show(10, 0.25, TIMING)
    capsys.readouterr()
    clock.now += 60
    shown.update(60)
    assert capsys.readouterr().err.startswith("step 60/100,000  loss 0.2500  ")
