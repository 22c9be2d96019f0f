"""Runs the children of a sweep, some at a time, until none is left that can go on; what is finished is not repeated."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Protocol, runtime_checkable

from ssl_vit.core import signals
from ssl_vit.core.text import duration
from ssl_vit.runs import lock
from ssl_vit.runs.listing import Run, read
from ssl_vit.sweep.plan import Child, Plan

_PAUSE = 0.1
"""Seconds between looks at what runs."""


@runtime_checkable
class Job(Protocol):
    """A command that was started somewhere."""

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    def stop(self, number: int) -> None:
        """Passes a signal on."""
        ...


@runtime_checkable
class Place(Protocol):
    """Where commands run."""

    at_once: int

    def start(self, words: tuple[str, ...], log: Path) -> Job:
        """Starts ``ssl-vit WORDS``, and has it write what it says to a file."""
        ...


def next_stage(child: Child) -> tuple[str, ...]:
    """What is to be run for a child now: its training, then what judges it; empty where all is there.

    Args:
        child: Which.
    """
    run = read(child.folder) if child.folder.is_dir() else None
    if not isinstance(run, Run) or run.state != "done" or not _as_long(run, child):
        return child.words
    if child.result is None:
        return ()
    try:  # what was judged before the run was made longer is judged again
        fresh = child.result.stat().st_mtime >= (child.folder / "backbone" / "model.safetensors").stat().st_mtime
    except FileNotFoundError:
        fresh = False
    return () if fresh else child.judged_by


def _as_long(run: Run, child: Child) -> bool:
    """Whether a run has the length that is asked for."""
    kept, asked = run.config.get("fit", {}), child.config.fit
    return all(given is None or kept.get(name) == given
               for name, given in (("epochs", asked.epochs), ("min_steps", asked.min_steps)))  # fmt: skip


class Course:
    """What has become of every child."""

    def __init__(self, plan: Plan, place: Place, say: Callable[[str], object]) -> None:
        """Nothing is started yet.

        Args:
            plan: The runs.
            place: Where they run.
            say: Is told what happens, a line at a time.
        """
        self.plan, self.place, self.say = plan, place, say
        self.failed: dict[Child, str] = {}
        """Why a child cannot go on."""
        self._stopped: int | None = None
        self._running: dict[Child, tuple[Job, tuple[str, ...], int]] = {}
        self._began: dict[Child, float] = {}
        self._done = 0
        self._waited: set[Child] = set()

    def run(self) -> None:
        """Runs all children; one that fails does not end the others.

        Raises:
            SystemExit: After a signal, once every child that runs has saved and ended.
        """
        whole = len(self.plan.children)
        todo = deque(child for child in self.plan.children if next_stage(child))
        self._done = whole - len(todo)
        if self._done:
            self.say(f"{self._done} of {whole} runs are finished already")
        with signals.handled(self._stop, (*signals.ENDING, signal.SIGINT)):
            while self._running or (todo and self._stopped is None):
                if self._stopped is None:
                    self._start_some(todo)
                for child in [child for child, (job, *_) in self._running.items() if job.status() is not None]:
                    self._ended(child, todo)
                time.sleep(_PAUSE)
        if self._stopped is not None:
            self.say("stopped; the same command goes on")
            raise SystemExit(signals.status_of(self._stopped))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """A signal for the sweep is one for all that runs."""
        self._stopped = number
        for job, *_ in self._running.values():
            job.stop(number)

    def _start_some(self, todo: deque[Child]) -> None:
        for _ in range(len(todo)):
            if len(self._running) >= self.place.at_once:
                return
            child = todo.popleft()
            if (holder := _held_by(child)) is not None:  # a sweep that was killed left it behind, and it goes on
                if child not in self._waited:
                    self._waited.add(child)
                    self.say(f"{child.name}: waiting for {holder}")
                todo.append(child)
            elif stage := next_stage(child):
                log = self.plan.asked.out / "logs" / f"{child.folder.name}.log"
                what = "training" if stage == child.words else stage[0]
                self.say(f"[{self._done}/{len(self.plan.children)}] {child.name}: {what} (log: {log})")
                self._began.setdefault(child, time.monotonic())
                self._running[child] = self.place.start(stage, log), stage, _saved(child)
                if self._stopped is not None:  # while it was started
                    self._running[child][0].stop(self._stopped)
                    return
            else:
                self._finish(child)

    def _ended(self, child: Child, todo: deque[Child]) -> None:
        job, stage, saved = self._running.pop(child)
        status = job.status()
        if status == signals.REQUEUE and self._stopped is None and _saved(child) > saved:
            self.say(f"{child.name}: was stopped and has saved; it goes on later")
            todo.append(child)
        elif status and self._stopped is None and _held_by(child) is not None:
            todo.append(child)  # who was left behind had not yet taken its directory when this one was started
        elif status and self._stopped is None:
            self.failed[child] = why = _reason(self.plan.asked.out / "logs" / f"{child.folder.name}.log", status)
            self.say(f"{child.name}: FAILED, {why}")
        elif not status and next_stage(child) == stage:
            self.failed[child] = "ended without leaving what it should"
            self.say(f"{child.name}: FAILED, it {self.failed[child]}")
        elif not status and next_stage(child):
            todo.appendleft(child)
        elif not status:
            self._finish(child)

    def _finish(self, child: Child) -> None:
        self._done += 1
        began = self._began.get(child)
        took = "" if began is None else f" after {duration(time.monotonic() - began)}"
        self.say(f"[{self._done}/{len(self.plan.children)}] {child.name}: finished{took}")


def _held_by(child: Child) -> lock.Owner | None:
    holder = lock.holder(child.folder)
    return holder[0] if holder is not None and holder[1] else None


def _saved(child: Child) -> int:
    run = read(child.folder)
    return run.saved if isinstance(run, Run) else -1


def _reason(log: Path, status: int) -> str:
    """The last line of a log that tells of a mistake, or the last one at all."""
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    told = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    return f"{how}: {told.removeprefix('error: ')} (log: {log})"
