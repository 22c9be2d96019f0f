"""--backbone takes RUN or RUN/backbone, and a wrong path is told before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.runs.networks import FILES, find_network, network_folder

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
        ("mae-digits-24", "; give RUN, the folder of a pre-training run; did you mean runs/mae-digits-247b4046?"),
        (".", "it holds the runs run: name one of them"),
        ("empty", "holds no config.json and model.safetensors; give RUN, the folder of a pre-training run"),
        ("run/figures", "; give RUN, the folder of a pre-training run; it lies in the run run: name that"),
        (
            "timms",
            "timms holds config.json, but its weights are in pytorch_model.bin: have timm save them with save_for",
        ),
        ("run/backbone/config.json", "is no exported network"),
    ],
)
def test_what_is_no_network(given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("run", "runs/mae-digits-247b4046"):
        network(tmp_path / run / "backbone")
    for name in ("empty", "begun", "run/figures", "timms"):
        (tmp_path / name).mkdir()
    for name in ("config.json", "pytorch_model.bin"):
        (tmp_path / "timms" / name).write_text("{}")
    (tmp_path / "run" / "environment.json").touch()
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


@pytest.mark.parametrize(
    ("given", "kind", "size"),
    [
        ("run", "timm folder", None),
        ("run@32", "timm folder", 32),
        ("weights.pth", "file", None),
        ("weights.pth@224", "file", 224),
        ("run/backbone/model.safetensors", "timm folder", None),
        ("run/backbone/model.safetensors@32", "timm folder", 32),
        ("transformed/pytorch_model.bin", "transformers", None),
        ("model.safetensors", "file", None),
        ("transformed", "transformers", None),
        ("vit_small_patch14_dinov2.lvd142m", "timm name", None),
        ("vit_small_patch14_dinov2.lvd142m@224", "timm name", 224),
    ],
)
def test_kinds_of_places(given: str, kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "run" / "backbone")
    for name in ("weights.pth", "model.safetensors"):
        (tmp_path / name).touch()
    (network(tmp_path / "transformed") / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "transformed" / "pytorch_model.bin").touch()
    found = find_network(given)
    assert (found.kind, found.size) == (kind, size)
    assert found.name == ("vit_small_patch14_dinov2.lvd142m" if kind == "timm name" else "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("weights.npz", "is no exported network and no file of weights (.pth .pt .bin .safetensors)"),
        ("other.pth", "--model.weights other.pth does not exist"),
        ("vit_small_patch14_dinov2", "timm's weights are named with their tag, as vit_small_patch14_dinov2.lvd142m"),
        ("", "--model.weights is missing"),
        ("weights.npz@0", "--model.weights weights.npz@0: behind @ stands the side of the input in pixels, 1 or more"),
    ],
)
def test_places_that_are_none(given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.npz").touch()
    with pytest.raises(UserError) as told:
        find_network(given, "--model.weights")
    assert expected in str(told.value)
