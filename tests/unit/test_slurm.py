"""What SLURM's variables say, as srun, sbatch and salloc set them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core import slurm
from ssl_vit.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
STEP = {
    "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_NTASKS": "5", "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "gpu[07-08,11]", "SLURM_JOB_NODELIST": "gpu[01,07-08,11]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
}  # fmt: skip
"""Of the fourth of five tasks, on the second of three nodes."""


def without(*names: str, **changes: str) -> dict[str, str]:
    return {name: value for name, value in (STEP | changes).items() if name not in names}


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu1", "gpu1"), ("gpu[01-04]", "gpu01"), ("gpu[3,5-7],cpu1", "gpu3"), ("a,b[1-2]", "a"),
        ("rack[2-3]n[08,09]-ib,x", "rack2n08-ib"), ("127.0.0.[1,2]", "127.0.0.1"), ("n-1,n-2", "n-1"),
        ("node-[1-2].example.org", "node-1.example.org"),
    ],
)  # fmt: skip
def test_the_first_of_a_list_of_nodes(nodes: str, first: str) -> None:
    assert slurm.first_host(nodes) == first


def test_a_task_of_srun_knows_its_place() -> None:
    found = slurm.task(STEP)
    assert found is not None
    assert found[:5] == (3, 5, 1, 2, "gpu07")
    last = slurm.task(STEP | {"SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"})
    assert last is not None
    assert last[:5] == (4, 5, 0, 1, "gpu07")
    assert last.port == found.port


def test_jobs_and_their_steps_meet_at_different_ports() -> None:
    def port(**changes: str) -> int:
        found = slurm.task(STEP | changes)
        assert found is not None
        return found.port

    ports = {port(SLURM_JOB_ID=str(1000 + job), SLURM_STEP_ID=str(step)) for job in range(20) for step in range(3)}
    assert len(ports) == 60
    assert all(number in slurm.PORTS for number in ports)
    assert port(MASTER_PORT="29500") == 29500


def test_few_variables_are_enough() -> None:
    found = slurm.task(
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_NODELIST": "n[1-2]",
         "SLURM_JOB_NUM_NODES": "2"}
    )  # fmt: skip
    assert found is not None
    assert found[:5] == (1, 4, 1, 2, "n1")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "n1"},  # in a shell of salloc
        STEP | {"SLURM_STEP_NUM_TASKS": "1"},  # one task of a larger job
        STEP | {"WORLD_SIZE": "5", "RANK": "0"},  # torchrun has joined it
    ],
)
def test_who_is_alone_or_joined_is_left_as_it_is(variables: dict[str, str]) -> None:
    assert slurm.task(variables) is None


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        (without("SLURM_PROCID", SLURM_PROCID="x"), None),
        (without("SLURM_LOCALID"), "SLURM_LOCALID"),
        (STEP | {"SLURM_PROCID": ""}, "SLURM_PROCID"),
        (without("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST"),
    ],
)
def test_tasks_that_cannot_find_each_other_are_refused(variables: dict[str, str], named: str | None) -> None:
    if named is None:
        assert slurm.task(variables) is None
        return
    with pytest.raises(UserError, match=f"srun has started 5 tasks, and without {named} they cannot"):
        slurm.task(variables)


def test_a_batch_script_with_several_tasks_and_no_srun_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "slurm_script"  # as SLURM calls its copy
    script.write_text(f"{sys.executable} -m ssl_vit $COMMAND\n")
    variables = {
        "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]",
        "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "ACCELERATE_USE_CPU": "1",
    }  # fmt: skip

    def run(command: str) -> subprocess.CompletedProcess[str]:
        environment = {**variables, "COMMAND": command}
        return subprocess.run(["/bin/sh", str(script)], env=environment, capture_output=True, text=True, timeout=60)

    done = run("mae")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: the job has 4 tasks (SLURM_NTASKS), and this process, started without srun")
    assert "error: --fit.batch_size 0" in run("mae --processes 2 --fit.batch_size 0").stderr  # goes its usual way


@pytest.mark.parametrize(
    ("words", "why"), [("figures", "ssl-vit figures works in one"), ("mae --processes 2", "--processes asks for more")]
)
def test_commands_of_one_process_are_not_started_several_times(words: str, why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ssl_vit", *words.split()], env={**STEP, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"srun has started 5 processes, and {why}" in done.stderr
