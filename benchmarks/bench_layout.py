"""Are networks with convolutions faster where the channels of a place lie together in memory (--fit.channels_last)?

    python benchmarks/bench_layout.py                    # three minutes on one CPU core
    python benchmarks/bench_layout.py --precision bf16   # on a processor that multiplies so
    python benchmarks/bench_layout.py --device cuda      # on a GPU, under bf16 autocast

A training step (forward, backward, AdamW) of timm's networks as this project trains them on labels, on a batch that is
already there, in both layouts in turns; ratio = time with each channel by itself / time with channels together, in the
same round. CPU time of the process on one thread, device time on a GPU. Short names are those of --model.name.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from reports import RESULTS, about, paragraph, same_command, write_parts

CASES = [("resnet18", 64, 8), ("resnet50", 96, 8), ("convnext_atto", 96, 8), ("efficientnet_b0", 96, 8),
         ("mobilevit_xs", 128, 8), ("pvt_v2_b0", 96, 8), ("swin_tiny_patch4_window7_224", 224, 2),
         *((f"{name}_mini", 32, 64) for name in ("resnet", "convnext", "mobilevit", "cct", "cvt", "pvtv2", "pvt",
                                                 "hybrid", "t2t", "dat", "swin"))]  # fmt: skip
"""Network, side of its input in pixels, images."""
TITLES = {"fp32": "On a CPU in single precision", "bf16": "On a CPU in bf16", "cuda": "On a GPU in bf16"}
LAYOUTS = {"apart": False, "together": True}


def step_for(name: str, size: int, batch: int, together: bool, device: Any, bf16: bool) -> Any:
    """A training step of one network in one layout."""
    import torch
    from ssl_vit.configs import ResolvedOptim
    from ssl_vit.methods.supervised import ResolvedSupervised
    from ssl_vit.objectives.supervised import Supervised

    from steps import network, step_of

    torch.manual_seed(0)
    backbone = network(name, {}, size)
    cfg = ResolvedSupervised("mean", mixup=0.0, cutmix=0.0, drop_path=0.0, ema_decay=0.0)
    objective = Supervised(backbone, 1000, cfg).to(device).train()
    if together:
        backbone.keep_channels_together()
    targets = torch.full((batch, 1000), 1e-3, device=device)
    inputs = {"images": torch.randn(batch, 3, size, size).to(device), "targets": targets}
    return step_of(objective, objective, lambda: inputs, ResolvedOptim(lr=1e-5, base_lr=1e-3), device, bf16)


def measured(name: str, size: int, batch: int, rounds: int, device: Any, bf16: bool) -> dict[str, Any]:
    """Times in both layouts."""
    from timing import in_turns, paired, quartiles, totals

    steps = {each: step_for(name, size, batch, together, device, bf16) for each, together in LAYOUTS.items()}
    times = in_turns(steps, rounds, device)
    low, middle, high = paired(times["together"], times["apart"])
    return {
        "network": name, "size": size, "batch": batch, "ratio": middle, "quartiles": [low, high],
        **{f"{each}_ms": 1e3 * quartiles(totals(times[each]))[1] for each in LAYOUTS},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cases", type=int, nargs="+", default=list(range(len(CASES))), help="which networks, from 0")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="on a CPU")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for layout.json and layout.md")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from timing import device_name

    torch.set_num_threads(1)
    device = torch.device(options.device)
    words = same_command("bench_layout.py", sys.argv[1:])
    made = about(words, device_name(device), rounds=options.rounds)
    rows = []
    for name, size, batch in (CASES[i] for i in options.cases):
        rows.append(measured(name, size, batch, options.rounds, device, options.precision == "bf16"))
        print(_row(rows[-1]), flush=True)
    head = ["# The layout of convolutional networks", "", paragraph(__doc__, 2)]
    part = "cuda" if options.device == "cuda" else options.precision
    write_parts(options.out, "layout", head, TITLES, {part: {"about": made, "rows": rows}}, _table)


def _row(row: dict[str, Any]) -> str:
    low, high = row["quartiles"]
    return (
        f"| {row['network']} | {row['size']} | {row['batch']} | {row['apart_ms']:.1f} | {row['together_ms']:.1f} | "
        f"{row['ratio']:.2f} ({low:.2f} - {high:.2f}) |"
    )


def _table(_: str, part: dict[str, Any]) -> list[str]:
    head = ["| network | input, px | batch | apart, ms | together, ms | ratio (quartiles) |",
            "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    return [*head, *map(_row, part["rows"])]


if __name__ == "__main__":
    main()
