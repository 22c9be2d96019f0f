"""Tasks for tests of the runner; here, because its processes must find them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from ssl_vit.core.errors import UserError
from ssl_vit.training.stopping import stop_requests


def counted(place: Path, number: int) -> dict[str, Any]:
    with (place / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    print(f"task {number} speaks")
    return {"square": number**2}


def writing(place: Path, number: int) -> dict[str, Any]:
    (place / f"{number}.txt").write_text("whole")
    return counted(place, number) | {"files": [f"{number}.txt"]}


def stopping(place: Path, number: int) -> dict[str, Any]:
    counted(place, number)
    raise SystemExit(143)


def killed(place: Path) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def mistaken(place: Path) -> dict[str, Any]:
    raise UserError("the images are blue")


def _trains_until_told(place: Path, cause: Callable[[], None]) -> dict[str, Any]:
    """What training does when it is told to stop, after something that leads to it."""
    with stop_requests() as stop:
        cause()
        while stop.received is None:
            pass
        (place / "saved").write_text("whole")  # another signal ends a process that does not wait for it
        raise SystemExit(128 + stop.received)


def bereft(place: Path, number: int) -> dict[str, Any]:
    """Its own parent dies while it trains."""
    (place / "pid").write_text(str(os.getpid()))
    parent = psutil.Process().parent()
    assert parent is not None
    return _trains_until_told(place, parent.kill)


def interrupted(place: Path) -> dict[str, Any]:
    """Ctrl-C reaches all processes while this one trains."""
    return _trains_until_told(place, lambda: os.killpg(os.getpgrp(), signal.SIGINT))


def interrupted_late(place: Path) -> dict[str, Any]:
    """Ctrl-C comes while the last step is computed: training ends as always, and what follows it takes long."""
    with stop_requests() as stop:
        os.killpg(os.getpgrp(), signal.SIGINT)
        while stop.received != signal.SIGTERM:  # the main process has told all by now
            pass
        (place / "saved").write_text("whole")
    while True:
        signal.pause()
