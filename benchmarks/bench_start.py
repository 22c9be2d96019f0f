"""CPU seconds from `python recipes/mae.py` on digits to its first step, in fresh processes on one thread.

    python benchmarks/bench_start.py
    python benchmarks/bench_start.py --without wandb boto3   # as where these packages are not installed

A process's own CPU time, so that what runs beside it counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reports import RESULTS, Part, about, machine, paragraph, same_command, write_parts
from timing import quartiles

GOAL = 8.0
_PARTS = {"torch": "import torch", "imports": "all imports", "before": "up to the first step", "after": "with it"}


def started(folder: str, without: list[str]) -> None:
    """One run of two steps, in this process; prints the CPU seconds after every part when its first step is done."""
    for name in without:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType] - how an import is made to fail
    seconds: dict[str, float] = {}
    from ssl_vit.core import garbage, later

    garbage.seldom()  # as every script begins
    later.when_needed()
    import torch

    seconds["torch"] = time.process_time()
    assert torch
    import ssl_vit.training.pretraining

    seconds["imports"] = time.process_time()
    assert ssl_vit.training.pretraining
    from ssl_vit.training.stepping import Stepper

    step = Stepper.__call__

    def first(self: Stepper, *given: Any, **named: Any) -> Any:
        seconds.setdefault("before", time.process_time())
        done = step(self, *given, **named)
        if "after" not in seconds:
            seconds["after"] = time.process_time()
            sys.stderr.write(f"\n{json.dumps(seconds)}\n")
        return done

    Stepper.__call__ = first
    recipe = Path(__file__).resolve().parent.parent / "recipes/mae.py"
    sys.argv = [str(recipe), "--fit.epochs", "0.05", "--run.dir", folder]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--without", nargs="*", default=[], help="packages that are not to be found")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        started(options.one, options.without)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    found = list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            words = [sys.executable, __file__, "--one", f"{folder}/{number}", "--without", *options.without]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found.append(json.loads(next(line for line in done.stderr.splitlines() if line.startswith("{"))))
    rows = {part: quartiles(row[part] for row in found) for part in _PARTS}
    key = "without" if options.without else "all"
    told = same_command("bench_start.py", sys.argv[1:])
    part = {"about": about(told, "CPU, one thread"), "rows": rows, "without": options.without}
    titles = {"all": "Everything installed", "without": "Without trackers and clients that few have"}
    write_parts(RESULTS, "start", ["# From the command to the first step", "", paragraph(__doc__, 2)], titles,
                {key: part}, lambda _, each: _table(each), _summary)  # fmt: skip


def _summary(parts: dict[str, Part]) -> list[str]:
    lines = [
        "",
        "| machine | everything installed | without trackers | goal | commit |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for kind in sorted({machine(part) for part in parts.values()}):
        found = [parts.get(f"{key}, {kind}") for key in ("all", "without")]
        seconds = [f"{part['rows']['after'][1]:.2f}" if part else "-" for part in found]
        made = " and ".join(dict.fromkeys(part["about"]["commit"][:7] for part in found if part))
        lines.append(f"| {kind} | {seconds[0]} | {seconds[1]} | {GOAL:g} | {made} |")
    return lines


def _table(part: dict[str, Any]) -> list[str]:
    lines = ["| CPU seconds | median | quartiles |", "| --- | ---: | --- |"]
    for name, words in _PARTS.items():
        low, middle, high = part["rows"][name]
        lines.append(f"| {words} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    return lines + (["", f"Not to be found: {', '.join(part['without'])}."] if part["without"] else [])


if __name__ == "__main__":
    main()
