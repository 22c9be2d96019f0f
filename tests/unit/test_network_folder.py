"""--backbone takes RUN or RUN/backbone, and a wrong path is told before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.runs.networks import FILES, network_folder

ROOT = Path(__file__).resolve().parents[2]


def network(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in FILES:
        (folder / file).touch()
    return folder


def test_a_run_its_backbone_and_what_timm_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, alone = network(tmp_path / "run" / "backbone"), network(tmp_path / "saved")
    assert network_folder(str(tmp_path / "run")) == network_folder(f"{inside}/") == inside
    assert network_folder(str(alone)) == alone
    monkeypatch.setenv("HOME", str(tmp_path))
    assert network_folder("~/run") == inside


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "--backbone is missing; give RUN"),
        ("runn", "--backbone runn does not exist; give RUN, the folder of a pre-training run; did you mean run?"),
        ("begun", "--backbone begun holds no network: the run there has not finished"),
        (".", "it holds the runs run: name one of them"),
        ("empty", "holds no config.json and model.safetensors"),
        ("run/backbone/config.json", "is no exported network"),
    ],
)
def test_what_is_no_network(given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "run" / "backbone")
    for name in ("empty", "begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "begun" / "config.yaml").touch()
    with pytest.raises(UserError) as told:
        network_folder(given)
    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_every_command_tells_it_without_torch(tmp_path: Path) -> None:
    code = """
import contextlib, io, sys
from ssl_vit import console
for name in ("atlas", "embed", "figures", "finetune", "knn", "linear-probe"):
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            console.main([name, "--backbone", "nowhere"])
    except SystemExit as stopped:
        print(name, stopped.code, told.getvalue().strip())
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all("1 error: --backbone nowhere does not exist; give RUN" in line for line in lines)
