"""README and docs/: short enough, every link leads somewhere, every option that they name exists."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from ssl_vit.configs.facts import options
from ssl_vit.core.started import module_of, scripts
from ssl_vit.methods import known_recipes
from ssl_vit.questions.options import Questions
from ssl_vit.script import check_words
from ssl_vit.verdict.options import verdict_recipe

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "tutorials").glob("*.md"))
EXAMPLE = "rotation."
"""Options of the method that docs/extending.md makes up."""


def test_the_readme_is_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    places = [to.partition("#")[0] for to in re.findall(r"\]\(([^()\s]+)\)", text) if not re.match(r"\w+:|#", to)]
    assert not [to for to in places if not (page.parent / to).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_pages_name_exist(page: Path) -> None:
    known = {name for recipe in (*known_recipes(), verdict_recipe(), Questions) for name in options(recipe)}
    named = set(re.findall(r"--([a-z_]+(?:\.[a-z_0-9]+)+)", page.read_text(encoding="utf-8")))
    assert not {name for name in named - known if not name.startswith(EXAMPLE)}


def commands(page: Path) -> list[list[str]]:
    """The words behind every ``ssl-vit`` that a page shows as typed."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.split(r" && | > ", line)]
    typed = [part for part in parts if part.startswith("ssl-vit ")]
    return [shlex.split(line, comments=True)[1:] for line in typed]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_show_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my_images/1.png", "IMAGES/1.png", "cells/1.png", "my_sets/birds/heron/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for run in ("RUN", "runs/cells", "runs/classifier"):
        (tmp_path / run).mkdir(parents=True, exist_ok=True)
        (tmp_path / run / "model.safetensors").touch()
        (tmp_path / run / "config.json").write_text('{"ssl_vit": {"classifier": {}}}')
    (tmp_path / "my.yaml").write_text("seed: 1\n")
    (tmp_path / "my_suite.yaml").write_text("sets: [pets]\n")
    monkeypatch.setattr("ssl_vit.configs.facts.trackers_in", lambda names: ())  # whose packages are extras
    (tmp_path / "srun").touch(mode=0o755)  # this is a cluster
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    known = scripts()
    for words in commands(page):
        if words[0] == EXAMPLE.rstrip("."):
            continue
        if words[0] == "slurm":  # options of the job, then a command
            words = words[next(i for i, word in enumerate(words) if i and word in known) :]
        if "--processes" in words:
            words = words[: words.index("--processes")]
        module = module_of(known[words[0]])
        if not hasattr(module, "command") or hasattr(module, "check_words"):
            check_words([word for word in words if word != "--print_config"])


def test_the_batch_scripts_of_the_page_are_what_their_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)  # where the program lies is the machine's
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"```bash\n(?:ssl-vit slurm (.*?) > job\.sbatch\n.*?)```\n\n```bash\n(#!.*?)```", text, re.DOTALL
    )
    assert ["--nodes 4" in typed for typed, _ in shown] == [False, True]
    for typed, printed in shown:
        module_of("eval/slurm.py").command(shlex.split(typed))
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_name_exist(page: Path) -> None:
    known = {path.stem.replace("_", "-") for room in ("recipes", "eval") for path in (ROOT / room).glob("*.py")}
    named = set(re.findall(r"\bssl-vit ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
    assert not named - known - {EXAMPLE.rstrip(".")}


def test_what_the_statistics_page_says_of_advice_is_in_the_result_file() -> None:
    results = (ROOT / "benchmarks" / "results" / "statistics_advice.md").read_text(encoding="utf-8")
    short = results.partition("## In short")[2].partition("\n## ")[0].splitlines()
    rows = [row for row in short if row.startswith("| ")][2:]
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) > 5 and not [row for row in rows if row not in page]
