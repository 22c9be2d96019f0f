"""Trackers: what is refused before training, and that a tracker which fails stops nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from ssl_vit.configs import RunConfig
from ssl_vit.configs.facts import check_ranges
from ssl_vit.configs.trackers import trackers_in
from ssl_vit.core.errors import UserError
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.lock import holding
from ssl_vit.training import trackers
from ssl_vit.training.trackers import Follower, follow


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment that has a package of the name wandb, and nobody who is logged in."""
    (tmp_path / "packages" / "wandb").mkdir(parents=True)
    (tmp_path / "packages" / "wandb" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_none_are_asked_for() -> None:
    assert trackers_in(None) == trackers_in("") == ()


def test_a_name_that_is_none() -> None:
    with pytest.raises(UserError, match=r"tensorbord: trackers are .*; did you mean tensorboard\?"):
        trackers_in("tensorbord")


def test_a_missing_package_is_told_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    recipe = replace(MAERecipe(), run=RunConfig(log_with="trackio"))
    with pytest.raises(UserError, match=r"trackio: the package is not installed; pip install 'ssl_vit\[trackio\]'"):
        check_ranges(recipe)


def test_a_folder_of_the_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    with pytest.raises(UserError, match="not installed"):
        trackers_in("mlflow")


def test_nobody_is_logged_in(installed: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="wandb: nobody is logged in"):
        trackers_in("wandb")


@pytest.mark.parametrize("way", ["offline", "key", "netrc", "other server"])
def test_ways_to_be_logged_in(way: str, installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if way == "offline":
        installed.setenv("WANDB_MODE", "offline")
    elif way == "key":
        installed.setenv("WANDB_API_KEY", "x" * 40)
    else:
        host = "api.wandb.ai" if way == "netrc" else "wandb.example.org"
        (tmp_path / ".netrc").write_text(f"machine {host}\n  login user\n  password {'x' * 40}\n")
        (tmp_path / ".netrc").chmod(0o600)
        if way == "other server":
            with pytest.raises(UserError, match="nobody is logged in"):
                trackers_in("wandb")
            installed.setenv("WANDB_BASE_URL", f"https://{host}")
    assert trackers_in("wandb, wandb") == ("wandb",)


class Known:
    """Stands for a tracker of Accelerate that may not reach its server."""

    reachable = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.told: list[Any] = []

    def start(self) -> None:
        if not self.reachable:
            raise ConnectionError("no route\nto host")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.told.append(values)

    def log(self, values: dict[str, Any], step: int | None) -> None:
        self.told.append((values, step))

    def finish(self) -> None:
        self.told.append("finished")


def started(folder: Path) -> RunDir:
    """A start of a run, with what follows it until it ends."""
    run = RunDir(folder, True)
    with holding():
        follow(run, replace(MAERecipe(), run=RunConfig(log_with="trackio,tensorboard")))
        run.log({"step": 1, "loss": 1.0})
    return run


@pytest.mark.parametrize("trace", ["a step", "only its name there"])
def test_a_run_that_goes_on_goes_on_without_a_tracker_that_cannot_start(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unreachable(Known):
        reachable = False

    monkeypatch.setattr(trackers, "trackers_in", lambda names: tuple(names.split(",")))
    monkeypatch.setattr(trackers, "LOGGER_TYPE_TO_CLASS", kinds := {"trackio": Unreachable, "tensorboard": Known})
    with pytest.raises(UserError, match=r"^--run\.log_with trackio cannot start: no route to host$"):
        started(tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()  # a new run waits for who is there to mend it
    kinds["trackio"] = Known
    assert [follower.name for follower in started(tmp_path).followers] == ["trackio", "tensorboard"]
    key = (tmp_path / "trackers.json").read_text()
    if trace == "only its name there":  # it was ended before its first step
        (tmp_path / "metrics.jsonl").unlink()
    capsys.readouterr()
    kinds["trackio"] = Unreachable
    (other,) = started(tmp_path).followers
    assert other.tracker.told[-2:] == [({"loss": 1.0}, 1), "finished"]
    assert capsys.readouterr().err == (
        "warning: --run.log_with trackio cannot start and is left out this time (no route to host); the run goes on\n"
    )
    assert (tmp_path / "trackers.json").read_text() == key
    kinds["trackio"] = Known
    assert [follower.key for follower in started(tmp_path).followers] == [*json.loads(key).values()]


def test_steps_that_are_taken_again_are_shown_once(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def start(step: int, losses: dict[int, float]) -> Follower:
        """A start that goes on after a step, until it is killed."""
        run.followers[:] = [follower := Follower("tensorboard", run, "key")]
        go_on(step, losses)
        return follower

    def go_on(step: int, losses: dict[int, float]) -> None:
        run.rewind(step)
        for done, loss in losses.items():
            run.log({"step": done, "loss": loss})

    def shown() -> list[tuple[int, float]]:
        found = events.EventAccumulator(str(tmp_path / "tensorboard"))
        found.Reload()
        return [(event.step, event.value) for event in found.Scalars("loss")]

    run = RunDir(tmp_path, True)
    start(0, {0: 8.0, 10: 4.0, 20: 2.0}).finish()
    start(0, {0: 7.0, 10: 3.0, 20: 1.5, 30: 1.0}).finish()  # there was no checkpoint yet
    assert shown() == [(0, 7.0), (10, 3.0), (20, 1.5), (30, 1.0)]
    last = start(20, {30: 0.75, 40: 0.5})  # here there was one
    go_on(30, {40: 0.25})  # and here a batch was left out
    last.finish()
    assert shown() == [(0, 7.0), (10, 3.0), (20, 1.5), (30, 0.75), (40, 0.25)]
    Follower("tensorboard", run, "key").finish()  # as an evaluation opens it
    assert len(shown()) == 5


class Broken:
    """A tracker whose server is gone from the second line on."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def log(self, values: dict[str, Any], step: int | None) -> None:
        if self.told:
            raise ConnectionError("the server\nis gone")
        self.told.append(values)

    def finish(self) -> None:
        raise AssertionError("nothing is told to a tracker that has failed")


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follower = Follower.__new__(Follower)
    follower.name, follower.tracker, follower._failed = "trackio", Broken(), False
    run = RunDir(tmp_path, True, followers=[follower])
    for step in (1, 2, 3):
        run.log({"step": step, "loss": 1.0})
    run.log({"anything": 1}, "other.jsonl")
    follower.finish()
    assert follower.tracker.told == [{"loss": 1.0}]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
    said = capsys.readouterr().err
    assert said == "warning: trackio is told nothing any more (the server is gone); metrics.jsonl goes on\n"


def test_a_tracker_that_does_not_end_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that was told to end has saved by then, and its exit status has to come in time."""
    monkeypatch.setattr(trackers, "_PATIENCE", 0.01)
    never = Event()
    follower = Follower.__new__(Follower)
    follower.name, follower.tracker, follower._failed = "wandb", SimpleNamespace(finish=never.wait), False
    follower.finish()
    never.set()
    assert capsys.readouterr().err == "warning: wandb does not end; what it still had to send may be missing there\n"
