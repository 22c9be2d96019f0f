"""Loader processes: keys go out, what they are worth comes back in order, and a process that dies is made again.

Every process has a pipe of its own, so that one that dies takes no lock of others with it, and is watched: its end is
noticed where its next answer is waited for. What it had not answered is given to another one in its place, which
computes the same, because nothing in a loader process depends on what it did before. An image at which two processes in
a row have died is decoded no more; it counts as unreadable, whatever the reason was. Only where memory ran out, which
signals tell, no image is to blame: the run ends, and says so.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch

from ssl_vit.core import signals
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding import current
from ssl_vit.data.loading.shared import SharedArray

AHEAD = 2
"""Keys that every loader process is given ahead of what is asked for."""
_PATIENCE = 10.0
"""Seconds that a process has to end by itself."""
_MOST = 50
"""Processes that may die in one place without an answer in between."""
_STARVED = (-signal.SIGKILL, -signal.SIGBUS)
"""How processes end where there is no memory, whatever image they are at."""

T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)


@runtime_checkable
class Work(Protocol[Answer]):
    """What is computed; is sent to the processes."""

    def __getitem__(self, key: Any, /) -> Answer:
        """What a key is worth: the same in whatever process, after whatever was computed there before."""
        ...


@runtime_checkable
class Sharing(Work[Answer], Protocol[Answer]):
    """Work whose answers may lie in shared memory."""

    def copied(self) -> Work[Answer]:
        """The same work, whose answers go through pipes."""
        ...


def in_processes(work: Work[T], wanted: Iterable[Any], count: int, pinned: bool = False) -> Iterator[T]:
    """``work[key]`` for every key, in order, computed in that many processes (0: in this one).

    Args:
        work: What is computed.
        wanted: Keys, each taken when a process is sent for it.
        count: How many processes.
        pinned: Whether answers are handed over by their ``pin_memory``, which another thread calls ahead.

    Raises:
        UserError: Where processes die again and again.
    """
    if not count:
        for key in wanted:
            found = work[key]
            yield cast(Any, found).pin_memory() if pinned else found
        return
    crew = _Crew(work, count, pinned)
    try:
        yield from crew.answers(wanted)
    finally:
        crew.close()


@dataclass
class _Worker:
    """A loader process as the one that started it sees it."""

    process: BaseProcess
    pipe: Connection
    given: dict[int, Any] = field(default_factory=lambda: {})
    """Keys that it has not answered, by number, in their order."""
    told: int = 0
    """Images in quarantine that it knows of."""
    owed: set[int] = field(default_factory=lambda: set[int]())
    """Those of them that the process before it has left."""
    died_at: str | None = None
    """The image at which that died, until nothing is owed any more; empty where it decoded none."""
    before: int = 0
    """Processes that have died here since the last answer."""


class _Crew(Generic[T]):
    """Processes for one piece of work."""

    def __init__(self, work: Work[T], count: int, pinned: bool) -> None:
        self._work, self._names = work, SharedArray((count, current.ROOM), "uint8")
        self._found: dict[int, tuple[bool, Any]] = {}
        # By image, and whether memory ran out: processes that died at it, until one did not.
        self._deaths = Counter[tuple[str, bool]]()
        self._pins = _pinning_thread() if pinned else None
        self._workers: list[_Worker] = []
        # Also where nobody closes this before Python ends, which would wait for processes that ignore signals.
        self.close = util.Finalize(self, _end, (self._workers, self._names, self._pins), exitpriority=10)
        for slot in range(count):
            self._workers.append(self._started(slot))

    def _started(self, slot: int) -> _Worker:
        own, other = multiprocessing.Pipe()
        known = dict(current.quarantined)
        process = multiprocessing.get_context().Process(
            target=_serve, args=(self._work, other, self._names, slot, known), daemon=True
        )
        collects = gc.isenabled()
        gc.disable()  # in the process, too, until ``_serve`` has put aside what is not its own
        try:
            process.start()
        except OSError as error:
            own.close()
            raise UserError(
                f"no loader process can be started ({error.strerror}); use fewer --data.workers, or 0"
            ) from error
        finally:
            if collects:
                gc.enable()
            other.close()  # so that the process alone holds it, and the pipe ends with it
        return _Worker(process, own, told=len(known))

    def answers(self, wanted: Iterable[Any]) -> Iterator[T]:
        """As ``in_processes``."""
        numbered, last, done = enumerate(wanted), -1, 0
        for last, key in islice(numbered, AHEAD * len(self._workers)):
            self._give(last, key)
        while done <= last:
            while done not in self._found:
                self._receive(None)
            good, found = self._found.pop(done)
            found = found.result() if isinstance(found, Future) else found
            if not good:
                raise found
            done += 1
            for last, key in islice(numbered, 1):
                self._give(last, key)
            if self._pins is not None:
                self._receive(0)  # what has come is pinned while this answer is used
            yield found

    def _give(self, number: int, key: Any) -> None:
        worker = min(self._workers, key=lambda worker: len(worker.given))
        worker.given[number] = key
        self._send(worker, number)

    def _send(self, worker: _Worker, number: int | None) -> None:
        """One of its keys, or none, and what is new in quarantine."""
        new = dict(list(current.quarantined.items())[worker.told :])
        worker.told += len(new)
        # One that has died is found dead where its answer is waited for.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send((number, None if number is None else worker.given[number], new))

    def _receive(self, seconds: float | None) -> None:
        """Takes what has come, and replaces processes that have died."""
        ready = wait([end for w in self._workers for end in (w.pipe, w.process.sentinel)], seconds)
        for slot, worker in enumerate(self._workers):
            if worker.pipe in ready:
                self._take(slot, worker)
            elif worker.process.sentinel in ready:
                self._replace(slot, worker)

    def _take(self, slot: int, worker: _Worker) -> None:
        try:
            number, good, found = worker.pipe.recv()
        except (EOFError, OSError):  # also where it died after it had sent memory that is now gone
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                raise
            self._replace(slot, worker)
            return
        del worker.given[number]
        worker.owed.discard(number)
        worker.before = 0
        if not worker.owed:  # what is answered first may be older than the death: its answer died with the process
            for starved in (False, True):
                self._deaths.pop((worker.died_at or "", starved), None)
            worker.died_at = None
        self._found[number] = good, self._pins.submit(found.pin_memory) if good and self._pins else found

    def _replace(self, slot: int, dead: _Worker) -> None:
        """Puts another process in the place of one that has died, and gives it what that had not answered."""
        dead.process.join()
        status = dead.process.exitcode or 0
        how, name, starved = _ending(status), current.read(self._names.array[slot]), status in _STARVED
        at = f" while it decoded {name}" if name else ""
        self._deaths[name, starved] += 1
        again = self._deaths[name, starved] > 1 if name else dead.died_at == name
        if (again and (starved or not name)) or dead.before >= _MOST:
            why = "memory (or /dev/shm) does not suffice: use fewer --data.workers, or give the job more memory; "
            raise UserError(
                f"loader processes end again and again{', the last one' if at else ''}{at}: {how}; "
                f"{why if starved else ''}what is saved is sound, and the same command goes on from there"
            )
        without = ""
        if status == -signal.SIGBUS and isinstance(self._work, Sharing):
            self._work, without = cast("Work[T]", self._work.copied()), ", without shared memory"
        if again:
            current.quarantined[name] = f"two loader processes ended while they decoded it: {how}"
        else:
            sys.stderr.write(f"warning: a loader process ended{at}: {how}; another one does its work again{without}\n")
        self._names.array[slot] = 0
        worker = self._workers[slot] = self._started(slot)
        dead.pipe.close()
        dead.process.close()
        worker.given, worker.owed, worker.died_at, worker.before = dead.given, {*dead.given}, name, dead.before + 1
        for number in worker.given:
            self._send(worker, number)
        if again:
            for other in self._workers:
                self._send(other, None)  # it may be among what they have been given already


def _pinning_thread() -> ThreadPoolExecutor:
    device = torch.accelerator.current_device_index()
    return ThreadPoolExecutor(1, initializer=torch.accelerator.set_device_index, initargs=(device,))


def _end(workers: list[_Worker], names: SharedArray, pins: ThreadPoolExecutor | None) -> None:
    """Has all processes end after the image they are at, and ends those that do not."""
    for worker in workers:
        with suppress(OSError), socket.socket(fileno=os.dup(worker.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # closing it would not do: processes that were forked later have it, too
    for worker in workers:
        worker.process.join(_PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
        worker.process.close()
    workers.clear()
    names.close()
    if pins is not None:
        pins.shutdown(wait=False)


def _ending(status: int) -> str:
    """How a process ended, for people."""
    if status >= 0:
        return f"it left with status {status}"
    reasons: dict[int, str] = {
        signal.SIGKILL: ", as the system does where memory runs out",
        signal.SIGBUS: ", as where shared memory (/dev/shm) is full",
    }
    return f"ended by {signals.name_of(-status)}{reasons.get(-status, '')}"


def _serve(work: Work[Any], pipe: Connection, names: SharedArray, slot: int, known: dict[str, str]) -> None:
    """What a loader process does."""
    # Garbage of the process that was forked may hold tensors of a GPU: to free one here would end this process.
    gc.freeze()
    atexit.register(gc.unfreeze)  # runs where nothing was forked: libraries say at the end what was not cleaned up
    gc.enable()
    # A signal to the whole group is for the main process, which stops after its step and then ends its loaders.
    signals.ignore()
    torch.set_num_threads(1)
    current.watched(names.array[slot], known)
    tasks = SimpleQueue[Any]()
    Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    while (task := tasks.get()) is not None:
        number, key = task
        try:
            answer = number, True, work[key]
        except Exception as error:
            answer = number, False, _portable(error)
        current.end()
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _listen(pipe: Connection, tasks: SimpleQueue[Any]) -> None:
    """Takes keys as they come, so that whoever sends never waits; ends the process with the one that started it."""
    parent = multiprocessing.parent_process()
    ends: list[Any] = [pipe, *([parent.sentinel] if parent is not None else [])]
    while True:
        ready = wait(ends)
        if any(end in ready for end in ends[1:]):
            os._exit(0)
        try:
            number, key, held = pipe.recv()
            current.quarantined.update(held)  # at once, of what waits to be done, too
            if number is not None:
                tasks.put((number, key))
        except (EOFError, OSError):
            current.leave()
            tasks.put(None)
            return


def _portable(error: Exception) -> Exception:
    """An error that can be raised in another process, with where it came from."""
    text = f"in a loader process:\n{traceback.format_exc()}"
    try:
        pickle.loads(ForkingPickler.dumps(error))
    except Exception:  # whatever an exception of somebody's own class holds
        return RuntimeError(text)
    error.add_note(text)
    return error
