"""What this project needs: time with one and two processes, memory, and what its recipe adds to the bare step.

    python benchmarks/bench_scale.py                              # under five minutes; made images of 32 px
    python benchmarks/bench_scale.py --data FOLDER --only loop    # CIFAR-10 as parquet, one part of it

Processes: recipes/mae.py with one effective batch on one and two processes, images per second and share of time spent
waiting for data as its own log has them. Memory: the peak of a short run in a fresh process (on a CPU of the whole
process, most of a GB of which is Python and torch themselves; on a GPU of tensors) against images per forward pass,
tokens and outputs of DINO, with and without --fit.recompute, whose price is a step's time as a multiple of the other.
Loop: slices of recipes/mae.py between slices of the bare step on one batch (benchmarks/loop_share.py). Start:
recipes/mae.py --help, and until the first step on digits. Each part replaces its own section of results/scale.json and
scale.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reports import RESULTS, about, paragraph, same_command, write_parts

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"processes": "One and two processes", "memory": "Memory", "loop": "The recipe beside its bare step",
          "start": "Start"}  # fmt: skip
LOOP_BAR, HELP_BAR, FIRST_STEP_BAR = 0.95, 2.0, 15.0
TOY = ["--model.width", "16", "--model.depth", "1", "--model.heads", "2"]


def make_images(folder: Path, number: int) -> None:
    """Smooth colour images of 32 px in a parquet file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng, files = np.random.default_rng(0), []
    for _ in range(number):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        stream = io.BytesIO()
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(stream, "png")
        files.append(stream.getvalue())
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": files}), folder / "train.parquet")


def environment(device: str) -> dict[str, str]:
    """One thread per process, and no other job's rank."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    kept |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return kept | ({"ACCELERATE_USE_CPU": "1"} if device == "cpu" else {})


def run(words: list[str], device: str) -> None:
    """A Python process that must succeed."""
    done = subprocess.run([sys.executable, *words], env=environment(device), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def recipe(name: str, words: list[str], device: str, processes: int = 1) -> list[dict[str, float]]:
    """The log of times of a recipe in a fresh process, or several."""
    with tempfile.TemporaryDirectory() as place:
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        script = [*(several if processes > 1 else []), str(ROOT / f"recipes/{name}.py")]
        run([*script, *words, "--run.dir", f"{place}/run"], device)
        return [json.loads(line) for line in (Path(place) / "run/timing.jsonl").read_text().splitlines()]


def processes(options: argparse.Namespace, data: str) -> list[dict[str, Any]]:
    """Images per second of the whole recipe."""
    rows = []
    batch, steps = (8, 4) if options.tiny else (64, 24)
    for number in (1, 2):
        words = ["--data.path", data, "--fit.batch_size", str(batch), "--fit.epochs", "1e-9", "--fit.min_steps",
                 str(steps), "--fit.log_every", "2", *(TOY if options.tiny else [])]  # fmt: skip
        log = recipe("mae", words, options.device, number)[1:]
        rows.append({
            "processes": number, "batch": batch,
            "images_per_second": statistics.median(line["images_per_second"] for line in log),
            "data_wait": statistics.median(line["data_wait"] for line in log),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def memory(options: argparse.Namespace, data: str) -> list[dict[str, Any]]:
    """Peak bytes of short runs."""
    base: dict[str, Any] = {"images": 64, "tokens": 64}
    others = [{}, {"images": 16}, {"images": 256}, {"tokens": 16}, {"tokens": 256}]
    points = [("mae", base | other) for other in others]
    points += [("dino", base | {"images": 16, "out_dim": outputs}) for outputs in (4096, 65536)]
    toy = ("mae", {"images": 4, "tokens": 16, "toy": True})
    patch, rows = {16: 8, 64: 4, 256: 2}, []
    for name, point in [toy, *([] if options.tiny else points)]:
        small = point.get("toy", False)
        for recompute in (False,) if small else (False, True):
            words = ["--data.path", data, "--fit.batch_size", str(point["images"]), "--fit.epochs", "1e-9",
                     "--fit.min_steps", "5", "--fit.log_every", "1", "--model.patch_size", str(patch[point["tokens"]]),
                     "--fit.recompute", str(recompute).lower(), *(TOY if small else [])]  # fmt: skip
            words += ["--dino.out_dim", str(point["out_dim"])] if name == "dino" else []
            log = recipe(name, words, options.device)
            rates = [line["images_per_second"] for line in log[1:]]
            rows.append({"recipe": name, **point, "recompute": recompute, "peak_bytes": log[-1]["peak_memory"],
                         "images_per_second": statistics.median(rates)})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def loop(options: argparse.Namespace, data: str) -> list[dict[str, Any]]:
    """The share of the bare step's images per second that the recipe keeps."""
    from timing import quartiles

    with tempfile.TemporaryDirectory() as place:
        result, batch = Path(place) / "times.json", 8 if options.tiny else options.batch
        run([str(ROOT / "benchmarks/loop_share.py"), "--data", data, "--rounds", str(options.rounds), "--device",
             options.device, "--json", str(result), "--fit.batch_size", str(batch), "--fit.min_steps", "1000000",
             *(TOY if options.tiny else [])], options.device)  # fmt: skip
        times = json.loads(result.read_text())
    kept = quartiles(bare / whole for bare, whole in zip(times["bare"], times["whole"], strict=True))
    row = {"data": Path(data).name if options.data else "made images", "batch": batch, "share": kept[1],
           "quartiles": [kept[0], kept[2]], "bar": LOOP_BAR, "rounds": options.rounds,
           "ms_bare": 1e3 * statistics.median(times["bare"]), "ms_recipe": 1e3 * statistics.median(times["whole"]),
           "seconds": times}  # fmt: skip
    print({k: v for k, v in row.items() if k != "seconds"}, flush=True)
    return [row]


def start(options: argparse.Namespace, data: str) -> list[dict[str, Any]]:
    """Wall seconds of --help and until the first step; the first of several calls does not count."""
    rows, script = [], str(ROOT / "recipes/mae.py")
    helps, firsts = [], []
    for _ in range(1 if options.tiny else 4):
        before = time.perf_counter()
        run([script, "--help"], options.device)
        helps.append(time.perf_counter() - before)
    for _ in range(1 if options.tiny else 3):
        firsts.append(_until_first_step(script, options.device))
    for what, values, bar in (
        ("python recipes/mae.py --help", helps, HELP_BAR),
        ("python recipes/mae.py, until the first step on digits", firsts, FIRST_STEP_BAR),
    ):
        warm = values[1:] or values
        rows.append({"what": what, "seconds": statistics.median(warm), "all": values, "bar": bar})
        print(rows[-1], flush=True)
    return rows


def _until_first_step(script: str, device: str) -> float:
    with tempfile.TemporaryDirectory() as place:
        log, before = Path(place) / "run/metrics.jsonl", time.perf_counter()
        words = [sys.executable, script, "--run.dir", f"{place}/run", "--fit.log_every", "1"]
        with subprocess.Popen(
            words, env=environment(device), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            while running.poll() is None and not (log.exists() and log.stat().st_size):
                time.sleep(0.01)
            took = time.perf_counter() - before
            running.send_signal(signal.SIGTERM)
        if not log.exists():
            raise RuntimeError(f"{script} ended before its first step")
        shutil.rmtree(Path(place) / "run", ignore_errors=True)
    return took


def tables(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """A part's table."""
    if name == "processes":
        lines = ["| processes | effective batch | images/s | ratio to one | waiting for data |",
                 "| ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
        one = rows[0]["images_per_second"]
        return lines + [f"| {r['processes']} | {r['batch']} | {r['images_per_second']:,.0f} | "
                        f"{r['images_per_second'] / one:.2f} | {r['data_wait']:.1%} |" for r in rows]  # fmt: skip
    if name == "memory":
        lines = ["| recipe | images per forward pass | tokens per image | out_dim | peak, MB | with recompute, MB "
                 "| and its time |",
                 "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
        keys = ("recipe", "images", "tokens", "out_dim", "toy")
        points: dict[tuple[Any, ...], dict[bool, dict[str, Any]]] = {}
        for row in rows:
            points.setdefault(tuple(row.get(k) for k in keys), {})[row["recompute"]] = row
        for point, both in points.items():
            out_dim = "" if point[3] is None else f"{point[3]:,}"
            name = f"{point[0]}, a toy network: what is there anyway" if point[4] else point[0]
            again = " | "
            if True in both:
                slower = both[False]["images_per_second"] / both[True]["images_per_second"]
                again = f"{both[True]['peak_bytes'] / 1e6:,.0f} | x {slower:.2f}"
            lines.append(f"| {name} | {point[1]} | {point[2]} | {out_dim} | {both[False]['peak_bytes'] / 1e6:,.0f} | "
                         f"{again} |")  # fmt: skip
        return lines
    lines = ["| what | measured | bar |", "| --- | ---: | --- |"]
    for r in rows:
        if name == "start":
            met = "met" if r["seconds"] < r["bar"] else f"missed by {r['seconds'] - r['bar']:.1f} s"
            lines.append(f"| `{r['what']}` | {r['seconds']:.1f} s | under {r['bar']:.0f} s: {met} |")
        else:
            met = "met" if r["share"] >= r["bar"] else f"missed by {r['bar'] - r['share']:.1%}"
            lines.append(f"| images/s of recipes/mae.py on {r['data']}, batch {r['batch']}, as a share of the bare "
                         f"step's | {r['share']:.1%} ({r['quartiles'][0]:.1%} - {r['quartiles'][1]:.1%}) | "
                         f"at least {r['bar']:.0%}: {met} |")  # fmt: skip
    return lines


def write(out: Path, parts: dict[str, Any]) -> None:
    """Puts the measured parts into scale.json and writes scale.md from all of it."""
    head = ["# Processes, memory and overhead", "", paragraph(__doc__, 2)]
    write_parts(out, "scale", head, TITLES, parts, lambda name, part: tables(name, part["rows"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="images for all parts but the start; default: made ones of 32 px")
    parser.add_argument("--only", choices=TITLES, nargs="+", default=list(TITLES), help="these parts")
    parser.add_argument("--rounds", type=int, default=12, help="of the loop")
    parser.add_argument("--batch", type=int, default=128, help="effective batch of the loop")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of scale.json and scale.md")
    options = parser.parse_args()
    import torch

    from timing import device_name

    made = about(same_command("bench_scale.py", sys.argv[1:]), device_name(torch.device(options.device)))
    measure = {"processes": processes, "memory": memory, "loop": loop, "start": start}
    with tempfile.TemporaryDirectory() as place:
        if options.data is None:
            make_images(Path(place) / "images", 64 if options.tiny else 1024)
        data = options.data or f"{place}/images"
        parts = {name: {"about": made, "rows": measure[name](options, data)} for name in options.only}
    write(options.out, parts)


if __name__ == "__main__":
    main()
