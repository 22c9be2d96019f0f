"""Sweeps of real runs: killed between children, inside one, by a signal, they end as undisturbed ones do."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

TRAIN = ["--fit.epochs", "0.7", "--fit.log_every", "1", "--fit.checkpoint_steps", "2"]
GRID = ["--over", "optim.base_lr=1e-3,2e-3", "--out", "sweep"]

SWEEP = """
import os, signal, sys
import ssl_vit.sweep.commands as commands
from ssl_vit.sweep.course import Course

if __name__ != "__main__":  # in the process that runs commands
    commands.PROGRAM = (sys.executable, "child.py", os.environ["POINT"])
else:
    os.environ["POINT"], *words = sys.argv[1:]
    finish = Course.finished

    def finished(self, child):
        finish(self, child)
        if os.environ["POINT"] == "between":
            os.kill(os.getpid(), signal.SIGKILL)

    Course.finished = finished
    sys.argv = ["sweep.py", *words]
    from ssl_vit.core.started import module_of
    module_of("recipes/sweep.py").command()
"""

CHILD = """
import os, signal, sys, time
import psutil
from ssl_vit.objectives.mae import MAE

point, words = sys.argv[1], sys.argv[2:]

def after_step(self, clock):
    if clock.step == 5 and point in ("inside", "signal", "time is over"):
        kind = {"inside": signal.SIGKILL, "signal": signal.SIGTERM, "time is over": signal.SIGUSR2}[point]
        psutil.Process().parent().parent().send_signal(kind)
        if point == "inside":
            os.kill(os.getpid(), signal.SIGKILL)
        while signal.getsignal(signal.SIGTERM).__self__.received is None:  # the sweep, or the job, passes it on
            time.sleep(0.01)

MAE.after_step = after_step
with open("started", "a") as file:
    file.write(f"{words[0]} {[word for word in words if word.startswith(('--run.dir', '--backbone'))][0]}\\n")
from ssl_vit.console import main
main(words)
"""

FIRST = """
import os, sys
import ssl_vit.sweep.commands as commands

def run(words, log):
    commands.PROGRAM = (sys.executable, os.path.abspath("child.py"), "time is over")
    return commands.run_command(words, log)
"""
SUBMITTED = """
import os, pickle, sys
from functools import partial
sys.path.insert(0, os.getcwd())
import first
import submitit
from ssl_vit.engines.elsewhere import Submission
from ssl_vit.engines.local import Local

class FirstJob(Submission):
    def __call__(self):
        self._job = Local().run(partial(first.run, *pickle.loads(self.content).args))
        return self._job.wait()

submit = submitit.AutoExecutor.submit
submitit.AutoExecutor.submit = lambda self, job: submit(self, FirstJob(job.content))
sys.argv = ["sweep.py", *sys.argv[1:]]
from ssl_vit.core.started import module_of
module_of("recipes/sweep.py").command()
"""
"""A sweep whose first jobs are told at step 5 that their time is over; jobs that go on are the project's own."""


def scripts(folder: Path) -> Path:
    (folder / "child.py").write_text(CHILD)
    (folder / "sweep.py").write_text(SWEEP)
    return folder / "sweep.py"


def started(folder: Path) -> list[str]:
    return [line.partition("runs/")[2] for line in (folder / "started").read_text().splitlines()]


def metrics(folder: Path) -> dict[str, str]:
    return {path.name: (path / "metrics.jsonl").read_text() for path in (folder / "sweep" / "runs").iterdir()}


@pytest.fixture(scope="module")
def whole(launched, tmp_path_factory: pytest.TempPathFactory, small: list[str]) -> dict[str, str]:
    """The metrics of the same runs, each typed alone."""
    folder, found = tmp_path_factory.mktemp("whole"), {}
    for rate in ("0.001", "0.002"):
        name = f"optim.base_lr={rate}-seed-0"
        done = launched("recipes/mae.py", *small, *TRAIN, "--optim.base_lr", rate, "--run.dir", name, cwd=folder)
        assert done.returncode == 0, done.stderr
        found[name] = (folder / name / "metrics.jsonl").read_text()
    return found


@pytest.mark.parametrize(
    ("point", "status", "runs"), [("between", -9, [1, 1]), ("inside", -9, [2, 1]), ("signal", 75, [2, 1])]
)
def test_a_sweep_that_was_ended_goes_on_and_repeats_nothing(
    point: str, status: int, runs: list[int], whole: dict[str, str], launched, tmp_path: Path, small: list[str]
) -> None:
    script = scripts(tmp_path)
    words = ["mae", *small, *TRAIN, *GRID]
    stopped = launched(script, point, *words, cwd=tmp_path)
    assert stopped.returncode == status, stopped.stderr
    assert len(started(tmp_path)) == 1
    again = launched(script, "never", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [started(tmp_path).count(name) for name in whole] == runs
    assert metrics(tmp_path) == whole
    log = (tmp_path / "sweep" / "logs" / f"{next(iter(whole))}.log").read_text()
    assert ("continues after step" in log) == (point != "between")
    if point == "signal":  # and one that is done begins nothing
        third = launched(script, "never", *words, cwd=tmp_path)
        assert third.returncode == 0, third.stderr
        assert len(started(tmp_path)) == sum(runs)


def test_jobs_of_a_scheduler_whose_time_is_over_go_on(
    whole: dict[str, str], launched, tmp_path: Path, small: list[str]
) -> None:
    scripts(tmp_path)
    (tmp_path / "first.py").write_text(FIRST)
    (tmp_path / "submitted.py").write_text(SUBMITTED)
    words = [
        "mae",
        *small,
        *TRAIN,
        *GRID,
        "--executor",
        "submitit",
        "--job",
        "cluster=local",
        "--job",
        "timeout_min=60",
    ]
    done = launched(tmp_path / "submitted.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(started(tmp_path)) == sorted(whole)
    assert metrics(tmp_path) == whole
    for name in whole:
        assert "continues after step" in (tmp_path / "sweep" / "logs" / f"{name}.log").read_text()
    jobs = {path.name for path in (tmp_path / "sweep" / "jobs").iterdir()}
    again = launched(tmp_path / "submitted.py", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path.name for path in (tmp_path / "sweep" / "jobs").iterdir()} == jobs


def test_runs_are_judged_where_they_may_be_chosen_and_failures_are_listed(
    launched, tmp_path: Path, small: list[str]
) -> None:
    script = scripts(tmp_path)
    # So high a rate that training diverges.
    grid = ["--over", "optim.base_lr=1e-3,1e30", "--out", "sweep", "--judge", "knn", "--at_once", "2"]
    done = launched(script, "never", "mae", *small, *TRAIN, *grid, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: 1 of 2 runs failed (optim.base_lr=1e+30, seed 0)")
    assert "the loss stopped being a finite number" in done.stdout
    good = tmp_path / "sweep" / "runs" / "optim.base_lr=0.001-seed-0"
    assert [path.name for path in (good / "results").glob("*.json")] == ["knn-held-out.json"]
    result = json.loads((good / "results" / "knn-held-out.json").read_text())
    assert result["protocol"]["test"]["split"] == "a fifth of the 1,438 given labels"
    assert result["labels_used"] + result["protocol"]["test"]["images"] == 1438
    with (tmp_path / "sweep" / "table.csv").open(newline="") as file:
        rows = {row["setting"]: row for row in csv.DictReader(file)}
    assert rows["optim.base_lr=0.001"]["judged_on"] == "held out"
    assert rows["optim.base_lr=1e+30"]["runs"] == "0"
    assert "failed: optim.base\\_lr=1e+30, seed 0: " in (tmp_path / "sweep" / "table.md").read_text()
    listed = launched("eval/runs.py", "sweep", cwd=tmp_path)
    assert "crashed after step" in listed.stdout
    assert " held out " in listed.stdout
    assert sys.executable not in listed.stdout
