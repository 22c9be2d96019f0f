"""Which library multiplies: training and inference in single precision by torch's own choice and by the scripts'.

    nice taskset -c 1 python benchmarks/bench_products.py --rounds 8

Features and a training step of a ViT, of few tokens and of many, on a batch that is already there: with MKL and torch's
fused attention, as torch has it, and with what ``--fit.products auto`` takes on this kind of processor, with the
attention that goes with it (``models.attention``). CPU time of the process on one thread, in turns; a ratio is time by
torch's choice / time by ours in the same round. Where both are the same library it is about 1. A run replaces the
section of its kind of machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench_bf16 import Case, steps_for
from reports import RESULTS, about, machine, paragraph, same_command, write_parts

CASES = (
    Case(8, 64, 2, 64, 4, 4), Case(32, 32, 4, 192, 12, 3), Case(224, 8, 16, 384, 12, 6), Case(384, 2, 16, 384, 12, 6),
    Case(448, 2, 16, 384, 12, 6),
)  # fmt: skip
WAYS = ("torch's own choice", "as here")


def by(library: str, work: Any) -> Any:
    """The same work with a library."""
    from ssl_vit.training.products import choose_products

    def run(mark: Any) -> Any:
        choose_products("mkl" if library == WAYS[0] else "auto")
        return work(mark)

    return run


def measured(case: Case, rounds: int) -> list[dict[str, Any]]:
    """Times of a training step and of features by both."""
    import torch

    from timing import in_turns, paired, quartiles, totals

    made, rows = {way: steps_for(case, "fp32") for way in WAYS}, list[dict[str, Any]]()
    for i, what in enumerate(("training step", "features")):
        times = in_turns({way: by(way, made[way][i]) for way in WAYS}, rounds, torch.device("cpu"))
        low, middle, high = paired(times[WAYS[1]], times[WAYS[0]])
        rows.append({
            "case": case.told, "batch": case.batch, "what": what, "ratio": middle, "quartiles": [low, high],
            "ms": {way: 1e3 * quartiles(totals(times[way]))[1] for way in WAYS},
        })  # fmt: skip
    return rows


def body(_: str, part: dict[str, Any]) -> list[str]:
    """The rows of one kind of machine."""
    lines = [f"`--fit.products auto` takes {part['chosen']} here.", "",
             "| | network | batch | torch's own choice, ms | as here, ms | times as fast (quartiles) |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for row in part["rows"]:
        low, high = row["quartiles"]
        cells = " | ".join(f"{row['ms'][way]:.1f}" for way in WAYS)
        ratio = f"{row['ratio']:.2f} ({low:.2f} - {high:.2f})"
        lines.append(f"| {row['what']} | {row['case']} | {row['batch']} | {cells} | {ratio} |")
    return lines


def summary(parts: dict[str, Any]) -> list[str]:
    """The least ratio of every kind of machine."""
    return ["", *(
        f"- {machine(part)}: {min(row['ratio'] for row in part['rows'] if row['what'] == what):.2f} times as fast or "
        f"more ({what})" for part in parts.values() for what in ("training step", "features")
    )]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of products.json and products.md")
    options = parser.parse_args()
    import torch
    from ssl_vit.training.products import choose_products

    torch.set_num_threads(1)
    part: dict[str, Any] = {
        "about": about(same_command("bench_products.py", sys.argv[1:])), "chosen": choose_products(), "rows": [],
    }  # fmt: skip
    for case in CASES:
        part["rows"] += measured(case, options.rounds)
        print(*part["rows"][-2:], sep="\n", flush=True)
    head = ["# Which library multiplies", "", paragraph(__doc__, 2)]
    write_parts(options.out, "products", head, {"all": "Single precision"}, {"all": part}, body, summary)


if __name__ == "__main__":
    main()
