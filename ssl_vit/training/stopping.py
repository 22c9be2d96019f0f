"""Termination signals and Ctrl-C as a wish to stop after the current step, so that nothing is lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ssl_vit.core.errors import UserError


class StopRequest:
    """The signal that was received, if any."""

    received: int | None = None


@contextmanager
def stop_requests(main: bool) -> Iterator[StopRequest]:
    """While it is entered, SIGTERM and Ctrl-C are noted instead of ending the process.

    Only the main process saves, so the others must not leave it alone in a collective: they ignore both signals.
    SystemExit where a signal came and training failed at the same time: whoever goes on with something else where
    training fails is to stop.
    """
    wish, before = StopRequest(), dict[int, Any]()

    def note(number: int, frame: FrameType | None) -> None:
        wish.received = number

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note if main else signal.SIG_IGN)
    try:
        yield wish
    except UserError as error:
        if wish.received is None:
            raise
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(128 + wish.received) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
