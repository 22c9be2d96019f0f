"""Notes and warnings on the screen: each once, and by the main process only."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

_SAID: set[str] = set()


def say_once(text: str) -> None:
    """Writes a line ("note: ..." or "warning: ...") to stderr, once: a source may be opened twice, with labels."""
    if os.environ.get("RANK", "0") == "0" and text not in _SAID:
        _SAID.add(text)
        write_line(text)


def write_line(text: str) -> None:
    """Writes a line to stderr, if that can be written: a full disk under a log ends no work, and changes no status.

    Args:
        text: Without its end.
    """
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def settle(stream: Any) -> None:
    """Writes what a stream still holds, or forgets it where the disk is full.

    Args:
        stream: Of text, such as stdout, or what stands in its place.

    Raises:
        BrokenPipeError: Where nobody reads it any more, which is another matter.
    """
    try:
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        _drop(stream)


def _drop(stream: Any) -> None:
    """Forgets what a stream could not write: Python would try again at its end, and end with status 120."""
    with suppress(OSError):
        number = stream.fileno()
        kept, nowhere = os.dup(number), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, number)
            stream.flush()
        finally:
            os.dup2(kept, number)
            os.close(kept)
            os.close(nowhere)


def forget() -> None:
    """Lets everything be said again: what follows is another program's run."""
    _SAID.clear()
