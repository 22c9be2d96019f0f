"""What gpu_suite.sh runs: training on one GPU, end to end and as the bare step, eager and compiled.

    bash benchmarks/gpu_suite.sh --official_mae CHECKOUT --official_dino CHECKOUT
    bash benchmarks/gpu_suite.sh --part dino-s mae-l      # some of the five parts
    bash benchmarks/gpu_suite.sh --tiny                   # toy shapes on a CPU, to see that it works

Each part has a process of its own. They make and compile their steps beside each other, in at most two and a half
minutes; then one after the other is timed, with its own limit of seconds. What is measured is written as it goes.

End to end: images that are decoded (uint8, cached as the loader likes) through the recipe's own augmentation, then the
whole step, under bf16 autocast. The bare step has one batch on the device already; so has the authors' code, in the
same rounds. Device time between events. MFU: operations of the authors' full model per second, as a share of the
fastest bf16 matrix product in the same rounds; goals are shares of that ceiling too, with images per second where it is
790 TFLOP/s (an H200). Ours rounds what is left in single precision to TF32, as its recipes in bf16 do; theirs runs as
torch comes. Where a step's device time goes, kernel by kernel, is in kernels.md; steps are profiled when all are timed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from reports import about, gpu_folder, paragraph, same_command, write_parts

GRAPHS = "reduce-overhead"
KINDS = {None: "compiled", GRAPHS: "compiled, CUDA graphs"}
"""What results call the modes of torch.compile."""
PROFILED = 2
"""Steps that are profiled."""
PROFILE = {"kernels", "host_batch_ms", "host_ms", "alone_ms"}
"""What a row has for kernels.md alone."""
TOLD = 25
"""Kernels that a table tells."""
REFERENCES = ("facebookresearch/mae", "facebookresearch/dino", "timm")
"""Programs that ours is compared with."""


class Part(NamedTuple):
    """A shape and its goals."""

    title: str
    shape: Any
    goal: float | None
    """Share of the ceiling."""
    milestone: float | None
    per_second: int | None
    """Images that the goal means on an H200."""
    source: int
    """Side of the cached images in pixels."""
    modes: tuple[str | None, ...] = (None,)
    """Of torch.compile."""


def parts(tiny: bool) -> dict[str, Part]:
    """By name, in the order of gpu_suite.sh."""
    from steps import DINOShape, MAEShape, Net, SupervisedShape

    toy, photo = Net("toy", 8, 4, 16, 2, 2), 256
    base, paper = Net("ViT-B/16", 224, 16, 768, 12, 12), (512, 8, 16)
    large, small = Net("ViT-L/16", 224, 16, 1024, 24, 16), Net("ViT-S/16", 224, 16, 384, 12, 6)
    little = Net("ViT-Ti/4", 32, 4, 192, 12, 3)
    all_parts = {
        "mae-b": Part("MAE ViT-B/16, decoder 512 x 8", MAEShape(base, 256, paper), 0.45, 0.33, 6100, photo),
        "mae-l": Part("MAE ViT-L/16, decoder 512 x 8", MAEShape(large, 256, paper), 0.50, 0.40, 3200, photo),
        "dino-s": Part("DINO ViT-S/16, 2 x 224 + 8 x 96 px, out_dim 65,536", DINOShape(small, 128, 65536, 8, 96),
                       0.35, 0.22, 2450, photo),
        "supervised-b": Part("Supervised ViT-B/16", SupervisedShape(base, 256, 0.1, 0.999), 0.50, 0.40, 3750, photo),
        "cifar": Part("MAE ViT-Ti/4, 32 px, decoder 192 x 4", MAEShape(little, 4096, (192, 4, 3)), None, None, 60000,
                      32, (None, GRAPHS)),
    }  # fmt: skip
    if tiny:
        shapes = {"mae": MAEShape(toy, 2, (16, 2, 2)), "dino": DINOShape(toy, 2, 32, 2, 4),
                  "supervised": SupervisedShape(toy, 2, 0.1, 0.999)}  # fmt: skip
        return {
            name: Part(f"A toy in place of {part.title}", shapes.get(name.partition("-")[0], shapes["mae"]), None, None,
                       None, 8, ())
            for name, part in all_parts.items()
        }  # fmt: skip
    return all_parts


def image_set(number: int, side: int) -> Any:
    """Smooth coloured noise with labels, decoded."""
    import numpy as np
    import torch
    import torch.nn.functional as F
    from ssl_vit.data.decoding.formats import Format
    from ssl_vit.data.images import ArrayRows, ImageSet, Sizes

    coarse = torch.rand((number, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    smooth = F.interpolate(coarse, size=(side, side), mode="bilinear")
    pixels = (smooth * 255).round().to(torch.uint8).numpy()
    labels, names = np.arange(number) % 1000, tuple(map(str, range(1000)))
    return ImageSet("noise", ArrayRows(pixels, "noise"), np.arange(number), Format(3, 8), Sizes((side, side), side),
                    "noise", labels=labels, classes=names)  # fmt: skip


def view_of(shape: Any, scale: Any) -> Any:
    """The recipe's view with its defaults for that size."""
    import torch
    from ssl_vit.configs import AugmentConfig, CropsConfig, presets, resolve
    from ssl_vit.core.masking import kept_patches
    from ssl_vit.methods import Facts, dino, mae
    from ssl_vit.methods.supervised import SupervisedConfig, resolve_supervised
    from ssl_vit.models.build import ModelFacts
    from ssl_vit.models.stochastic_depth import linear_rates
    from ssl_vit.objectives.mae import mae_view
    from ssl_vit.objectives.supervised import supervised_view
    from ssl_vit.views.multicrop import multicrop_view

    from steps import DINOShape, MAEShape

    net, dtype = shape.net, torch.float32
    size, patches, preset = net.size, net.patches(), presets.preset_for(None, net.size)
    if isinstance(shape, MAEShape):
        cfg = resolve.resolve_augment(AugmentConfig(), preset, mae.PRESETS[preset.name].crop, labelled=False)
        return mae_view(scale, cfg, size=size, patches=patches, kept=kept_patches(patches, 0.75), dtype=dtype)
    rates = linear_rates(net.depth, shape.drop_path)
    facts = Facts(10**6, net.config(), ModelFacts(size, net.patch, net.width, net.depth, net.heads))
    if isinstance(shape, DINOShape):
        asked = CropsConfig(local_crops=shape.local_crops, local_size=shape.local_size)
        crops = dino.resolve_crops(asked, dino.PRESETS[preset.name], facts)
        return multicrop_view(scale, crops, size=size, drop_rates=rates, dtype=dtype)
    loss = resolve_supervised(SupervisedConfig(drop_path=shape.drop_path), facts, preset)
    cfg = resolve.resolve_augment(AugmentConfig(), preset, preset.labelled_crop, labelled=True)
    return supervised_view(scale, cfg, loss, size=size, drop_rates=rates, classes=1000, dtype=dtype)


def from_loader(shape: Any, images: Any, device: Any) -> Callable[[], Any]:
    """Batches of the loader through the view."""
    from ssl_vit.data.loading.loader import Loader
    from ssl_vit.data.scale import measure_scale

    view = view_of(shape, measure_scale(images, 200))
    loader = Loader(images, batch_size=shape.batch, micro_batch=shape.batch, seed=0, device=device)
    batches: Iterator[Any] = iter(loader.batches(0, 100_000))
    return lambda: view(next(batches), 0)


class Group(NamedTuple):
    """Steps that are timed in turns, and what is known of programs that do not run."""

    steps: dict[str, Any]
    notes: dict[str, str]


def groups_of(part: Part, options: argparse.Namespace, device: Any) -> list[Group]:
    """All that a part times, made and compiled."""
    import torch

    from peers import peers_of
    from steps import bare_inputs, build, compile_objective, optimiser_options, step_of

    shape, cuda = part.shape, device.type == "cuda"
    images = image_set(max(16, min(8 * shape.batch, 32768)), part.source)

    def both(kind: str, mode: str | None, compiled: bool) -> dict[str, Any]:
        whole = build(shape).to(device).train()
        run = compile_objective(whole, mode) if compiled else whole  # once for both: it takes most of the time
        inputs = {"bare step": bare_inputs(shape, device), "end to end": from_loader(shape, images, device)}
        return {f"{kind}, {name}": step_of(whole, run, made, optimiser_options(shape), device)
                for name, made in inputs.items()}  # fmt: skip

    checkouts = {"mae": options.official_mae, "dino": options.official_dino}
    theirs, notes = dict[str, Any](), dict[str, str]()
    for name, make in peers_of(shape, checkouts).items():
        try:
            theirs[name] = make(device).step
        except Exception as reason:  # not there, or not of this version: a line of the result, not the end of it
            notes[name] = f"{reason}"
    groups = [Group(both("eager", None, False) | theirs, notes)]
    if cuda:  # beside the other parts; compiling itself needs next to no memory
        torch.cuda.set_per_process_memory_fraction(0.1)
    for mode in part.modes:
        began, steps = time.perf_counter(), dict[str, Any]()
        try:
            steps = both(KINDS[mode], mode, True)
            for step in steps.values():
                with suppress(torch.OutOfMemoryError):  # of the pass itself, once it is compiled
                    step(lambda _: None)
            groups.append(Group(steps | {k: v for k, v in theirs.items() if k in REFERENCES}, {}))
        except Exception as reason:  # the other groups still count
            groups.append(Group({}, dict.fromkeys(steps or [KINDS[mode]], f"{reason}".splitlines()[0][:200])))
        print(f"{part.title}: {KINDS[mode]} in {time.perf_counter() - began:.0f} s", flush=True)
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)
    return groups


def measure(part: Part, groups: list[Group], options: argparse.Namespace, device: Any,
            save: Callable[[list[dict[str, Any]]], None]) -> None:  # fmt: skip
    """Times one group after the other and saves after each."""
    from timing import CEILING, in_turns, paired, products, quartiles, totals

    rows: list[dict[str, Any]] = []
    product, operations = products(device, options.tiny)
    whole: dict[str, Any] = {}
    for number, group in enumerate(groups):
        later = [{"program": KINDS[mode], "note": "not finished in its time"} for mode in part.modes[number:]]
        steps = group.steps
        rows += [{"program": name, "note": note} for name, note in group.notes.items()]
        try:
            times = in_turns({CEILING: product} | steps, options.rounds, device)
        except RuntimeError as reason:  # running failed: the other groups still count
            rows += [{"program": name, "note": f"{reason}".splitlines()[0][:200]} for name in steps]
            save(rows + later)
            continue
        ceiling = operations / statistics.median(totals(times[CEILING]))
        official = next((name for name in steps if name in REFERENCES), None)
        for name in steps:
            if any(row["program"] == name for row in rows):  # theirs, timed again for the ratio
                continue
            low, middle, high = quartiles(totals(times[name]))
            rate = part.shape.batch / middle
            ratio = None if official in (None, name) else paired(times[name], times[official])
            rows.append({
                "program": name, "batch": part.shape.batch, "ms": 1e3 * middle, "ms_quartiles": [1e3 * low, 1e3 * high],
                "images_per_second": rate, "mfu": rate * part.shape.flops() / ceiling, "ceiling_tflops": ceiling / 1e12,
                "ratio": ratio and ratio[1], "ratio_quartiles": ratio and [ratio[0], ratio[2]],
            })  # fmt: skip
            print(f"{part.title}: {rows[-1]}", flush=True)
        save(rows + later)
        whole |= {name: step for name, step in steps.items() if name.endswith("end to end")}
    for name, step in whole.items():  # last of all: what a profiler leaves behind may slow what runs after it
        row = next(row for row in rows if row["program"] == name)
        row["host_batch_ms"], row["host_ms"], row["alone_ms"] = issued(step, device)
        row["kernels"] = kernels_of(step, device)
        save(rows)


def issued(step: Any, device: Any) -> tuple[float, float, float]:
    """Milliseconds in which the host has asked for a step's batch, for the step, and in which it is done; medians.

    The device is idle before. Where it is asked for more than some thousand kernels, asking waits for it.
    """
    import torch

    found = list[list[float]]()
    for _ in range(5):
        times = [time.perf_counter()]
        step(lambda part, times=times: times.append(time.perf_counter()) if part == "draw" else None)
        times.append(time.perf_counter())
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        found.append([1e3 * (each - times[0]) for each in times[1:]])
    drawn, asked, done = map(statistics.median, zip(*found, strict=True))
    return drawn, asked, done


def kernels_of(step: Any, device: Any) -> list[dict[str, Any]]:
    """The kernels of a step by their name: how many, and what they take."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        for _ in range(PROFILED):
            step(lambda _: None)
        if cuda:
            torch.cuda.synchronize()
    found = [{"kernel": each.key, "calls": each.count / PROFILED,
              "us": (each.self_device_time_total if cuda else each.self_cpu_time_total) / PROFILED}
             for each in seen.key_averages()]  # fmt: skip
    return sorted((each for each in found if each["us"]), key=lambda each: -each["us"])


def kernel_table(part: dict[str, Any]) -> list[str]:
    """What takes most of a step, version by version."""
    lines = list[str]()
    for row in part["rows"]:
        if not row.get("kernels"):
            continue
        total, calls = (sum(each[of] for each in row["kernels"]) for of in ("us", "calls"))
        host = ""
        if "host_ms" in row:
            batch = f" (its batch in {row['host_batch_ms']:.1f})" if "host_batch_ms" in row else ""
            host = f"; alone, it is asked for in {row['host_ms']:.1f} ms{batch} and done in {row['alone_ms']:.1f}"
        lines += ["", f"{row['program']}: {calls:,.0f} kernels, {total / 1e3:.1f} ms of device time a step{host}", "",
                  "| kernel | calls | ms | share |", "| --- | ---: | ---: | ---: |"]  # fmt: skip
        for each in row["kernels"][:TOLD]:
            name = each["kernel"].replace("|", " ")[:110]
            lines.append(f"| `{name}` | {each['calls']:,.0f} | {each['us'] / 1e3:.2f} | {each['us'] / total:.1%} |")
    return lines[1:] or ["Not profiled."]


def table(part: dict[str, Any]) -> list[str]:
    """One part of the result."""
    lines = ["| program | batch | ms per step | images/s | MFU | ratio to the other code (quartiles) |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for row in part["rows"]:
        if "note" in row:
            lines.append(f"| {row['program']} | | | {row['note']} | | |")
            continue
        ratio = row["ratio"]
        against = f"{ratio:.2f} ({row['ratio_quartiles'][0]:.2f} - {row['ratio_quartiles'][1]:.2f})" if ratio else ""
        lines.append(f"| {row['program']} | {row['batch']} | {row['ms']:.1f} | {row['images_per_second']:,.0f} | "
                     f"{row['mfu']:.1%} | {against} |")  # fmt: skip
    found = [row["ceiling_tflops"] for row in part["rows"] if "ceiling_tflops" in row]
    ends = [row["mfu"] for row in part["rows"] if row["program"].endswith("end to end") and "mfu" in row]
    rates = [row["images_per_second"] for row in part["rows"] if row["program"].endswith("end to end") and "ms" in row]
    goal, per_second, words = part["goal"], part["per_second"], "Goal: none."
    if goal:
        words = (f"Goal, end to end: {goal:.0%} of the ceiling (first milestone {part['milestone']:.0%}), which is "
                 f"{per_second:,} images/s where products reach 790 TFLOP/s: {_reached(ends, goal)}.")  # fmt: skip
    elif per_second:
        words = f"Goal, end to end: {per_second:,} images/s on an H200: {_reached(rates, per_second)}."
    ceiling = ""
    if found:
        least, most = f"{min(found):,.1f}", f"{max(found):,.1f}"
        between = f"{least} to {most}, in the rounds of each group" if least != most else most
        ceiling = f" Fastest matrix product, TFLOP/s: {between}."
    note = ["", part["note"]] if part.get("note") else []
    return [*lines, "", f"{words} {part['gflop_per_image']:.1f} GFLOP per image.{ceiling}", *note]


def _reached(values: list[float], goal: float) -> str:
    if not values:
        return "not measured"
    return "met" if max(values) >= goal else f"{max(values) / goal:.0%} of it reached"


def write(out: Path, name: str, part: dict[str, Any], titles: dict[str, str]) -> None:
    """Puts one part into suite.json and writes suite.md from all of it."""
    head = [f"# Training on {part['about']['hardware']['device']}", "", paragraph(__doc__, 3)]
    short = part | {"rows": [{key: value for key, value in row.items() if key not in PROFILE} for row in part["rows"]]}
    write_parts(out, "suite", head, titles, {name: short}, lambda _, each: table(each))
    head = [f"# Where a step's time goes on {part['about']['hardware']['device']}", "",
            "Device time of kernels by their names, from torch's profiler; end to end, views included."]  # fmt: skip
    write_parts(out, "kernels", head, titles, {name: part}, lambda _, each: kernel_table(each))


def entry_of(part: Part, command: str, options: argparse.Namespace, device: str) -> dict[str, Any]:
    """What a part's result says beside its rows."""
    return {"title": part.title, "goal": part.goal, "milestone": part.milestone, "per_second": part.per_second,
            "gflop_per_image": part.shape.flops() / 1e9,
            "about": about(command, device, rounds=options.rounds)}  # fmt: skip


def run_part(name: str, options: argparse.Namespace, command: str, ready: Event, turn: Event) -> None:
    """A part's process: makes all of it, waits for its turn and is timed."""
    os.setsid()  # with what compiles for it, it can be suspended and ended as one
    import torch

    from timing import device_name

    torch.set_num_threads(1)  # as a recipe does beside a GPU
    device, known = torch.device("cpu" if options.tiny else "cuda"), parts(options.tiny)
    part, titles = known[name], {key: each.title for key, each in known.items()}
    groups = groups_of(part, options, device)
    ready.set()
    parent = multiprocessing.parent_process()
    while not turn.wait(5):
        if parent is None or not parent.is_alive():
            return
    entry = entry_of(part, command, options, device_name(device))
    measure(part, groups, options, device, lambda rows: write(options.out, name, entry | {"rows": rows}, titles))


class Started(NamedTuple):
    """A part's process."""

    name: str
    process: Any
    ready: Event
    turn: Event

    def tell(self, what: signal.Signals) -> None:
        """All of its processes, where they are there."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, what)


def conduct(names: list[str], options: argparse.Namespace, command: str) -> bool:
    """Starts all parts and times one after the other; whether all of it went well."""
    fresh, well, started = multiprocessing.get_context("spawn"), True, list[Started]()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name in names:
            ready, turn = fresh.Event(), fresh.Event()
            process = fresh.Process(target=run_part, args=(name, options, command, ready, turn))
            process.start()
            started.append(Started(name, process, ready, turn))
        until = time.monotonic() + options.compile_seconds
        for one in started:
            while one.process.is_alive() and time.monotonic() < until and not one.ready.wait(0.5):
                pass
        late = [one for one in started if not one.ready.is_set() and one.process.is_alive()]
        for one in late:  # what compiles takes cores from what is timed
            print(f"{one.name}: not made in its time; goes on when the others are timed", file=sys.stderr)
            one.tell(signal.SIGSTOP)
        print("timing begins", flush=True)
        for one in [each for each in started if each not in late] + late:
            one.tell(signal.SIGCONT)
            one.turn.set()
            one.process.join(options.seconds / len(names))
            one.tell(signal.SIGKILL)
            one.process.join()
            if one.process.exitcode != 0:
                print(f"{one.name}: stopped or failed; what it had measured is kept", file=sys.stderr)
                well = False
    finally:
        for one in started:
            one.tell(signal.SIGKILL)
    return well


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", help="which; default: all")
    parser.add_argument("--official_mae", help="a checkout of facebookresearch/mae")
    parser.add_argument("--official_dino", help="a checkout of facebookresearch/dino")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--compile_seconds", type=float, default=150, help="in which parts are made and compiled")
    parser.add_argument("--seconds", type=float, default=350, help="in which they are timed")
    parser.add_argument("--tiny", action="store_true", help="toy shapes on a CPU, to see that it works")
    parser.add_argument(
        "--out", type=Path, help="folder of suite.json and suite.md; default: $OUT, or results/gpu-NAME"
    )
    options = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "3")  # of every part
    if options.tiny:
        os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from timing import device_name

    device, known = device_name(torch.device("cpu" if options.tiny else "cuda")), parts(options.tiny)
    options.out = options.out or gpu_folder(device)
    command = same_command("gpu_suite.sh", sys.argv[1:])
    names = options.part or list(known)
    unfinished = [{"program": "all", "note": "not finished in its time"}]
    for name in names:
        write(options.out, name, entry_of(known[name], command, options, device) | {"rows": unfinished},
              {key: each.title for key, each in known.items()})  # fmt: skip
    sys.exit(not conduct(names, options, command))


if __name__ == "__main__":
    main()
