"""A unit of work, and what is asked of an engine: a contract so small that schedulers and libraries keep it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

LOST = -signal.SIGKILL
"""Status of a unit whose process ended without a word."""


class Unit(NamedTuple):
    """Some work that leaves whole files, and can be begun again at any time."""

    name: str
    """Fit for a file, and the same whenever this work is started."""
    run: Callable[[], int]
    """Can be pickled. Returns a status as a command does: 0 when its files are there, 75 when it was told to stop and
    has saved, another where it failed and its log says why."""
    log: Path
    """What it says."""


@runtime_checkable
class Job(Protocol):
    """A unit that was started."""

    def status(self) -> int | None:
        """What the unit returned, or less than 0 where its process was lost; None while it waits or runs."""
        ...

    def stop(self) -> None:
        """Has it save and end, where the engine would not go on with it alone; may be said again."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Runs units, so many at a time."""

    at_once: int
    pause: float
    """Seconds between looks at what runs."""

    def start(self, unit: Unit) -> Job:
        """Starts a unit, or finds it again where an earlier session has left it behind."""
        ...

    def close(self) -> None:
        """Ends processes that wait for units; those that work are told to stop, and waited for."""
        ...
