"""One process at a time writes into a run directory: RUN/run.lock says which, and is nobody's once that one is dead.

Whether the owner lives is known on its own machine (its number and when it began), and elsewhere by its heartbeat: the
time of the file, which the owner renews. Both times are the disk's, because clocks of machines differ.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from ssl_vit.core import peers, signals, slurm
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import make_way, write_atomically
from ssl_vit.core.notices import say_once, write_line
from ssl_vit.core.reading import loads
from ssl_vit.runs.provenance import command

NAME = "run.lock"
ENDED = "ended.json"
"""How the last process ended that wrote into a run, where it did not come to its end: ``status`` and ``why``."""
BEAT = 20.0
"""Seconds between signs of life."""
SILENCE = 300.0
"""Seconds without one, after which the owner on another machine counts as dead."""
_AGREES = 60.0
"""Seconds for which two clocks go alike."""


@dataclass(frozen=True)
class Owner:
    """Who holds a directory."""

    pid: int
    began: float
    """When the process began, in the machine's own measure: a number may be given again."""
    machine: str
    """Host, start of its system and namespace of its processes: where ``pid`` means this process."""
    host: str
    user: str
    since: str
    """When the directory was taken, for people."""
    command: str
    job: str | None = None
    """The scheduler's job."""
    restarts: int = 0
    """How often the scheduler had started that job again."""
    token: str = field(default_factory=lambda: uuid4().hex)

    def __str__(self) -> str:
        """Who it is, for people."""
        return f"process {self.pid} of {self.user} on {self.host} (since {self.since}: {self.command})"


_held: dict[Path, Owner] = {}
"""Directories that this process holds, and what each file says."""
_told: set[Path] = set()
"""Those that ``tell_end`` was given."""
_endings: list[Callable[[], object]] = []


def hold(folder: Path, option: str = "--run.dir") -> None:
    """Takes a directory for this process, until ``holding`` or the process ends; it may be its own already.

    Args:
        folder: Exists.
        option: What named it.

    Raises:
        UserError: Where another process that lives holds it.
        OSError: Where nothing can be written.
    """
    place = folder.resolve()
    path = place / NAME
    if place in _held and (owner := _owner(path)) is not None and owner.token == _held[place].token:
        return
    with _alone(path) as file:
        owner = _read(file)
        if owner is not None and place not in _held and _is_this_process(owner):
            owner = None  # what could not be given back, as where the disk did not answer
        if owner is not None and (sign := _sign_of_life(owner, path)) is not None:
            raise UserError(
                f"{folder} is in use by {owner}{sign}; wait for it, end it, or give {option} another folder"
            )
        if owner is not None:
            say_once(f"note: {folder} is taken over from {owner}, which ended without giving it back")
        me = _this_process()
        _write(file, me)
        _held[place] = me  # before another thread may look
    _keep_alive()


def tell_end(folder: Path) -> None:
    """Has ``holding`` leave ``ENDED`` in a directory that is held, where the end comes too early.

    Args:
        folder: As for ``hold``; what it says of an earlier start is forgotten.
    """
    _told.add(folder.resolve())
    make_way(folder / ENDED)
    (folder / ENDED).unlink(missing_ok=True)


def held() -> list[Path]:
    """Directories that this process holds."""
    return list(_held)


def hold_for_results(folder: Path, option: str = "--run.dir") -> None:
    """As ``hold``, for a directory that may have to be made.

    Args:
        folder: Where results go.
        option: What named it.

    Raises:
        UserError: Where another process that lives holds it, or nothing can be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hold(folder, option)
    except OSError as error:
        raise UserError(f"{option} {folder} cannot be written: {error.strerror}") from error


@contextmanager
def holding() -> Generator[None, None, None]:
    """Gives back at its end what was taken inside, after it has called what ``at_end`` was given inside.

    Where the end comes too early, directories that ``tell_end`` was given say how.
    """
    before, endings = set(_held), len(_endings)
    ended = None
    try:
        yield
    except BaseException as error:
        ended = _ending(error) if set(_held) - before else None
        raise
    finally:
        finish(endings)
        for place in set(_held) - before:
            release(place, ended)


def _ending(error: BaseException) -> dict[str, Any] | None:
    """What ``ENDED`` says of a process that leaves with this; None where it was done."""
    status = 130 if isinstance(error, KeyboardInterrupt) else 1
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    why = f"{name}{error}" if isinstance(error, Exception) else ""
    if peers.may_be(error):  # who has died tells more than how the connection to it broke
        signals.hold()  # a launcher ends those that are left
        why = peers.lost(error) or why
    return _ended(status, why) if status else None


def leave(status: int, why: str) -> None:
    """Gives back all that this process holds, before it ends at once; directories that ``tell_end`` was given say how.

    Args:
        status: It will end with.
        why: In words.
    """
    for place in held():
        release(place, _ended(status, why))


def _ended(status: int, why: str) -> dict[str, Any]:
    return {"status": status, "why": " ".join(why.split())[:1000], "job": slurm.job()[0]}


def at_end(function: Callable[[], object]) -> None:
    """Has a function called where ``holding`` ends.

    Args:
        function: Raises nothing.
    """
    _endings.append(function)


def finish(kept: int = 0) -> None:
    """Calls what ``at_end`` was given, the last first, before the end comes.

    Args:
        kept: How many of the first are left for later.
    """
    while len(_endings) > kept:
        _endings.pop()()


def release(folder: Path, ended: dict[str, Any] | None = None) -> None:
    """Gives a directory back; nothing happens where it is not held.

    Args:
        folder: As for ``hold``.
        ended: What ``ENDED`` is to say, where ``tell_end`` was given the directory; None where there is nothing to say.
    """
    place = folder.resolve()
    told = place in _told
    _told.discard(place)
    me = _held.pop(place, None)
    path = place / NAME
    # What cannot be given back is nobody's as soon as this process has ended.
    if me is not None and path.exists():
        with suppress(OSError, UserError), _alone(path) as file:
            owner = _read(file)
            if owner is not None and owner.token == me.token:
                try:
                    if ended is not None and told:
                        write_atomically(place / ENDED, json.dumps(ended) + "\n")
                finally:  # also on a full disk
                    path.unlink()


def holder(folder: Path, *, writes: bool = False) -> tuple[Owner, bool] | None:
    """Who has taken a directory and not given it back, and whether it lives; None where nobody has.

    Args:
        folder: As for ``hold``.
        writes: Ask the disk for its time, by a file that goes at once. Without that nothing is written, and signs of
            life from other machines are as old as this machine's clock says.
    """
    path = folder / NAME
    owner = _owner(path)
    if owner is None:
        return None
    if owner.machine == _machine():
        return owner, _began(owner.pid) == owner.began
    try:
        return owner, (_time_of(folder) if writes else time.time()) - path.stat().st_mtime <= SILENCE
    except OSError:  # given back meanwhile
        return None


_apart: dict[int, tuple[float, float]] = {}
"""By disk: when it was asked, and by how much its time is more than that."""


def _time_of(folder: Path) -> float:
    """Now, as the disk of a directory has it; it is asked once a minute."""
    disk, now = folder.stat().st_dev, time.monotonic()
    asked, apart = _apart.get(disk, (-math.inf, 0.0))
    if now - asked > _AGREES:
        try:
            apart = _asked_disk(folder / NAME) - now
        except OSError:  # a full disk, or one that may not be written
            return time.time()
        _apart[disk] = now, apart
    return now + apart


def _asked_disk(path: Path) -> float:
    probe = path.with_name(f"{NAME}.{uuid4().hex}")
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now


def _this_process() -> Owner:
    job, restarts = slurm.job()
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may know no name for it
        user = f"user {os.getuid()}"
    pid = os.getpid()
    return Owner(
        pid, _began(pid) or 0.0, _machine(), socket.gethostname(), user, time.strftime("%Y-%m-%d %H:%M:%S"), command(),
        job, restarts,
    )  # fmt: skip


def _is_this_process(owner: Owner) -> bool:
    return (owner.machine, owner.pid, owner.began) == (_machine(), os.getpid(), _began(os.getpid()))


def _machine() -> str:
    about = [socket.gethostname()]
    with suppress(OSError):
        about.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        about.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(about)


def _began(pid: int) -> float | None:
    """When a process of this machine began, None where it has ended; not by the clock, which may be set."""
    try:
        if not Path("/proc/self/stat").exists():
            return psutil.Process(pid).create_time()
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.Error):
        return None
    return None if state in "ZX" else float(rest[18])


def _sign_of_life(owner: Owner, path: Path) -> str | None:
    """What shows that an owner lives, as the end of what is said of it; None where it is dead."""
    job, restarts = slurm.job()
    if owner.machine == _machine():
        return "" if _began(owner.pid) == owner.began else None
    if job is not None and owner.job == job and owner.restarts < restarts:
        return None  # this job as it was before the scheduler started it again
    silent = _asked_disk(path) - path.stat().st_mtime
    if silent > SILENCE:
        return None
    return f", whose last sign of life is {max(0.0, silent):.0f} s old (after {SILENCE:.0f} s it counts as dead)"


@contextmanager
def _alone(path: Path) -> Generator[int, None, None]:
    """The lock's file, which nobody else reads or writes meanwhile, where the disk can say so."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with suppress(BlockingIOError):
                _lock(file)
                if _is_still(file, path):  # and was not given back since it was opened
                    yield file
                    return
                continue
            raise UserError(f"{path.parent} is being taken by another process; give --run.dir another folder")
        finally:
            os.close(file)


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # not every shared disk has such locks; then the moment between reading and writing is unguarded
        return


def _is_still(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> Owner | None:
    return _parsed(os.pread(file, 1 << 16, 0))


def _write(file: int, owner: Owner) -> None:
    written = (json.dumps(asdict(owner)) + "\n").encode()
    os.pwrite(file, written, 0)
    os.ftruncate(file, len(written))
    os.fsync(file)


def _owner(path: Path) -> Owner | None:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None


def _parsed(content: bytes) -> Owner | None:
    """The owner that a file names; None where it names none, as after a crash in the moment of taking it."""
    try:
        return Owner(**loads(content.partition(b"\n")[0]))
    except (ValueError, TypeError):
        return None


def _keep_alive() -> None:
    """Starts the thread that gives signs of life, where there is none."""
    if not any(thread.name == _keep.__name__ for thread in threading.enumerate()):
        threading.Thread(target=_keep, name=_keep.__name__, daemon=True).start()


def _keep() -> None:
    while True:
        time.sleep(BEAT)
        for place in list(_held):
            beat(place)


def beat(folder: Path) -> None:
    """A sign of life in a directory that this process holds; ends the process where another has taken it.

    That happens to a process that was silent for longer than ``SILENCE``: what it would write now belongs to another
    run of the same name. A lock that a person has removed, and that nobody has taken, is written again.

    Args:
        folder: As for ``hold``.
    """
    path = folder.resolve() / NAME
    me, owner = _held.get(folder.resolve()), _owner(path)
    if me is not None and owner is None:
        _restore(path, me)
        owner = _owner(path)
    if me is not None and owner is not None and owner.token != me.token:
        write_line(f"error: {folder} was taken over by {owner} while this process gave no sign of life")
        os._exit(1)
    with suppress(OSError):  # a directory that is gone, or a disk that does not answer now
        os.utime(path)


def _restore(path: Path, me: Owner) -> None:
    """Writes a lock again that is gone, unless another process is taking it: the next sign of life sees whose it is."""
    # In a directory that is gone nothing is made again.
    with suppress(OSError, UserError), _alone(path) as file:
        if path.parent not in _held:  # given back meanwhile
            path.unlink()
        elif _read(file) is None:
            _write(file, me)
            sys.stderr.write(
                f"warning: {path} was removed while this process holds {path.parent}; it is written again: without it "
                "two processes would write into one run\n"
            )


def _forget() -> None:
    """A process that was forked holds nothing."""
    _held.clear()
    _told.clear()
    _endings.clear()


os.register_at_fork(after_in_child=_forget)
