"""The batch script that ``ssl-vit slurm`` prints: a shell can read it, and it starts itself again on status 75 only."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.sbatch import Batch, script
from ssl_vit.core.started import main_of, module_of
from ssl_vit.script import check_words

WORDS = ["ssl-vit", "mae", "--data.path", "my images/$HOME", "--run.dir", "it's"]


def options(text: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH ")]
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def test_what_is_asked_for() -> None:
    asked = options(script(Batch(nodes=4, gpus=8, cpus=12, time="3:00:00", partition="p", account="a"), WORDS))
    assert asked["nodes"] == "4"
    assert asked["ntasks-per-node"] == asked["gpus-per-node"] == "8"
    assert (asked["time"], asked["partition"], asked["account"]) == ("3:00:00", "p", "a")
    assert asked["signal"] == "USR1@180"  # to the tasks, not to the script (which would be "B:USR1")
    assert "requeue" in asked
    on_cpu = options(script(Batch(gpus=0), WORDS))
    assert on_cpu["ntasks-per-node"] == "1"
    assert not {"gpus-per-node", "partition", "account"} & set(on_cpu)


@pytest.mark.parametrize(("status", "again"), [(75, True), (0, False), (1, False), (143, False)])
@pytest.mark.parametrize("requeue", [True, False])
def test_a_shell_runs_the_command_and_asks_for_another_start_on_75(
    status: int, again: bool, requeue: bool, tmp_path: Path
) -> None:
    for name, text in {"srun": f'printf "%s\\n" "$@"; exit {status}', "scontrol": 'echo "scontrol $@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text(script(Batch(requeue=requeue), WORDS))
    done = subprocess.run(
        ["bash", "job"], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "12"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (status, "")
    said = done.stdout.splitlines()
    assert said[2 : 2 + len(WORDS)] == WORDS
    assert ("scontrol requeue 12" in said) == (again and requeue)


@pytest.mark.parametrize(("name", "value"), [("nodes", 0), ("gpus", -1), ("cpus", 0), ("grace", 0)])
def test_numbers_that_make_no_job(name: str, value: int) -> None:
    with pytest.raises(UserError, match=f"--{name} {value} must be at least"):
        Batch(**{name: value})


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["maee"], "there is no command maee; did you mean mae"),
        (["report", "x"], "report is done at once"),
        (["mae", "--fit.batch_size", "0"], "must be at least 1"),
        (["verdict", "--verdict.methods", "maw"], "maw"),
    ],
)
def test_mistakes_are_told_before_a_job_waits(words: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_words(words)


def test_options_behind_the_command_are_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    module_of("eval/slurm.py").command(["--nodes", "2", "mae", "--seed", "3", "--run.dir", "a b"])
    printed = capsys.readouterr().out
    assert options(printed)["nodes"] == "2"
    assert shlex.split(next(line for line in printed.splitlines() if line.startswith("srun")))[-5:] == [
        "mae", "--seed", "3", "--run.dir", "a b"
    ]  # fmt: skip
    main_of("eval/slurm.py")(Batch(), ["knn", "--backbone", "r"])
    assert "knn --backbone r" in capsys.readouterr().out
