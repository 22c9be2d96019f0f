"""Notes and warnings on the screen: each once, and by the main process only."""

from __future__ import annotations

import os
import sys

_SAID: set[str] = set()


def say_once(text: str) -> None:
    """Writes a line ("note: ..." or "warning: ...") to stderr, once: a source may be opened twice, with labels."""
    if os.environ.get("RANK", "0") == "0" and text not in _SAID:
        _SAID.add(text)
        sys.stderr.write(text + "\n")


def forget() -> None:
    """Lets everything be said again: what follows is another program's run."""
    _SAID.clear()
