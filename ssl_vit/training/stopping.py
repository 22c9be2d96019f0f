"""Termination signals, Ctrl-C and the end of the time as a wish to stop after the current step: nothing is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGALRM, SIGINT, raise_signal
from types import FrameType

import psutil
import torch

from ssl_vit.core import peers
from ssl_vit.core.dist import max_over_ranks, meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import write_line
from ssl_vit.core.signals import ENDING, handled, hold, status_of, unheeded
from ssl_vit.core.text import seconds
from ssl_vit.runs.lock import finish

_EVERY = 1.0
"""Seconds between the steps after which several processes tell each other of signals."""
TIME_OVER = SIGALRM
"""Stands for the end of ``--max_time`` among signals; nobody sends it."""


def age() -> float:
    """Seconds since this process began; of one that a launcher may start again, since the launcher did."""
    process = psutil.Process()
    if "TORCHELASTIC_RESTART_COUNT" in os.environ and (launcher := process.parent()) is not None:
        process = launcher
    return max(0.0, time.time() - process.create_time())


class StopRequest:
    """The signal that was received, if any; whichever process gets one, all stop together.

    A process that left the others alone would leave them in the middle of a sum.
    """

    received: int | None = None
    """By this process."""
    due = False
    """Whether any process has said that something else is, when they last told each other."""

    def __init__(
        self,
        device: torch.device | None = None,
        left: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing yet, but for a signal that should have ended the process before training.

        Args:
            device: Where processes add up, the CPU by default.
            left: Seconds after which it is a wish by itself.
            clock: Gives seconds.
        """
        self.device, self._clock = device, clock
        self.received = unheeded()
        self._end = None if left is None else clock() + left
        self._asked, self._steps, self._next = time.monotonic(), 0, 1

    def note(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal."""
        self.received = number

    def heard(self, due: bool = False) -> int | None:
        """The signal that any process has received, the same on all of them (every process must call it every step).

        Args:
            due: What is told the others beside it (``due`` of this class).
        """
        if self._end is not None and self.received is None and self._clock() >= self._end:
            self.received = TIME_OVER
        if rank_and_world()[1] == 1:
            self.due = due
            return self.received
        self._steps += 1
        self.due = False
        if self._steps < self._next:
            return None
        taken = (time.monotonic() - self._asked) / self._steps
        told = torch.tensor([self.received or 0, taken, due], device=self.device)
        number, slowest, late = max_over_ranks(told).tolist()
        self.due = bool(late)
        self._asked, self._steps, self._next = time.monotonic(), 0, max(1, int(_EVERY / max(slowest, 1e-6)))
        return int(number) or None


@contextmanager
def stop_requests(device: torch.device | None = None, max_time: str | None = None) -> Iterator[StopRequest]:
    """While it is entered, signals are noted instead of ending the process; so is the end of ``max_time``.

    SystemExit where a signal came and training failed at the same time: whoever goes on with something else where
    training fails is to stop. A signal that came too late to end training, as while the last checkpoint was written, is
    sent again where training is over: a scheduler sends it once, and what follows may take long.
    """
    wish = StopRequest(device, None if max_time is None else seconds(max_time) - age())
    try:
        with handled(wish.note, (*ENDING, SIGINT)):
            try:
                yield wish
            except (RuntimeError, ConnectionError) as error:
                if peers.may_be(error):  # a launcher ends those that are left, which have something to say
                    hold()
                raise
    except UserError as error:
        if wish.received is None:
            raise
        write_line(f"error: {error}")
        raise SystemExit(128 + wish.received) from error
    if wish.received not in (None, TIME_OVER):
        raise_signal(wish.received)


def leave(number: int, done: int, main: bool) -> None:
    """Ends (SystemExit) a process that has saved step ``done``, with all others: a launcher ends all with the first."""
    finish()  # trackers may have something to send
    meet()
    if main:
        why = " because --max_time is over" if number == TIME_OVER else ""
        write_line(f"stopped after step {done:,}{why}, which is saved; the same command continues")
    raise SystemExit(status_of(number))
