"""What a person types: paths without a name, groups, mistakes told in this project's words before torch is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ssl_vit.configs import KNNRecipe, PredictRecipe, parse
from ssl_vit.configs.facts import options
from ssl_vit.configs.words import named
from ssl_vit.core import started
from ssl_vit.core.errors import UserError
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.verdict.options import verdict_recipe

LIBRARY = re.compile(
    r"namespace|subcommand|unrecogni[sz]ed|pars(e|ing)|validate|subtype|the following arguments|invalid choice|<class|"
    r"NoneType|Traceback|NestedArg|ArgumentError",
    re.IGNORECASE,
)
"""Words of the libraries that read options."""


def told(capsys: pytest.CaptureFixture[str], name: str, *words: str) -> tuple[int, str]:
    """Exit status and stderr of reading a command's words."""
    module = started.module_of(started.scripts()[name])
    status = 0
    try:
        if hasattr(module, "command"):
            module.command(list(words))
        else:
            parse(started.options_of(module), "", list(words))
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["cells"], ["--data", "cells"], ["--data=cells"], ["--data.path", "cells"], ["--", "cells"],
        ["--fit.epochs", "5", "cells"], ["cells", "--fit.epochs", "5"], ["--seed=3", "cells", "--data.group", "x"],
    ],
)  # fmt: skip
def test_a_path_may_stand_anywhere_without_a_name(words: list[str]) -> None:
    assert parse(MAERecipe, "", words).data.path == "cells"


def test_each_command_knows_what_words_alone_mean() -> None:
    assert parse(KNNRecipe, "", ["RUN", "images"]).backbone == "RUN"
    assert parse(KNNRecipe, "", ["RUN", "images"]).eval.data.path == "images"
    assert parse(KNNRecipe, "", ["--backbone", "RUN", "images"]).eval.data.path == "images"
    assert parse(PredictRecipe, "", ["RUN", "new"]).data.path == "new"
    found = parse(verdict_recipe(), "", ["pool", "labelled", "--verdict.labels", "10,20", "--verdict.shares", "5"])
    assert (found.data.path, found.eval.data.path) == ("pool", "labelled")
    assert (found.verdict.labels, found.verdict.shares) == ((10, 20), (5.0,))
    assert parse(MAERecipe, "", ["--model.args.depth", "3"]).model.args == {"depth": 3}
    for script in started.scripts().values():
        module = started.module_of(script)
        if not hasattr(module, "command"):
            recipe = started.options_of(module)
            assert set(recipe.BARE) <= set(options(recipe)) | {"eval.data.path"}, script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cells", "labels.csv"], "write ssl-vit mae cells --data.labels labels.csv"),
        (["cells", "more"], "if it is what is judged on, write ssl-vit mae cells --eval.data.path more"),
        (["--epochs", "5"], "unknown option --epochs; did you mean --fit.epochs?"),
        (["--data.lables", "x"], "did you mean --data.labels"),
        (["--fit", "5"], "--fit is a group of options, which takes no value itself; write one of --fit.epochs"),
        (["--fit.epochs", "--seed", "3"], "--fit.epochs needs a value"),
        (["--augment.crop_scale", "1,2,3"], "expected 2 numbers in brackets, with commas between them, got [1, 2, 3]"),
        (["--model.args", "3"], "expected names and values in braces"),
    ],
)
def test_the_line_to_type_is_told(
    words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/ssl-vit", "mae"])
    status, err = told(capsys, "mae", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert expected in err


def test_a_pattern_that_the_shell_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scans").mkdir()
    files = [f"scans/{i}.png" for i in range(5)]
    for file in files:
        Path(file).touch()
    with pytest.raises(UserError, match="5 files stand without an option's name; name their folder: scans"):
        named(files, options(MAERecipe), MAERecipe.BARE)


_WRONG = ["x", "", "-1", "nan", "[1", "{a", "null", "[1,2,3]", "a=b", "{'a': 1}", "1e999", "true", "- x", "a: b"]


@given(data=st.data())
@example(data=None)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_no_word_of_a_library_is_in_any_message(data, capsys: pytest.CaptureFixture[str]) -> None:
    if data is None:
        lines = [[name] for name in started.scripts()] + [
            ["mae", "--help=3"],
            ["report", "--out"],
            ["slurm", "--nodes", "x"],
        ]
    else:
        name = data.draw(st.sampled_from(sorted(started.scripts())))
        module = started.module_of(started.scripts()[name])
        known = (
            ["config", "out", "nodes"]
            if hasattr(module, "command")
            else [*options(started.options_of(module)), "data", "config"]
        )
        option, value = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(_WRONG))
        lines = [
            [name, f"--{option}", value],
            [name, f"--{option}.more={value}"],
            [name, "loose", "words", f"--{option}"],
        ]
    for line in lines:
        status, err = told(capsys, *line)
        assert not LIBRARY.search(err), (line, err)
        assert status == 0 or (err.startswith("error: ") and err.count("\n") == 1), (line, err)


@pytest.mark.parametrize(
    "text",
    ["data: cells\n", "foo: 1\n", "- a\n", "data: {path: [1]}\n", "fit: {epochs: x}\n", "fit: {epocs: 3}\n", "3\n"],
)
def test_no_word_of_a_library_about_a_config_file(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    for given_file in (tmp_path / "c.yaml", tmp_path, tmp_path / "nowhere.yaml"):
        status, err = told(capsys, "mae", "--config", str(given_file))
        assert (status, err.count("\n")) == (2, 1)
        assert err.startswith("error: ")
        assert not LIBRARY.search(err), err


def test_every_command_tells_a_wrong_path_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    for folder in ("run/backbone", "run/classifier"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text('{"ssl_vit": {"classifier": {}}}')
        (tmp_path / folder / "model.safetensors").touch()
    trainings, of_run = (
        ("mae", "dino", "simmim", "beit", "lejepa", "diet", "supervised"),
        ("knn", "linear-probe", "finetune"),
    )
    labelled = ("--eval.data.path", "--data.labels", "--data.root", "--eval.data.labels")
    pages = (("embed", ".csv"), ("atlas", ".html"), ("predict", ".csv"))
    lines = [
        *([name, "cell"] for name in (*trainings, *of_run, "doctor", "verdict", "questions")),
        *([name, "cell"] for name in ("embed", "atlas", "predict")),
        *([name, option, "cell"] for name in (*trainings, "verdict") for option in labelled),
        *([name, "run", "cell"] for name in (*of_run, "embed", "atlas", "predict")),
        ["figures", "cell"], ["figures", "--backbone", "cell"], ["figures", "--backbone", "run", "--images", "cell"],
        *([name, "run", "--out", f"no/where{ending}"] for name, ending in pages),
        ["finetune", "run", "--eval.data.labels", "cell"], ["doctor", "cells", "--out", "no/where.html"],
        ["distill", "cell"], ["distill", "--teacher", "cell"], ["distill", "run", "cell"],
        ["taught", "cell"], ["taught", "--teacher", "cell"], ["taught", "run", "cell"],
        ["export", "cell"], ["export", "--classifier", "cell"], ["verdict", "cells", "--verdict.backbones", "cell"],
        ["compare", "cell"], ["report", "cell"],
    ]  # fmt: skip
    code = f"""
import contextlib, io, sys
from ssl_vit import console
for words in {lines!r}:
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            console.main(words)
        print("not told:", words)
    except SystemExit as stopped:
        print(stopped.code, told.getvalue().strip())
heavy = {{"torch", "timm", "datasets", "sklearn", "scipy", "accelerate", "pandas"}} & set(sys.modules)
print("heavy:", heavy or None, "modules:", len(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *answers, last = done.stdout.splitlines()
    assert len(answers) == len(lines)
    for words, answer in zip(lines, answers, strict=True):
        assert answer.startswith("1 error: "), (words, answer)
        assert "cell" in answer or "no/where" in answer, (words, answer)
    assert last.startswith("heavy: None"), last


@pytest.mark.parametrize("place", ["plain", "two words", "it's", 'a "b"', "$HOME", "back\\slash", "`x`!"])
def test_a_line_of_python_as_a_shell_takes_it(place: str) -> None:
    code = f"import timm; timm.create_model({f'local-dir:/{place}'!r}, pretrained=True)"
    assert shlex.split(started.python_line(code)) == ["python", "-c", code]
