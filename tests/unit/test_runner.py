"""Tasks: done once, whatever interrupts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import REQUEUE
from ssl_vit.engines.driver import AGAIN
from ssl_vit.verdict.runner import Runner, Task, _work

from made_tasks import counted, killed, mistaken, stopping, told, writing, wrong


def calls(place: Path) -> list[str]:
    return sorted((place / "calls").read_text().split())


def tasks(place: Path, numbers: range) -> list[Task]:
    return [Task(f"count-{n}", counted, (place, n), 1.0) for n in numbers]


def run_alone(program: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A program in a session of its own, so that what it sends to its group ends nothing else."""
    script = place / "program.py"
    script.write_text(program)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("jobs", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_a_task_is_done_once(tmp_path: Path, jobs: int) -> None:
    runner = Runner(tmp_path, jobs, True)
    assert runner.run(tasks(tmp_path, range(2)))["count-1"] == {"square": 1}
    found = runner.run(tasks(tmp_path, range(4)))
    runner.close()
    assert [found[f"count-{n}"]["square"] for n in range(4)] == [0, 1, 4, 9]
    assert calls(tmp_path) == ["0", "1", "2", "3"]
    assert (tmp_path / "logs" / "count-3.log").read_text() == "task 3 speaks\n"


def test_what_was_interrupted_continues(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0, True)
    with pytest.raises(SystemExit) as left:
        runner.run(
            [*tasks(tmp_path, range(2)), Task("count-2", stopping, (tmp_path, 2), 1.0), *tasks(tmp_path, range(3, 4))]
        )
    assert left.value.code == 143
    before = calls(tmp_path)
    assert "3" not in before  # it waited already
    again = Runner(tmp_path, 0, True)
    assert again.sessions == 2
    assert again.elapsed() >= runner.before[0]
    found = again.run(tasks(tmp_path, range(4)))
    again.close()
    assert found["count-2"] == {"square": 4}
    now = calls(tmp_path)
    for number in "01":  # what was finished before is not repeated
        assert now.count(number) == before.count(number) == 1
    assert now.count("2") == 2


@pytest.mark.processes
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, REQUEUE), (signal.SIGINT, 130)])
def test_a_signal_lets_what_trains_save_and_the_same_command_goes_on(number: int, status: int, tmp_path: Path) -> None:
    first = [*tasks(tmp_path, range(1, 3)), Task("told", told, (tmp_path, os.getpid(), number), 1.0)]
    runner = Runner(tmp_path, 1, True)
    with pytest.raises(SystemExit) as left:
        runner.run([*first, *tasks(tmp_path, range(3, 4))])
    runner.close()
    assert left.value.code == status
    assert (tmp_path / "saved").read_text() == "whole"
    assert calls(tmp_path) == ["0", "1", "2"]
    again = Runner(tmp_path, 1, True)
    assert again.run([*first, *tasks(tmp_path, range(3, 4))])["told"] == {"goes on": True}
    again.close()
    assert calls(tmp_path) == ["0", "0", "1", "2", "3"]


def test_a_task_is_done_again_where_its_files_are_gone(tmp_path: Path) -> None:
    writers = [Task(f"write-{n}", writing, (tmp_path, n), 1.0) for n in range(2)]
    runner = Runner(tmp_path, 0, True)
    runner.run(writers)
    (tmp_path / "1.txt").unlink()
    runner.run(writers)
    runner.close()
    assert calls(tmp_path) == ["0", "1", "1"]
    assert (tmp_path / "1.txt").exists()


@pytest.mark.processes
def test_a_process_whose_parent_died_saves_and_begins_nothing_else(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from made_tasks import bereft, counted\n"
        "from ssl_vit.verdict.runner import Runner, Task\n"
        "if __name__ == '__main__':\n"
        f"    place = Path({str(tmp_path)!r})\n"
        "    tasks = [Task('first', bereft, (place, 0), 1.0), Task('second', counted, (place, 1), 1.0)]\n"
        "    Runner(place, 1, True).run(tasks)\n"
    )
    done = run_alone(program, tmp_path)
    assert done.returncode == -signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "pid").read_text())).wait(timeout=60)
    assert (tmp_path / "saved").read_text() == "whole"
    assert not (tmp_path / "calls").exists()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("jobs", "task"), [(1, "interrupted"), (2, "interrupted"), (1, "interrupted_late")], ids=["one", "two", "late"]
)
def test_ctrl_c_stops_all_processes_and_begins_nothing_else(jobs: int, task: str, tmp_path: Path) -> None:
    program = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        f"from made_tasks import counted, {task} as long\n"
        "from ssl_vit.verdict.runner import Runner, Task\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs the tests may ignore it
        f"    place = Path({str(tmp_path)!r})\n"
        "    waiting = [Task(f'count-{n}', counted, (place, n), 1.0) for n in range(3)]\n"
        "    try:\n"
        f"        Runner(place, {jobs}, True).run([Task('long', long, (place,), 1.0), *waiting])\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(130)\n"
    )
    done = run_alone(program, tmp_path)
    assert done.returncode == 130, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "saved").read_text() == "whole"
    assert jobs == 2 or not (tmp_path / "calls").exists()


def test_time_of_all_sessions_is_counted(tmp_path: Path) -> None:
    (tmp_path / "time.json").write_text(json.dumps({"seconds": 500.0, "sessions": 3}))
    runner = Runner(tmp_path, 0, True)
    runner.run(tasks(tmp_path, range(1)))
    told = json.loads((tmp_path / "time.json").read_text())
    assert told["seconds"] >= 500
    assert told["sessions"] == 4


def test_time_before_there_was_a_plan_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "time.json").write_text(json.dumps({"seconds": 500.0, "sessions": 3}))
    runner = Runner(tmp_path, 0, True)
    runner.start_over()
    runner.run(tasks(tmp_path, range(1)))
    told = json.loads((tmp_path / "time.json").read_text())
    assert told["seconds"] < 500 and told["sessions"] == 1


def test_a_mistake_names_the_task(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0, True)
    with pytest.raises(UserError, match="trial-7: the images are blue"):
        runner.run([Task("trial-7", mistaken, (tmp_path,), 1.0)])
    runner.close()


@pytest.mark.processes
def test_a_mistake_ends_all_and_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, function, said in (
        ("trial-7", mistaken, r"^trial-7: the images are blue \(log: .*trial-7.log\)$"),
        ("trial-8", wrong, r"^trial-8: ZeroDivisionError: division by zero \(log: .*trial-8.log\)$"),
    ):
        runner = Runner(tmp_path, 1, True)
        with pytest.raises(UserError, match=said):
            runner.run([Task(key, function, (tmp_path,), 1.0), *tasks(tmp_path, range(2))])
        runner.close()
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "calls").exists()


@pytest.mark.processes
def test_a_task_whose_process_was_killed_is_done_again_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(tmp_path, 2, True)
    found = runner.run([*tasks(tmp_path, range(2)), Task("lost", killed, (tmp_path, AGAIN), 1.0)])
    assert found["lost"] == {"tries": AGAIN + 1}
    assert calls(tmp_path) == ["0", "1"]
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in said] == [
        "lost: its process was lost (SIGKILL; where memory does not suffice, run fewer at a time); begun again "
        f"({n} of {AGAIN})" for n in range(1, AGAIN + 1)
    ]  # fmt: skip
    (tmp_path / "tries").unlink()
    with pytest.raises(UserError, match=r"^always: its process was lost \(SIGKILL; where memory"):
        runner.run([Task("always", killed, (tmp_path, AGAIN + 1), 1.0), *tasks(tmp_path, range(2))])
    runner.close()
    assert (tmp_path / "tries").read_text().count("\n") == AGAIN + 1
    assert calls(tmp_path) == ["0", "1"]


def test_what_another_process_has_finished_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, range(1))
    assert _work(tmp_path, task) == _work(tmp_path, task) == 0
    assert calls(tmp_path) == ["0"]


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0, False)
    with pytest.raises(UserError, match=r"count-0\.json is missing"):  # the main process would have written it
        runner.run(tasks(tmp_path, range(1)))
    assert not (tmp_path / "units").exists()


def test_what_is_told_of_the_time_is_what_the_next_session_says(tmp_path: Path) -> None:
    """A page that was made once must not differ by the moments between it and the end."""
    runner = Runner(tmp_path, 0, True)
    runner.run(tasks(tmp_path, range(1)))
    told = runner.taken()
    runner.close()
    again = Runner(tmp_path, 0, True)
    again.run(tasks(tmp_path, range(1)))
    assert again.taken() == told and told[0] > 0
    again.run(tasks(tmp_path, range(2)))
    assert again.taken()[0] > told[0]
