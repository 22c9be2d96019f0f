"""Two starts in one run directory, and starts that are killed at named points of their way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["--fit.epochs", "0.2", "--fit.log_every", "1", "--fit.checkpoint_steps", "2", "--run.dir"]

BESIDE = """
import runpy, subprocess, sys
from pathlib import Path
from ssl_vit.objectives.mae import MAE

def after_step(self, clock):
    if clock.step == 3:
        done = subprocess.run([sys.executable, *{second!r}], capture_output=True, text=True)
        Path("second").write_text(f"{{done.returncode}} {{done.stderr}}")

MAE.after_step = after_step
sys.argv = {first!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

KILLED = """
import os, runpy, signal, sys
import {module} as module

def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

{owner}.{name} = die
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def metrics(run: Path) -> str:
    return (run / "metrics.jsonl").read_text()


@pytest.fixture(scope="module")
def whole(launched, tmp_path_factory: pytest.TempPathFactory, small: list[str]) -> str:
    """The metrics of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    done = launched("recipes/mae.py", *small, *TRAIN, "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return metrics(folder / "run")


def test_a_second_start_is_refused_and_the_first_is_not_disturbed(
    whole: str, launched, tmp_path: Path, small: list[str]
) -> None:
    words = [str(ROOT / "recipes/mae.py"), *small, *TRAIN, "run"]
    (tmp_path / "beside.py").write_text(BESIDE.format(first=words, second=words))
    done = launched(tmp_path / "beside.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status, line = (tmp_path / "second").read_text().split(" ", 1)
    assert status == "1"
    assert line.startswith("error: run is in use by process ")
    assert line.count("\n") == 1
    assert metrics(tmp_path / "run") == whole
    assert not (tmp_path / "run" / "run.lock").exists()


def test_an_evaluation_is_refused_where_something_is_written(launched, backbone: str, tmp_path: Path) -> None:
    hold = "from pathlib import Path; from ssl_vit.runs import lock; lock.hold(Path('run')); print(flush=True); input()"
    with subprocess.Popen(
        ["python", "-c", hold], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        done = launched("eval/knn.py", "--backbone", backbone, cwd=tmp_path)
        elsewhere = launched("eval/knn.py", "--backbone", backbone, "--run.dir", "other", cwd=tmp_path)
        verdict = launched("eval/verdict.py", "--run.dir", backbone, cwd=tmp_path)
        holder.kill()
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: run is in use by process {holder.pid} ")
    assert not (tmp_path / "run" / "results").exists()
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert verdict.stderr.startswith("error: run is in use"), verdict.stderr
    again = launched("eval/knn.py", "--backbone", backbone, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "taken over from process" in again.stderr


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("ssl_vit.runs.lock", "module", "_read"),
        ("ssl_vit.runs.directory", "module.RunDir", "confirm"),
        ("ssl_vit.runs.directory", "module", "to_yaml"),
        ("ssl_vit.training.loop", "module", "_measured"),
        ("ssl_vit.objectives.mae", "module.MAE", "after_step"),
        ("ssl_vit.training.checkpoint", "module", "write_atomically"),
        ("ssl_vit.training.pretraining", "module", "export_backbone"),
        ("ssl_vit.runs.lock", "module", "release"),
    ],
)
def test_a_killed_start_occupies_nothing(
    module: str, owner: str, name: str, whole: str, launched, tmp_path: Path, small: list[str]
) -> None:
    words = [str(ROOT / "recipes/mae.py"), *small, *TRAIN, "run"]
    (tmp_path / "killed.py").write_text(KILLED.format(module=module, owner=owner, name=name, words=words))
    done = launched(tmp_path / "killed.py", cwd=tmp_path)
    assert done.returncode == -9, done.stderr
    again = launched("recipes/mae.py", *small, *TRAIN, "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert metrics(tmp_path / "run") == whole
    assert (tmp_path / "run" / "backbone" / "model.safetensors").exists()


def test_a_start_that_was_killed_between_its_two_files_occupies_nothing(
    whole: str, launched, tmp_path: Path, small: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "environment.json").write_text("{}\n")
    done = launched("recipes/mae.py", *small, *TRAIN, "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "run") == whole
