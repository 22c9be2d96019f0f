"""Every process holds a part of each weight (FSDP2): the same numbers, checkpoints together, any number of processes.

On a CPU the processes meet by gloo, which gathers and sums all that sharding needs. What it cannot show is that copies
overlap with arithmetic, and what NCCL does with bf16.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SMALL = [
    "--model.width", "16", "--model.depth", "2", "--model.heads", "2", "--fit.batch_size", "32", "--fit.epochs", "0.2",
    "--fit.log_every", "1", "--optim.lr", "0.002",
]  # fmt: skip
METHODS = {
    "mae": ["--fit.clip_grad", "0.1"],
    "dino": ["--dino.out_dim", "64", "--crops.local_crops", "2", "--fit.clip_each", "0.05", "--fit.micro_batch", "8"],
    "lejepa": ["--fit.clip_each", "0.05"],
    "supervised": ["--supervised.ema_decay", "0.9", "--supervised.drop_path", "0.2", "--fit.micro_batch", "8"],
}

STOPPING = """
import os, runpy, signal, sys
from ssl_vit.objectives.mae import MAE
from ssl_vit.training import stopping

stopping._EVERY = 0.0  # a test's run is over within a second
at = int(sys.argv.pop(1))

def after_step(self, clock):
    if clock.step == at and os.environ.get("RANK", "0") == "1":
        os.kill(os.getpid(), signal.SIGTERM)

MAE.after_step = after_step
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
FULL = """
import os, resource, runpy, sys
from ssl_vit.training import sharded_checkpoint
from ssl_vit.training.sharded_checkpoint import ShardedCheckpoints

rank, checked = sys.argv.pop(1), sys.argv.pop(1)
save = ShardedCheckpoints.save

def full(self, step, *given):
    if step == 4:
        self.finish()
        if os.environ["RANK"] == rank:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    save(self, step, *given)

ShardedCheckpoints.save = full
if checked == "no":  # space that is gone by the time it is written
    sharded_checkpoint.check_space = lambda *_: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ROOT = Path(__file__).resolve().parents[2]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "backbone" / "model.safetensors")


@pytest.mark.parametrize("method", METHODS)
def test_parts_and_whole_ones_give_the_same_numbers(method: str, tmp_path: Path, launch, losses) -> None:
    words = [*SMALL, *METHODS[method], "--fit.precision", "fp64"]
    for name, shard in (("whole", "false"), ("parts", "true")):
        done = launch(2, f"recipes/{method}.py", *words, "--fit.shard", shard, "--run.dir", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
    assert list((tmp_path / "parts" / "checkpoints").glob("*.shards"))
    assert not list((tmp_path / "parts" / "checkpoints").glob("*.p*t"))
    one, other = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert len(one) == len(other) > 5
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1e-9
    before, after = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all((before[name] - after[name]).abs().max() <= 1e-6 for name in before)
    health = [(tmp_path / name / "health.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    for a, b in zip(*([json.loads(line) for line in lines] for lines in health), strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_single_precision_agrees_to_a_millionth(tmp_path: Path, launch, losses) -> None:
    for name, shard in (("whole", "false"), ("parts", "true")):
        words = [*SMALL, "--fit.precision", "fp32", "--fit.shard", shard, "--run.dir", name]
        words += ["--fit.checkpoint_minutes", "0"]  # by time: the others are told only now and then
        done = launch(2, "recipes/mae.py", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
    one, other = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1e-6


def test_a_run_goes_on_in_parts_bit_for_bit_and_whole_on_any_number_of_processes(
    tmp_path: Path, launch, losses
) -> None:
    (tmp_path / "stopping.py").write_text(STOPPING)
    words = [*SMALL, "--fit.precision", "fp64", "--fit.shard", "true", "--fit.checkpoint_steps", "2", "--run.dir"]
    program = [str(tmp_path / "stopping.py")]
    whole = launch(2, *program, "-1", str(ROOT / "recipes/mae.py"), *words, "never", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr[-4000:]
    for name, processes in (("two", 2), ("one", 1)):
        stopped = launch(2, *program, "4", str(ROOT / "recipes/mae.py"), *words, name, cwd=tmp_path)
        assert stopped.returncode == 75, stopped.stderr[-4000:]
        assert "stopped after step 5, which is saved" in stopped.stderr
        assert sorted(p.name for p in (tmp_path / name / "checkpoints").iterdir()) == [
            "step_000000004.shards", "step_000000004.shards.sha256",
            "step_000000005.shards", "step_000000005.shards.sha256",
        ]  # fmt: skip
        again = launch(processes, "recipes/mae.py", *words, name, cwd=tmp_path)
        assert again.returncode == 0, again.stderr[-4000:]
        assert "continues after step 5" in again.stdout
    same = (tmp_path / "two" / "metrics.jsonl").read_text() == (tmp_path / "never" / "metrics.jsonl").read_text()
    assert same
    one, two = losses(tmp_path / "one"), losses(tmp_path / "never")
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    assert list((tmp_path / "one" / "checkpoints").glob("*.pt"))
    # And from a file that one process wrote, in parts again.
    longer = [*words[:-1], "--fit.epochs", "0.25", "--run.dir", "one"]
    back = launch(2, "recipes/mae.py", *longer, cwd=tmp_path)
    assert back.returncode == 0, back.stderr[-4000:]
    assert len(losses(tmp_path / "one")) > len(one)


def test_a_damaged_part_is_passed_over(tmp_path: Path, launch) -> None:
    (tmp_path / "stopping.py").write_text(STOPPING)
    words = [*SMALL, "--fit.precision", "fp64", "--fit.shard", "true", "--fit.checkpoint_steps", "2", "--run.dir", "r"]
    program = [str(tmp_path / "stopping.py"), "4", str(ROOT / "recipes/mae.py")]
    stopped = launch(2, *program, *words, cwd=tmp_path)
    assert stopped.returncode == 75, stopped.stderr[-4000:]
    file = tmp_path / "r" / "checkpoints" / "step_000000005.shards" / "__1_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    again = launch(2, "recipes/mae.py", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-4000:]
    assert "step_000000005.shards is damaged or incomplete; an older one is used" in again.stderr
    assert "continues after step 4" in again.stdout


@pytest.mark.parametrize(("rank", "checked"), [("0", "yes"), ("0", "no"), ("1", "no")])
def test_a_disk_that_fills_up_is_told_in_one_line_and_the_step_before_is_safe(
    rank: str, checked: str, tmp_path: Path, launch
) -> None:
    (tmp_path / "full.py").write_text(FULL)
    words = [*SMALL, "--fit.shard", "true", "--fit.checkpoint_steps", "2", "--run.dir", "r"]
    done = launch(2, str(tmp_path / "full.py"), rank, checked, str(ROOT / "recipes/mae.py"), *words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    (told,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert told.startswith("error: a file may not grow so large (ulimit -f)")
    assert (" bytes of 20,000 allowed" in told) == (checked == "yes")
    assert f"step 2 is safe in {tmp_path / 'r' / 'checkpoints'}; " in told
    assert sorted(path.name for path in (tmp_path / "r" / "checkpoints").iterdir()) == [
        "step_000000002.shards", "step_000000002.shards.sha256",
    ]  # fmt: skip
    assert not (tmp_path / "r" / "run.lock").exists()
    again = launch(2, "recipes/mae.py", *words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-4000:]
    assert "continues after step 2" in again.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--optim.name", "lars"], "--optim.name lars"), (["--fit.compile", "true"], "--fit.compile true"),
     (["--fit.watch", "knn"], "--fit.watch")],
)  # fmt: skip
def test_what_cannot_be_done_in_parts_is_refused(words: list[str], told: str, tmp_path: Path, launch) -> None:
    done = launch(2, "recipes/mae.py", *SMALL, "--fit.shard", "true", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert f"error: --fit.shard true does not go together with {told}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shard", ["false", "true"])
def test_gradients_are_summed_in_bf16_where_that_is_asked_for(shard: str, tmp_path: Path, launch, losses) -> None:
    words = [*SMALL, "--fit.precision", "fp32", "--fit.shard", shard]
    for name, more in (("exact", []), ("rounded", ["--fit.gradient_hook", "bf16"])):
        done = launch(2, "recipes/mae.py", *words, *more, "--run.dir", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
    exact, rounded = losses(tmp_path / "exact"), losses(tmp_path / "rounded")
    assert exact[0] == rounded[0]
    assert exact[1:] != rounded[1:]
    assert rounded == pytest.approx(exact, rel=0.05)
