"""Termination signals and Ctrl-C as a wish to stop after the current step, so that nothing is lost."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from signal import SIGINT
from types import FrameType, TracebackType

import torch

from ssl_vit.core.dist import max_over_ranks, meet, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import ENDING, handled, status_of
from ssl_vit.runs.lock import finish

_EVERY = 1.0
"""Seconds between the steps after which several processes tell each other of signals."""


class StopRequest:
    """While it is entered, signals are noted instead of ending the process; whichever gets one, all stop together.

    A process that left the others alone would leave them in the middle of a sum.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        """Nothing was received yet.

        Args:
            device: Where processes add up; None for the CPU.
        """
        self.device = device
        self.received: int | None = None
        """The signal that this process received."""
        self._asked, self._steps, self._next = time.monotonic(), 0, 1
        self._handled = ExitStack()

    def __enter__(self) -> StopRequest:
        """Takes the signals over."""
        self._handled.enter_context(handled(self._note, (*ENDING, SIGINT)))
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number

    def heard(self) -> int | None:
        """The signal that any process has received, the same on all of them (every process must call it every step)."""
        if rank_and_world()[1] == 1:
            return self.received
        self._steps += 1
        if self._steps < self._next:
            return None
        taken = (time.monotonic() - self._asked) / self._steps
        signal, slowest = max_over_ranks(torch.tensor([self.received or 0, taken], device=self.device)).tolist()
        self._asked, self._steps, self._next = time.monotonic(), 0, max(1, int(_EVERY / max(slowest, 1e-6)))
        return int(signal) or None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the signals back.

        Raises:
            SystemExit: Where a signal came and training failed at the same time: whoever goes on with something else
                where training fails is to stop.
        """
        self._handled.close()
        if self.received is not None and isinstance(error, UserError):
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(128 + self.received) from error


def leave(number: int, done: int, main: bool) -> None:
    """Ends a process whose last step is saved, when all of them are there: a launcher ends all with the first.

    Args:
        number: The signal.
        done: Steps taken.
        main: Whether this is the main process.

    Raises:
        SystemExit: With the status that says whether to start again.
    """
    finish()  # trackers may have something to send
    meet()
    if main:
        sys.stderr.write(f"stopped after step {done:,}, which is saved; the same command continues\n")
    raise SystemExit(status_of(number))
