"""Brings pieces of work to their end on an engine, some at a time; what is finished is not made again."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from ssl_vit.core import signals
from ssl_vit.engines.unit import LOST, Engine, Job, Unit
from ssl_vit.runs import lock

W = TypeVar("W")
AGAIN = 2
"""How often a unit is begun again whose process was lost."""


class Driver(ABC, Generic[W]):
    """What has become of every piece of work. It has no state on disk: what is left to do, the work's files say."""

    together = False
    """Whether one piece that fails ends the others."""

    def __init__(self, engine: Engine, say: Callable[[str], object]) -> None:
        """Nothing is started yet.

        Args:
            engine: Where units run.
            say: Is told what happens, a line at a time.
        """
        self.engine, self.say = engine, say
        self.failed: dict[W, str] = {}
        """Why a piece cannot go on."""
        self._running: dict[W, tuple[Job, Unit, int]] = {}
        self._waited, self._lost = set[W](), Counter[W]()
        self._stopped: int | None = None
        self._told: float | None = None
        """When units were told to stop."""

    @abstractmethod
    def unit(self, work: W) -> Unit | None:
        """What is to be run for a piece of work now; None where all is there."""

    @abstractmethod
    def folder(self, work: W) -> Path:
        """The directory that a unit holds while it works."""

    def called(self, work: W) -> str:
        """A piece of work, for people."""
        return str(work)

    def saved(self, work: W) -> int:
        """How far it has come; a unit that was stopped goes on without limit as long as this grows."""
        return 0

    def begins(self, work: W, unit: Unit) -> None:
        """Is told before a unit is started."""

    def finished(self, work: W) -> None:
        """Is told when a piece of work is done."""

    def drive(self, works: Iterable[W]) -> None:
        """Runs all pieces; which of them failed, and why, stands in ``failed``.

        Raises:
            SystemExit: After a signal, once everything that runs has saved and ended.
        """
        todo = deque(works)
        with signals.handled(self._stop, (*signals.ENDING, signal.SIGINT)):
            while self._running or (todo and self._told is None):
                if self._told is None:
                    self._start_some(todo)
                elif time.monotonic() > self._told + 1:  # a training at its last step has gone on to what follows it
                    self._end()
                for work in [work for work, (job, *_) in self._running.items() if job.status() is not None]:
                    self._ended(work, todo)
                time.sleep(self.engine.pause)
        if self._stopped is not None:
            self.say("stopped; the same command goes on")
            raise SystemExit(signals.status_of(self._stopped))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """A signal for this process is one for all that runs."""
        self._stopped = number
        self._end()

    def _end(self) -> None:
        self._told = time.monotonic()
        for job, *_ in self._running.values():
            job.stop()

    def _start_some(self, todo: deque[W]) -> None:
        for _ in range(len(todo)):
            if len(self._running) >= self.engine.at_once or self._told is not None:
                return
            work = todo.popleft()
            if (holder := self._held_by(work)) is not None:  # a session that was killed left it behind, and it goes on
                if work not in self._waited:
                    self._waited.add(work)
                    self.say(f"{self.called(work)}: waiting for {holder}")
                todo.append(work)
            elif unit := self.unit(work):
                self.begins(work, unit)
                self._running[work] = self.engine.start(unit), unit, self.saved(work)
                if self._told is not None:  # while it was started
                    self._end()
            else:
                self.finished(work)

    def _ended(self, work: W, todo: deque[W]) -> None:
        job, unit, saved = self._running.pop(work)
        status, left = job.status() or 0, self.unit(work)
        if left is None:
            self.finished(work)
        elif self._told is not None:
            return
        elif not status and left.name != unit.name:
            todo.appendleft(work)
        elif status == signals.REQUEUE and self.saved(work) > saved:
            self.say(f"{self.called(work)}: was stopped and has saved; it goes on later")
            todo.append(work)
        elif (status <= 0 or status == signals.REQUEUE) and self._lost[work] < AGAIN:
            self._lost[work] += 1
            self.say(f"{self.called(work)}: {_how(status)}; begun again ({self._lost[work]} of {AGAIN})")
            todo.append(work)
        elif status > 0 and self._held_by(work) is not None:
            todo.append(work)  # who was left behind had not yet taken its directory when this one was started
        else:
            self.failed[work] = why = _reason(unit.log, status)
            if self.together:
                self._end()
            else:
                self.say(f"{self.called(work)}: FAILED, {why}")

    def _held_by(self, work: W) -> lock.Owner | None:
        holder = lock.holder(self.folder(work), writes=True)
        return holder[0] if holder is not None and holder[1] else None


def _how(status: int) -> str:
    """How a unit ended that is not done."""
    if status < 0:
        perhaps = "; where memory does not suffice, run fewer at a time" if status == LOST else ""
        return f"its process was lost ({signals.name_of(-status)}{perhaps})"
    return f"ended with status {status}" if status else "ended without leaving what it should"


def _reason(log: Path, status: int) -> str:
    """The last line of a log that tells of a mistake, or the last one at all."""
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    nothing = "its process ended before it wrote anything; what Python itself said stands above"
    told = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else nothing)
    return f"{'' if status == 1 else f'{_how(status)}: '}{told.removeprefix('error: ')} (log: {log})"
