"""recipes/dino.py as a user calls it: whole way, killed and continued, wrong input, a collapse that stops the run."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["--fit.epochs", "0.5", "--fit.log_every", "1", "--dino.out_dim", "64", "--crops.local_crops", "2"]
PAPER = ["--dino.centring", "mean", "--dino.teacher_temp", "0.04", "--dino.drop_path", "0.1"]


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_digits_from_pre_training_to_k_nn(launched, script, tmp_path: Path) -> None:
    """A seventh of the preset's length is enough to see that it learns, and does not collapse."""
    done = launched("recipes/dino.py", "--fit.epochs", "20", cwd=tmp_path, launcher=True)
    assert done.returncode == 0, done.stderr
    run = next((tmp_path / "runs").iterdir())
    assert run.name.startswith("dino-digits-")
    assert not [line for line in done.stderr.splitlines() if re.search(r"warn(ing)?:", line, re.IGNORECASE)]
    assert "ln(1024) = 6.931 means uniform answers" in done.stdout
    assert re.search(r"keeps 0\.\d+ of its weights per step at the start \(from batch and steps\)", done.stdout)
    assert {"loss", "lr", "teacher_entropy", "kl"} <= set(lines(run / "metrics.jsonl")[0])
    seen = lines(run / "health.jsonl")
    assert {"teacher_entropy", "kl", "centre_norm", "ln_out_dim"} <= set(seen[0])
    assert {"images_per_second", "peak_memory"} <= set(lines(run / "timing.jsonl")[0])
    model = timm.create_model(f"local-dir:{run / 'backbone'}", pretrained=True)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 64)
    status, out, err = script("eval/knn.py", "--backbone", str(run))
    assert status == 0, err
    assert "DINO" in out
    rows = json.loads((run / "results" / "knn.json").read_text())["rows"]
    top1 = {row["method"]: row["top1"] for row in rows if row["k"] == 20}
    assert set(top1) == {"DINO", "random weights", "raw pixels"}
    assert top1["DINO"] > top1["random weights"] + 5
    assert seen[-1]["marginal_entropy"] - seen[-1]["teacher_entropy"] > 1.0
    ranks = [row["effective_rank"] for row in seen if "effective_rank" in row]
    assert len(ranks) == 3  # every 100 steps, and after the last one
    assert 5 < ranks[-1] <= 64


@pytest.mark.parametrize("network", ["plain ViT", "test_resnet"])
def test_killed_and_started_again(network: str, launched, tmp_path: Path, small: list[str]) -> None:
    """SIGKILL inside step 14 (checkpoints every 5): the rest is the same bit for bit, observations included."""
    own = [*small, *PAPER] if network == "plain ViT" else ["--model.name", network, "--fit.batch_size", "32"]
    words = [*own, *SHORT, "--fit.checkpoint_steps", "5", "--dino.check_steps", "3", "--run.dir"]
    whole = launched("recipes/dino.py", *words, "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    killer = tmp_path / "killer.py"
    killer.write_text(
        "import os, runpy, signal, sys\n"
        "from ssl_vit.objectives.dino import DINO\n"
        "before = DINO.begin_step\n"
        "def begin_step(self, clock):\n"
        "    before(self, clock)\n"
        "    if clock.step == 13:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "DINO.begin_step = begin_step\n"
        f"sys.argv = ['dino.py', *{[*words, 'killed']!r}]\n"
        f"runpy.run_path({str(ROOT / 'recipes/dino.py')!r}, run_name='__main__')\n"
    )
    died = launched(killer, cwd=tmp_path)
    assert died.returncode == -signal.SIGKILL
    again = launched("recipes/dino.py", *words, "killed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 10" in again.stdout
    for name in ("metrics.jsonl", "health.jsonl", "backbone/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--crops.global_size", "7"], r"--crops.global_size 7 is not a multiple of the patch size 2; use 6 or 8"),
        (["--crops.local_size", "5"], r"--crops.local_size 5 is not a multiple of the patch size 2; use 4 or 6"),
        (["--crops.local_crops", "-1"], r"--crops.local_crops -1 must be at least 0"),
        (["--crops.global_scale", "[0.9,0.2]"], r"--crops.global_scale .* least first"),
        (["--dino.teacher_temp", "0"], r"--dino.teacher_temp 0 must be"),
        (["--dino.outdim", "64"], r"unknown option --dino.outdim; did you mean --dino.out_dim"),
        (["--dino.centring", "mena"], r"--dino.centring: expected one of mean, sinkhorn"),
    ],
)
def test_wrong_options_end_in_one_line(script, small: list[str], words: list[str], message: str) -> None:
    status, _, err = script("recipes/dino.py", *small, *SHORT, *words)
    assert status != 0
    assert re.search(f"^error: {message}", err.splitlines()[-1]), err
    assert not Path("runs").exists()


def test_fewer_outputs_than_classes_is_said(script, small: list[str]) -> None:
    status, _, err = script("recipes/dino.py", *small, *SHORT, "--dino.out_dim", "8", "--run.dir", "run")
    assert status == 0, err
    assert "warning: --dino.out_dim 8 is smaller than the 10 classes" in err


def test_a_finished_run_is_extended_and_exports_the_student(script, small: list[str]) -> None:
    """What is resolved does not depend on the number of epochs; whose backbone is exported makes no other run."""
    words = [*small, *SHORT, "--dino.teacher_temp", "0.06"]
    assert script("recipes/dino.py", *words)[0] == 0
    status, out, err = script("recipes/dino.py", *words, "--fit.epochs", "1", "--dino.export", "student")
    assert status == 0, err
    assert len(list(Path("runs").iterdir())) == 1
    assert "so does everything else that is scheduled" in out
    run = next(Path("runs").iterdir())
    assert len(lines(run / "metrics.jsonl")) == 45
    assert json.loads((run / "backbone" / "config.json").read_text())["ssl_vit"]["objective"] == "DINO, student"


def test_other_micro_batches_of_a_network_with_batch_norm_are_another_run(script) -> None:
    words = [
        "--model.name",
        "test_resnet",
        *SHORT,
        "--fit.epochs",
        "0.05",
        "--fit.batch_size",
        "16",
        "--run.dir",
        "run",
    ]
    assert script("recipes/dino.py", *words)[0] == 0
    status, _, err = script("recipes/dino.py", *words, "--fit.micro_batch", "8")
    assert status == 1
    assert "fit.statistics_batch 16 -> 8" in err


def test_bf16(launched, tmp_path: Path, small: list[str]) -> None:
    for precision in ("bf16", "fp32"):
        words = [*small, *SHORT, *PAPER, "--fit.precision", precision, "--run.dir", precision]
        done = launched("recipes/dino.py", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    half, whole = (lines(tmp_path / name / "metrics.jsonl")[0]["loss"] for name in ("bf16", "fp32"))
    assert half == pytest.approx(whole, abs=0.02)
    ranks = [lines(tmp_path / name / "health.jsonl")[0]["effective_rank"] for name in ("bf16", "fp32")]
    assert ranks[0] == pytest.approx(ranks[1], rel=0.1)


def test_a_collapse_stops_the_script_with_one_line(script, small: list[str]) -> None:
    """A teacher so warm that its answers are uniform."""
    words = ["--dino.centring", "mean", "--dino.teacher_temp", "50", "--dino.teacher_warmup", "0"]
    words += ["--dino.check_steps", "5"]
    words += ["--fit.epochs", "4"]
    status, _, err = script("recipes/dino.py", *small, *words, "--dino.out_dim", "64", "--run.dir", "run")
    assert status == 1
    last = err.splitlines()[-1]
    assert re.match(r"error: DINO has collapsed \(uniform\): since step \d+ .* Try a lower --dino.teacher_temp", last)
    assert not Path("run/backbone").exists()
    saved = re.search(r"trains on \(step (\d+) is saved\)$", last)  # nothing is lost, and the same run can go on
    assert saved, last
    assert int(saved[1]) == lines(Path("run/health.jsonl"))[-1]["step"]
    words += ["--dino.out_dim", "64", "--run.dir", "run", "--dino.on_collapse", "warn"]
    status, out, err = script("recipes/dino.py", *small, *words)
    assert status == 0, err
    assert f"continues after step {saved[1]} of" in out
    assert err.count("warning: DINO has collapsed (uniform)") == 1
    assert Path("run/backbone/config.json").exists()


def test_photographs_of_many_sizes(script, small: list[str], photos: Path) -> None:
    words = ["--data.path", "photos", "--fit.epochs", "1", "--dino.export", "student"]
    status, out, err = script("recipes/dino.py", *small, *words, "--run.dir", "run")
    assert status == 0, err
    assert "2 crops of 24 px" in out
    status, out, err = script("eval/knn.py", "--backbone", "run")
    assert status == 0, err


def test_sixteen_bit_channels_leave_colour_operations_out(script, small: list[str], tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        Image.fromarray(rng.integers(0, 60000, (24, 24), dtype=np.uint16)).save(tmp_path / "deep" / f"{i}.png")
    status, _, err = script("recipes/dino.py", *small, "--data.path", "deep", "--fit.epochs", "1", "--run.dir", "run")
    assert status == 0, err
    assert re.search(r"note: .*leaves? out .*(hue|grey|solaris)", err)
