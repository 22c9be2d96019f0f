"""Tasks of srun without a launcher: two and four local processes, with SLURM's variables, stand for nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core import slurm

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["--fit.precision", "fp64", "--fit.epochs", "0.3", "--fit.log_every", "1", "--run.dir"]

SIGNALLED = """
import os, runpy, signal, sys
from ssl_vit.objectives.mae import MAE
from ssl_vit.training import stopping

stopping._EVERY = 0.0  # a test's run is over within a second

def after_step(self, clock):
    if clock.step == 3 and os.environ["SLURM_PROCID"] in {ranks!r}:
        os.kill(os.getpid(), signal.{name})

MAE.after_step = after_step
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def tasks(nodes: int, each: int, job: int) -> list[dict[str, str]]:
    """What srun sets in every task of a job step on nodes of this machine's loopback."""
    # What runs at the same time meets elsewhere: the worker of the tests is part of the job's number.
    number = 50 * job + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    common = {
        "SLURM_JOB_ID": str(number), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(nodes * each),
        "SLURM_STEP_NUM_TASKS": str(nodes * each), "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})",
        "SLURM_JOB_NODELIST": f"127.0.0.[1-{nodes}]" if nodes > 1 else "127.0.0.1",
    }  # fmt: skip
    return [
        common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % each), "SLURM_NODEID": str(rank // each)}
        for rank in range(nodes * each)
    ]


@pytest.fixture(scope="module")
def alone(warm, tmp_path_factory: pytest.TempPathFactory, small: list[str]) -> list[float]:
    folder = tmp_path_factory.mktemp("alone")
    done = warm(ROOT / "recipes/mae.py", *small, *TRAIN, "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return losses_of(folder / "run")


def losses_of(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("nodes", "each"), [(2, 1), (2, 2)])
def test_tasks_of_one_srun_are_one_run(
    nodes: int, each: int, alone: list[float], warm, tmp_path: Path, small: list[str]
) -> None:
    done = warm(
        ROOT / "recipes/mae.py", *small, *TRAIN, "run", cwd=tmp_path, each=tasks(nodes, each, 10 * nodes + each)
    )
    assert done.returncode == 0, done.stderr
    found = losses_of(tmp_path / "run")
    assert max(abs(a - b) for a, b in zip(alone, found, strict=True)) <= 1e-9
    assert done.stdout.count("effective batch") == 1
    about = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert about["hardware"]["processes"] == nodes * each


def test_an_evaluation_and_a_mistake_of_several_tasks(warm, backbone: str, tmp_path: Path) -> None:
    done = warm(ROOT / "eval/knn.py", "--backbone", backbone, cwd=tmp_path, each=tasks(2, 1, 7))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Result: ") == 1
    done = warm(ROOT / "recipes/mae.py", "--data.path", "nowhere", cwd=tmp_path, each=tasks(2, 1, 8))
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "ranks"), [("SIGUSR1", ["1"]), ("SIGTERM", ["1"]), ("SIGHUP", ["0"]), ("SIGUSR1", ["0", "1"])]
)
def test_a_signal_on_any_task_saves_and_ends_all(
    name: str, ranks: list[str], alone: list[float], warm, tmp_path: Path, small: list[str]
) -> None:
    words = [str(ROOT / "recipes/mae.py"), *small, *TRAIN, "run"]
    (tmp_path / "signalled.py").write_text(SIGNALLED.format(ranks=ranks, name=name, words=words))
    done = warm(tmp_path / "signalled.py", cwd=tmp_path, each=tasks(2, 1, 9))
    assert done.returncode == 75, done.stderr
    assert done.stderr.count("which is saved; the same command continues") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "run.lock").exists()
    again = warm(words[0], *words[1:], cwd=tmp_path, each=tasks(2, 1, 9))
    assert again.returncode == 0, again.stderr
    assert "continues after step" in again.stdout
    assert max(abs(a - b) for a, b in zip(alone, losses_of(tmp_path / "run"), strict=True)) <= 1e-9


@pytest.mark.parametrize(
    ("variable", "told"),
    [("ACCELERATE_USE_FSDP", "FSDP of version 1"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed, which splits the network")],
)
def test_engines_that_split_the_network_are_refused(variable: str, told: str, warm, tmp_path: Path) -> None:
    done = warm(ROOT / "recipes/mae.py", cwd=tmp_path, **{variable: "true"})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"error: accelerate config chooses {told}")
    assert list(tmp_path.iterdir()) == []


FROM_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.mark.parametrize(
    ("number", "status", "typed"),
    [(signal.SIGUSR1, 75, False), (signal.SIGTERM, 75, False), (signal.SIGINT, 130, True)],
)  # fmt: skip
def test_a_signal_for_the_command_goes_to_its_processes(
    number: signal.Signals, status: int, typed: bool, tmp_path: Path, small: list[str]
) -> None:
    """As where SLURM knows one task, which has started a process per GPU; or a person types Ctrl-C in a terminal."""
    words = ["mae", "--processes", "2", *small, "--fit.epochs", "1000", "--fit.log_every", "1", "--run.dir", "run"]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    begin = [sys.executable, "-c", FROM_TERMINAL] if typed else []
    keys, terminal = os.openpty()
    with subprocess.Popen(
        [*begin, sys.executable, "-m", "ssl_vit", *words], cwd=tmp_path, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stdin=terminal, start_new_session=True, text=True,
        env=environment | {"ACCELERATE_USE_CPU": "1", "PYTHONPATH": str(ROOT)},
    ) as command:  # fmt: skip
        assert command.stderr
        said = []
        for line in command.stderr:
            said.append(line)
            if line.startswith("step "):
                if typed:
                    os.write(keys, b"\x03")
                else:
                    command.send_signal(number)
                break
        said += command.stderr.readlines()
    os.close(keys)
    os.close(terminal)
    assert command.returncode == status, "".join(said)
    assert sum("which is saved; the same command continues" in line for line in said) == 1
    assert not any("Traceback" in line for line in said)
    assert list((tmp_path / "run" / "checkpoints").glob("*.sha256"))


def test_a_port_that_is_taken_is_one_line(warm, tmp_path: Path) -> None:
    each = tasks(2, 1, 11)
    found = slurm.task(each[0])
    assert found is not None
    with socket.create_server(("", found.port), reuse_port=False):
        done = warm(ROOT / "recipes/mae.py", cwd=tmp_path, each=each)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 1
    assert told[0].startswith(f"error: the 2 tasks of srun did not meet at 127.0.0.1:{found.port} (")
    assert "set MASTER_ADDR and MASTER_PORT" in told[0]
    assert "Traceback" not in done.stderr
