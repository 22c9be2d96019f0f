"""A run without steps says where it hangs and ends; the clock is the test's."""

from __future__ import annotations

import faulthandler
import json
import os
import threading
from pathlib import Path

import pytest
from ssl_vit.runs import lock
from ssl_vit.training import watchdog
from ssl_vit.training.watchdog import FOLDER, PATIENCE, Watchdog


class Clock:
    """Stands still until it is moved; who waits moves it."""

    def __init__(self) -> None:
        self.now, self.waits = 100.0, 0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits += 1
        self.now += seconds


def stacks(run: Path) -> list[Path]:
    return sorted((run / FOLDER).iterdir()) if (run / FOLDER).exists() else []


def test_steps_in_time_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watchdog = Watchdog(2.0, tmp_path, clock=clock)
    for step in range(5):
        watchdog.beat(step)
        clock.now += 120.0
        assert not watchdog.look()
    clock.now += 0.1
    assert watchdog.look()
    (file,) = stacks(tmp_path)
    text = file.read_text()
    assert text.startswith(f"process {os.getpid()}, no step for 2 min, in step 5\n")
    assert "test_steps_in_time_leave_nothing" in text
    assert "no step for 2 min (--fit.watchdog), in step 5; what every" in capsys.readouterr().err


def test_a_step_that_compiles_may_take_longer(tmp_path: Path) -> None:
    clock = Clock()
    watchdog = Watchdog(2.0, tmp_path, clock=clock)
    watchdog.beat(0, 30.0)
    clock.now += 32 * 60.0
    assert not watchdog.look()
    watchdog.beat(1)
    clock.now += 120.1
    assert watchdog.look()


def test_every_thread_is_shown(tmp_path: Path) -> None:
    clock, begun, over = Clock(), threading.Event(), threading.Event()

    def waits_for_bytes() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=waits_for_bytes)
    thread.start()
    begun.wait()
    watchdog = Watchdog(1.0, tmp_path, clock=clock)
    clock.now += 61.0
    assert watchdog.look()
    over.set()
    thread.join()
    assert "waits_for_bytes" in stacks(tmp_path)[0].read_text()


def test_it_ends_the_process_with_try_again(tmp_path: Path) -> None:
    clock, ended, status = Clock(), threading.Event(), list[int]()

    def end(code: int) -> None:
        status.append(code)
        ended.set()

    with lock.holding():
        lock.hold(tmp_path)
        lock.tell_end(tmp_path)
        with Watchdog(1.0, tmp_path, clock=clock, wait=clock.wait, end=end):
            ended.wait()
    assert status == [75]
    assert not (tmp_path / lock.NAME).exists()
    told = json.loads((tmp_path / lock.ENDED).read_text())
    assert (told["status"], told["why"]) == (75, "no step for 1 min (--fit.watchdog)")
    assert clock.now - 100.0 < 60.0 + 2 * 6.0  # it looks ten times in that time
    assert len(stacks(tmp_path)) == 1


def test_it_waits_for_the_others_but_not_for_ever(tmp_path: Path) -> None:
    clock, ended = Clock(), threading.Event()
    watchdog = Watchdog(1.0, tmp_path, clock=clock, wait=clock.wait, end=lambda code: ended.set())
    watchdog._files.append(tmp_path / "never.txt")
    with watchdog:
        ended.wait()
    assert clock.now > 160.0 + PATIENCE
    assert len(stacks(tmp_path)) == 1


@pytest.mark.parametrize("place", ["the threads", "the others", "the lock"])
def test_a_disk_that_never_answers_does_not_keep_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, reached, answers, ended, status = (
        Clock(),
        threading.Event(),
        threading.Event(),
        threading.Event(),
        list[int](),
    )

    def disk(*_: object, **__: object) -> bool:
        reached.set()
        return answers.wait()

    def end(code: int) -> None:
        status.append(code)
        ended.set()

    target, name = {
        "the threads": (faulthandler, "dump_traceback"),
        "the others": (Watchdog, "_others_are_heard"),
        "the lock": (lock, "leave"),
    }[place]
    monkeypatch.setattr(target, name, disk)
    monkeypatch.setattr(watchdog, "PATIENCE", 0.01)
    with Watchdog(1.0, tmp_path, clock=clock, wait=clock.wait, end=end):
        came = ended.wait(60)
        reached.wait(60)
        (left,) = [thread for thread in threading.enumerate() if thread.name == "watchdog's end"] or [None]
        answers.set()
    assert came and status == [75]
    assert left is not None and left.daemon
    left.join()
    assert "no step for 1 min (--fit.watchdog), in step 1; what every" in capsys.readouterr().err


def test_it_ends_where_no_thread_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    clock, status = Clock(), list[int]()
    dog = Watchdog(1.0, tmp_path, clock=clock, wait=clock.wait, end=status.append)
    monkeypatch.setattr(watchdog.threading, "Thread", Refused)
    dog._watch()
    assert status == [75]


def test_without_minutes_nothing_is_watched(tmp_path: Path) -> None:
    clock, before = Clock(), threading.active_count()
    with Watchdog(None, tmp_path, clock=clock) as watchdog:
        clock.now += 1e9
        assert not watchdog.look()
        assert threading.active_count() == before
    assert stacks(tmp_path) == []


def test_a_disk_that_is_full_keeps_nobody(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / FOLDER).write_text("in the way")
    watchdog = Watchdog(1.0, tmp_path, clock=clock)
    clock.now += 61.0
    assert watchdog.look()
