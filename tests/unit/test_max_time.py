"""--max_time: a run saves and stops when its time is over, and asks to be started again; the clock is the test's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import parse
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import seconds
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import FinetuneRecipe
from ssl_vit.questions.options import Questions
from ssl_vit.script import check_values
from ssl_vit.training import stopping
from ssl_vit.training.stopping import TIME_OVER, StopRequest
from ssl_vit.verdict.options import verdict_recipe

from made_scripts import SMALL, InProcess


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3h50m", 13_800), ("90s", 90), ("1.5h", 5400), ("2d12h", 216_000), ("1d 2h 3m 4s", 93_784), ("0.5m", 30)],
)
def test_lengths_of_time(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0h", "50", "h", "-3h", "3 hours", "50m3h", "1e9h", "inf", "9999999d"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UserError, match=r"--max_time .* is no length of time; write 3h50m"):
        seconds(text)


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_parts_add_up(days: int, hours: int, minutes: int, rest: int) -> None:
    assert seconds(f"{days}d{hours}h{minutes}m{rest}s") == ((days * 24 + hours) * 60 + minutes) * 60 + rest


@pytest.mark.parametrize("recipe", [MAERecipe, FinetuneRecipe])
def test_it_needs_no_group(recipe: type) -> None:
    assert parse(recipe, "", ["--max_time", "3h50m"]).fit.max_time == "3h50m"
    assert parse(recipe, "", ["--fit.max_time=2h"]).fit.max_time == "2h"


@pytest.mark.parametrize(("recipe", "group"), [(verdict_recipe(), "verdict"), (Questions, "questions")])
def test_what_plans_for_a_budget_says_so(recipe: type, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(recipe, "", ["--max_time", "3h"])
    expected = f"unknown option --max_time: it ends a training; how long this command plans for is --{group}.budget"
    assert capsys.readouterr().err == f"error: {expected}\n"


def test_a_wrong_one_is_told_before_anything_is_opened() -> None:
    with pytest.raises(UserError, match="--max_time tomorrow is no length"):
        check_values(parse(MAERecipe, "", ["--max_time", "tomorrow"]))


def test_the_wish_comes_with_the_end_of_the_time() -> None:
    now = [0.0]
    wish = StopRequest(left=10.0, clock=lambda: now[0])
    now[0] = 9.9
    assert wish.heard() is None
    now[0] = 10.0
    assert wish.heard() == TIME_OVER
    wish = StopRequest(left=10.0, clock=lambda: now[0])
    wish.note(15, None)
    now[0] = 30.0
    assert wish.heard() == 15  # whoever sent a signal is told of it


def test_a_process_that_is_started_again_counts_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    own = stopping.age()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert 0 < own <= stopping.age() + 1.0


def test_a_run_saves_stops_and_goes_on(script: InProcess, tmp_path: Path) -> None:
    words = [*SMALL, "--fit.epochs", "0.3", "--fit.log_every", "1", "--run.dir"]
    assert script("recipes/mae.py", *words, "whole")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stopping, "age", lambda: 1e12)  # the time was over before the first step
        status, _, err = script("recipes/mae.py", *words, "stopped", "--max_time", "1h")
        assert (status, "stopped after step 1 because" in err) == (75, True)
    status, out, _ = script("recipes/mae.py", *words, "stopped", "--max_time", "900d")
    assert status == 0
    assert "continues after step 1 of" in out
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "stopped" / "metrics.jsonl").read_text()
