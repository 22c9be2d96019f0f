"""What schedulers send before they end a process: it saves, stops, and says by its exit status that more is to do.

And what ``head`` does to a process that is still printing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ssl_vit.core.notices import settle, write_line

REQUEUE = 75
"""Exit status "try again" (EX_TEMPFAIL of sysexits.h): all that was done is saved, and the same command goes on."""
ENDING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""SLURM sends the first when a job is cancelled or preempted and the second where ``--signal=USR1@SECONDS`` asks for
it; the third comes when a terminal closes."""

Handler = Callable[[int, FrameType | None], object]
_on_hold = [False]
"""Whether this process is about to end."""
_unheeded: list[int] = []
"""Signals that were to end what is not training. One that comes where Python lets no exception out, as while an object
is taken away, ends nothing, and is not sent again."""


def status_of(number: int) -> int:
    """The exit status of a process that was asked to stop and has saved.

    Args:
        number: The signal: Ctrl-C is a person's, who knows whether to go on.
    """
    return 128 + number if number == signal.SIGINT else REQUEUE


def name_of(number: int) -> str:
    """What people call a signal, as SIGKILL; those without a name by their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def handled(handler: Handler, numbers: tuple[signal.Signals, ...] = ENDING) -> Generator[None, None, None]:
    """Signals go to a function meanwhile; those that are ignored, as ``nohup`` has it, stay so, but for Ctrl-C.

    Args:
        handler: Called with the signal's number.
        numbers: Which.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            now = signal.getsignal(number)
            if now is not None and (now != signal.SIG_IGN or number == signal.SIGINT):  # shells ignore it behind "&"
                before[number] = now
                signal.signal(number, handler)
    try:
        yield
    finally:
        for number, now in before.items():
            if not (_on_hold[0] and number in ENDING):
                signal.signal(number, now)


def unheeded() -> int | None:
    """The signal that should have ended this process before, and did not; None where there was none."""
    return _unheeded[-1] if _unheeded else None


def ignore() -> None:
    """Leaves signals to the process that started this one, which they reach as well and which ends this one."""
    for number in (*ENDING, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)  # the starting process's own


@contextmanager
def leaving() -> Generator[None, None, None]:
    """A signal ends the process with ``REQUEUE`` where it is not training: what it has finished is on disk.

    One of several processes ends at once, also where it waits for the others and Python's handlers would wait, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read,), daemon=True).start()
    _on_hold[0] = False
    _unheeded.clear()
    try:
        with handled(_leave):
            try:
                yield
            except (RuntimeError, ConnectionError):
                hold()  # another process may be lost: a launcher ends the rest, which have something to say
                raise
    except SystemExit as end:
        if end.code == REQUEUE:  # a launcher ends those that are still leaving: their status must stay what it is
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
        raise
    finally:
        _unheeded.clear()
        signal.set_wakeup_fd(before)
        os.close(write)


@contextmanager
def unread() -> Generator[None, None, None]:
    """Ends the process quietly, with the status of SIGPIPE, where nobody reads its output any more (``| head``)."""
    try:
        try:
            yield
        except BaseException:  # what ends the work is told, and gives the status, also on a full disk under the output
            settle(sys.stdout)
            raise
        finally:
            print(end="", flush=True)  # here, and not at Python's end, which has a traceback for it
    except BrokenPipeError:
        if not _closed(1):  # a pipe to another process: that is a bug or a loss, and not for here
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more
        sys.exit(128 + signal.SIGPIPE)


def _closed(pipe: int) -> bool:
    """Whether the other end of a pipe is; a second write would not tell, for what failed may not be kept."""
    looked = select.poll()
    looked.register(pipe, 0)
    return bool(looked.poll(0))


def _leave(number: int, frame: FrameType | None) -> None:
    if "WORLD_SIZE" not in os.environ:
        _tell(number)
        _unheeded.append(number)
        raise SystemExit(REQUEUE)


def hold() -> None:
    """From now on signals do not end this process: it is about to end by itself, and has something to say."""
    _on_hold[0] = True
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)


def _watch(pipe: int) -> None:
    """Ends one of several processes when a signal comes that is nobody else's.

    Ctrl-C reaches all of them. The main process, which may hold a run, ends as it does alone, and tells; one of the
    others would wait for it, and end with a traceback about a connection that is lost.
    """
    with open(pipe, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if "WORLD_SIZE" not in os.environ:
                continue
            now = signal.getsignal(number[0])
            if now is _leave and not _on_hold[0]:
                _tell(number[0])
                os._exit(REQUEUE)
            if number[0] == signal.SIGINT and now is signal.default_int_handler and os.environ.get("RANK", "0") != "0":
                os._exit(status_of(signal.SIGINT))


def _tell(number: int) -> None:
    if os.environ.get("RANK", "0") == "0":
        write_line(f"stopped by {name_of(number)}; the same command continues")
