"""How several processes share gradients: in the buckets that are summed, over a graph that stays the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import torch
from ssl_vit.configs import ResolvedFit, ResolvedOptim
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.build import make_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.training import launch
from ssl_vit.training.stepping import Stepper

accumulation, hook = int(sys.argv[1]), sys.argv[2] or None
accelerator = launch.join("fp32", 0)
shape = {"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
backbone = make_backbone("vit_tiny_patch16_224", shape, img_size=8)
objective = Supervised(backbone, 3, ResolvedSupervised("mean", drop_path=0.0, ema_decay=0.0, mixup=0.0, cutmix=0.0))
fit = ResolvedFit(gradient_hook=hook, epochs=1.0, min_steps=0, batch_size=8)
stepper = Stepper(objective, fit=fit, optim=ResolvedOptim(lr=1e-3, base_lr=1e-3), accelerator=accelerator)
stepper.prepare(accumulation)
seen = {}

def judge(loss, norm):
    gradients = [p.grad for p in stepper.trained]
    # The buckets' own memory: every gradient lies behind another in one of few.
    seen["memories"] = len({g.untyped_storage().data_ptr() for g in gradients})
    seen["gradients"] = len(gradients)
    seen["exact"] = any(bool((g != g.bfloat16().float()).any()) for g in gradients)

inputs = {"images": torch.full((4, 3, 8, 8), 0.1 + accelerator.process_index), "targets": torch.full((4, 3), 1 / 3)}
stepper(Clock(0, 10, 5), 1e-3, lambda: inputs, judge=judge)
wrapped = stepper.model
seen |= {"views": wrapped.gradient_as_bucket_view, "static": wrapped.static_graph, "wrapper": type(wrapped).__name__}
if accelerator.is_main_process:
    print("seen", json.dumps(seen))
"""


@pytest.mark.parametrize(("accumulation", "hook"), [(1, ""), (2, ""), (1, "bf16")])
def test_gradients_lie_in_the_buckets_and_the_graph_is_static(
    accumulation: int, hook: str, warm, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = warm(program, str(accumulation), hook, cwd=tmp_path, processes=2, ACCELERATE_USE_CPU="1")
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("seen ")).removeprefix("seen "))
    assert seen["wrapper"] == "DistributedDataParallel" and seen["views"]
    # torch's static graph does not go together with passes whose gradients are not summed.
    assert seen["static"] == (accumulation == 1)
    assert seen["memories"] < seen["gradients"] / 4
    assert seen["exact"] == (hook != "bf16")
