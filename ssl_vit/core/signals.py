"""What schedulers send before they end a process: it saves, stops, and says by its exit status that more is to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

REQUEUE = 75
"""Exit status "try again" (EX_TEMPFAIL of sysexits.h): all that was done is saved, and the same command goes on."""
ENDING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""SLURM sends the first when a job is cancelled or preempted and the second where ``--signal=USR1@SECONDS`` asks for
it; the third comes when a terminal closes."""

Handler = Callable[[int, FrameType | None], object]


def status_of(number: int) -> int:
    """The exit status of a process that was asked to stop and has saved.

    Args:
        number: The signal: Ctrl-C is a person's, who knows whether to go on.
    """
    return 128 + number if number == signal.SIGINT else REQUEUE


@contextmanager
def handled(handler: Handler, numbers: tuple[signal.Signals, ...] = ENDING) -> Generator[None, None, None]:
    """Signals go to a function meanwhile; those that are ignored, as ``nohup`` has it, stay so, but for Ctrl-C.

    Args:
        handler: Called with the signal's number.
        numbers: Which.
    """
    before = {}
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
            signal.signal(number, now)


def ignore() -> None:
    """Leaves signals to the process that started this one, which they reach as well and which ends this one."""
    for number in (*ENDING, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def leave(number: int, frame: FrameType | None = None) -> None:
    """Ends a process that is not training: what it has finished is on disk.

    Args:
        number: The signal.
        frame: Not used.

    Raises:
        SystemExit: With ``REQUEUE``; one of several processes ends at once, because others may wait for it.
    """
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"stopped by {signal.Signals(number).name}; the same command continues\n")
        sys.stderr.flush()
    if "WORLD_SIZE" in os.environ:
        os._exit(REQUEUE)
    raise SystemExit(REQUEUE)
