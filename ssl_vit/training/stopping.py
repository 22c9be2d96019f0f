"""Termination signals and Ctrl-C as a wish to stop after the current step, so that nothing is lost."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from ssl_vit.core.errors import UserError


class StopRequest:
    """While it is entered, SIGTERM and Ctrl-C are noted instead of ending the process.

    Only the main process saves, so the others must not leave it alone in a collective: they ignore both signals.
    """

    def __init__(self, main: bool) -> None:
        """Nothing was received yet."""
        self.main = main
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        """Takes both signals over."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note if self.main else signal.SIG_IGN)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives both signals back.

        Raises:
            SystemExit: Where a signal came and training failed at the same time: whoever goes on with something else
                where training fails is to stop.
        """
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.received is not None and isinstance(error, UserError):
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(128 + self.received) from error
