"""The one exception that means: the user can fix this, show the sentence and no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from ssl_vit.core.started import told


class UserError(ValueError):
    """A mistake in options, paths or data. Says what was given, what was expected and what to do."""

    def __init__(self, message: str) -> None:
        """Takes one line that names scripts as in a clone; they are then named as a person types them here."""
        super().__init__(told(message))

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of a traceback."""
        return [f"error: {self}"]


class Stopped(KeyboardInterrupt):
    """Ctrl-C, or the button of a notebook, has ended a function that saved what it had done."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of a traceback."""
        return [f"stopped: {self}"]


class Diverged(UserError):
    """Training ended because loss or weights were no finite numbers any more: other options may do better."""


class Collapsed(UserError):
    """Pre-training ended because the objective saw its own collapse."""


def reason(error: Exception) -> str:
    """What an error says, without the number that the system has for it ("[Errno 2]") and without the path."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def one_line(value: object) -> str:
    """At most a hundred letters of what was given, or of what an error says, in one line."""
    text = " ".join(str(value).split())
    return f"{text[:100]}..." if len(text) > 100 else text or "nothing"


def article(noun: str) -> str:
    """The noun behind "a" or "an"."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def did_you_mean(given: str, known: Iterable[str], n: int = 3, typed: Mapping[str, str] | None = None) -> str:
    """At most ``n`` close matches as the end of a sentence, "; did you mean a, b?"; empty where there are none.

    ``typed`` says what to type for each, where that is not its name.
    """
    close = difflib.get_close_matches(given, list(known), n=n, cutoff=0.6)
    return f"; did you mean {', '.join((typed or {}).get(word, word) for word in close)}?" if close else ""
