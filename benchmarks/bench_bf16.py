"""Is a CPU faster in bf16, and which attention does it need for that?

    python benchmarks/bench_bf16.py               # six minutes on one CPU core
    python benchmarks/bench_bf16.py --vectors     # the same without the processor's matrix units

A training step (forward, backward, AdamW) of ViTs as this project trains them on labels, on a batch that is already
there, and the features of the same images: in single precision, in bf16 with torch's fused attention, with torch's
products instead, and as the scripts have it (``models.attention``), in turns. A ratio is time in single precision /
time, in the same round. CPU time of the process on one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from reports import RESULTS, about, made_by, paragraph, same_command, write

CASES = [(8, 2, 64, 4, 4, 64), (16, 2, 96, 4, 4, 64), (32, 4, 192, 12, 3, 32), (64, 8, 192, 12, 3, 32),
         (224, 16, 384, 12, 6, 8), (384, 16, 384, 12, 6, 2)]  # fmt: skip
"""Side of the input and of patches in pixels, width, depth, heads, images."""
WAYS = ("fp32", "bf16, fused", "bf16, torch's products", "bf16, as here")


def steps_for(case: tuple[int, ...], way: str) -> list[Any]:
    """A training step of one network in one way, and what makes features."""
    import torch
    import torch.nn.functional as F
    from ssl_vit.configs import ResolvedOptim
    from ssl_vit.methods.supervised import ResolvedSupervised
    from ssl_vit.models import blocks
    from ssl_vit.models.attention import attention
    from ssl_vit.models.build import make_backbone
    from ssl_vit.objectives.supervised import Supervised
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from steps import step_of

    size, patch, width, depth, heads, batch = case
    torch.manual_seed(0)
    shape = {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": heads}
    backbone = make_backbone("vit_tiny_patch16_224", shape, img_size=size)
    cfg = ResolvedSupervised("mean", mixup=0.0, cutmix=0.0, drop_path=0.0, ema_decay=0.0)
    objective = Supervised(backbone, 10, cfg).train()
    targets = torch.full((batch, 10), 0.1)
    inputs = {"images": torch.randn(batch, 3, size, size), "targets": targets}
    step = step_of(objective, objective, lambda: inputs, ResolvedOptim(lr=1e-5, base_lr=1e-3), torch.device("cpu"))

    def features(mark: Any) -> Any:
        with torch.inference_mode():
            backbone.forward_pooled(inputs["images"], pool="mean")
        mark("all")

    def timed(work: Any) -> Any:
        def run(mark: Any) -> Any:
            blocks.attention = attention if way in ("fp32", "bf16, as here") else F.scaled_dot_product_attention
            products = sdpa_kernel(SDPBackend.MATH) if way == "bf16, torch's products" else nullcontext()
            with products, torch.autocast("cpu", torch.bfloat16, enabled=way != "fp32"):
                return work(mark)

        return run

    return [timed(step), timed(features)]


def measured(case: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Times in every way, of training and of features."""
    import torch

    from timing import in_turns, paired, quartiles, totals

    made, rows = {way: steps_for(case, way) for way in WAYS}, list[dict[str, Any]]()
    for i, what in enumerate(("training step", "features")):
        times = in_turns({way: made[way][i] for way in WAYS}, rounds, torch.device("cpu"))
        row: dict[str, Any] = {"case": case, "what": what}
        for way in WAYS:
            low, middle, high = paired(times[way], times["fp32"])
            row[way] = {"ms": 1e3 * quartiles(totals(times[way]))[1], "ratio": middle, "quartiles": [low, high]}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--vectors", action="store_true", help="leave out matrix units (AMX); bf16_vectors.md")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for bf16.json and bf16.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.vectors:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    import torch

    torch.set_num_threads(1)
    amx = torch.cpu._is_amx_tile_supported() and not options.vectors
    made = about(same_command("bench_bf16.py", sys.argv[1:]), f"CPU {'with' if amx else 'without'} AMX, one thread",
                 rounds=options.rounds)  # fmt: skip
    lines = ["| | input, px | tokens | width | depth | batch | fp32, ms | " + " | ".join(WAYS[1:]) + " |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |" + " ---: |" * len(WAYS[1:])]  # fmt: skip
    rows = list[dict[str, Any]]()
    for case in CASES:
        size, patch, width, depth, _, batch = case
        for row in measured(case, options.rounds):
            cells = [f"{r['ratio']:.2f} ({r['quartiles'][0]:.2f} - {r['quartiles'][1]:.2f})"
                     for r in (row[way] for way in WAYS[1:])]  # fmt: skip
            lines.append(
                f"| {row['what']} | {size} | {(size // patch) ** 2 + 1} | {width} | {depth} | {batch} | "
                f"{row['fp32']['ms']:.1f} | {' | '.join(cells)} |"
            )
            print(lines[-1], flush=True)
            rows.append(row)
    head = ["# bf16 on a CPU", "", paragraph(__doc__, 2), ""]
    name = "bf16_vectors" if options.vectors else "bf16"
    write(options.out, name, {"about": made, "rows": rows}, [*head, *lines, "", made_by(made, ("torch", "timm"))])


if __name__ == "__main__":
    main()
