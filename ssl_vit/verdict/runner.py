"""Runs units of work, several at a time on a CPU, and remembers which are done: an interrupted verdict continues."""

from __future__ import annotations

import contextlib
import io
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
class Unit:
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

        Args:
            folder: Of the verdict.
            jobs: Units at the same time, each in a process of its own; 0 runs them here, one after the other.
            main: Whether this is the main process.
            began: When this session began (``time.monotonic()``); None for now.
        """
        self.folder, self.jobs, self.main = folder, jobs, main
        self.began, self.pool = time.monotonic() if began is None else began, _pool(jobs) if jobs else None
        self.before = _taken(folder)
        self.sessions, self.worked = self.before[1] + 1, False

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

    def run(self, units: Sequence[Unit]) -> dict[str, dict[str, Any]]:
        """What the units returned, now or before.

        Args:
            units: Those that take long should come first.

        Raises:
            UserError: Of a unit, with its name.
        """
        todo = [unit for unit in units if not self.is_done(unit)]
        self.worked = self.worked or bool(todo)
        dist.meet()  # all processes have looked before any is done
        if self.pool is None:
            for unit in todo:
                self._done(unit, *_call(self.folder, unit, quiet=self.main))
        elif todo:
            self._in_pool(self.pool, todo)
        dist.meet()
        return {unit.key: json.loads(self._marker(unit.key).read_text())["returned"] for unit in units}

    def is_done(self, unit: Unit) -> bool:
        """Whether it was finished, now or before, and the ``files`` it returned are still there."""
        try:
            returned = json.loads(self._marker(unit.key).read_text())["returned"]
        except FileNotFoundError:
            return False
        return all((self.folder / name).exists() for name in returned.get("files", ()))

    def took(self, unit: Unit) -> float:
        """Seconds that a finished unit took."""
        return float(json.loads(self._marker(unit.key).read_text())["seconds"])

    def begun(self) -> list[str]:
        """Keys of all units that are done."""
        return [path.stem for path in (self.folder / "units").glob("*.json")]

    def _in_pool(self, pool: ProcessPoolExecutor, todo: Sequence[Unit]) -> None:
        try:
            with _started_in_peace():
                waiting: dict[Future[tuple[dict[str, Any], float]], Unit] = {
                    pool.submit(_work, self.folder, unit): unit for unit in todo
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

    def _done(self, unit: Unit, returned: dict[str, Any], seconds: float) -> None:
        if self.main:
            self._marker(unit.key).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._marker(unit.key), json.dumps({"returned": returned, "seconds": seconds}) + "\n")
            self.note_time()

    def note_time(self) -> None:
        """Writes down how long the verdict has worked."""
        if self.main:
            write_atomically(
                self.folder / "time.json", json.dumps({"seconds": self.elapsed(), "sessions": self.sessions}) + "\n"
            )

    def _marker(self, key: str) -> Path:
        return self.folder / "units" / f"{key}.json"

    def close(self) -> None:
        """Ends the processes and waits for them; those that are training save and stop."""
        if self.worked:  # a command that was refused, or had nothing to do, is no session
            self.note_time()
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


def _taken(folder: Path) -> tuple[float, int]:
    try:
        told = json.loads((folder / "time.json").read_text())
        return float(told["seconds"]), int(told["sessions"])
    except (OSError, ValueError, KeyError):
        return 0.0, 0


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Each of these processes is a job of its own, whatever launched this one.
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


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
    for number in (
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGUSR1,
    ):  # they reach all; the main process tells those that wait
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    torch.set_num_threads(1)
    multiprocessing.set_start_method(None, force=True)  # loader processes start as they do elsewhere
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Where the process that began this one is gone, what is training saves and stops."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _orphaned() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def _work(folder: Path, unit: Unit) -> tuple[dict[str, Any], float]:
    """A unit in a process of the pool; what already waits in its queue is not begun after it was told to stop."""
    if _STOPPED.is_set():
        raise SystemExit(128 + signal.SIGTERM)
    try:
        return _call(folder, unit, quiet=True)
    except (KeyboardInterrupt, SystemExit):
        _STOPPED.set()
        raise
    finally:
        if _orphaned():
            os._exit(128 + signal.SIGTERM)


def _call(folder: Path, unit: Unit, *, quiet: bool) -> tuple[dict[str, Any], float]:
    """What a unit returns, and how many seconds it took; what it prints goes to LOGS/KEY.log."""
    began = time.monotonic()
    forget_what_was()  # the arithmetic of the unit before is not that of this one
    if not quiet:
        return _named(unit), time.monotonic() - began
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            return _named(unit), time.monotonic() - began
    finally:
        log = folder / "logs" / f"{unit.key}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text.getvalue())


def _named(unit: Unit) -> dict[str, Any]:
    try:
        with lock.holding():
            return unit.function(*unit.args)
    except UserError as error:
        raise UserError(f"{unit.key}: {error}") from None
