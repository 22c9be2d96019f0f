"""Runs tasks of work, several at a time, and remembers which are done: an interrupted verdict continues."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import loads, object_in, read_object
from ssl_vit.engines.driver import Driver
from ssl_vit.engines.local import Local
from ssl_vit.engines.unit import Engine, Unit
from ssl_vit.runs import lock
from ssl_vit.training.launch import forget_what_was


@dataclass(frozen=True)
class Task:
    """Some work that leaves whole files.

    It is done again where files are gone that it returned as ``files``, by their place in the verdict's folder.
    """

    key: str
    """Name of the file that says it is done."""
    function: Callable[..., dict[str, Any]]
    args: tuple[Any, ...]
    seconds: float
    """Expected, or another measure of the work; those with more begin first."""


class Runner:
    """Does what is not done yet."""

    def __init__(
        self, folder: Path, jobs: int, main: bool, began: float | None = None, engine: Engine | None = None
    ) -> None:
        """Goes on with the clock.

        ``jobs`` tasks run at the same time, each in a process of its own; 0 runs them here, one after the other.
        ``began`` is when this session began (``time.monotonic()``); None for now. ``engine`` is where they run; None
        for processes of this machine with one thread each.
        """
        self.folder, self.jobs, self.main = folder, jobs, main
        self.began = time.monotonic() if began is None else began
        self.engine = engine if engine or not jobs else Local([{"OMP_NUM_THREADS": "1"}] * jobs)
        self.before, self.worked = (0.0, 0), False
        self._ended: float | None = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = loads((folder / "time.json").read_text())
            self.before = float(told["seconds"]), int(told["sessions"])
        self.sessions = self.before[1] + 1

    def start_over(self) -> None:
        """Earlier sessions do not count: they were refused, or ended before there was a plan."""
        self.before, self.sessions = (0.0, 0), 1

    def elapsed(self) -> float:
        """Seconds of work, those of earlier sessions included."""
        return self.before[0] + time.monotonic() - self.began

    def taken(self) -> tuple[float, int]:
        """Seconds and sessions of work; a session that found everything done is none.

        What is told once is what is written down: the next session says the same.
        """
        if self._ended is None:
            self._ended = self.elapsed()
        return (self._ended, self.sessions) if self.worked else self.before

    def agreed(self) -> float:
        """The same as the main process counts it, so that all take the same way (every process must call)."""
        return float(dist.gather_lists([str(self.elapsed())])[0])

    def say(self, what: str) -> None:
        """Prints what is done, and after how long."""
        if self.main:
            print(f"{clock(self.elapsed()):>12}  {what}", flush=True)

    def run(self, tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
        """What the tasks returned, now or before.

        Raises:
            UserError: Of a task, with its name.
            SystemExit: After a signal, once everything that runs has saved and ended.
        """
        todo = [task for task in tasks if not self.is_done(task)]
        self.worked = self.worked or bool(todo)
        self._ended = None if todo else self._ended
        dist.meet()  # all processes have looked before any is done
        if self.engine is None:
            for task in todo:
                try:
                    returned, seconds = _call(self.folder, task, quiet=self.main)
                except UserError as error:
                    raise UserError(f"{task.key}: {error}") from None
                if self.main:
                    _mark(self.folder, task, returned, seconds)
                    self.note_time()
        elif todo:
            course = Tasks(self, self.engine, todo)
            course.drive(course.tasks)
            for key, why in course.failed.items():  # the first has ended the others
                raise UserError(f"{key}: {why}")
        dist.meet()
        return {task.key: _told(self.folder, task)["returned"] for task in tasks}

    def is_done(self, task: Task) -> bool:
        """Whether it was finished, now or before, and the ``files`` it returned are still there."""
        return is_done(self.folder, task)

    def took(self, task: Task) -> float:
        """Seconds that a finished task took."""
        return float(_told(self.folder, task)["seconds"])

    def begun(self) -> list[str]:
        """Keys of all tasks that are done."""
        return [path.stem for path in (self.folder / "units").glob("*.json")]

    def note_time(self) -> None:
        """Writes how long all sessions have worked."""
        if self.main:
            told = {"seconds": self.elapsed() if self._ended is None else self._ended, "sessions": self.sessions}
            write_atomically(self.folder / "time.json", json.dumps(told) + "\n")

    def close(self) -> None:
        """Ends the engine's processes."""
        if self.worked:  # a command that was refused, or had nothing to do, is no session
            self.note_time()
        if self.engine is not None:
            self.engine.close()


class Tasks(Driver[str]):
    """The tasks of a verdict on an engine, by key."""

    together = True

    def __init__(self, runner: Runner, engine: Engine, tasks: Sequence[Task]) -> None:
        """Nothing is started yet."""
        super().__init__(engine, runner.say)
        self.runner, self.tasks = runner, {task.key: task for task in tasks}

    def unit(self, work: str) -> Unit | None:
        """The task, as long as it is not done."""
        folder, task = self.runner.folder, self.tasks[work]
        return None if is_done(folder, task) else Unit(work, partial(_work, folder, task), _log(folder, task))

    def folder(self, work: str) -> Path:
        """A directory of its own."""
        return _place(self.runner.folder, self.tasks[work])

    def finished(self, work: str) -> None:
        """Notes the time."""
        with contextlib.suppress(OSError):
            self.folder(work).rmdir()
        self.runner.note_time()


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def is_done(folder: Path, task: Task) -> bool:
    """Whether a task was finished in a verdict's folder, and the ``files`` it returned are still there."""
    told = object_in(_unit(folder, task)) or {}  # a damaged one is made again
    returned = told.get("returned")
    return isinstance(returned, dict) and all((folder / name).exists() for name in returned.get("files", ()))


def _unit(folder: Path, task: Task) -> Path:
    return folder / "units" / f"{task.key}.json"


def _told(folder: Path, task: Task) -> dict[str, Any]:
    return read_object(_unit(folder, task), "run eval/verdict.py again")


def _mark(folder: Path, task: Task, returned: dict[str, Any], seconds: float) -> None:
    content = json.dumps({"returned": returned, "seconds": seconds})
    write_atomically(folder / "units" / f"{task.key}.json", content + "\n")


def _log(folder: Path, task: Task) -> Path:
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    return folder / "logs" / f"{task.key}.log"


def _place(folder: Path, task: Task) -> Path:
    return folder / "units" / task.key


def _work(folder: Path, task: Task) -> int:
    """A task in a process of an engine, which writes down itself that it is done; a status as of a command."""
    try:
        with lock.holding():
            with _log(folder, task).open("a") as said, contextlib.redirect_stderr(said):
                lock.hold_for_results(_place(folder, task))
            if not is_done(folder, task):  # as another process may have seen to meanwhile
                _mark(folder, task, *_call(folder, task, quiet=True))
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        if isinstance(end.code, str):
            with _log(folder, task).open("a") as said:
                said.write(f"error: {end.code}\n")
        return end.code if isinstance(end.code, int) else 1
    except Exception as error:
        with _log(folder, task).open("a") as said:
            said.write(f"error: {error}\n" if isinstance(error, UserError) else traceback.format_exc())
        return 1


def _call(folder: Path, task: Task, *, quiet: bool) -> tuple[dict[str, Any], float]:
    """What a task returns, and how many seconds it took; what it prints goes to LOGS/KEY.log."""
    began = time.monotonic()
    forget_what_was()  # the arithmetic of the task before is not that of this one
    with contextlib.ExitStack() as stack:
        if quiet:
            text = stack.enter_context(_log(folder, task).open("w"))
            stack.enter_context(contextlib.redirect_stdout(text))
            stack.enter_context(contextlib.redirect_stderr(text))
        stack.enter_context(lock.holding())
        return task.function(*task.args), time.monotonic() - began
