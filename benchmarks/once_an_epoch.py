"""A million tiny samples in shards: is every sample seen exactly once an epoch, and does memory stay constant?

    python benchmarks/once_an_epoch.py

Samples of a few bytes are packed into tar shards and read as a stream by 2 processes with 2 loader processes each. The
walk through --epochs epochs is ended --stops times in the midst of one, and gone on with in new processes. Each process
writes down the number that it found inside each sample it decoded, and its memory; at the end all numbers are counted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from reports import RESULTS, about, made_by, paragraph, same_command, write

WORLD, WORKERS = 2, 2
SIDE = 4
"""Pixels: the number of a sample is written in its first four."""


def pixels_of(number: int) -> np.ndarray:
    """A sample that carries its number: uint8 [SIDE, SIDE]."""
    pixels = np.zeros(SIDE * SIDE, dtype=np.uint8)
    pixels[:4] = np.frombuffer(number.to_bytes(4, "little"), np.uint8)
    return pixels.reshape(SIDE, SIDE)


def write_shards(folder: Path, samples: int, each: int) -> None:
    """Tar files of that many samples each, as PGM files: a header and the pixels."""
    folder.mkdir(parents=True)
    for shard, first in enumerate(range(0, samples, each)):
        with tarfile.open(folder / f"{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(first, min(first + each, samples)):
                data = f"P5 {SIDE} {SIDE} 255\n".encode() + pixels_of(number).tobytes()
                info = tarfile.TarInfo(f"{number:08d}.pgm")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def walk(work: Path, batch: int, start: int, stop: int, life: int) -> None:
    """One process of a life: steps ``start`` to ``stop - 1``; numbers and memory go to files of its own."""
    import torch
    from ssl_vit.configs import DataConfig, LabelledDataConfig
    from ssl_vit.data.loading.loader import Loader
    from ssl_vit.data.sources.opening import open_pool

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    # Judged on other images, so that none stay out for testing.
    pool, _ = open_pool(DataConfig(path=str(work / "shards"), stream=True), LabelledDataConfig(path="digits"))
    loader = Loader(
        pool, batch_size=batch, micro_batch=batch // WORLD, seed=7, device=torch.device("cpu"), workers=WORKERS
    )
    place, memory, began = np.array([256**i for i in range(4)], dtype=np.int64), list[int](), time.monotonic()
    found = np.lib.format.open_memmap(
        work / f"seen-{life}-{rank}.npy", mode="w+", dtype=np.int64, shape=((stop - start) * batch // WORLD, 2)
    )
    every = max(1, (stop - start) // 20)
    at = 0
    for step, images in enumerate(loader.batches(start, stop), start):
        numbers = images.images.reshape(len(images.index), -1)[:, :4].numpy().astype(np.int64) @ place
        found[at : at + len(numbers)] = np.stack([numbers, images.epoch.numpy()], axis=1)
        at += len(numbers)
        if (step - start) % every == every - 1:
            memory.append(memory_of_all())
    found.flush()
    told = {"bytes": memory, "seconds": time.monotonic() - began, "opened": len(pool)}
    (work / f"told-{life}-{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


def memory_of_all() -> int:
    """Bytes of this process and of those that decode for it, which nobody shares with them."""
    own = psutil.Process()
    return sum(process.memory_full_info().uss for process in (own, *own.children(recursive=True)))


def life(work: Path, batch: int, start: int, stop: int, number: int) -> None:
    """Two processes that walk some steps."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [str(value) for value in (work, batch, start, stop, number)]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(WORLD), __file__, "--walk"]
    subprocess.run([sys.executable, *command, *words], env=environment, check=True)


def counted(work: Path, samples: int, steps: int, batch: int, stops: int) -> dict[str, Any]:
    """How often every sample was seen in each epoch, by what was written down."""
    files = sorted(work.glob("seen-*.npy"))
    seen = np.concatenate([np.load(file) for file in files])
    assert len(seen) == steps * batch
    epochs = len(seen) // samples
    wrong = 0
    for epoch in range(epochs):
        times = np.bincount(seen[seen[:, 1] == epoch, 0], minlength=samples)
        wrong += int((times != 1).sum())
    told = [json.loads(file.read_text()) for file in sorted(work.glob("told-*.json"))]
    growth = [(one["bytes"][-1] - one["bytes"][len(one["bytes"]) // 4]) / max(1, one["bytes"][-1]) for one in told]
    return {
        "samples": samples, "epochs": epochs, "steps": steps, "stops": stops, "processes": WORLD, "loaders": WORKERS,
        "samples_seen": len(seen), "not_exactly_once": wrong,
        "most_megabytes_of_a_process_and_its_loaders": max(max(one["bytes"]) for one in told) / 1e6,
        "largest_growth_of_memory_after_the_first_quarter": max(growth),
        "seconds": sum(one["seconds"] for one in told[::WORLD]),
    }  # fmt: skip


def main() -> None:
    """Writes results/once_an_epoch.json and .md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--shard", type=int, default=10_000, help="samples in a shard")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stops", type=int, default=3, help="times that the walk is ended and gone on with")
    parser.add_argument("--batch", type=int, default=2_000, help="images of a step; divides the samples")
    parser.add_argument("--work", type=Path, default=Path("once"), help="shards, and what was seen")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--walk", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        work, *numbers = options.walk
        walk(Path(work), *map(int, numbers))
        return
    if options.samples % options.batch:
        parser.error("--batch must divide --samples")
    work = options.work.resolve()
    if not (work / "shards").exists():
        write_shards(work / "part", options.samples, options.shard)
        (work / "part").replace(work / "shards")
    steps, stops = options.epochs * options.samples // options.batch, options.stops
    bounds = [steps * part // (stops + 1) + (part * 3) % 7 * (0 < part <= stops) for part in range(stops + 2)]
    bounds[-1] = steps
    for number, (start, stop) in enumerate(pairwise(bounds)):
        if not (work / f"told-{number}-{WORLD - 1}.json").exists():
            life(work, options.batch, start, stop, number)
    row = counted(work, options.samples, steps, options.batch, stops)
    made = about(same_command("once_an_epoch.py", sys.argv[1:]))
    text = ["# Every sample once an epoch", "", paragraph(__doc__, 2), "", "| | |", "| --- | ---: |"]
    for name, value in row.items():
        number = f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
        text.append(f"| {name.replace('_', ' ')} | {number} |")
    write(options.out, "once_an_epoch", {"about": made, "rows": [row]}, [*text, "", made_by(made, ("torch",))])
    sys.stdout.write(f"{options.out / 'once_an_epoch.md'}\n")


if __name__ == "__main__":
    main()
