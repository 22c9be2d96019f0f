"""Is a CPU faster in bf16, and which attention does it need for that?

    python benchmarks/bench_bf16.py     # four minutes on one CPU core

A training step (forward, backward, AdamW) of ViTs as this project trains them on labels, on a batch that is already
there, in single precision, in bf16 with torch's fused attention, and in bf16 with attention as plain products, in
turns; ratio = time in single precision / time, in the same round. CPU time of the process on one thread. The scripts
choose bf16 by themselves on GPUs and on CPUs with matrix units (AMX).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from reports import RESULTS, about, made_by, paragraph, same_command, write

CASES = [(8, 2, 64, 4, 4, 64), (16, 2, 96, 4, 4, 64), (64, 8, 192, 12, 3, 32), (224, 16, 384, 12, 6, 8)]
"""Side of the input and of patches in pixels, width, depth, heads, images."""
WAYS = {"fp32": ("fp32", False), "bf16, fused": ("bf16", False), "bf16, products": ("bf16", True)}
"""Precision, and whether attention is plain products."""


def step_for(case: tuple[int, ...], way: str) -> Any:
    """A training step of one network in one way."""
    import torch
    from ssl_vit.configs import ResolvedOptim
    from ssl_vit.methods.supervised import ResolvedSupervised
    from ssl_vit.models.build import make_backbone
    from ssl_vit.objectives.supervised import Supervised
    from ssl_vit.training.products import choose_attention

    from steps import step_of

    size, patch, width, depth, heads, batch = case
    precision, plain = WAYS[way]
    torch.manual_seed(0)
    shape = {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": heads}
    backbone = make_backbone("vit_tiny_patch16_224", shape, img_size=size)
    cfg = ResolvedSupervised("mean", mixup=0.0, cutmix=0.0, drop_path=0.0, ema_decay=0.0)
    objective = Supervised(backbone, 10, cfg).train()
    targets = torch.full((batch, 10), 0.1)
    inputs = {"images": torch.randn(batch, 3, size, size), "targets": targets}
    step = step_of(objective, objective, lambda: inputs, ResolvedOptim(lr=1e-5, base_lr=1e-3), torch.device("cpu"))

    def run(mark: Any) -> Any:
        choose_attention("bf16" if plain else "fp32")
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return step(mark)

    return run


def measured(case: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Times in every way."""
    import torch

    from timing import in_turns, paired, quartiles, totals

    times = in_turns({way: step_for(case, way) for way in WAYS}, rounds, torch.device("cpu"))
    row: dict[str, Any] = {"case": case}
    for way in WAYS:
        low, middle, high = paired(times[way], times["fp32"])
        row[way] = {"ms": 1e3 * quartiles(totals(times[way]))[1], "ratio": middle, "quartiles": [low, high]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for bf16.json and bf16.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    amx = torch.cpu._is_amx_tile_supported()
    made = about(same_command("bench_bf16.py", sys.argv[1:]), f"CPU {'with' if amx else 'without'} AMX, one thread",
                 rounds=options.rounds)  # fmt: skip
    lines = ["| input, px | patch, px | width | depth | batch | " + " | ".join(f"{w}, ms | ratio" for w in WAYS) + " |",
             "| ---: | ---: | ---: | ---: | ---: |" + " ---: | ---: |" * len(WAYS)]  # fmt: skip
    rows = []
    for case in CASES:
        row = measured(case, options.rounds)
        size, patch, width, depth, _, batch = case
        cells = [f"{r['ms']:.1f} | {r['ratio']:.2f} ({r['quartiles'][0]:.2f} - {r['quartiles'][1]:.2f})"
                 for r in (row[way] for way in WAYS)]  # fmt: skip
        lines.append(f"| {size} | {patch} | {width} | {depth} | {batch} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        rows.append(row)
    head = ["# bf16 on a CPU", "", paragraph(__doc__, 2), ""]
    write(options.out, "bf16", {"about": made, "rows": rows}, [*head, *lines, "", made_by(made, ("torch", "timm"))])


if __name__ == "__main__":
    main()
