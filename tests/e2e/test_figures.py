"""eval/figures.py draws a trained run."""

from __future__ import annotations

from pathlib import Path

TRAIN = ["--fit.epochs", "0.1", "--model.width", "16", "--model.depth", "1", "--model.heads", "2"]


def test_pictures_go_beside_the_run_or_where_asked(script, tmp_path: Path) -> None:
    status, _, err = script("recipes/mae.py", *TRAIN, "--model.positions", "factorised", "--run.dir", "run")
    assert status == 0, err
    status, out, err = script("eval/figures.py", "--backbone", "run")
    assert (status, out) == (0, "Picture: run/figures/positions.png\n"), err
    assert (tmp_path / "run/figures/positions.png").exists()
    status, out, err = script("eval/figures.py", "--backbone", "run/backbone", "--out", "elsewhere/new")
    assert (status, out) == (0, "Picture: elsewhere/new/positions.png\n"), err
    assert (tmp_path / "elsewhere/new/positions.png").exists()


def test_a_run_without_positions_trains_and_says_so(script, tmp_path: Path) -> None:
    status, _, err = script("recipes/mae.py", *TRAIN, "--model.positions", "none", "--run.dir", "run")
    assert status == 0, err
    status, out, err = script("eval/figures.py", "--backbone", "run")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "no position embedding" in err
