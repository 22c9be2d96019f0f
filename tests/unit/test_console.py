"""The command ssl-vit: what it lists, refuses and starts, and how scripts are named where a person is."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit import console
from ssl_vit.core import started
from ssl_vit.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command in this process: exit status, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/ssl-vit"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # chosen, so that nothing changes it for the tests that follow
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "1")
    for name in ("WORLD_SIZE", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        status = 0
        try:
            console.main(words)
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_every_script_is_a_command_with_one_line(words: tuple[str, ...], command) -> None:
    status, out, _ = command(*words)
    assert status == 0
    for path in [*(ROOT / "recipes").glob("*.py"), *(ROOT / "eval").glob("*.py")]:
        name = path.stem.replace("_", "-")
        sentence = path.read_text().splitlines()[0].strip('"')
        assert [line.split(None, 1)[1] for line in out.splitlines() if line.split()[:1] == [name]] == [sentence]
    assert "--processes N" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mea"], "there is no command mea; did you mean mae? (commands: "),
        (["lineer-probe"], "did you mean linear-probe?"),
        (["recipes/mae.py"], "there is no command recipes/mae.py"),
        (["--seed", "1", "mae"], "--seed stands where the command should; write ssl-vit COMMAND --seed ..."),
        (["mae", "--processes"], "--processes needs a whole number of at least 1, not nothing"),
        (["mae", "--processes", "two"], "--processes needs a whole number of at least 1, not two"),
        (["--processes=0", "mae"], "--processes needs a whole number of at least 1, not 0"),
        (["compare", "--processes", "2", "x"], "--processes 2: ssl-vit compare works in one process; leave it out"),
        (["mae", "--mae.mask_rato", "0.5"], "unknown option --mae.mask_rato; did you mean --mae.mask_ratio?"),
        (["linear-probe", "x", "--linear.protocol", "cashed"], "--linear.protocol cashed is none of cached, logistic,"),
        (
            ["transfer", "x", "digits", "--transfer.protocol", "soop"],
            "--transfer.protocol soop is none of knn, cached,",
        ),
        (["knn", "runs/x", "images", "more"], "unexpected word 'more': every option is written --group.name VALUE"),
    ],
)
def test_mistyped_commands(words: list[str], expected: str, command) -> None:
    status, out, err = command(*words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert expected in err
    if expected.startswith("there is no command"):
        assert all(name in err for name in started.scripts())


@pytest.mark.parametrize("words", [["mae"], ["verdict", "--verdict.budget", "1h"]])
@pytest.mark.parametrize("option", [["--processes", "2"], ["--processes=2"]])
@pytest.mark.parametrize("place", [0, 1, None])
def test_processes_may_stand_anywhere(
    words: list[str], option: list[str], place: int | None, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(console, "_launch", lambda *given: asked.append(given))
    at = len(words) if place is None else place
    assert command(*words[:at], *option, *words[at:]) == (0, "", "")
    assert asked == [(2, words, False)]
    assert sys.argv[1:] == words


@pytest.mark.parametrize(
    "words",
    [
        ["mae", "--fit.batch_size", "0"],
        ["verdict", "--verdict.methods", "maw"],
        ["verdict", "--mae.fit.min_steps", "3"],
    ],
)
def test_what_is_wrong_is_told_before_processes_are_started(
    words: list[str], command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_launch", lambda *_: pytest.fail("processes were started"))
    status, out, err = command(*words, "--processes", "2")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {words[1]}")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *(((name,), "--run.dir") for name in ("mae", "supervised", "knn", "transfer", "verdict", "questions")),
        *(((name,), "--out") for name in ("doctor", "figures", "predict", "embed", "atlas", "export")),
        (("sweep", "mae"), "--out"),
        (("compare", "run"), "--out"),
        (("figures", "a", "b"), "--out"),
    ],
)
def test_what_is_written_goes_to_a_disk(
    words: tuple[str, ...], option: str, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    status, out, err = command(*words, option, "s3://bucket/t.csv")
    assert (status in (1, 2), out) == (True, "")
    assert err == (
        f"error: {option} s3://bucket/t.csv is an address; name a place on a disk, which every process of the job "
        "sees\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_gpus_are_not_shared_and_launchers_decide(command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(console, "_launch", lambda processes, *_: asked.append(processes))
    monkeypatch.setattr(console, "_gpus", lambda: 3)
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    assert command("mae")[0] == 0
    assert command("mae", "--processes", "2")[0] == 0
    assert asked == [3, 2]
    status, _, err = command("mae", "--processes", "4")
    assert status == 1
    assert "this machine has 3 GPU(s)" in err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "a launcher has started this one already" in command("mae", "--processes", "2")[2]


def test_threads_that_nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert not console._choose_threads()
    assert os.environ["OMP_NUM_THREADS"] == "3"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert console._choose_threads()
    assert os.environ["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("WORLD_SIZE", "2")  # one of the processes that the command started
    monkeypatch.setenv(console._OPEN, "1")
    assert console._choose_threads()
    assert console._OPEN not in os.environ  # what this process starts is no such process
    assert not console._choose_threads()


def test_scripts_are_named_as_they_are_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "give a run of eval/finetune.py or recipes/mae.py, not /x/eval/knn.py: accelerate launch eval/linear_probe.py"
    )
    monkeypatch.setattr(sys, "argv", [str(ROOT / "recipes/mae.py")])
    assert started.told(text) == text
    begins, path = started.typed("eval/linear_probe.py").rsplit(" ", 1)
    assert begins == "accelerate launch"
    assert Path(path).resolve() == ROOT / "eval/linear_probe.py"
    monkeypatch.setattr(sys, "argv", ["/a b/bin/ssl-vit", "mae"])
    assert started.told(text) == (
        "give a run of ssl-vit finetune or ssl-vit mae, not /x/eval/knn.py: ssl-vit linear-probe"
    )
    assert started.typed("eval/linear_probe.py") == "ssl-vit linear-probe"
    assert str(UserError("judge it first: eval/knn.py --backbone x")) == "judge it first: ssl-vit knn --backbone x"
    monkeypatch.setattr(sys, "argv", [str(ROOT / "ssl_vit/__main__.py"), "mae"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert started.typed("eval/knn.py") == "python -m ssl_vit knn"


def test_help_and_mistakes_need_no_torch_and_no_clone_as_working_directory(tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text("raise RuntimeError('a file of the person stands in the place of a library')")
    (tmp_path / "yaml.py").write_text("raise RuntimeError('a file of the person stands in the place of a library')")
    code = (
        "import runpy, sys\n"
        "for words in (['--help'], ['mae', '--help'], ['compare', '--help'], ['verdict', '--fit.x'], ['mea']):\n"
        "    sys.argv = ['ssl-vit', *words]\n"
        "    try:\n"
        "        runpy.run_module('ssl_vit', run_name='__main__', alter_sys=True)\n"
        "    except SystemExit:\n"
        "        pass\n"
        "loaded = {'torch', 'timm', 'accelerate', 'datasets'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage: ssl-vit mae" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "ssl_vit", "knn", "--backbone"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: --backbone needs a value; --help says which\n")


@pytest.mark.parametrize(
    "words", [["-m", "ssl_vit", "--help"], ["-m", "ssl_vit", "mae", "--preset"], [str(ROOT / "eval" / "runs.py"), "."]]
)
def test_a_pipe_that_nobody_reads_ends_a_listing_quietly(words: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # so that some is left for Python's end
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, stdout=write, stderr=subprocess.PIPE, text=True,
        timeout=60,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_commands_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    from ssl_vit.configs import KNNRecipe, as_command
    from ssl_vit.runs.provenance import command

    monkeypatch.setattr(sys, "argv", ["/venv/bin/ssl-vit", "knn", "--backbone", "my runs"])
    assert shlex.split(command()) == ["ssl-vit", "knn", "--backbone", "my runs"]
    assert as_command("eval/knn.py", KNNRecipe("r")) == "ssl-vit knn --backbone r"
