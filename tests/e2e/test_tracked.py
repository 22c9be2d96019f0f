"""Runs that trackers follow: what each holds afterwards, and that a run which is continued stays one."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

TRAIN = ["--fit.epochs", "0.2", "--fit.log_every", "1", "--run.dir", "run", "--run.log_with"]

STOPPED = """
import os, runpy, signal, sys
from ssl_vit.objectives.mae import MAE

def after_step(self, clock):
    if clock.step == 3:
        os.kill(os.getpid(), signal.SIGUSR1)

MAE.after_step = after_step
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def cold(script: Path | str, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A start of Python: wandb makes a folder when it is imported, and removes it when a process ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, str(script), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def lines(run: Path) -> list[dict[str, Any]]:
    """Those of steps; the first look of a watch stands before them."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][1:]


def stopped_and_continued(tracker: str, warm, folder: Path, small: list[str], **variables: str) -> Path:
    """A run that is stopped after four steps, continued, and judged, all with a tracker."""
    words = [str(ROOT / "recipes/mae.py"), *small, "--fit.watch", "knn", *TRAIN, tracker]
    (folder / "stopped.py").write_text(STOPPED.format(words=words))
    done = warm(folder / "stopped.py", cwd=folder, **variables)
    assert done.returncode == 75, done.stderr
    assert "warning" not in done.stderr
    key = json.loads((folder / "run" / "trackers.json").read_text())
    done = warm(words[0], *words[1:], cwd=folder, **variables)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    done = warm(
        ROOT / "eval/knn.py", "--backbone", "run", "--run.log_with", tracker, "--eval.baselines", "false", cwd=folder,
        **variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert json.loads((folder / "run" / "trackers.json").read_text()) == key
    assert [line["step"] for line in lines(folder / "run")] == list(range(1, 10))
    return folder / "run"


def top1(run: Path) -> float:
    return json.loads((run / "results" / "knn.json").read_text())["rows"][0]["top1"]


def test_tensorboard(warm, tmp_path: Path, small: list[str]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = stopped_and_continued("tensorboard", warm, tmp_path, small)
    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    assert [(e.step, round(e.value, 5)) for e in found.Scalars("loss")] == [
        (line["step"], round(line["loss"], 5)) for line in lines(run)
    ]
    assert {"lr", "timing/images_per_second", "health/effective_rank"} <= set(found.Tags()["scalars"])
    looks = [(e.step, round(e.value, 3)) for e in found.Scalars("watch/knn_top1")]
    assert looks[1:] == [(line["step"], round(line["watch/knn_top1"], 3)) for line in lines(run)]
    assert looks[0][0] == 0
    picture = found.Images("figures/reconstructions")[0]
    assert picture.encoded_image_string.startswith(b"\x89PNG")
    assert (picture.step, picture.width > 100) == (9, True)
    assert found.Scalars("result/knn/top1")[0].value == pytest.approx(top1(run))
    options = next((run / "tensorboard").glob("*/hparams.yml")).read_text()
    assert "mae.mask_ratio: 0.5" in options


def test_trackio(warm, tmp_path: Path, small: list[str]) -> None:
    pytest.importorskip("trackio")
    run = stopped_and_continued("trackio", warm, tmp_path, small, TRACKIO_DIR=str(tmp_path / "trackio"))
    with sqlite3.connect(tmp_path / "trackio" / "ssl_vit.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        options = database.execute("SELECT config FROM configs").fetchall()
    assert len({name for name, _, _ in rows}) == 1
    told = [(step, json.loads(metrics)) for _, step, metrics in rows]
    losses = [(step, round(metrics["loss"], 5)) for step, metrics in told if "loss" in metrics]
    assert losses == [(line["step"], round(line["loss"], 5)) for line in lines(run)]
    assert any("figures/reconstructions" in metrics for _, metrics in told)
    assert any(metrics.get("result/knn/top1") == pytest.approx(top1(run)) for _, metrics in told)
    assert any(json.loads(config).get("mae.mask_ratio") == 0.5 for (config,) in options)
    assert list((tmp_path / "trackio").rglob("*.png"))


def test_wandb_offline(tmp_path: Path, small: list[str]) -> None:
    pytest.importorskip("wandb")
    run = stopped_and_continued("wandb", cold, tmp_path, small, WANDB_MODE="offline", WANDB_SILENT="true")
    key = json.loads((run / "trackers.json").read_text())["wandb"]
    begun = sorted((run / "wandb").glob("offline-run-*"))
    assert len(begun) == 3
    assert all(path.name.endswith(key) for path in begun)
    written = b"".join(path.read_bytes() for folder in begun for path in folder.glob("*.wandb"))
    for name in (b"loss", b"health/effective_rank", b"result/knn/top1", b"mae.mask_ratio", b"figures/reconstructions"):
        assert name in written
    assert list(run.glob("wandb/*/files/media/images/figures/*.png"))


def test_mlflow_in_a_folder(warm, tmp_path: Path, small: list[str]) -> None:
    pytest.importorskip("mlflow")
    place = {"MLFLOW_TRACKING_URI": f"file:{tmp_path / 'mlruns'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    run = stopped_and_continued("mlflow", warm, tmp_path, small, **place)
    key = json.loads((run / "trackers.json").read_text())["mlflow"]
    folder = next((tmp_path / "mlruns").glob(f"*/{key}"))
    assert len(list((tmp_path / "mlruns").glob("*/*/meta.yaml"))) == 1
    losses = [line.split() for line in (folder / "metrics" / "loss").read_text().splitlines()]
    assert [(int(step), float(value)) for _, value, step in losses] == [
        (line["step"], pytest.approx(line["loss"])) for line in lines(run)
    ]
    assert (folder / "params" / "mae.mask_ratio").read_text() == "0.5"
    assert (folder / "metrics" / "result" / "knn" / "top1").exists()
    assert (folder / "artifacts" / "figures" / "reconstructions.png").exists()


def test_what_cannot_start_is_told_before_training(warm, tmp_path: Path, small: list[str]) -> None:
    pytest.importorskip("mlflow")
    place = {"MLFLOW_TRACKING_URI": "nonsense://nowhere"}
    done = warm(ROOT / "recipes/mae.py", *small, *TRAIN, "mlflow", cwd=tmp_path, **place)
    assert done.returncode == 1
    assert "error: --run.log_with mlflow cannot start: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    done = warm(ROOT / "recipes/mae.py", *small, *TRAIN[:-1], cwd=tmp_path, **os.environ)
    assert done.returncode == 0, done.stderr
