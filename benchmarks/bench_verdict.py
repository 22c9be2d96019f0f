"""Is a verdict's advice good in hindsight? Advice of half an hour against the best found with ten times the compute.

    python benchmarks/bench_verdict.py --data FOLDER                   # all sets: 30 hours on two idle cores
    python benchmarks/bench_verdict.py --data FOLDER --only digits     # digits alone need no data
    python benchmarks/bench_verdict.py --data FOLDER --subset 4000     # of large sets so many training images

FOLDER holds cells16, magtile, cifar10 and imagenette160 as parquet files. Each set is judged three times: within
--budget, which advises; within the same with other pre-training seeds, which says what comes of that advice; and within
ten times as much with further seeds, where the best way of all is the best found. Regret is how much better that was
than what came of the advice; an interval covers where that lies within it. A refused verdict counts against the advice.
Finished verdicts are kept in --work, so it continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reports import RESULTS, about, made_by, paragraph, same_command, write

ROOT = Path(__file__).resolve().parent.parent
TIMES = 10
"""Compute of hindsight, as a multiple of the advice's."""
POINT, GOAL, COVERED = 1.0, 0.8, (0.9, 0.98)
"""Regret that is none; share of the cells that should have none; share of the intervals that should cover."""
_SEEDS = (0, 1000, 2000)
"""Of the first pre-training run: of the advice, of what comes of it, and in hindsight."""


class Case(NamedTuple):
    """A set of images."""

    words: tuple[str, ...]
    """Options of the verdict beside path and labels."""
    labels: tuple[int, ...]
    """Numbers of labels beside all."""


CASES = {
    "digits": Case((), (10, 100)),
    "cells16": Case(("--data.image_column", "image,dna,ssc"), (51, 256)),
    "magtile": Case(("--data.group", "tile_group", "--model.img_size", "64"), (49, 196)),
    "cifar10": Case((), (100, 500)),
    "imagenette160": Case(("--model.img_size", "64"), (100, 1000)),
}
TINY = (
    "--verdict.methods", "pixels", "--verdict.seeds", "1", "--verdict.train_draws", "1", "--verdict.probe_draws",
    "2", "--verdict.length", "0.005", "--verdict.pretraining", "0.02", "--verdict.trials", "1",
    "--verdict.matched_draws", "0", "--verdict.jobs", "0",
    "--model.width", "16", "--model.depth", "1", "--model.heads", "2",
)  # fmt: skip


class Cell(NamedTuple):
    """One number of labels of one set."""

    data: str
    labels: int
    advised: str
    """The way, as people call it; empty where nothing was advised."""
    expected: float | None
    low: float | None
    high: float | None
    realised: float | None
    """What the advised way came to with other seeds; None where it was not tried again."""
    best: float
    best_way: str

    @property
    def regret(self) -> float | None:
        """Points by which the best way was better; None where nothing can be told."""
        return None if self.realised is None else self.best - self.realised

    @property
    def covered(self) -> bool | None:
        """Whether the interval of what to expect holds what came; None where there is none, or nothing came."""
        if self.realised is None or self.low is None or self.high is None:
            return None
        return self.low <= self.realised <= self.high


Means = dict[tuple[str, str], float]
"""By start and use, larger is better."""


def cell(data: str, labels: int, advice: Any, came: Means, found: Means) -> Cell:
    """One cell from the advice (None for none), what came with other seeds, and all that was found in hindsight."""
    best = max(found, key=lambda way: found[way])
    told = ("", None, None, None, None)
    if advice is not None:
        way = advice.advised
        told = (f"{way.start}, {way.use}", advice.expected, advice.low, advice.high, came.get((way.start, way.use)))
    return Cell(data, labels, *told, found[best], ", ".join(best))


def summary(cells: Sequence[Cell]) -> dict[str, float]:
    """Shares over all cells: what was advised nothing, or what was never tried again, is no success."""
    covered = [c.covered for c in cells if c.covered is not None]
    good = [c.regret is not None and c.regret <= POINT for c in cells]
    return {
        "cells": len(cells), "good": sum(good) / max(1, len(cells)), "covered": sum(covered) / max(1, len(covered)),
        "intervals": len(covered),
    }  # fmt: skip


def part_of(source: Path, place: Path, images: int) -> Path:
    """A folder with so many training images of a set, the first of a shuffle, and its test images as they are."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if place.exists():
        return place
    table = pa.concat_tables([pq.read_table(path) for path in sorted(source.glob("train*.parquet"))])
    chosen = np.sort(np.random.default_rng(0).permutation(len(table))[:images])
    aside = place.with_name(f"{place.name}.part")
    aside.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.take(pa.array(chosen)), aside / "train.parquet")
    for path in source.glob("test*.parquet"):
        pq.write_table(pq.read_table(path), aside / path.name)
    aside.rename(place)
    return place


def judged(name: str, options: argparse.Namespace, minutes: float, seed: int) -> tuple[Path, float, str]:
    """A verdict's folder, the seconds it took, and why it was refused."""
    case, folder = CASES[name], options.work / f"{name}-{minutes:g}m-{seed}"
    path = "digits" if name == "digits" else options.data / name
    if options.subset and name in ("cifar10", "imagenette160"):
        path = part_of(options.data / name, options.work / f"{name}-{options.subset}", options.subset)
    labels = case.labels[:1] if options.tiny else case.labels
    words = ["--data.path", str(path), *case.words, "--verdict.labels", json.dumps(labels), "--seed", str(seed),
             "--verdict.budget", f"{60 * minutes:g}s", "--run.dir", str(folder)]  # fmt: skip
    words += TINY if options.tiny else ()
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(ROOT / "eval/verdict.py"), *words]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    refused = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it was killed"])[-1]
    print(f"{name}, {minutes:g} min: {refused or 'finished'}, {time.monotonic() - began:.0f} s", flush=True)
    taken = folder / "time.json"
    return folder, json.loads(taken.read_text())["seconds"] if taken.exists() else 0.0, refused


def means(folder: Path) -> dict[int, Means]:
    """The mean of every way over its draws, by number of labels; larger is better."""
    from ssl_vit.configs.metrics import METRICS
    from ssl_vit.report.findings.records import read_verdict

    verdict = read_verdict(folder)
    sign, values = METRICS[verdict.about["metric"]].sign, dict[int, dict[tuple[str, str], list[float]]]()
    for score in verdict.scores:
        start = f"{score.start}+" if score.matched else score.start
        values.setdefault(score.labels, {}).setdefault((start, score.use), []).append(sign * score.value)
    return {n: {way: sum(each) / len(each) for way, each in ways.items()} for n, ways in values.items()}


def hindsight(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All verdicts of a set, and its cells."""
    from ssl_vit.report.findings.recommendation import recommend
    from ssl_vit.report.findings.records import read_verdict

    budgets = (options.budget, options.budget, TIMES * options.budget)
    done = [judged(name, options, minutes, seed) for minutes, seed in zip(budgets, _SEEDS, strict=True)]
    folders, seconds, refused = zip(*done, strict=True)
    if refused[2]:
        raise RuntimeError(f"{name}, hindsight: {refused[2]}")
    advice = {} if refused[0] else {one.labels: one for one in recommend(read_verdict(folders[0])).advice}
    came = {} if refused[1] else means(folders[1])
    found = means(folders[2]).items()
    cells = [cell(name, labels, advice.get(labels), came.get(labels, {}), ways) for labels, ways in found]
    return {"cells": [c._asdict() for c in cells], "seconds": seconds, "refused": refused[0]}


def lines(result: dict[str, Any]) -> Iterable[str]:
    """The result as text."""
    cells = [Cell(**row) for part in result["rows"].values() for row in part["cells"]]
    total = summary(cells)
    yield f"# Advice in hindsight\n\n{paragraph(__doc__, 0)}\n\n{paragraph(__doc__, 2)}\n"
    yield f"- within {POINT:g} point of the best: {total['good']:.0%} of {total['cells']} cells (goal: {GOAL:.0%})"
    low, high = COVERED
    yield f"- covered: {total['covered']:.0%} of {total['intervals']} intervals (goal: {low:.0%} to {high:.0%})\n"
    yield "| set | labels | advised | expected | came | best in hindsight | regret |"
    yield "| --- | ---: | --- | ---: | ---: | --- | ---: |"
    for c in cells:
        said = "nothing" if c.expected is None else f"{c.expected:.1f}"
        said += "" if c.low is None or c.high is None else f" ({c.low:.1f} to {c.high:.1f})"
        came, regret = ("-" if value is None else f"{value:.1f}" for value in (c.realised, c.regret))
        yield f"| {c.data} | {c.labels:,} | {c.advised} | {said} | {came} | {c.best_way}, {c.best:.1f} | {regret} |"
    yield ""
    for name, part in result["rows"].items():
        minutes = ", ".join(f"{seconds / 60:.1f}" for seconds in part["seconds"])
        yield f"- {name}: {minutes} min{'; refused: ' + part['refused'] if part['refused'] else ''}"
    yield f"\n{made_by(result['about'], ('torch', 'timm'))}"


def main() -> None:
    """Judges the sets, and writes OUT/verdict.json and OUT/verdict.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the sets")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--budget", type=float, default=30.0, help="minutes of a verdict that advises")
    parser.add_argument("--subset", type=int, default=0, help="training images of cifar10 and imagenette160; 0: all")
    parser.add_argument("--work", type=Path, default=Path("verdicts"), help="where verdicts are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tiny", action="store_true", help="verdicts of seconds, to see that it runs")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    rows = {name: hindsight(name, options) for name in options.only}
    device = "CPU, one thread a run"
    result = {"rows": rows, "about": about(same_command("bench_verdict.py", sys.argv[1:]), device)}
    write(options.out, "verdict", result, list(lines(result)))


if __name__ == "__main__":
    main()
