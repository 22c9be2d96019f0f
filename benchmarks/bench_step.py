"""One bare training step of this project and of others at the same shapes, in one process and in turns.

    python benchmarks/bench_step.py --official_mae CHECKOUT --official_dino CHECKOUT --compiled
    python benchmarks/bench_step.py --only supervised --rounds 3        # a quick look at one part

CHECKOUT: a clone of facebookresearch/mae or facebookresearch/dino; transformers, lightly and timm take part where they
are installed. A step is forward pass, backward pass and optimiser on a batch that is already there, with masks or
stochastic depth drawn in it; for DINO also the clip of every gradient, teacher and centre. Both have the same learning
rate, betas and decay. On a CPU one thread and CPU time of the process; on a GPU device time, both under bf16 autocast.

"As people run it" is theirs as its scripts build it: torch's own choice of matrix library and AdamW as torch comes with
it; "same library, fused optimiser" is theirs with the library that our scripts choose on that processor, with attention
as plain products where that library needs them (torch's fused kernel is slow under oneDNN), and with torch's fused
AdamW, which is what ours has. "ours, bf16" is what our scripts take by themselves where a kind of processor is known to
be faster so; theirs run in single precision there. "Compiled" is --fit.compile true, of ours alone. Large pages, which
our scripts ask for, are left out.

Each round times everything once; a ratio is theirs / ours within a round, the table has the median of the rounds and
the quartiles. MFU: operations of the whole model (no saving of ours counted) per second, as a share of the fastest
matrix product of single precision, timed in the same rounds. So with the same library a ratio cannot be much more than
1 over the MFU that theirs has: where that is 66 %, say, a ratio of 1.3 needs 86 %. Before anything is
timed, the losses of both at the same weights are compared where weights can be copied. Each part replaces its own
section of results/step.json and step.md on that kind of machine; sections of other kinds are kept.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from reports import RESULTS, about, machine, paragraph, same_command, verdict, write_parts

TITLES = {"mae": "MAE", "dino": "DINO", "supervised": "Supervised"}
OURS: dict[str, dict[str, Any]] = {
    "ours": {}, "ours, bf16": {"bf16": True}, "ours, compiled": {"compiled": True},
    "ours, bf16, compiled": {"bf16": True, "compiled": True},
}  # fmt: skip
"""Our versions, and what ``steps.ours`` makes of them."""
SAME = "same library, fused optimiser"
GOALS = {"mae": (1.10, 1.90), "dino": (1.30, 2.20)}
"""What the authors' program should take in units of ours: with the same library and a fused optimiser; as people run it
where ours is in bf16."""


class Case(NamedTuple):
    """A shape, and the program that counts."""

    name: str
    shape: Any
    against: str
    compiles: bool = False
    """With --compiled; a minute or more each."""


def cases(tiny: bool) -> dict[str, list[Case]]:
    """By objective. The decoder of ViT-Ti/4 is that of IcarusWizard/MAE, which fits 1.3 GFLOP an image; ViT-S/16 has
    the paper's."""
    from peers import OFFICIAL
    from steps import DINOShape, MAEShape, Net, SupervisedShape

    small, photo = Net("ViT-Ti/4, 32 px", 32, 4, 192, 12, 3), Net("ViT-S/16, 224 px", 224, 16, 384, 12, 6)
    mae, dino = OFFICIAL["mae"], OFFICIAL["dino"]
    if tiny:
        toy = Net("toy", 8, 4, 16, 2, 2)
        return {
            "mae": [Case("toy, batch 2", MAEShape(toy, 2, (16, 2, 2)), mae)],
            "dino": [Case("toy, batch 2", DINOShape(toy, 2, 32, 2, 4), dino)],
            "supervised": [Case("toy, batch 2", SupervisedShape(toy, 2), "timm")],
        }
    decoder = (192, 4, 3)
    maes = [
        Case(f"{small.name}, decoder 192 x 4, batch {b}", MAEShape(small, b, decoder), mae, compiles=b > 4)
        for b in (4, 16, 128)
    ]
    maes.append(Case(f"{photo.name}, decoder 512 x 8, batch 8", MAEShape(photo, 8, (512, 8, 16)), mae))
    dinos = [
        Case(f"{small.name} + 6 x 16 px, out_dim {k:,}, batch {b}, drop path {d:g}",
             DINOShape(small, b, k, 6, 16, d), dino)
        for d in (0.0, 0.1)
        for k, b in ((65536, 8), (65536, 32), (4096, 32))
    ]  # fmt: skip
    labelled = [
        Case(f"{small.name}, batch 64", SupervisedShape(small, 64), "timm"),
        Case(f"{photo.name}, batch 8", SupervisedShape(photo, 8), "timm"),
    ]
    return {"mae": maes, "dino": dinos, "supervised": labelled}


def measured(case: Case, options: argparse.Namespace, device: Any) -> dict[str, Any]:
    """One row: every program's time, parts and share of the ceiling, and the ratios."""
    from ssl_vit.training.products import bf16_is_faster

    from peers import Missing, peers_of
    from steps import in_loop_settings, ours
    from timing import CEILING, in_turns, paired, products, quartiles, shares, totals

    product, operations = products(device, options.tiny)
    steps, missing, differences, counts = {CEILING: product}, {}, {}, {}
    bf16 = device.type == "cpu" and bf16_is_faster()
    compiled = options.compiled and (case.compiles or device.type == "cuda")
    wanted = {
        "ours": True, "ours, bf16": bf16, "ours, compiled": compiled, "ours, bf16, compiled": bf16 and compiled,
    }  # fmt: skip
    for name, made in OURS.items():
        if wanted[name]:
            own = ours(case.shape, device, **made)
            steps[name] = own.step
            counts[name] = sum(p.numel() for p in own.objective.parameters() if p.requires_grad)
    checkouts = {"mae": options.official_mae, "dino": options.official_dino}
    fused = peers_of(case.shape, checkouts, fused=True)
    for name, make in peers_of(case.shape, checkouts).items():
        try:
            peer = make(device)
        except Missing as reason:
            missing[name] = str(reason)
            continue
        steps[name], counts[name], differences[name] = peer.step, peer.parameters, peer.difference
        if name == case.against:  # what of the ratio is the library that multiplies, and the optimiser's kernel
            same = f"{name}, {SAME}"
            steps[same] = in_loop_settings(fused[name](device).step, device)
            counts[same], differences[same] = peer.parameters, None
    times = in_turns(steps, options.rounds, device)
    ceiling = operations / statistics.median(totals(times[CEILING]))
    programs, ratios = {}, []
    for name in counts:
        low, middle, high = quartiles(totals(times[name]))
        programs[name] = {
            "ms": 1e3 * middle, "ms_quartiles": [1e3 * low, 1e3 * high], "images_per_second": case.shape.batch / middle,
            "mfu": case.shape.flops() * case.shape.batch / middle / ceiling, "shares": shares(times[name]),
            "trained_parameters": counts[name], "loss_difference": differences.get(name),
        }  # fmt: skip
    for mine in (name for name in OURS if name in times):
        for name in differences:
            low, middle, high = paired(times[mine], times[name])
            ratios.append({"ours": mine, "theirs": name, "ratio": middle, "quartiles": [low, high]})
    return {
        "shape": case.name, "gflop_per_image": case.shape.flops() / 1e9, "ceiling_gflops": ceiling / 1e9,
        "programs": programs, "ratios": ratios, "missing": missing,
        "seconds": {name: totals(each) for name, each in times.items()},
    }  # fmt: skip


def goal(objective: str, mine: str, theirs: str) -> float | None:
    """What a ratio should reach, of those that have a goal."""
    from peers import OFFICIAL

    same, as_run = GOALS.get(objective, (None, None))
    if theirs.removesuffix(f", {SAME}") != OFFICIAL.get(objective):
        return None
    return {("ours", True): same, ("ours, bf16", False): as_run}.get((mine, theirs.endswith(SAME)))


def section(objective: str, rows: list[dict[str, Any]]) -> list[str]:
    """The two tables of one objective."""
    lines = ["| shape | ours | against | ratio (quartiles) | goal |", "| --- | --- | --- | ---: | --- |"]
    for row in rows:
        for ratio in row["ratios"]:
            low, high = ratio["quartiles"]
            met = verdict(ratio["ratio"], goal(objective, ratio["ours"], ratio["theirs"])) or "none"
            lines.append(f"| {row['shape']} | {ratio['ours']} | {ratio['theirs']} | {ratio['ratio']:.2f} "
                         f"({low:.2f} - {high:.2f}) | {met} |")  # fmt: skip
        lines += [f"| {row['shape']} | | {name} | {reason} | |" for name, reason in row["missing"].items()]
    parts = ["draw", "forward", "backward", "clip", "optimiser", "averages"]
    lines += ["", f"| shape | program | ms per step | MFU | {' | '.join(parts)} | loss differs by |",
              f"| --- | --- | ---: | ---: | {'---: | ' * len(parts)}---: |"]  # fmt: skip
    for row in rows:
        for name, program in row["programs"].items():
            each = " | ".join(f"{program['shares'][p]:.1%}" if p in program["shares"] else "" for p in parts)
            apart = program["loss_difference"]
            lines.append(f"| {row['shape']} | {name} | {program['ms']:.1f} | {program['mfu']:.2f} | {each} | "
                         f"{'' if apart is None else f'{apart:.0e}'} |")  # fmt: skip
    ceilings = [row["ceiling_gflops"] for row in rows]
    work = "; ".join(f"{row['shape']}: {row['gflop_per_image']:.2f}" for row in rows)
    lines += ["", f"Fastest matrix product: {min(ceilings):,.0f} to {max(ceilings):,.0f} GFLOP/s. GFLOP of a step per "
              f"image: {work}."]  # fmt: skip
    return lines


def summary(parts: dict[str, Any]) -> list[str]:
    """The table above all others: every shape on every machine, against the program that it is compared with."""
    lines = ["", f"| step | machine | {SAME} | MFU of theirs so | as people run it | as people run it, ours in bf16 |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for key, part in parts.items():
        for row in part["rows"]:
            found = {(ratio["ours"], ratio["theirs"]): f"{ratio['ratio']:.2f}" for ratio in row["ratios"]}
            for same in (name for mine, name in found if mine == "ours" and name.endswith(SAME)):
                against = same.removesuffix(f", {SAME}")
                reached = f"{row['programs'][same]['mfu']:.0%}"
                cells = (
                    f"{TITLES[key.partition(',')[0]]}: {row['shape']}; against {against}", machine(part),
                    found["ours", same], reached, found["ours", against], found.get(("ours, bf16", against), ""),
                )  # fmt: skip
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def write(out: Path, parts: dict[str, Any]) -> None:
    """Puts the measured parts into step.json and writes step.md from all of it."""
    head = ["# The bare training step against other programs"]
    for number in (2, 3, 4):
        head += ["", paragraph(__doc__, number)]
    write_parts(
        out, "step", head, TITLES, parts, lambda key, part: section(key.partition(",")[0], part["rows"]), summary
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official_mae", help="a checkout of facebookresearch/mae")
    parser.add_argument("--official_dino", help="a checkout of facebookresearch/dino")
    parser.add_argument("--only", choices=TITLES, nargs="+", default=list(TITLES), help="these parts of the table")
    parser.add_argument("--cases", type=int, nargs="+", help="which of a part's shapes, from 0; prints, writes nothing")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compiled", action="store_true", help="ours compiled too; on a CPU for two shapes of MAE")
    parser.add_argument("--tiny", action="store_true", help="toy shapes, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of step.json and step.md")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from timing import device_name

    torch.set_num_threads(1)
    device, parts = torch.device(options.device), {}
    made = about(same_command("bench_step.py", sys.argv[1:]), device_name(device), rounds=options.rounds)
    for name in options.only:
        rows = []
        for number, case in enumerate(cases(options.tiny)[name]):
            if options.cases is not None and number not in options.cases:
                continue
            rows.append(measured(case, options, device))
            print("\n".join([f"\n{TITLES[name]}", *section(name, rows[-1:])]), flush=True)
            gc.collect()
        parts[name] = {"about": made, "rows": rows}
    if options.cases is None:
        write(options.out, parts)


if __name__ == "__main__":
    main()
