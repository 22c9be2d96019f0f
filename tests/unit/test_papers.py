"""Recipes of papers: what every option comes to is pinned, whatever differs is explained, and mistakes are one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from ssl_vit import console
from ssl_vit.configs import papers, parse
from ssl_vit.configs.cli import from_options
from ssl_vit.configs.papers import Paper
from ssl_vit.core import started
from ssl_vit.core.errors import UserError
from ssl_vit.doctor import dry_run
from ssl_vit.methods.mae import MAERecipe

ROOT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).with_name("papers")
"""What ``--dry_run`` prints; `python tests/unit/test_papers.py` writes it anew, for a look at the differences."""


def known(name: str) -> Paper:
    paper = papers.read(name)
    assert paper is not None
    return paper


def options(name: str, *words: str) -> object:
    module = started.module_of(started.scripts()[known(name).command])
    return parse(started.options_of(module), "", ["--config", name, *words])


def printed(name: str, *words: str) -> str:
    paper = known(name)
    found = dry_run.stated(paper.data)
    return dry_run.table(dry_run.values(dry_run.resolved(options(name, *words), found, paper), found.images), paper,
                         paper.data)  # fmt: skip


@pytest.mark.parametrize("name", papers.names())
def test_what_every_option_comes_to(name: str) -> None:
    assert printed(name) + "\n" == (PINS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", papers.names())
def test_whatever_is_not_the_papers_is_explained(name: str) -> None:
    paper, found = known(name), dry_run.stated(known(name).data)
    rows = papers.compared(dry_run.values(dry_run.resolved(options(name), found, paper), found.images), paper)
    assert [row.name for row in rows if row.same is False and not row.why] == []
    assert [row.name for row in rows if row.same and row.why] == []  # nor is there an excuse for what is the same
    assert len(paper.values) >= 10
    text = printed(name)
    assert max(map(len, text.splitlines())) <= 120
    for words in (paper.title, paper.source, paper.expected, paper.cost):
        assert words in " ".join(text.split())


def test_the_page_names_every_recipe() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`((?:mae|dino|deit)_\w+)`", page)) == papers.names()
    for name in papers.names():
        text = (papers.FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        assert f"# ssl-vit {known(name).command} --config {name} " in text  # its own command, on top


def test_warm_ups_are_the_papers_at_every_length() -> None:
    for name, epochs in (("mae_vitb16_800", 40), ("mae_vitb16_1600", 40), ("dino_vits16_100", 10), ("deit_s", 5)):
        assert re.search(rf"^warm-up in epochs +{epochs} +{epochs} +same$", printed(name), re.MULTILINE)
    assert re.search(r"^dino.teacher_warmup_epochs +30 +30 +same$", printed("dino_vits16_300"), re.MULTILINE)


def test_what_is_typed_wins_and_shows() -> None:
    text = printed("mae_vitb16_800", "--optim.base_lr", "1e-3", "--fit.epochs", "100")
    assert re.search(r"^optim.base_lr +0.001 +0.00015 +not the same$", text, re.MULTILINE)
    assert "optim.base_lr: this command's value is not the paper's" in " ".join(text.split())


@pytest.fixture
def ssl_vit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Runs a command in an empty folder: status, and the lines of stdout and stderr."""

    def run(*words: str) -> tuple[int, list[str], list[str]]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["ssl-vit", *words])
        status = 0
        try:
            console.main(list(words))
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        said = capsys.readouterr()
        assert not any(tmp_path.glob("runs*"))
        return status, said.out.splitlines(), said.err.splitlines()

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mae", "--config", "mae_vitb16_80"], "there is no file mae_vitb16_80; did you mean mae_vitb16_800"),
        (["mae", "--config", "nowhere/my.yaml"], "there is no file nowhere/my.yaml; papers' recipes are deit_s, "),
        (
            ["dino", "--config", "deit_s"],
            "--config deit_s is a recipe for another command: ssl-vit supervised --config deit_s",
        ),
        (["mae", "--dry_run"], "--dry_run opens no images: say how many there are and how large, --data.facts 1281167"),
        (["mae", "--dry_run", "--data.facts", "many"], "--data.facts many must be the number of images x"),
        (["mae", "--dry_run", "--data.facts", "0x32"], "--data.facts 0x32 must be the number of images x"),
        (["mae", "--data.facts", "50x32"], "--data.facts 50x32 stands for images in a --dry_run; add that"),
        (
            ["finetune", "--dry_run", "--data.facts", "50x32"],
            "--dry_run needs the network: --backbone RUN, or a paper's",
        ),
        (["knn", "--dry_run"], "unknown option --dry_run"),
        (["mae", "--dry_run", "--data.facts", "50x32", "--fit.warmup", "3"], "unknown option --fit.warmup"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, ssl_vit) -> None:
    status, out, err = ssl_vit(*words)
    assert status in (1, 2)
    assert out == []
    assert len(err) == 1
    assert err[0].startswith("error: ")
    assert expected in err[0]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mask_ratio:", "mask_rato:", "did you mean --mae.mask_ratio"),
        ("  title:", "  titel:", "titel, title is unknown or missing under paper"),
        ("command: mae", "command: mea", "is a recipe for another command: ssl-vit mea"),
        ("paper:", "paper: [", "not valid YAML"),
    ],
)
def test_mistakes_in_a_copy_are_one_line(old: str, new: str, expected: str, ssl_vit, tmp_path: Path) -> None:
    text = (papers.FOLDER / "mae_vitb16_800.yaml").read_text(encoding="utf-8")
    (tmp_path / "my.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    status, _, err = ssl_vit("mae", "--config", "my.yaml", "--dry_run")
    assert status in (1, 2)
    assert len(err) == 1
    assert expected in err[0]


def test_a_copy_is_compared_too(ssl_vit, tmp_path: Path) -> None:
    shutil.copy(papers.FOLDER / "mae_vitb16_800.yaml", tmp_path / "my.yaml")
    for name in ("my.yaml", "mae_vitb16_800", "mae_vitb16_800.yaml", "papers/mae_vitb16_800.yaml"):
        for form in (["--config", name], [f"--config={name}"]):
            status, out, err = ssl_vit("mae", *form, "--dry_run", "--data.facts", "1281167x375")
            assert (status, err) == (0, [])
            assert "\n".join(out) + "\n" == (PINS / "mae_vitb16_800.txt").read_text(encoding="utf-8")


def test_without_a_paper_it_is_what_the_options_come_to(ssl_vit) -> None:
    status, out, _ = ssl_vit("mae", "--dry_run", "--data.facts", "1438x8x1")
    assert status == 0
    assert out[0] == "images          1438x8x1 (number x median short side), not opened"
    shown = dict(line.split(maxsplit=1) for line in out[2:])
    assert (shown["preset"], shown["fit.epochs"], shown["fit.batch_size"]) == ("digits", "139", "128")
    assert shown["mae.mask_ratio"] == "0.5"


def test_rates_that_scaling_made_too_large_are_warned_of(ssl_vit) -> None:
    _, _, err = ssl_vit("mae", "--config", "mae_vitb16_800", "--optim.base_lr", "1e-3", "--dry_run")
    assert len(err) == 1
    assert "is a learning rate of 0.016" in err[0]


def test_other_files_are_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "deit_s").write_text("fit:\n  epochs: 3\n")  # a file that is there comes before a paper of its name
    assert parse(MAERecipe, "", ["--config", str(tmp_path / "deit_s")]).fit.epochs == 3
    assert papers.read(str(tmp_path / "deit_s")) is None


def test_python_functions_take_papers_by_name() -> None:
    config = from_options(MAERecipe, {"fit": {"epochs": 3}, "config": "mae_vitb16_800", "data.path": "images"})
    assert (config.fit.epochs, config.fit.batch_size, config.data.path) == (3.0, 4096, "images")


def test_python_functions_refuse_dry_runs() -> None:
    from ssl_vit import face

    with pytest.raises(UserError, match="--dry_run does that"):
        face.pretrain("mae", dry_run=True)


if __name__ == "__main__":
    PINS.mkdir(exist_ok=True)
    for each in papers.names():
        (PINS / f"{each}.txt").write_text(printed(each) + "\n", encoding="utf-8")
