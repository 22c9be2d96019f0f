"""What libtiff says of a file goes to the screen by itself, without the file's name; here it gets one."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager

from ssl_vit.data.decoding import current
from ssl_vit.data.decoding.formats import Unreadable

_REMARK = re.compile(r"(?!(?:warning|note|error): )[\w.]+: ")
"""How lines of libtiff begin; what other threads write meanwhile does not."""
_told: set[str] = set()
_alone = [threading.Lock()]
"""The process has one stderr: two threads that take it away at a time would put each other's file back."""
os.register_at_fork(after_in_child=lambda: _alone.__setitem__(0, threading.Lock()))  # nobody there would give it back


@contextmanager
def told_of(*, is_tiff: bool) -> Generator[None, None, None]:
    """Has what a library writes to stderr meanwhile come with the name of the image: as its reason, or as a warning.

    Args:
        is_tiff: Whether anything will be written; nothing happens where not.

    Raises:
        Unreadable: As raised inside, with the first remark.
    """
    if not is_tiff:
        yield
        return
    said: list[str] = []
    try:
        with _alone[0], _caught(said):
            yield
    except Unreadable as error:
        if said and said[0] not in str(error):
            raise Unreadable(f"{error}; {said[0]}") from error
        raise
    for remark in said:
        line = f"warning: {current.name() or 'an image'}: {remark}\n"
        if line not in _told:
            _told.add(line)
            sys.stderr.write(line)


@contextmanager
def _caught(said: list[str]) -> Generator[None, None, None]:
    """Collects lines of libtiff that go to the process's own stderr; others go on to where they were to go."""
    try:
        before = os.dup(2)
    except OSError:  # it has none
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            for line in lines:
                text = " ".join(line.decode(errors="replace").split())
                if _REMARK.match(text):
                    said.append(text)
                else:
                    os.write(2, line)
            os.close(before)
