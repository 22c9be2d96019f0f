"""What single choices of the presets are worth: sweeps of one option at a time, three seeds of every value.

    python benchmarks/ablations.py digits                       # about an hour and a half of one core
    python benchmarks/ablations.py cifar10 --data FOLDER --only "mask ratio"

Every table is one `ssl-vit sweep`, whose command stands below it: a preset with one option varied, three seeds of each
value. Networks are judged by k-NN inside the training labels: a held-out fifth of them is asked, the rest answer; test
images take no part. Mean ± deviation over seeds, then the mean's 95 % interval by Student's t. A difference is paired
by seed and has its own interval; where that holds zero, three seeds do not tell the two apart. The values of one table
are trained equally long; tables of shorter runs than the preset's say so. Values of which a run collapsed are shown and
not compared. Finished runs are kept in --work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import RESULTS, about, paragraph, same_command, write_parts

SEEDS = 3


@dataclass(frozen=True)
class Table:
    """One option, varied."""

    method: str
    option: str
    values: tuple[str, ...]
    preset: str
    """What the preset has."""
    words: tuple[str, ...] = ()
    """Other options."""
    note: str = ""


_SHORT = ("--fit.epochs", "35")
_QUARTER = "Runs of 35 epochs, a quarter of the preset's."
_FEW = ("--fit.epochs", "1")
_ONE = "Runs of one epoch."
_CPU = ("--preset", "px32-cpu", "--model.name", "vit_micro")
TABLES = {
    "digits": {
        "mask ratio": Table("mae", "mae.mask_ratio", ("0.25", "0.5", "0.75"), "0.5"),
        "targets normalised by patch": Table("mae", "mae.norm_pix", ("false", "true"), "false"),
        "decoder depth": Table("mae", "mae.decoder_depth", ("1", "2", "4"), "2"),
        "positions": Table("mae", "model.positions", ("sincos", "learnable"), "sincos"),
        "length of MAE": Table("mae", "fit.epochs", ("35", "70", "139"), "139"),
        "local crops": Table("dino", "crops.local_crops", ("0", "2", "4"), "0", _SHORT, _QUARTER),
        "outputs": Table("dino", "dino.out_dim", ("256", "1024", "4096"), "1024", _SHORT, _QUARTER),
        "temperature of the teacher": Table(
            "dino", "dino.teacher_temp", ("0.01", "0.02", "0.04"), "0.01", _SHORT, _QUARTER
        ),
        "centring": Table("dino", "dino.centring", ("mean", "sinkhorn"), "sinkhorn", _SHORT, _QUARTER),
        "centring with a warmer teacher": Table(
            "dino", "dino.centring", ("mean", "sinkhorn"), "sinkhorn",
            (*_SHORT, "--dino.teacher_temp", "0.04"), _QUARTER,
        ),
        "momentum of the teacher": Table(
            "dino", "dino.momentum", ("0.98", "0.99", "0.996"), "", _SHORT,
            f"{_QUARTER} The preset derives the momentum from batch and steps.",
        ),
        "LeJEPA's weight": Table("lejepa", "lejepa.weight", ("0.01", "0.02", "0.05"), "0.02", _SHORT, _QUARTER),
        "LeJEPA's local crops": Table("lejepa", "crops.local_crops", ("0", "2", "4"), "0", _SHORT, _QUARTER),
    },
    "cifar10": {
        "precision": Table("mae", "fit.precision", ("fp32", "bf16"), "", (*_CPU, *_FEW), _ONE),
        "mask ratio": Table("mae", "mae.mask_ratio", ("0.5", "0.75"), "0.75", (*_CPU, *_FEW), _ONE),
        "targets normalised by patch": Table("mae", "mae.norm_pix", ("false", "true"), "true", (*_CPU, *_FEW), _ONE),
    },
}  # fmt: skip
TITLES = {f"{of}, {name}": f"{of}: {name}" for of, tables in TABLES.items() for name in tables}


def command_of(of: str, table: Table, data: str, out: str) -> list[str]:
    """A sweep's words after ``ssl-vit``."""
    place = [] if of == "digits" else ["--data.path", data]
    varied = f"{table.option}={','.join(table.values)}"
    return ["sweep", table.method, *place, *table.words, "--over", varied, "--seeds", str(SEEDS), "--judge", "knn",
            "--out", out]  # fmt: skip


def values_of(folder: Path, table: Table) -> dict[str, dict[int, float]]:
    """What k-NN said of every value's seeds, in percent; those that collapsed have none."""
    from ssl_vit.runs.listing import Run, read
    from ssl_vit.runs.telling import numbers

    found: dict[str, dict[int, float]] = {value: {} for value in table.values}
    for value in table.values:
        for seed in range(SEEDS):
            name = f"{_as_a_sweep_writes(table.option, value)}-seed-{seed}"
            if "has collapsed" in (folder / "logs" / f"{name}.log").read_text():
                continue
            run = read(folder / "runs" / name)
            if not isinstance(run, Run):
                raise SystemExit(f"{table.option}={value}, seed {seed}: {run}")
            (result,) = (one for one in numbers(run).results if one.method == "knn")
            best = next(row for row in result.rows if row.get("headline", True))
            found[value][seed] = float(best["top1"])
    return found


def _as_a_sweep_writes(option: str, value: str) -> str:
    """Lengths are numbers with a fraction."""
    return f"{option}={float(value)}" if option == "fit.epochs" else f"{option}={value}"


def rows_of(found: dict[str, dict[int, float]], table: Table) -> tuple[list[dict[str, Any]], str]:
    """Means with intervals, and the first two of them compared seed by seed."""
    import numpy as np
    from ssl_vit.report.written import mean_of
    from ssl_vit.statistics.paired import interval

    rows = [{"value": value, "seeds": by_seed, **mean_of("top1", list(by_seed.values()))._asdict()}
            if by_seed else {"value": value, "seeds": {}} for value, by_seed in found.items()]  # fmt: skip
    found = {value: by_seed for value, by_seed in found.items() if len(by_seed) == SEEDS}
    if len(found) < 2:
        return rows, "So nothing is compared."
    first, second = sorted(found, key=lambda value: -float(np.mean(list(found[value].values()))))[:2]
    if table.preset in found and table.preset != first:
        second = table.preset
    apart = interval(np.array([[found[first][seed] - found[second][seed]] for seed in found[first]]))
    if apart.low is None or apart.high is None:
        return rows, f"{first} against {second}: {apart.estimate:+.1f} points, without an interval."
    words = f"{apart.estimate:+.1f} points, 95 % interval {apart.low:+.1f} to {apart.high:+.1f}, paired by seed"
    clear = "" if apart.low > 0 or apart.high < 0 else "No clear difference: "
    return rows, f"{clear}{first} against {second}{', the preset,' * (second == table.preset)} {words}."


def body(key: str, part: dict[str, Any]) -> list[str]:
    """One table."""
    lines = [f"| --{part['option']} | k-NN, top-1 % |", "| --- | ---: |"]
    for row in part["rows"]:
        name = row["value"] + " (the preset's)" * (row["value"] == part["preset"])
        lost = SEEDS - len(row["seeds"])
        if lost:
            name += f", collapsed in {lost} of {SEEDS} runs"
        if lost == SEEDS:
            lines.append(f"| {name} | none |")
            continue
        ends = "" if row["low"] is None else f"; {row['low']:.1f} to {row['high']:.1f}"
        lines.append(f"| {name} | {row['mean']:.1f} ± {row['sd']:.1f}{ends} |")
    said = " ".join(filter(None, (part["said"], part["note"])))
    return [*lines, "", said, "", f"`ssl-vit {part['sweep']}`"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(TABLES), help="of images")
    parser.add_argument("--data", default="digits", help="its folder")
    parser.add_argument("--only", action="append", help="some tables by name; default: all")
    parser.add_argument("--work", default="runs/ablations", help="where sweeps are kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    options = parser.parse_args()
    known = TABLES[options.set]
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"{', '.join(unknown)}: not among {', '.join(known)}")
    head = ["# What single choices are worth", "", paragraph(__doc__, 2)]
    for name in options.only or known:
        table = known[name]
        folder = Path(options.work).resolve() / options.set / name.replace(" ", "-").replace("'", "")
        words = command_of(options.set, table, options.data, str(folder))
        # A sweep with a run that collapsed ends with a status of 1, and has all others.
        subprocess.run(
            [sys.executable, "-m", "ssl_vit", *words], env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
        )
        rows, said = rows_of(values_of(folder, table), table)
        told = " ".join(command_of(options.set, table, options.set, "FOLDER"))
        part = {"about": about(same_command("ablations.py", sys.argv[1:])), "option": table.option, "rows": rows,
                "preset": table.preset, "said": said, "note": table.note, "sweep": told}  # fmt: skip
        write_parts(options.out, "ablations", head, TITLES, {f"{options.set}, {name}": part}, body)


if __name__ == "__main__":
    main()
