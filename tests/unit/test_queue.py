"""Jobs of SLURM that have gone without a word, asked of commands that answer as SLURM's do."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import REQUEUE
from ssl_vit.engines import queue
from ssl_vit.engines.elsewhere import Submitted, SubmittedJob, asked_of
from ssl_vit.engines.queue import Absence, Queue
from ssl_vit.engines.unit import LOST, Unit

submitit = pytest.importorskip("submitit")
Says = Callable[[str, str], None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Writes a command of SLURM's."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(queue, "EVERY", 0.0)  # every look is a question

    def say(name: str, lines: str) -> None:
        (commands / name).write_text(f"#!/bin/sh\n{lines}\n")
        (commands / name).chmod(0o755)

    say("sacct", "echo Slurm accounting storage is disabled >&2; exit 1")
    return say


def submitted(folder: Path, number: str, states: Queue) -> SubmittedJob:
    from submitit.slurm.slurm import SlurmJob

    SlurmJob.watcher.clear()
    (folder / "jobs").mkdir(exist_ok=True)
    return SubmittedJob(SlurmJob(folder / "jobs", number), folder / "log", Absence(states, number))


def test_a_job_that_is_in_no_queue_is_lost_although_nothing_is_known_of_it(tmp_path: Path, says: Says) -> None:
    job = submitted(tmp_path, "901", Queue())
    says("squeue", "echo 900; echo 901")
    assert [job.status() for _ in range(3)] == [None] * 3
    says("squeue", "echo 900")
    assert job.status() is None  # a shared disk may be late
    says("squeue", "echo 901")
    assert job.status() is None
    says("squeue", "echo 900")
    assert [job.status() for _ in range(3)] == [None, LOST, LOST]
    said = "error: job 901 is no longer in the queue and has left no result\n"
    assert (tmp_path / "log").read_text() == said


def test_an_answer_counts_once_and_no_answer_counts_as_none(
    tmp_path: Path, says: Says, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says("squeue", "echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1")
    job = submitted(tmp_path, "902", states := Queue())
    assert [job.status() for _ in range(4)] == [None] * 4
    said = capsys.readouterr()
    assert (said.out + said.err).count("note: squeue does not answer (slurm_load_jobs error: Unable to contact") == 1
    says("squeue", "true")
    monkeypatch.setattr(queue, "EVERY", 1e9)
    assert [job.status() for _ in range(4)] == [None] * 4
    assert states.look() == (5, frozenset())


def test_a_job_that_is_suspended_is_waited_for(tmp_path: Path, says: Says) -> None:
    says("squeue", "echo 903")
    says("sacct", "echo 'JobID|State|NodeList'; echo '903|SUSPENDED|node1'")
    job = submitted(tmp_path, "903", Queue())
    assert job.job.done() and job.job.state == "SUSPENDED"  # as submitit has it
    assert job.status() is None
    job.stop()
    assert job.status() == REQUEUE


class Submits:
    """Stands where submitit's executor stands."""

    cluster = "slurm"

    def __init__(self, job: object) -> None:
        self.job = job

    def submit(self, what: object) -> object:
        return self.job


class Moved:
    """As what another version wrote, which cannot be read any more."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return __import__, ("a_module_that_is_gone",)


@pytest.mark.parametrize("kind", ["lives", "another version", "damaged"])
def test_a_job_of_an_earlier_session_is_found_again(kind: str, tmp_path: Path, says: Says) -> None:
    says("squeue", "echo 904")
    before, new = (submitted(tmp_path, number, Queue()).job for number in ("904", "905"))
    content = {"lives": pickle.dumps(before), "another version": pickle.dumps(Moved()), "damaged": b"\x80"}[kind]
    (tmp_path / "one.job").write_bytes(content)
    engine = Submitted(Submits(new), tmp_path, 2, Queue())
    found = engine.start(Unit("one", os.getpid, tmp_path / "log"))
    assert found.job.job_id == ("904" if kind == "lives" else "905") and found.absence is not None
    assert pickle.loads((tmp_path / "one.job").read_bytes()).job_id == found.job.job_id


def test_what_units_ask_for_is_what_was_typed() -> None:
    typed = {
        "timeout_min=720": 720, "mem_gb=0": 0, "num_gpus=0.5": 0.5, "num_cpus=.5": 0.5, "slurm_time=1:00": "1:00",
        "slurm_account=00123": "00123", "slurm_qos=1e3": "1e3", "slurm_comment=1.50": "1.50", "name=": "",
        "slurm_exclusive=true": True, "slurm_use_srun=False": False, 'resources={"special": 1}': {"special": 1},
        "slurm_setup=module load x": ["module load x"], "slurm_setup=[module load x, ulimit -n 4096]":
        ["module load x", "ulimit -n 4096"], "slurm_srun_args=--mpi=none": ["--mpi=none"],
        "slurm_additional_parameters={reservation: mine}": {"reservation": "mine"},
    }  # fmt: skip
    for words, value in typed.items():
        (found,) = asked_of([words]).values()
        assert (type(found), found) == (type(value), value)
    with pytest.raises(UserError, match=r"--job resources=\{a: cannot be read: while parsing"):
        asked_of(["resources={a:"])
