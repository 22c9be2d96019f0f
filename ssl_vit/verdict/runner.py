"""Runs tasks of work, several at a time on a CPU, and remembers which are done: an interrupted verdict continues."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from ssl_vit.core import dist
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
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

    def __init__(self, folder: Path, jobs: int, main: bool, began: float | None = None) -> None:
        """Goes on with the clock.

        ``jobs`` tasks run at the same time, each in a process of its own; 0 runs them here, one after the other.
        ``began`` is when this session began (``time.monotonic()``); None for now.
        """
        self.folder, self.jobs, self.main = folder, jobs, main
        self.began = time.monotonic() if began is None else began
        # Each of these processes is a job of its own, whatever launched this one.
        spawn = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin) if jobs else None
        self.before, self.worked = (0.0, 0), False
        with contextlib.suppress(OSError, ValueError, KeyError):
            told = json.loads((folder / "time.json").read_text())
            self.before = float(told["seconds"]), int(told["sessions"])
        self.sessions = self.before[1] + 1

    def elapsed(self) -> float:
        """Seconds of work, those of earlier sessions included."""
        return self.before[0] + time.monotonic() - self.began

    def taken(self) -> tuple[float, int]:
        """Seconds and sessions of work; a session that found everything done is none."""
        return (self.elapsed(), self.sessions) if self.worked else self.before

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
        """
        todo = [task for task in tasks if not self.is_done(task)]
        self.worked = self.worked or bool(todo)
        dist.meet()  # all processes have looked before any is done
        if self.pool is None:
            for task in todo:
                self._done(task, *_call(self.folder, task, quiet=self.main))
        elif todo:
            self._in_pool(self.pool, todo)
        dist.meet()
        return {task.key: self._told(task)["returned"] for task in tasks}

    def is_done(self, task: Task) -> bool:
        """Whether it was finished, now or before, and the ``files`` it returned are still there."""
        try:
            returned = self._told(task)["returned"]
        except FileNotFoundError:
            return False
        return all((self.folder / name).exists() for name in returned.get("files", ()))

    def took(self, task: Task) -> float:
        """Seconds that a finished task took."""
        return float(self._told(task)["seconds"])

    def begun(self) -> list[str]:
        """Keys of all tasks that are done."""
        return [path.stem for path in (self.folder / "units").glob("*.json")]

    def _in_pool(self, pool: ProcessPoolExecutor, todo: Sequence[Task]) -> None:
        try:
            with _started_in_peace():
                waiting: dict[Future[tuple[dict[str, Any], float]], Task] = {
                    pool.submit(_work, self.folder, task): task for task in todo
                }
            for future in as_completed(waiting):
                self._done(waiting[future], *future.result())
        except BrokenProcessPool as error:
            self.close()
            raise UserError(
                "a process of the verdict was killed, perhaps because memory did not suffice; the same command "
                "continues, with --verdict.jobs 1 one run at a time"
            ) from error
        except BaseException:
            self.close()
            raise

    def _done(self, task: Task, returned: dict[str, Any], seconds: float) -> None:
        if self.main:
            write_atomically(self._marker(task), json.dumps({"returned": returned, "seconds": seconds}) + "\n")
            self._note_time()

    def _note_time(self) -> None:
        if self.main:
            told = {"seconds": self.elapsed(), "sessions": self.sessions}
            write_atomically(self.folder / "time.json", json.dumps(told) + "\n")

    def _marker(self, task: Task) -> Path:
        return self.folder / "units" / f"{task.key}.json"

    def _told(self, task: Task) -> dict[str, Any]:
        return json.loads(self._marker(task).read_text())

    def close(self) -> None:
        """Ends the processes and waits for them; those that are training save and stop."""
        if self.worked:  # a command that was refused, or had nothing to do, is no session
            self._note_time()
        if self.pool is not None:
            pool, self.pool = self.pool, None
            ending = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True})
            ending.start()
            while ending.is_alive():  # told again: a training that was at its last step has gone on to what follows it
                for child in psutil.Process().children():
                    with contextlib.suppress(psutil.Error):
                        child.send_signal(signal.SIGTERM)
                ending.join(1)


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


_STOPPED = threading.Event()
"""In a process of the pool: whether it was told to stop."""


@contextlib.contextmanager
def _started_in_peace() -> Iterator[None]:
    """Processes that start here do not see Ctrl-C before they can deal with it; this process sees it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # reach all; the main process tells those that wait
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    torch.set_num_threads(1)
    multiprocessing.set_start_method(None, force=True)  # loader processes start as they do elsewhere
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Where the process that began this one is gone, what is training saves and stops."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _work(folder: Path, task: Task) -> tuple[dict[str, Any], float]:
    """A task in a process of the pool; what already waits in its queue is not begun after it was told to stop."""
    if _STOPPED.is_set():
        raise SystemExit(128 + signal.SIGTERM)
    try:
        return _call(folder, task, quiet=True)
    except (KeyboardInterrupt, SystemExit):
        _STOPPED.set()
        raise
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(128 + signal.SIGTERM)


def _call(folder: Path, task: Task, *, quiet: bool) -> tuple[dict[str, Any], float]:
    """What a task returns, and how many seconds it took; what it prints goes to LOGS/KEY.log."""
    began, log = time.monotonic(), folder / "logs" / f"{task.key}.log"
    forget_what_was()  # the arithmetic of the task before is not that of this one
    with contextlib.ExitStack() as stack:
        if quiet:
            log.parent.mkdir(parents=True, exist_ok=True)
            text = stack.enter_context(log.open("w"))
            stack.enter_context(contextlib.redirect_stdout(text))
            stack.enter_context(contextlib.redirect_stderr(text))
        try:
            with lock.holding():
                return task.function(*task.args), time.monotonic() - began
        except UserError as error:
            raise UserError(f"{task.key}: {error}") from None
