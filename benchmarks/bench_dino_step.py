"""DINO's training step against the authors' code at the same shapes, in one process and in turns.

    python benchmarks/bench_dino_step.py --official CHECKOUT      # of facebookresearch/dino
    python benchmarks/bench_dino_step.py                          # without it: our step alone

One thread, CPU time of the process, round robin; ratio = median over rounds of theirs / ours. A step is teacher and
student forward, loss, backward, per-parameter clip, AdamW, teacher and centre, on crops that are already there; the
last layer is trained (as after the first epoch), no stochastic depth in either.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"
SHAPES = {
    "ViT-Ti/4, 2 x 32 + 6 x 16 px, out_dim 65,536, batch 8": (8, 65536),
    "ViT-Ti/4, 2 x 32 + 6 x 16 px, out_dim 65,536, batch 32": (32, 65536),
    "ViT-Ti/4, 2 x 32 + 6 x 16 px, out_dim 4,096, batch 32": (32, 4096),
}
Step = Callable[[], float]


def crops(batch: int) -> list[torch.Tensor]:
    """Two global and six local crops of noise."""
    g = torch.Generator().manual_seed(0)
    return [torch.randn(batch, 3, s, s, generator=g) for s in (32,) * 2 + (16,) * 6]


def ours(batch: int, out_dim: int) -> Step:
    """A step of the loop, without logging."""
    from ssl_vit.configs import DINOConfig, ModelConfig, OptimConfig
    from ssl_vit.models.build import build_backbone
    from ssl_vit.objectives.base import Clock
    from ssl_vit.objectives.dino import DINO
    from ssl_vit.optim import clip_each, make_optimizer, parameter_groups

    torch.manual_seed(0)
    model = ModelConfig("vit_tiny_patch16_224", 32, 4, 192, 12, 3, "learnable", "cls")
    cfg = DINOConfig(out_dim=out_dim, head_hidden=2048, head_bottleneck=256, teacher_temp=0.04,
                     warmup_teacher_temp=0.04, teacher_warmup=0.0, centring="mean", freeze_last_layer=0.0,
                     check_steps=10**9)  # fmt: skip
    dino = DINO(build_backbone(model, 3), cfg, pool="cls", batch_size=batch).train()
    groups = parameter_groups(dino.named_parameters(), weight_decay=0.04)
    optimizer = make_optimizer(groups, OptimConfig(betas=(0.9, 0.999)))
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    trained = [p for p in dino.parameters() if p.requires_grad]
    views = crops(batch)
    inputs = {"globals": torch.stack(views[:2], 1), "locals": torch.stack(views[2:], 1)}
    clock = Clock(100, 10**6, 10.0)

    def step() -> float:
        dino.begin_step(clock)
        loss = dino(inputs).loss
        loss.backward()
        dino.after_backward(clock)
        clip_each(trained, 3.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dino.after_step(clock)
        return float(loss.detach())

    return step


def official(checkout: str, batch: int, out_dim: int) -> Step:
    """The same with the authors' network, head, loss and clipping."""
    import warnings

    sys.path.insert(0, checkout)
    warnings.simplefilter("ignore")
    import main_dino  # pyright: ignore[reportMissingImports]
    import utils  # pyright: ignore[reportMissingImports]
    import vision_transformer as vits  # pyright: ignore[reportMissingImports]

    if not torch.distributed.is_initialized():  # their centre is always reduced over processes
        place = Path(tempfile.mkdtemp()) / "store"
        torch.distributed.init_process_group("gloo", init_method=place.as_uri(), rank=0, world_size=1)
    torch.manual_seed(0)

    def branch() -> torch.nn.Module:
        net = vits.vit_tiny(patch_size=4, img_size=[32])
        return utils.MultiCropWrapper(net, vits.DINOHead(net.embed_dim, out_dim, use_bn=False, norm_last_layer=True))

    student, teacher = branch().train(), branch().train()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    loss_of = main_dino.DINOLoss(out_dim, 8, 0.04, 0.04, 0, 100)
    optimizer = torch.optim.AdamW(utils.get_params_groups(student), lr=1e-5, weight_decay=0.04)
    views = crops(batch)

    def step() -> float:
        loss = loss_of(student(views), teacher(views[:2]), 10)
        seen = loss.item()
        optimizer.zero_grad()
        loss.backward()
        utils.clip_gradients(student, 3.0)
        utils.cancel_gradients_last_layer(10, student, 1)
        optimizer.step()
        with torch.no_grad():
            for now, kept in zip(student.parameters(), teacher.parameters(), strict=True):
                kept.data.mul_(0.996).add_((1 - 0.996) * now.detach().data)
        return seen

    return step


def measure(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every round, each version in turn, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if number:
                seconds[name].append(time.process_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a checkout of facebookresearch/dino")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    from ssl_vit.rundir import commit, hardware, versions

    rows = []
    for name, (batch, out_dim) in SHAPES.items():
        steps = {"ours": ours(batch, out_dim)}
        if options.official:
            steps["official"] = official(options.official, batch, out_dim)
        seconds = measure(steps, options.rounds)
        row = {"shape": name, **{f"{k}_ms": 1e3 * statistics.median(v) for k, v in seconds.items()}}
        if options.official:
            ratios = sorted(b / a for a, b in zip(seconds["ours"], seconds["official"], strict=True))
            row |= {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
        rows.append(row)
        print(row, flush=True)
    about = {"command": "python benchmarks/bench_dino_step.py --official CHECKOUT", "commit": commit(),
             "versions": versions(), "hardware": hardware(), "rounds": options.rounds}  # fmt: skip
    if not options.official:
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dino_step.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    lines = [
        "# DINO: one training step against facebookresearch/dino", "", (__doc__ or "").split("\n\n")[-1].strip(), "",
        "| shape | official, ms | ours, ms | ratio (least to most of the rounds) |", "| --- | ---: | ---: | ---: |",
    ]  # fmt: skip
    lines += [
        f"| {r['shape']} | {r['official_ms']:.0f} | {r['ours_ms']:.0f} | {r['ratio']:.2f} ({r['least']:.2f} to "
        f"{r['most']:.2f}) |"
        for r in rows
    ]
    made = ", ".join(f"{p} {about['versions'][p]}" for p in ("torch", "timm", "python"))
    lines += ["", f"Made by `{about['command']}` at commit {about['commit']} with {made}, on one thread of "
              f"{about['hardware']['cpu']}; {options.rounds} rounds.", ""]  # fmt: skip
    (RESULTS / "dino_step.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
