"""Checkpoints written beside the next steps, as a GPU has them: the same ones, and their errors are not lost."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from ssl_vit.core.errors import UserError
from ssl_vit.objectives.base import Clock
from ssl_vit.training import saving
from ssl_vit.training.saving import copied
from ssl_vit.training.stepping import Stepper

from made_scripts import InProcess

WORDS = ["--fit.epochs", "0.2", "--fit.checkpoint_steps", "2", "--fit.keep_checkpoints", "9"]


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; the rest of the class is the real one."""
    made = saving.Saving.__init__

    def init(self: saving.Saving, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self.writer = ThreadPoolExecutor(1, "checkpoint")

    monkeypatch.setattr(saving.Saving, "__init__", init)


def states(run: Path) -> dict[str, Any]:
    return {path.name: torch.load(path, weights_only=True) for path in sorted((run / "checkpoints").glob("*.pt"))}


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def test_every_checkpoint_holds_its_own_step(
    script: InProcess, small: list[str], tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert script("recipes/mae.py", *small, *WORDS, "--run.dir", "usual")[0] == 0
    request.getfixturevalue("beside")
    write, step, taken, names = saving.save_checkpoint, Stepper.__call__, threading.Event(), list[str]()

    def late(folder: Path, number: int, *rest: Any) -> None:
        names.append(threading.current_thread().name)
        if number == 2:  # not before the third step has changed every weight
            assert taken.wait(60)
        write(folder, number, *rest)

    def counted(self: Stepper, clock: Clock, *rest: Any) -> Any:
        done = step(self, clock, *rest)
        if clock.step == 2:
            taken.set()
        return done

    monkeypatch.setattr(saving, "save_checkpoint", late)
    monkeypatch.setattr(Stepper, "__call__", counted)
    assert script("recipes/mae.py", *small, *WORDS, "--run.dir", "beside")[0] == 0
    usual, found = states(tmp_path / "usual"), states(tmp_path / "beside")
    assert len(usual) > 3 and equal(usual, found)
    assert threading.main_thread().name not in names


def test_a_copy_is_untouched_by_later_steps() -> None:
    own = OrderedDict(weight=torch.zeros(2), parts=[torch.ones(1), (3, "a")])
    own.kept = "beside"  # pyright: ignore[reportAttributeAccessIssue] - as modules keep their versions
    made = copied(own)
    own["weight"].add_(1)
    own["parts"][0].add_(1)
    assert equal(made, OrderedDict(weight=torch.zeros(2), parts=[torch.ones(1), (3, "a")]))
    assert made.kept == "beside"


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("fails_at", [2, 8])  # told when the next is due, and by the last one at the end
def test_an_error_of_the_disk_is_told(
    fails_at: int, script: InProcess, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = saving.save_checkpoint

    def full(folder: Path, step: int, *rest: Any) -> None:
        if step == fails_at:
            raise OSError(28, "No space left on device")
        write(folder, step, *rest)

    monkeypatch.setattr(saving, "save_checkpoint", full)
    status, _, err = script("recipes/mae.py", *small, *WORDS, "--run.dir", "run")
    assert status != 0
    assert "No space left" in err and "Traceback" not in err
    assert f"step_{fails_at:09d}.pt" not in states(tmp_path / "run")


@pytest.mark.usefixtures("beside")
def test_an_error_of_the_disk_is_told_beside_another_one(
    script: InProcess, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, ended = Stepper.__call__, threading.Event()

    def full(folder: Path, number: int, *rest: Any) -> None:
        assert ended.wait(60)
        raise OSError(28, "No space left on device")

    def ends(self: Stepper, clock: Clock, *rest: Any) -> Any:
        if clock.step == 2:
            ended.set()
            raise UserError("a step that ends the run")
        return step(self, clock, *rest)

    monkeypatch.setattr(saving, "save_checkpoint", full)
    monkeypatch.setattr(Stepper, "__call__", ends)
    status, _, err = script("recipes/mae.py", *small, *WORDS, "--run.dir", "run")
    assert status != 0
    assert "a step that ends the run" in err
    assert "warning: the checkpoint of step 2 was not written" in err
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]
