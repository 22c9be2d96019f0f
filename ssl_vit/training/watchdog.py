"""--fit.watchdog: a run that hangs says where, and ends so that it is started again.

Several processes hang together: one that waits for bytes, or for a device that is gone, leaves the others in the middle
of a sum. So each looks after itself, writes what all of its threads are doing, gives the others time to do the same,
and ends at once. Nothing is saved: what a process in the middle of a step holds is no state of the run.

A disk that does not answer may be what everything waits for. So whatever touches it is done by a thread of its own, and
the end comes without that one, too.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ssl_vit.core.dist import gather_lists, rank_and_world
from ssl_vit.core.notices import write_line
from ssl_vit.core.signals import REQUEUE
from ssl_vit.runs import lock

FOLDER = "stacks"
"""In the run's directory: a file for every process."""
LOOKS = 5.0
"""Seconds between two looks at the clock, at most."""
PATIENCE = 15.0
"""Seconds that a process waits for the others' files before it ends, and they with it; its disk has twice as many."""


class Watchdog:
    """Ends the process where no step was taken for too long; as a context, which starts and ends its thread."""

    def __init__(
        self,
        minutes: float | None,
        run: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """Every process must call it; without ``minutes`` nothing is watched.

        Args:
            minutes: Without a step.
            run: The run's directory.
            clock: Gives seconds.
            wait: Waits for so many seconds.
            end: Ends the process with a status.
        """
        self.minutes, self._clock, self._end = minutes, clock, end
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self._seen, self._step, self._more = clock(), 0, 0.0
        self._thread: threading.Thread | None = None
        self._files: list[Path] = []
        if minutes is not None:
            rank, world = rank_and_world()
            (began,) = gather_lists([time.strftime("%Y%m%d-%H%M%S")] if rank == 0 else [])
            self._files = [run / FOLDER / f"{began}-process_{other}.txt" for other in range(world)]
            self._own = self._files[rank]

    def beat(self, step: int, more: float = 0.0) -> None:
        """Training is alive, before it takes a step (0-based), which may take so many minutes more than others."""
        self._seen, self._step, self._more = self._clock(), step, more

    def look(self) -> bool:
        """Whether it has been silent for too long; writes what all threads are doing then, and says so."""
        overdue = self._is_overdue()
        if overdue:
            self._tell()
        return overdue

    def _is_overdue(self) -> bool:
        return self.minutes is not None and self._clock() - self._seen > 60 * (self.minutes + self._more)

    def _tell(self) -> None:
        if rank_and_world()[0] == 0:
            write_line(
                f"error: {self._silent()} (--fit.watchdog), in step {self._step + 1:,}; what every process was doing "
                f"stands in {self._own.parent}; the same command continues from the last checkpoint"
            )
        with suppress(OSError):  # as of a disk that is full
            self._own.parent.mkdir(parents=True, exist_ok=True)
            part = self._own.with_suffix(".part")
            with part.open("w") as file:
                file.write(f"process {os.getpid()}, {self._silent()}, in step {self._step + 1:,}\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            part.replace(self._own)

    def _silent(self) -> str:
        return f"no step for {self.minutes:g} min"

    def _others_are_heard(self) -> bool:
        with suppress(OSError):
            return all(file.exists() for file in self._files)
        return False

    def _watch(self) -> None:
        each = min(LOOKS, 6 * (self.minutes or 1))  # a tenth of the time
        while not self._over.is_set():
            if self._is_overdue():
                leaving = threading.Thread(target=self._leave, name="watchdog's end", daemon=True)
                with suppress(RuntimeError):  # as where no more threads can be had
                    leaving.start()
                    leaving.join(2 * PATIENCE)  # the others have had theirs by then
                self._end(REQUEUE)
                return
            self._wait(each)

    def _leave(self) -> None:
        """Does what needs the disk before the end: a thread that may never come back from it."""
        until = self._clock() + PATIENCE
        self._tell()
        while not self._others_are_heard() and self._clock() < until:
            self._wait(0.1)
        lock.leave(REQUEUE, f"{self._silent()} (--fit.watchdog)")

    def __enter__(self) -> Watchdog:
        """Starts to watch."""
        if self.minutes is not None:
            self._seen = self._clock()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends watching."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
