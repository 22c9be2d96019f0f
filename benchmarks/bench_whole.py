"""Whole loops, from images to the end of a step: this project's scripts beside the authors' programs.

    python benchmarks/bench_whole.py --official_mae CHECKOUT --official_dino CHECKOUT
    python benchmarks/bench_whole.py --official_mae CHECKOUT --only mae --rounds 2 --dry

ViT-Ti/4 on images of 32 px; MAE in batches of 128 with a decoder of 192 x 4, DINO in batches of 32 with two crops of 32
px, six of 16 px and 65,536 outputs. Ours is `recipes/mae.py` or `recipes/dino.py` on a folder of PNG files, with all
that it does between steps. Theirs is their step (bench_step.py) behind torch's DataLoader and torchvision's transforms
of PIL images as their scripts have them, on images that are decoded already, without their logging and schedules. Every
program runs in a process of its own, on one thread: ten steps that are not counted (ours has decoded before the first),
then twenty of which the CPU time counts. "Same library, fused optimiser": ours in single precision; theirs with the
library that our scripts choose, torch's fused AdamW and large pages, which our scripts ask for. "As people run it":
both as they come, ours in bf16 where our scripts choose it. Each round runs all four, in alternating order; a ratio is
theirs / ours within a round, the table has medians and quartiles. A run replaces the sections of its kind of machine in
results/whole.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_step import GOALS, SAME
from reports import RESULTS, about, machine, paragraph, same_command, verdict, write_parts
from timing import quartiles

WARM, STEPS = 10, 20
TITLES = {"mae": "MAE", "dino": "DINO"}
BATCH = {"mae": 128, "dino": 32}
AS_RUN = "as people run it"
VERSIONS = {
    "ours": ("ours", SAME), "theirs, fused": ("theirs", SAME), "ours, as it comes": ("ours", AS_RUN),
    "theirs": ("theirs", AS_RUN),
}  # fmt: skip
WORDS = {
    "mae": ("--mae.mask_ratio", "0.75", "--mae.norm_pix", "true", "--mae.decoder_width", "192", "--mae.decoder_depth",
            "4", "--mae.decoder_heads", "3", "--augment.crop_scale", "[0.2, 1.0]"),
    "dino": ("--crops.local_crops", "6", "--crops.local_size", "16", "--crops.global_size", "32", "--dino.out_dim",
             "65536", "--dino.head_hidden", "2048", "--dino.head_bottleneck", "256", "--dino.drop_path", "0.1",
             "--dino.centring", "mean", "--crops.blur", "[1.0, 0.1, 0.5]", "--crops.local_scale", "[0.05, 0.4]"),
}  # fmt: skip
_NET = ("--model.name", "vit_tiny", "--model.img_size", "32", "--model.patch_size", "4")


class _Done(BaseException):
    """Ends a run once enough steps are timed."""


def ours(kind: str, folder: str, precision: str, *, tiny: bool) -> float:
    """CPU seconds of the counted steps of a recipe; ``tiny`` ones of a network with narrow blocks."""
    from ssl_vit.training.stepping import Stepper

    step, began, made = Stepper.__call__, 0.0, 0

    def counted(self: Stepper, *given: Any, **named: Any) -> Any:
        nonlocal began, made
        done = step(self, *given, **named)
        made += 1
        if made == WARM:
            began = time.process_time()
        elif made == WARM + STEPS:
            raise _Done
        return done

    Stepper.__call__ = counted
    recipe = Path(__file__).resolve().parent.parent / f"recipes/{kind}.py"
    sys.argv = [
        str(recipe), "--data.path", folder, *_NET, *WORDS[kind], "--fit.batch_size", str(BATCH[kind]), "--fit.epochs",
        "100", "--fit.precision", precision, "--run.dir", f"{folder}-{os.getpid()}",
        *(("--model.width", "12", "--model.depth", "1") if tiny else ()),
    ]  # fmt: skip
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except _Done:
        return time.process_time() - began
    raise RuntimeError("the recipe ended before enough steps were made")


def theirs(kind: str, checkout: str, images: Any, *, fused: bool) -> float:
    """CPU seconds of the counted steps of the authors' program."""
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    from bench_input import BASE
    from bench_input import transforms_of as of_one
    from bench_multicrop import transforms_of
    from peers import OFFICIAL, peers_of
    from steps import DINOShape, MAEShape, Net, in_loop_settings

    net, device = Net("ViT-Ti/4, 32 px", 32, 4, 192, 12, 3), torch.device("cpu")
    shape = MAEShape(net, BATCH[kind], (192, 4, 3)) if kind == "mae" else DINOShape(net, BATCH[kind], 65536, 6, 16, 0.1)
    peer = peers_of(shape, {kind: checkout}, fused=fused)[OFFICIAL[kind]](device)
    step = in_loop_settings(peer.step, device) if fused else peer.step
    views = [of_one(32)[BASE]] if kind == "mae" else transforms_of(32, 16, 6)

    class Pictures(Dataset[list[torch.Tensor]]):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, row: int) -> list[torch.Tensor]:
            opened = Image.fromarray(images[row])
            return [view(opened) for view in views]

    loader, began, made = DataLoader(Pictures(), shape.batch, shuffle=True, drop_last=True), 0.0, 0
    random.seed(0)
    while True:
        for batch in loader:
            if made == WARM:
                began = time.process_time()
            elif made == WARM + STEPS:
                return time.process_time() - began
            for read, made_now in zip(peer.reads, batch, strict=True):
                read.copy_(made_now)
            step(lambda _: None)
            made += 1


def one(kind: str, version: str, folder: str, options: argparse.Namespace) -> None:
    """One program in this process; prints its milliseconds per image."""
    import numpy as np

    whose, how = VERSIONS[version]
    if whose == "ours":
        seconds = ours(kind, folder, "fp32" if how == SAME else "auto", tiny=options.tiny)
    else:
        checkout = {"mae": options.official_mae, "dino": options.official_dino}[kind]
        seconds = theirs(kind, checkout, np.load(f"{folder}.npy"), fused=how == SAME)
    sys.stderr.write(f"\n{json.dumps({'ms': 1e3 * seconds / (STEPS * BATCH[kind])})}\n")


def pictures(folder: Path, count: int) -> None:
    """The same images as PNG files in a folder, and decoded beside it."""
    import numpy as np
    from PIL import Image

    from bench_input import small_pictures

    folder.mkdir()
    images = small_pictures(count).permute(0, 2, 3, 1).numpy()
    np.save(f"{folder}.npy", images)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:05}.png")


def run(kind: str, version: str, folder: Path, words: list[str]) -> float:
    """One program in a process of its own."""
    given = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    pages = {"THP_MEM_ALLOC_ENABLE": "1"} if version == "theirs, fused" else {}
    command = [sys.executable, __file__, *words, "--one", kind, version, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=given | {"OMP_NUM_THREADS": "1"} | pages)
    told = [line for line in done.stderr.splitlines() if line.startswith('{"ms"')]
    if not told:
        sys.exit(f"{kind}, {version}: {done.stderr[-2000:]}")
    return float(json.loads(told[-1])["ms"])


def measured(kind: str, rounds: int, words: list[str], *, alone: bool) -> list[dict[str, Any]]:
    """Ratios of both ways to compare; without the authors' program ours ``alone``."""
    from ssl_vit.training.products import bf16_is_faster

    times: dict[str, list[float]] = {name: [] for name, (whose, _) in VERSIONS.items() if whose == "ours" or not alone}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "images"
        pictures(folder, WARM * BATCH[kind])
        for turn in range(rounds):
            for name in sorted(times, reverse=turn % 2 == 1):
                times[name].append(run(kind, name, folder, words))
                print(f"{kind}, {name}: {times[name][-1]:.2f} ms an image", flush=True)
    rows = []
    goals = (GOALS[kind][0], GOALS[kind][1] if bf16_is_faster() else None)  # the second is ours in bf16
    for how, goal in zip((SAME, AS_RUN), goals, strict=True):
        names = {whose: name for name, (whose, way) in VERSIONS.items() if way == how}
        row: dict[str, Any] = {"how": how, "goal": goal, "ours": times[names["ours"]]}
        if not alone:
            row["theirs"] = times[names["theirs"]]
            row["ratio"] = quartiles(b / a for a, b in zip(row["ours"], row["theirs"], strict=True))
        rows.append(row)
    return rows


def table(part: dict[str, Any]) -> list[str]:
    """One line for each way to compare."""
    lines = [
        "| | ours, CPU ms an image | theirs | theirs / ours (quartiles) | goal |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for row in part["rows"]:
        _, mine, _ = quartiles(row["ours"])
        if "ratio" not in row:
            lines.append(f"| {row['how']} | {mine:.2f} | not there | | |")
            continue
        (_, other, _), (low, middle, high) = quartiles(row["theirs"]), row["ratio"]
        met = verdict(middle, row["goal"])
        lines.append(f"| {row['how']} | {mine:.2f} | {other:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {met} |")
    return lines


def summary(parts: dict[str, Any]) -> list[str]:
    """All kinds of machine, one line each."""
    lines = ["", f"| processor | objective | {SAME} | {AS_RUN} |", "| --- | --- | ---: | ---: |"]
    for key, part in parts.items():
        cells = " | ".join(f"{row['ratio'][1]:.2f}" if "ratio" in row else "" for row in part["rows"])
        lines.append(f"| {machine(part)} | {TITLES[key.partition(',')[0]]} | {cells} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official_mae", help="checkout of facebookresearch/mae")
    parser.add_argument("--official_dino", help="checkout of facebookresearch/dino")
    parser.add_argument("--only", choices=list(TITLES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--tiny", action="store_true", help="toys, to see that it runs")
    parser.add_argument("--out", default=str(RESULTS), help="folder of the result files")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        BATCH.update(mae=4, dino=4)
        WORDS["dino"] = (*WORDS["dino"], "--dino.out_dim", "32", "--dino.head_hidden", "8")
    if options.one:
        kind, version, folder = options.one
        one(kind, version, folder, options)
        return
    checkouts = {"mae": options.official_mae, "dino": options.official_dino}
    given = {f"--official_{kind}": str(Path(place).resolve()) for kind, place in checkouts.items() if place}
    words = [*(word for both in given.items() for word in both), *(["--tiny"] if options.tiny else [])]
    parts: dict[str, Any] = {}
    for kind in [options.only] if options.only else TITLES:
        rows = measured(kind, options.rounds, words, alone=not checkouts[kind])
        told = about(same_command("bench_whole.py", sys.argv[1:]), rounds=options.rounds)
        parts[kind] = {"about": told, "rows": rows}
        print("\n".join(table(parts[kind])))
    if not options.dry:
        head = ["# Whole loops", "", paragraph(__doc__, 2)]
        write_parts(Path(options.out), "whole", head, TITLES, parts, lambda _, part: table(part), summary)


if __name__ == "__main__":
    main()
