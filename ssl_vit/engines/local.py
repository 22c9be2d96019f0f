"""Processes of this machine, each of which runs one unit after another: what it has imported stays."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from ssl_vit.core.slurm import SIGNS
from ssl_vit.engines.unit import LOST, Unit

_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class LocalJob:
    """A unit in a process."""

    process: SpawnProcess
    units: Connection
    """To the process: units there, what they return back."""
    _status: int | None = None

    def status(self) -> int | None:
        """What the unit returned; None while it runs."""
        if self._status is None:
            ended = not self.process.is_alive()  # what it has said before is found below
            with suppress(EOFError, OSError):
                if self.units.poll():
                    self._status = self.units.recv()
            if self._status is None and ended:
                self._status = self.process.exitcode or LOST
        return self._status

    def wait(self) -> int:
        """As ``status``, when there is one."""
        while (status := self.status()) is None:
            self.units.poll(1)
        return status

    def stop(self) -> None:
        """Tells the process."""
        self.process.terminate()

    def end(self) -> None:
        """Stops it and waits; told again, because a training at its last step has gone on to what follows it."""
        while self.status() is None:
            self.stop()
            self.units.poll(1)


class Local:
    """As many processes as there are slots."""

    pause = 0.02

    def __init__(self, slots: Sequence[Mapping[str, str]] = ({},)) -> None:
        """Starts none yet.

        Args:
            slots: What is added to the environment of each process.
        """
        self.at_once, self._slots, self._jobs = len(slots), slots, dict[int, LocalJob]()
        atexit.register(self.close)  # before multiprocessing waits for processes that wait for units

    def start(self, unit: Unit) -> LocalJob:
        """Gives a unit to a process that has none.

        Args:
            unit: Which; there is a slot for it.
        """
        return self.run(unit.run)

    def run(self, function: Callable[[], int]) -> LocalJob:
        """As ``start``, for what has no name and no log.

        Args:
            function: Can be pickled, and returns a status.
        """
        slot = next(n for n in range(self.at_once) if n not in self._jobs or self._jobs[n].status() is not None)
        job = self._jobs.get(slot)
        alive = job is not None and job.process.is_alive()
        self._jobs[slot] = job = LocalJob(job.process, job.units) if job and alive else _begin(self._slots[slot])
        with suppress(OSError):  # a process that ended just now: its status says so
            job.units.send(function)
        return job

    def close(self) -> None:
        """Ends the processes; units that run save and stop."""
        jobs, self._jobs = self._jobs.values(), {}
        for job in jobs:
            if job.status() is None:
                job.stop()
        for job in jobs:
            job.end()
            job.units.close()
            job.process.join()


def _begin(variables: Mapping[str, str]) -> LocalJob:
    """A process, which does not see Ctrl-C before it can deal with it."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(there, dict(variables)))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    there.close()
    return LocalJob(process, here)


def _serve(units: Connection, variables: Mapping[str, str]) -> None:
    """Runs units until whoever has begun this process closes the connection, or is gone."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # reach all; whoever has begun this one tells it
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for name in SIGNS:  # each is a job of its own, whatever has launched the first one
        os.environ.pop(name, None)
    os.environ.update(variables)
    if "torch" in sys.modules and "OMP_NUM_THREADS" in variables:  # a person's script imported it before
        sys.modules["torch"].set_num_threads(int(variables["OMP_NUM_THREADS"]))
    multiprocessing.set_start_method(None, force=True)  # loader processes start as they do elsewhere
    threading.Thread(target=_follow, daemon=True).start()
    with suppress(EOFError):
        while True:
            status = units.recv()()
            try:
                units.send(status)
            except OSError:
                return


def _follow() -> None:
    """Where the process that has begun this one is gone, what is training saves and stops."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
