"""Signals outside training: a process ends with the status that asks for another start, and gives back what it held."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core import signals
from ssl_vit.script import mistakes_told

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import signal, sys
from pathlib import Path
from ssl_vit.core import signals
from ssl_vit.runs import lock
from ssl_vit.script import mistakes_told
{before}
with mistakes_told():
    lock.hold(Path("."))
    {inside}
    print("ready", flush=True)
    {waits}
print("went on", flush=True)
"""
IN_PYTHON = "sys.stdin.readline()"
IN_C = "import ctypes; ctypes.CDLL(None).pause(); ctypes.CDLL(None).pause()"
"""As a process that waits for others: no handler of Python's runs meanwhile."""


def ended(
    folder: Path, number: signal.Signals, waits: str = IN_PYTHON, before: str = "", inside: str = "", **variables: str
) -> tuple[int, str, str]:
    code = PROGRAM.format(before=before, inside=inside, waits=waits)
    environment = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK")}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)} | variables, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate("\n", timeout=60)
        return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_process_that_is_not_training_asks_for_another_start(number: signal.Signals, tmp_path: Path) -> None:
    status, out, err = ended(tmp_path, number)
    assert (status, out) == (75, "")
    assert err == f"stopped by {number.name}; the same command continues\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
@pytest.mark.parametrize("waits", ["import threading; threading.Event().wait()", IN_C])
def test_one_of_several_ends_at_once_wherever_it_waits(rank: str, lines: int, waits: str, tmp_path: Path) -> None:
    status, out, err = ended(tmp_path, signal.SIGTERM, waits, WORLD_SIZE="2", RANK=rank)
    assert (status, out, err.count("\n")) == (75, "", lines)


@pytest.mark.parametrize(("rank", "told"), [("0", 1), ("1", 0)])
def test_the_main_process_alone_tells_of_ctrl_c(rank: str, told: int, monkeypatch, capsys) -> None:
    """Also where Python's handler comes before the thread that ends the others."""
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(SystemExit) as end, mistakes_told():
        raise KeyboardInterrupt
    assert end.value.code == 130
    assert capsys.readouterr().err.count("interrupted; the same command continues") == told


@pytest.mark.parametrize("waits", ["import threading; threading.Event().wait()", IN_C])
def test_ctrl_c_ends_the_others_at_once_and_the_main_process_tells(waits: str, tmp_path: Path) -> None:
    """All of several processes get it; one that waited for the main one would end with a traceback of gloo."""
    usual = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # shells ignore it behind "&"
    assert ended(tmp_path, signal.SIGINT, waits, usual, WORLD_SIZE="2", RANK="1") == (130, "", "")
    other = tmp_path / "main"
    other.mkdir()
    told = "interrupted; the same command continues from the last checkpoint\n"
    assert ended(other, signal.SIGINT, IN_PYTHON, usual, WORLD_SIZE="2", RANK="0") == (130, "", told)
    noted = "signal.signal(signal.SIGINT, lambda *_: print('noted', flush=True))"  # where something else takes it
    for variables in ({}, {"WORLD_SIZE": "2", "RANK": "1"}):
        assert ended(other, signal.SIGINT, before=usual, inside=noted, **variables) == (0, "noted\nwent on\n", "")


@pytest.mark.parametrize(("rank", "who"), [("0", ""), ("1", "[process 1] ")])
def test_a_process_that_another_has_left_has_no_traceback(rank: str, who: str, tmp_path: Path) -> None:
    lost = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:2958"
    raises = f"raise RuntimeError('{lost}')"
    status, _, err = ended(tmp_path, signal.SIGCONT, raises, WORLD_SIZE="2", RANK=rank)
    assert (status, err) == (1, f"{who}ended, because another process has ended\n")
    assert "Traceback" in ended(tmp_path, signal.SIGCONT, raises)[2]
    other = "raise RuntimeError('a bug')"
    assert "RuntimeError: a bug" in ended(tmp_path, signal.SIGCONT, other, WORLD_SIZE="2", RANK=rank)[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_has_something_to_say_is_not_ended_before(number: signal.Signals, tmp_path: Path) -> None:
    """A launcher ends the others as soon as one is lost, while they look which it was."""
    before = """
from ssl_vit.core import peers
def lost(error):
    print("ready", flush=True)
    sys.stdin.readline()
    return "process 1 of 2 has died"
peers.lost = lost
"""
    raises = "raise RuntimeError('Connection closed by peer')"
    status, _, err = ended(tmp_path, number, before=before, inside=raises, WORLD_SIZE="2", RANK="0")
    assert status != 0 and err.startswith("error: process 1 of 2 has died, and a job ends with any of its processes")


def test_a_signal_that_python_lets_not_end_the_process_ends_training(tmp_path: Path) -> None:
    # No exception leaves a __del__.
    gone = 'type("Gone", (), {"__del__": lambda self: signal.raise_signal(signal.SIGUSR1)})'
    wish = 'StopRequest(); print(f"heard {wish.heard()}, of another time {signals.unheeded()}", flush=True)'
    before = "from ssl_vit.training.stopping import StopRequest"
    # Not before the line that says it is ready was read: what came with that would not be seen.
    waits = f"{IN_PYTHON}; thing = {gone}(); del thing; wish = {wish}"
    status, out, err = ended(tmp_path, signal.SIGCONT, waits, before)
    assert (status, out) == (0, f"heard {signal.SIGUSR1}, of another time {signal.SIGUSR1}\nwent on\n")
    assert err.startswith("stopped by SIGUSR1; the same command continues\nException ignored in")
    before = 'import atexit; atexit.register(lambda: print("at the end", signals.unheeded()))'
    assert ended(tmp_path, signal.SIGUSR1, before=before)[1] == "at the end None\n"


def test_what_is_ignored_from_the_start_stays_so(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert ended(tmp_path, signal.SIGHUP, before=before) == (0, "went on\n", "")


def test_where_something_else_takes_signals_they_are_its_own(tmp_path: Path) -> None:
    inside = "signal.signal(signal.SIGUSR1, lambda *_: print('noted', flush=True))"
    for variables in ({}, {"WORLD_SIZE": "2"}):
        assert ended(tmp_path, signal.SIGUSR1, inside=inside, **variables) == (0, "noted\nwent on\n", "")


def test_helpers_leave_signals_to_who_started_them(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        assert ended(tmp_path, number, inside="signals.ignore()") == (0, "went on\n", "")


def test_a_signal_while_it_leaves_changes_nothing(tmp_path: Path) -> None:
    late = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))"
    assert ended(tmp_path, signal.SIGUSR1, inside=late)[0] == 75
    noted = f"{late}; signal.signal(signal.SIGUSR1, lambda *_: None)"  # as training does, which then leaves by itself
    for variables in ({}, {"WORLD_SIZE": "2"}):
        found = ended(tmp_path, signal.SIGUSR1, f"{IN_PYTHON}; raise SystemExit(75)", inside=noted, **variables)
        assert found[0] == 75


FULL = """
import json, os, signal, sys
from pathlib import Path
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.runs import lock
from ssl_vit.script import mistakes_told
from ssl_vit.training.progress import TrainingProgress
from ssl_vit.training.stopping import leave

def mistaken():
    raise UserError("a mistake")

for folder, end, full in json.loads(sys.argv[1]):  # each in a process of its own, which need not import all this again
    if not (child := os.fork()):
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open("/dev/full" if name in full else f"../{name}", os.O_WRONLY | os.O_CREAT), number)
        break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    Path(folder, "../status").write_text(str(status))
else:
    sys.exit()

with mistakes_told():
    lock.hold(Path("."))
    print("a line that is still to be written")
    say_once("note: it begins")
    TrainingProgress(9, 0, 1, True).tell("forecast")
    Path("worked").touch()
    exec(end)
"""
ENDS = {
    "leave(signal.SIGTERM, 7, True)": 75, "os.kill(os.getpid(), signal.SIGUSR1)": 75, "mistaken()": 1,
    "raise KeyboardInterrupt": 130,
}  # fmt: skip
STREAMS = [("stderr",), ("stdout",), ("stdout", "stderr")]


@pytest.fixture(scope="module")
def on_full_disks(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, tuple[str, ...]], Path]:
    """Folders of processes that ended with streams to a full disk: the status, what was told, and where they worked."""
    found = {(end, full): tmp_path_factory.mktemp("full") for end in ENDS for full in STREAMS}
    for folder in found.values():
        (folder / "work").mkdir()
    left_out = ("WORLD_SIZE", "RANK", "PYTHONUNBUFFERED")  # with the last one print itself fails
    environment = {k: v for k, v in os.environ.items() if k not in left_out} | {"PYTHONPATH": str(ROOT)}
    cases = json.dumps([(str(folder / "work"), end, full) for (end, full), folder in found.items()])
    subprocess.run([sys.executable, "-c", FULL, cases], env=environment, check=True)
    return found


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("full", STREAMS, ids=" and ".join)
@pytest.mark.parametrize("end", ENDS)
def test_a_full_disk_under_a_log_ends_no_work_and_changes_no_status(
    end: str, full: tuple[str, ...], on_full_disks: dict[tuple[str, tuple[str, ...]], Path]
) -> None:
    folder = on_full_disks[end, full]
    told = "" if "stderr" in full else (folder / "stderr").read_text()
    assert int((folder / "status").read_text()) == ENDS[end], told
    assert [path.name for path in (folder / "work").iterdir()] == ["worked"]
    assert "stderr" in full or (len(told.splitlines()) == 3 and "full" not in told)


def test_a_pipe_to_another_process_that_breaks_is_no_reader_gone() -> None:
    with pytest.raises(BrokenPipeError), signals.unread():
        raise BrokenPipeError
