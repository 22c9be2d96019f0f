"""Is a CPU faster in bf16, and which attention does it need for that?

    python benchmarks/bench_bf16.py               # six minutes on one CPU core
    python benchmarks/bench_bf16.py --vectors     # the same without the processor's matrix units

A training step (forward, backward, AdamW) as this project trains on labels, on a batch that is already there, and the
features of the same images: in single precision by the library that our scripts choose on that processor, in bf16 with
torch's fused attention, with torch's products instead, and as the scripts have it (``models.attention``), in turns. A
ratio is time in single precision / time, in the same round. CPU time of the process on one thread. A run replaces the
section of its kind of machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from reports import RESULTS, about, machine, paragraph, same_command, write_parts

TITLES = {"bf16": "As the processor is", "vectors": "Without its matrix units"}
WAYS = ("fp32", "bf16, fused", "bf16, torch's products", "bf16, as here")


class Case(NamedTuple):
    """A network and what it is given; a ViT by its shape, another by its name."""

    size: int
    batch: int
    patch: int = 0
    width: int = 0
    depth: int = 0
    heads: int = 0
    name: str = "vit_tiny_patch16_224"

    @property
    def shape(self) -> dict[str, int]:
        """What timm is told."""
        if not self.patch:
            return {}
        return {"patch_size": self.patch, "embed_dim": self.width, "depth": self.depth, "num_heads": self.heads}

    @property
    def told(self) -> str:
        """For the table."""
        if not self.patch:
            return f"{self.name}, {self.size} px"
        tokens = (self.size // self.patch) ** 2 + 1
        return f"ViT/{self.patch}, {self.size} px, {tokens} tokens, {self.width} x {self.depth}"


CASES = (
    Case(8, 64, 2, 64, 4, 4), Case(16, 64, 2, 96, 4, 4), Case(32, 32, 4, 192, 12, 3), Case(64, 32, 8, 192, 12, 3),
    Case(224, 8, 16, 384, 12, 6), Case(384, 2, 16, 384, 12, 6), Case(32, 64, name="resnet_mini"),
    Case(32, 64, name="hybrid_mini"),
)  # fmt: skip


def steps_for(case: Case, way: str) -> list[Any]:
    """A training step of one network in one way, and what makes features."""
    import torch
    import torch.nn.functional as F
    from ssl_vit.configs import ResolvedOptim
    from ssl_vit.methods.supervised import ResolvedSupervised
    from ssl_vit.models import blocks
    from ssl_vit.models.attention import attention
    from ssl_vit.objectives.supervised import Supervised
    from ssl_vit.training.products import training_attention
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from steps import network, step_of

    torch.manual_seed(0)
    backbone = network(case.name, case.shape, case.size)
    cfg = ResolvedSupervised("mean", mixup=0.0, cutmix=0.0, drop_path=0.0, ema_decay=0.0)
    objective = Supervised(backbone, 10, cfg).train()
    targets = torch.full((case.batch, 10), 0.1)
    inputs = {"images": torch.randn(case.batch, 3, case.size, case.size), "targets": targets}
    step = step_of(objective, objective, lambda: inputs, ResolvedOptim(lr=1e-5, base_lr=1e-3), torch.device("cpu"))

    def features(mark: Any) -> Any:
        with torch.inference_mode():
            backbone.forward_pooled(inputs["images"], pool="mean")
        mark("all")

    def timed(work: Any, *, training: bool) -> Any:
        def run(mark: Any) -> Any:
            blocks.attention = attention if way in ("fp32", "bf16, as here") else F.scaled_dot_product_attention
            products = nullcontext()
            if way == "bf16, torch's products":
                products = sdpa_kernel(SDPBackend.MATH)
            elif way != "bf16, fused" and training:
                products = training_attention("no" if way == "fp32" else "bf16")
            with products, torch.autocast("cpu", torch.bfloat16, enabled=way != "fp32"):
                return work(mark)

        return run

    return [timed(step, training=True), timed(features, training=False)]


def measured(case: Case, rounds: int) -> list[dict[str, Any]]:
    """Times in every way, of training and of features."""
    import torch

    from timing import in_turns, paired, quartiles, totals

    made, rows = {way: steps_for(case, way) for way in WAYS}, list[dict[str, Any]]()
    for i, what in enumerate(("training step", "features")):
        times = in_turns({way: made[way][i] for way in WAYS}, rounds, torch.device("cpu"))
        row: dict[str, Any] = {"case": case.told, "batch": case.batch, "what": what}
        for way in WAYS:
            low, middle, high = paired(times[way], times["fp32"])
            row[way] = {"ms": 1e3 * quartiles(totals(times[way]))[1], "ratio": middle, "quartiles": [low, high]}
        rows.append(row)
    return rows


def table(part: dict[str, Any]) -> list[str]:
    """All networks of one kind of machine."""
    lines = ["| | network | batch | fp32, ms | " + " | ".join(WAYS[1:]) + " |",
             "| --- | --- | ---: | ---: |" + " ---: |" * len(WAYS[1:])]  # fmt: skip
    for row in part["rows"]:
        cells = [f"{r['ratio']:.2f} ({r['quartiles'][0]:.2f} - {r['quartiles'][1]:.2f})"
                 for r in (row[way] for way in WAYS[1:])]  # fmt: skip
        lines.append(
            f"| {row['what']} | {row['case']} | {row['batch']} | {row['fp32']['ms']:.1f} | {' | '.join(cells)} |"
        )
    return lines


def summary(parts: dict[str, Any]) -> list[str]:
    """The training step as the scripts have it, all kinds of machine beside each other."""
    cases = list(dict.fromkeys(row["case"] for part in parts.values() for row in part["rows"]))
    heads = [f"{machine(part)}{', without matrix units' * key.startswith('vectors')}" for key, part in parts.items()]
    lines = ["", "Training, bf16 as here, how many times as fast as fp32:", "",
             "| network | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]  # fmt: skip
    for case in cases:
        cells = [next((f"{row[WAYS[3]]['ratio']:.2f}" for row in part["rows"]
                       if row["case"] == case and row["what"] == "training step"), "")
                 for part in parts.values()]  # fmt: skip
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--vectors", action="store_true", help="leave out matrix units (AMX)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for bf16.json and bf16.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.vectors:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    import torch
    from ssl_vit.training.products import choose_products

    torch.set_num_threads(1)
    library = choose_products("mkl" if options.vectors else "auto")
    amx = torch.cpu._is_amx_tile_supported() and not options.vectors
    made = about(same_command("bench_bf16.py", sys.argv[1:]),
                 f"CPU {'with' if amx else 'without'} AMX, one thread, single precision by {library}",
                 rounds=options.rounds)  # fmt: skip
    rows = [row for case in CASES for row in measured(case, options.rounds)]
    part = {"about": made, "rows": rows}
    print("\n".join(table(part)))
    key = "vectors" if options.vectors else "bf16"
    head = ["# bf16 on a CPU", "", paragraph(__doc__, 2)]
    write_parts(options.out, "bf16", head, TITLES, {key: part}, lambda _, one: table(one), summary)


if __name__ == "__main__":
    main()
