"""The lock of a run directory, between real processes: one holds it, and no dead one does."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.runs import lock

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, signal, sys
from pathlib import Path
from ssl_vit.core.errors import UserError
from ssl_vit.runs import lock

folder, point = Path(sys.argv[1]), sys.argv[2]

def die(*words):
    os.kill(os.getpid(), signal.SIGKILL)

if point == "created":
    lock._read = die
if point == "written":
    os.ftruncate = die
if point == "taken":
    lock._keep_alive = die
if point == "given back":
    Path.unlink = die
if point == "go":
    print("ready", flush=True)
    sys.stdin.readline()
try:
    with lock.holding():
        lock.hold(folder)
        print("held", flush=True)
        if point in ("go", "wait"):
            sys.stdin.readline()
        if point == "fork":
            child = os.fork()
            if not child:
                lock.hold(folder)
            print(os.wait()[1], flush=True)
        if point == "lost":
            (folder / lock.NAME).write_text(sys.argv[3])
            lock.beat(folder)
        if point == "stays":
            die()
    print("released", flush=True)
except UserError as error:
    print(f"refused {error}", flush=True)
"""


@contextmanager
def begun(folder: Path, point: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock, and dies at a point or waits there."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), point, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    ) as process:  # fmt: skip
        yield process
        process.kill()


def told(folder: Path, point: str = "", *words: str, **variables: str) -> tuple[int, str, str]:
    with begun(folder, point, *words, **variables) as process:
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def elsewhere(**changes: object) -> lock.Owner:
    """An owner on another machine, whose number may be anybody's here."""
    owner = replace(lock._this_process(), machine="node7 other 4026531836", host="node7")
    return replace(owner, **changes)  # pyright: ignore[reportArgumentType]


def written(folder: Path, owner: lock.Owner, silent: float = 0.0) -> None:
    """A lock with an owner, whose last sign of life is so many seconds old."""
    path = folder / lock.NAME
    path.write_text(json.dumps(asdict(owner)) + "\n")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - silent))


def test_a_second_process_is_refused_until_the_first_gives_it_back(tmp_path: Path) -> None:
    with begun(tmp_path, "wait") as first:
        assert line(first) == "held"
        status, out, _ = told(tmp_path)
        assert (status, out.count("\n")) == (0, 1)
        assert out.startswith(f"refused {tmp_path} is in use by process {first.pid} of ")
        assert out.endswith("; wait for it, end it, or give --run.dir another folder\n")
        assert first.stdin
        first.stdin.write("\n")
        first.stdin.flush()
        assert line(first) == "released"
    assert list(tmp_path.iterdir()) == []
    assert told(tmp_path) == (0, "held\nreleased\n", "")


@pytest.mark.parametrize("point", ["created", "written", "taken", "stays", "given back"])
def test_wherever_the_owner_is_killed_the_next_one_takes_over(point: str, tmp_path: Path) -> None:
    longer = elsewhere(command="a command " * 50, machine=lock._machine(), began=-1.0)
    if point == "written":  # over what a longer owner left
        written(tmp_path, longer)
    assert told(tmp_path, point)[0] == -signal.SIGKILL
    assert (tmp_path / lock.NAME).exists()
    status, out, err = told(tmp_path)
    assert (status, out) == (0, "held\nreleased\n")
    assert ("which ended without giving it back" in err) == (point != "created")
    assert list(tmp_path.iterdir()) == []


def test_of_many_that_take_over_at_once_one_does(tmp_path: Path) -> None:
    written(tmp_path, elsewhere(), 2 * lock.SILENCE)
    with begun(tmp_path, "go") as a, begun(tmp_path, "go") as b, begun(tmp_path, "go") as c, begun(tmp_path, "go") as d:
        every = (a, b, c, d)
        assert [line(process) for process in every] == ["ready"] * 4
        for process in every:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        said = [line(process) for process in every]
    assert sorted(word.split()[0] for word in said) == ["held", "refused", "refused", "refused"]


@pytest.mark.parametrize(("silent", "dead"), [(0.0, False), (lock.SILENCE - 30, False), (lock.SILENCE + 5, True)])
def test_an_owner_on_another_machine_lives_as_long_as_its_heart_beats(
    silent: float, dead: bool, tmp_path: Path
) -> None:
    written(tmp_path, elsewhere(), silent)
    status, out, err = told(tmp_path)
    assert status == 0
    assert ("held" in out) == dead
    if dead:
        assert "note: " in err
        assert "node7" in err
    else:
        assert " s old (after 300 s it counts as dead); wait for it" in out
        assert [path.name for path in tmp_path.iterdir()] == [lock.NAME]


@pytest.mark.parametrize(("silent", "lives"), [(0.0, True), (lock.SILENCE - 30, True), (lock.SILENCE + 5, False)])
@pytest.mark.parametrize("apart", [-1000.0, 0.0, 1000.0])
def test_whether_it_lives_is_told_by_the_clock_of_the_disk(
    silent: float, lives: bool, apart: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, owner := elsewhere(), silent)
    now = time.time()
    monkeypatch.setattr(lock, "_apart", {})
    monkeypatch.setattr(lock.time, "time", lambda: now + apart)  # this machine's clock
    for _ in range(2):  # asked, and remembered
        assert lock.holder(tmp_path, writes=True) == (owner, lives)
        assert [path.name for path in tmp_path.iterdir()] == [lock.NAME]
    monkeypatch.setattr(lock, "_asked_disk", lambda path: pytest.fail("it is asked again"))
    lock.holder(tmp_path, writes=True)
    lock._apart.clear()
    monkeypatch.setattr(lock, "_asked_disk", lambda path: full(path, ""))
    if not apart:  # all that is left
        assert lock.holder(tmp_path, writes=True) == (owner, lives)


def test_a_number_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    written(tmp_path, replace(lock._this_process(), began=12.0))
    assert told(tmp_path)[1].startswith("held")
    written(tmp_path, lock._this_process(), 2 * lock.SILENCE)  # this one lives, however long it was silent
    assert told(tmp_path)[1].startswith("refused")


def test_a_process_that_nobody_has_waited_for_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = replace(lock._this_process(), pid=child.pid, began=lock._began(child.pid) or 0.0)
        written(tmp_path, owner)
        assert told(tmp_path)[1].startswith("refused")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the table of processes
        assert told(tmp_path)[1].startswith("held")


@pytest.mark.parametrize(
    ("job", "restarts", "dead"), [("12", "1", True), ("12", "0", False), ("13", "1", False), (None, "1", False)]
)
def test_a_job_that_was_started_again_takes_over_from_itself(
    job: str | None, restarts: str, dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    written(tmp_path, elsewhere(job="12", restarts=0))
    variables = {"SLURM_JOB_ID": job} if job else {}
    assert ("held" in told(tmp_path, SLURM_RESTART_COUNT=restarts, **variables)[1]) == dead


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[1]", b"{}", b'{"pid": 1}', b"null"])
def test_a_lock_that_names_nobody_is_free(content: bytes, tmp_path: Path) -> None:
    (tmp_path / lock.NAME).write_bytes(content)
    assert told(tmp_path)[1] == "held\nreleased\n"


def test_who_was_taken_for_dead_ends_instead_of_writing_on(tmp_path: Path) -> None:
    other = json.dumps(asdict(elsewhere()))
    status, out, err = told(tmp_path, "lost", other)
    assert (status, out) == (1, "held\n")
    assert err.startswith(f"error: {tmp_path} was taken over by process")
    assert (tmp_path / lock.NAME).read_text() == other


def test_a_forked_process_holds_nothing_and_gives_nothing_back(tmp_path: Path) -> None:
    status, out, _ = told(tmp_path, "fork")
    assert status == 0
    assert out.count("refused") == 1
    assert out.count("released") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_process_may_take_twice_what_is_its_own(tmp_path: Path) -> None:
    with lock.holding():
        lock.hold(tmp_path)
        with lock.holding():
            lock.hold(tmp_path)
        assert (tmp_path / lock.NAME).exists()  # what was taken outside stays
        (tmp_path / lock.NAME).unlink()
        lock.hold(tmp_path)  # the folder was made again
        assert (tmp_path / lock.NAME).exists()
    assert list(tmp_path.iterdir()) == []


def full(path: Path, text: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_does_not_keep_a_folder_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "write_atomically", full)
    with pytest.raises(UserError, match="it ends"), lock.holding():
        lock.hold(tmp_path)
        lock.tell_end(tmp_path)
        raise UserError("it ends")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("held", [True, False])
def test_what_this_process_could_not_give_back_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: bool
) -> None:
    with monkeypatch.context() as patch, lock.holding():
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: full(path, ""))
        lock.hold(tmp_path)
    assert (tmp_path / lock.NAME).exists()
    with lock.holding():
        lock.hold(tmp_path)
        if held:  # by this process, in another's name: that is a mistake, and refused
            written(tmp_path, lock._this_process())
            with pytest.raises(UserError, match="is in use by process"):
                lock.hold(tmp_path)
        assert told(tmp_path)[1].startswith("refused")
    assert "taken over" not in capsys.readouterr().err
    assert (tmp_path / lock.NAME).exists() == held


def test_signs_of_life_renew_the_file(tmp_path: Path) -> None:
    with lock.holding():
        lock.hold(tmp_path)
        path = tmp_path / lock.NAME
        os.utime(path, (0, 0))
        lock.beat(tmp_path)
        assert path.stat().st_mtime > lock.SILENCE


def test_a_lock_that_was_removed_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock.holding():
        lock.hold(tmp_path)
        path = tmp_path / lock.NAME
        before = path.read_text()
        path.unlink()
        lock.beat(tmp_path)
        assert path.read_text() == before
        assert f"warning: {path} was removed while this process holds {tmp_path}" in capsys.readouterr().err
        assert told(tmp_path)[1].startswith("refused")
        path.write_bytes(b"\x00")  # names nobody
        lock.beat(tmp_path)
        assert path.read_text() == before
        lock.beat(tmp_path)
        assert capsys.readouterr().err.count("was removed") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_not_made_again_for_a_lock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with lock.holding():
        lock.hold(folder)
        (folder / lock.NAME).unlink()
        folder.rmdir()
        lock.beat(folder)
        assert not folder.exists()


def test_a_lock_that_another_process_is_taking_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock.holding():
        lock.hold(tmp_path)
        path = tmp_path / lock.NAME
        path.write_bytes(b"")
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # it has made the file, and has not written yet
            lock.beat(tmp_path)
            assert path.read_bytes() == b""
        assert not capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        lock.hold_for_results(tmp_path / "file" / "run")
