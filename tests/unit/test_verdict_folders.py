"""Folders of runs that were interrupted at any moment."""

from __future__ import annotations

from pathlib import Path

from ssl_vit.verdict.work import discard, prepare


def filled(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_a_run_stays_and_the_rest_of_one_goes(tmp_path: Path) -> None:
    run = filled(tmp_path / "run", "config.yaml", "environment.json")
    prepare(run)
    assert (run / "environment.json").exists()
    torn = filled(tmp_path / "torn", "environment.json", "config.yaml.part")
    prepare(torn)
    assert not torn.exists()
    prepare(tmp_path / "nothing")


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    run = filled(tmp_path / "run", "config.yaml")
    filled(tmp_path / "run.gone", "checkpoint")  # killed while it was removed before
    discard(run)
    discard(tmp_path / "nothing")
    assert not list(tmp_path.iterdir())
