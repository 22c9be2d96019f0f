"""Termination signals and Ctrl-C as a wish to stop after the current step, so that nothing is lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGINT
from types import FrameType

import torch

from ssl_vit.core import peers
from ssl_vit.core.dist import max_over_ranks, meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import ENDING, handled, hold, status_of
from ssl_vit.runs.lock import finish

_EVERY = 1.0
"""Seconds between the steps after which several processes tell each other of signals."""


class StopRequest:
    """The signal that was received, if any; whichever process gets one, all stop together.

    A process that left the others alone would leave them in the middle of a sum.
    """

    received: int | None = None
    """By this process."""

    def __init__(self, device: torch.device | None = None) -> None:
        """Nothing yet; processes add up on ``device``, the CPU by default."""
        self.device = device
        self._asked, self._steps, self._next = time.monotonic(), 0, 1

    def note(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal."""
        self.received = number

    def heard(self) -> int | None:
        """The signal that any process has received, the same on all of them (every process must call it every step)."""
        if rank_and_world()[1] == 1:
            return self.received
        self._steps += 1
        if self._steps < self._next:
            return None
        taken = (time.monotonic() - self._asked) / self._steps
        number, slowest = max_over_ranks(torch.tensor([self.received or 0, taken], device=self.device)).tolist()
        self._asked, self._steps, self._next = time.monotonic(), 0, max(1, int(_EVERY / max(slowest, 1e-6)))
        return int(number) or None


@contextmanager
def stop_requests(device: torch.device | None = None) -> Iterator[StopRequest]:
    """While it is entered, signals are noted instead of ending the process.

    SystemExit where a signal came and training failed at the same time: whoever goes on with something else where
    training fails is to stop.
    """
    wish = StopRequest(device)
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
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(128 + wish.received) from error


def leave(number: int, done: int, main: bool) -> None:
    """Ends (SystemExit) a process that has saved step ``done``, with all others: a launcher ends all with the first."""
    finish()  # trackers may have something to send
    meet()
    if main:
        sys.stderr.write(f"stopped after step {done:,}, which is saved; the same command continues\n")
    raise SystemExit(status_of(number))
