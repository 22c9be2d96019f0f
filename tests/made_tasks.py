"""Tasks for tests of the runner; here, because its processes must find them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import status_of
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


def killed(place: Path, times: int) -> dict[str, Any]:
    """Its process is killed while it works, so many times."""
    with (place / "tries").open("a") as tries:
        tries.write("once more\n")
    if (place / "tries").read_text().count("\n") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"tries": times + 1}


def mistaken(place: Path) -> dict[str, Any]:
    raise UserError("the images are blue")


def wrong(place: Path) -> dict[str, Any]:
    return {"share": 1 / (place / "nowhere").exists()}


def _trains_until_told(place: Path, cause: Callable[[], object]) -> dict[str, Any]:
    """What training does when it is told to stop, after something that leads to it."""
    with stop_requests() as stop:
        cause()
        while stop.received is None:
            pass
        (place / "saved").write_text("whole")  # another signal ends a process that does not wait for it
        raise SystemExit(status_of(stop.received))


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


def told(place: Path, driver: int, number: int) -> dict[str, Any]:
    """The first time, whoever waits for it gets a signal while it trains."""
    counted(place, 0)
    if (place / "saved").exists():
        return {"goes on": True}
    return _trains_until_told(place, lambda: os.kill(driver, number))


def out_of_time(place: Path) -> dict[str, Any]:
    """The first time, its job of submitit is told that the time is over while it trains."""
    counted(place, 1)
    if (place / "saved").exists():
        return {"goes on": True}
    return _trains_until_told(place, lambda: os.kill(os.getppid(), signal.SIGUSR2))


def left_behind(place: Path, driver: int) -> dict[str, Any]:
    """Whoever waits for it is told to stop; it goes on until the next one waits for it, too."""
    counted(place, 2)
    os.kill(driver, signal.SIGTERM)
    while not (place / "waiting").exists():
        pass
    return {"by": os.getpid()}


def says(path: Path) -> int:
    """What a process of an engine is."""
    path.write_text(f"{os.getpid()} {os.environ.get('SLOT')}")
    return 3


def dies(path: Path) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
