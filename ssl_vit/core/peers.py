"""The other processes of a job: when one dies, the rest say which it was instead of how the connection broke."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from typing import NamedTuple

import psutil

_BROKEN = re.compile(
    r"connection (closed|reset|refused|was)|broken pipe|socket (closed|timeout)|remote process|peer|gloo", re.IGNORECASE
)
"""What backends say when another process is gone."""
_KINDS = ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
_PATIENCE = 5.0
"""Seconds until a process whose connections are closed counts as one that is still there."""


class Peer(NamedTuple):
    """One process of the job."""

    rank: int
    host: str
    pid: int
    began: float


_known: list[Peer] = []


def myself(rank: int) -> str:
    """What this process tells the others.

    Args:
        rank: Its number.
    """
    return json.dumps(Peer(rank, socket.gethostname(), os.getpid(), psutil.Process().create_time()))


def learn(told: list[str]) -> None:
    """Remembers who takes part.

    Args:
        told: What every process said of itself.
    """
    _known[:] = [Peer(*json.loads(one)) for one in told]


def lost(error: BaseException) -> str | None:
    """Which process of this job has died, as the beginning of a sentence; None where the error tells of no such thing.

    Args:
        error: What a sum over processes, or a wait for them, has raised.
    """
    if not may_be(error):
        return None
    me = next((peer for peer in _known if peer.pid == os.getpid() and peer.host == socket.gethostname()), None)
    here = [peer for peer in _known if me is not None and peer.host == me.host and peer is not me]
    until = time.monotonic() + _PATIENCE
    while not (dead := [peer for peer in here if not _lives(peer)]) and here and time.monotonic() < until:
        time.sleep(0.02)  # its connections are closed a moment before it is gone
    if dead:
        names = " and ".join(
            f"process {peer.rank} of {len(_known)} (number {peer.pid} on {peer.host})" for peer in dead
        )
        return f"{names} has died"
    elsewhere = sorted({peer.host for peer in _known} - ({me.host} if me else set()))
    if elsewhere:
        return f"a process on another machine ({', '.join(elsewhere)}) has died or cannot be reached"
    return None


def may_be(error: BaseException) -> bool:
    """Whether an error is such as a lost process leaves behind.

    Args:
        error: As for ``lost``.
    """
    return len(_known) > 1 and _is_of_connection(error)


def is_first() -> bool:
    """Whether this process is the first on its machine that lives: one is enough to tell."""
    host = socket.gethostname()
    living = [peer for peer in _known if peer.host == host and (peer.pid == os.getpid() or _lives(peer))]
    return not living or living[0].pid == os.getpid()


def _is_of_connection(error: BaseException) -> bool:
    if type(error).__name__ in _KINDS:
        return True
    return isinstance(error, RuntimeError | ConnectionError) and _BROKEN.search(str(error)) is not None


def _lives(peer: Peer) -> bool:
    try:
        process = psutil.Process(peer.pid)
        return process.create_time() == peer.began and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
