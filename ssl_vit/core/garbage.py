"""Python's collector of reference cycles, which takes a tenth of the time in which a script's modules are imported."""

from __future__ import annotations

import atexit
import gc

_USUAL = gc.get_threshold()
_SELDOM = 50_000


def seldom() -> None:
    """Looks for cycles after 50,000 new objects instead of 700: importing makes hundreds of thousands that stay."""
    gc.set_threshold(_SELDOM, *_USUAL[1:])


def as_usual() -> None:
    """Leaves what is there now out of every later search, and searches as Python does: a cycle may hold images."""
    if gc.get_threshold()[0] == _SELDOM:
        gc.freeze()
        atexit.register(gc.unfreeze)  # or libraries say at the end that they were not cleaned up
        gc.set_threshold(*_USUAL)
