"""Which image this process decodes, for whoever outlives it; and images that are not decoded any more.

Decoders are native code: one that fails badly ends its process without a word, and so does the system where memory runs
out. A loader process therefore writes down the name of every image before it is opened, in memory that the process
that started it can read (``data.loading.processes``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from weakref import WeakMethod

import numpy as np

from ssl_vit.data.decoding.formats import Unreadable

ROOM = 4096
"""Bytes for a name."""
_LONGEST = 1000
"""Characters of a name that are kept, its last ones: each takes four bytes at most."""

quarantined: dict[str, str] = {}
"""Why images, by name, are not decoded in this process any more."""


class _Now:
    """What this process does."""

    def __init__(self) -> None:
        self.where: Callable[[], Callable[[int], str] | None] = lambda: None
        self.image = 0
        self.slot: np.ndarray | None = None
        self.over = False


_now = _Now()


def begin(where: Callable[[int], str], image: int) -> None:
    """Says which image is opened next.

    Args:
        where: Gives a name for people.
        image: Its argument.

    Raises:
        Unreadable: Where the image is in quarantine.
        SystemExit: In a loader process that is not needed any more.
    """
    # Not to keep a set of images in memory that nobody else holds.
    _now.where = WeakMethod(where) if isinstance(where, MethodType) else lambda: where
    _now.image = image
    if _now.slot is None and not quarantined:
        return
    if _now.over:
        raise SystemExit
    found = name()
    if (reason := quarantined.get(found)) is not None:
        raise Unreadable(reason)
    if _now.slot is not None:
        raw = found.encode("utf-8", "surrogateescape") + b"\0"
        _now.slot[: len(raw)] = np.frombuffer(raw, np.uint8)


def name() -> str:
    """The image that is being decoded, or was last; empty before the first."""
    where = _now.where()
    return "" if where is None else where(_now.image)[-_LONGEST:]


def end() -> None:
    """Nothing is decoded now."""
    if _now.slot is not None:
        _now.slot[0] = 0


def watched(slot: np.ndarray, known: dict[str, str]) -> None:
    """Makes this process one that is watched.

    Args:
        slot: UInt8[ROOM]: where names go, which end with a zero.
        known: Images in quarantine.
    """
    _now.slot = slot
    quarantined.update(known)


def is_watched() -> bool:
    """Whether this is a loader process."""
    return _now.slot is not None


def leave() -> None:
    """Has a loader process end before its next image."""
    _now.over = True


def read(slot: np.ndarray) -> str:
    """The name that a process has left there; empty where it decoded nothing.

    Args:
        slot: As for ``watched``.
    """
    return slot.tobytes().partition(b"\0")[0].decode("utf-8", "surrogateescape")
