"""Engines: what each is asked before there is work, and the same units on each of them, on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.engines import elsewhere
from ssl_vit.engines.elsewhere import EXECUTORS, check_executor
from ssl_vit.engines.local import Local
from ssl_vit.engines.unit import LOST, Engine

from made_tasks import dies, says

PROGRAM = """
import os, sys
from pathlib import Path
from made_tasks import *
from ssl_vit.core.signals import REQUEUE
from ssl_vit.engines.elsewhere import elsewhere
from ssl_vit.verdict.runner import Runner, Task

place, executor, job = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]

class Speaking(Runner):
    def say(self, what):
        print(what, flush=True)
        if "waiting for" in what:
            (place / "waiting").touch()

def opened():
    for _ in range(5):  # Ray gives up where the machine is busy
        try:
            return elsewhere(executor, job, place / "jobs", 2)
        except ValueError as error:
            print(error, file=sys.stderr)

def session(*tasks):
    runner = Speaking(place, 2, True, engine=engine)
    try:
        print(sorted(runner.run([Task(*task, 1.0) for task in tasks]).items()))
    except SystemExit as end:
        print("status", end.code)
    except ValueError as error:
        print("error", str(error).partition(" (log")[0])

if __name__ == "__main__":
    os.chdir(place)
    place, here = Path("."), os.getpid()
    engine = opened()
"""


def on(place: Path, executor: str, *lines: str) -> list[str]:
    """What sessions on an engine say, in a program of their own."""
    script = place / "program.py"
    script.write_text(PROGRAM + "".join(f"    {line}\n" for line in (*lines, "engine.close()")))
    words = {"submitit": ["cluster=local", "timeout_min=60"], "ray": ["num_cpus=1"]}[executor]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(script), str(place), executor, *words], env=environment, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "(raylet)" not in line]


def calls(place: Path) -> list[str]:
    return sorted((place / "calls").read_text().split())


@pytest.mark.processes
@pytest.mark.parametrize("executor", EXECUTORS[1:])
def test_elsewhere_the_lost_are_made_again_the_finished_never_and_the_wrong_are_told(
    executor: str, tmp_path: Path
) -> None:
    said = on(
        tmp_path, executor,
        "tasks = [('count-3', counted, (place, 3)), ('lost', killed, (place, 1))]",
        "session(*tasks)",
        "session(*tasks, ('trial-7', mistaken, (place,)))",
    )  # fmt: skip
    assert [line for line in said if not line.startswith("lost: its process was lost (SIGKILL")] == [
        "[('count-3', {'square': 9}), ('lost', {'tries': 2})]", "error trial-7: the images are blue"
    ]  # fmt: skip
    assert len(said) == 3
    assert calls(tmp_path) == ["3"]
    assert (tmp_path / "tries").read_text().count("\n") == 2


@pytest.mark.processes
def test_a_task_of_ray_that_trains_saves_where_the_verdict_is_told_to_stop(tmp_path: Path) -> None:
    line = "session(('told', told, (place, here, signal.SIGTERM)))"
    said = on(tmp_path, "ray", line, line)
    assert said == ["stopped; the same command goes on", "status 75", "[('told', {'goes on': True})]"]
    assert (tmp_path / "saved").read_text() == "whole"


@pytest.mark.processes
def test_a_ray_that_was_killed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # Ray's sockets have to have short names
        monkeypatch.setenv("RAY_TMPDIR", short)
        left = Path(short) / "ray" / "ray_current_cluster"
        left.parent.mkdir()
        left.write_text("127.0.0.1:1")
        assert on(tmp_path, "ray", "session(('count-2', counted, (place, 2)))") == ["[('count-2', {'square': 4})]"]


@pytest.mark.processes
def test_what_no_node_of_ray_has_is_told(tmp_path: Path) -> None:
    lines = [
        "from ssl_vit.core.errors import UserError",
        "for asked in ('resources={special: 1}', 'accelerator_type=B12', 'num_cpus=4000', 'scheduling_strategy=no'):",
        "    try:",
        "        other = elsewhere(executor, [asked], place / 'jobs', 2)",
        "        other.start(Unit('one', os.getpid, place / 'log'))",
        "    except UserError as error:",
        "        print(error)",
    ]
    said = on(tmp_path, "ray", "from ssl_vit.engines.unit import Unit", *lines)
    assert said[0] == "no node of this Ray has all that a unit asks for (CPU 1, special 1)"
    assert said[1] == "no node of this Ray has all that a unit asks for (CPU 1, accelerator_type:B12 0.001)"
    assert said[2] == "no node of this Ray has all that a unit asks for (CPU 4000)"
    assert said[3].startswith("one cannot be given to Ray: Invalid scheduling_strategy value no")


@pytest.mark.processes
def test_a_job_of_submitit_goes_on_alone_and_is_waited_for(tmp_path: Path) -> None:
    line = "session(('left', left_behind, (place, here)))"
    said = on(tmp_path, "submitit", line, line)
    assert said[:2] == ["stopped; the same command goes on", "status 75"]
    assert said[2].startswith("left: waiting for process ")
    assert said[3].startswith("[('left', {'by': ")
    assert calls(tmp_path) == ["2"]


@pytest.mark.processes
def test_a_job_of_submitit_whose_time_is_over_saves_and_goes_on(tmp_path: Path) -> None:
    assert on(tmp_path, "submitit", "session(('long', out_of_time, (place,)))") == ["[('long', {'goes on': True})]"]
    assert calls(tmp_path) == ["1", "1"]
    assert len(list((tmp_path / "jobs").glob("*_submitted.pkl"))) == 1  # submitit put it back, and no other was made


@pytest.mark.processes
def test_a_process_of_this_machine_is_used_again_and_replaced_where_it_is_lost(tmp_path: Path) -> None:
    with contextlib.closing(Local([{"SLOT": "a"}])) as engine:
        for name, run, status in (("one", says, 3), ("two", says, 3), ("gone", dies, LOST), ("three", says, 3)):
            assert engine.run(partial(run, tmp_path / name)).wait() == status
        first, second, third = ((tmp_path / name).read_text().split() for name in ("one", "two", "three"))
    assert first == second
    assert first[0] != third[0]
    assert (first[1], third[1]) == ("a", "a")


def test_engines_keep_the_contract() -> None:
    assert isinstance(Local(), Engine)
    assert isinstance(elsewhere.Submitted(None, Path(), 1), Engine)
    assert all(hasattr(elsewhere.Ray, name) for name in ("pause", "start", "close"))


@pytest.mark.parametrize(
    ("executor", "job", "said"),
    [
        ("local", ["timeout_min=5"], r"^--verdict.job timeout_min=5 is for submitit and ray; give --verdict.executor"),
        ("submitit", ["cluster=local", "tasks=5"], r"^--verdict.executor submitit: .*tasks"),
        ("submitit", ["cluster=cloud"], r"^--verdict.executor submitit: .*cloud"),
        ("submitit", ["cluster=local", "timeout_min=12h"], r"^--verdict.executor submitit: .*timeout_min.*12h"),
        ("submitit", ["cluster=local", "mem_gb={"], r"^--verdict.executor submitit: --job mem_gb=\{ cannot be read"),
        ("ray", ["num_returns=2"], r"^--verdict.executor ray: --verdict.job num_returns: a unit returns its status"),
        ("ray", ["num_gpu=1"], r"^--verdict.executor ray: .*num_gpu"),
    ],
)
def test_an_engine_that_cannot_be_had_is_told_before_there_is_work(executor, job: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as told:
        check_executor(executor, job, "verdict.")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("executor", "extra"), [("submitit", "slurm"), ("ray", "ray")])
def test_a_missing_package_is_told_with_the_line_to_type(executor, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_executor("local", [])
    monkeypatch.setattr(elsewhere, "find_spec", lambda name: None if name == executor else find_spec(name))
    with pytest.raises(UserError, match=rf"^--executor {executor} needs .* pip install 'ssl_vit\[{extra}\]'$"):
        check_executor(executor, [])
