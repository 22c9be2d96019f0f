"""Work that may never end, and is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from ssl_vit.core.errors import UserError


@contextmanager
def within(seconds: float, message: str) -> Generator[None, None, None]:
    """Ends what takes more of the processor, whatever else the machine does meanwhile.

    Only the main thread can be interrupted; in others nothing is bounded.

    Args:
        seconds: Of this process's own time.
        message: What to say then.

    Raises:
        UserError: With the message.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise UserError(message)

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
