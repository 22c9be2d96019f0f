"""How far continued pre-training drifts from its start, on digits: what the alarm's limits are chosen by.

    nice python benchmarks/continued_drift.py        # about ten minutes on one core; continues where it was stopped

The start is the preset's MAE on digits. It goes on on digits that are mirrored, by MAE and by DINO, with the defaults
and carelessly (the usual rate, heads not first), without an alarm. Agreement and CKA compare 512 kept images with the
start, as the alarm does; k-NN (k = 20) is of all labels, on the test images. Beside them stand networks that know
nothing of the start: a DINO trained on digits from scratch, random weights, and raw pixels. Every row is of as many
seeds, of which the start has its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import ssl_vit
from ssl_vit.training.drift import kept_positions, linear_cka, neighbours_kept

from reports import RESULTS, about, made_by, paragraph, same_command, write

NO_ALARM = {"least_agreement": 0.0, "least_cka": 0.0}
CARELESS = NO_ALARM | {"rate": 1.0, "heads_first": 0.0}
MIRRORED: dict[str, dict[str, Any]] = {"mae": {"augment": {"flip": True}}, "dino": {"crops": {"flip": True}}}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "MAE, defaults": ("mae", NO_ALARM), "MAE, carelessly": ("mae", CARELESS),
    "DINO, defaults": ("dino", NO_ALARM), "DINO, carelessly": ("dino", CARELESS),
}  # fmt: skip
UNRELATED = ("DINO from scratch", "random weights", "raw pixels")
NEAREST = 10


def alike(before: np.ndarray, now: np.ndarray) -> dict[str, float]:
    """Both numbers of the alarm."""
    return {"agreement": neighbours_kept(before, now, NEAREST), "cka": linear_cka(before, now)}


def votes(run: ssl_vit.Run, place: Path) -> float:
    """k-NN with all labels on the test images."""
    found = ssl_vit.evaluate(run, "knn", out=place)
    return float(found.value or 0.0)


def measured(seed: int, work: Path) -> list[dict[str, Any]]:
    """Every row of one seed."""
    start = ssl_vit.pretrain("mae", seed=seed, out=work / "start")
    before, images = ssl_vit.embed(start).vectors, ssl_vit.load_backbone(start)
    kept = kept_positions(len(before))
    rows: list[dict[str, Any]] = [{"way": "the start", "knn": votes(start, work / "knn" / "start")}]
    for way, (method, continued) in WAYS.items():
        place = way.replace(", ", "-").lower()
        run = ssl_vit.pretrain(
            method, seed=seed, out=work / place, model={"weights": str(start.path)}, continued=continued,
            **MIRRORED[method],
        )  # fmt: skip
        steps = [json.loads(line) for line in (run.path / "health.jsonl").read_text().splitlines()]
        looks = [line for line in steps if "drift/agreement" in line]
        rows.append({
            "way": way, "steps": run.metrics["step"], "knn": votes(run, work / "knn" / place),
            "agreement": looks[-1]["drift/agreement"], "cka": looks[-1]["drift/cka"],
            "looks": [[line["step"], line["drift/agreement"], line["drift/cka"]] for line in looks],
        })  # fmt: skip
    other = ssl_vit.pretrain("dino", seed=seed, out=work / "dino-alone")
    unrelated = (
        ssl_vit.embed(other).vectors,
        ssl_vit.embed(images._replace(backbone=images.with_random_weights(seed))).vectors,
        pixels(),
    )
    for way, vectors in zip(UNRELATED, unrelated, strict=True):
        rows.append({"way": way, **alike(before[kept], vectors[kept])})
    return [{"seed": seed, **row} for row in rows]


def pixels() -> np.ndarray:
    """Digits as evaluation standardises them."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    return (found.data - found.data.mean()) / found.data.std()


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Means and deviations over seeds, in the order in which they were measured."""

    def cell(some: list[dict[str, Any]], name: str, digits: int) -> str:
        values = [row[name] for row in some if name in row]
        spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{mean(values):.{digits}f}{spread}" if values else ""

    lines = ["| | steps | k-NN | agreement | CKA |", "| --- | ---: | ---: | ---: | ---: |"]
    for way in dict.fromkeys(row["way"] for row in rows):
        some = [row for row in rows if row["way"] == way]
        values = [cell(some, "knn", 1), cell(some, "agreement", 2), cell(some, "cka", 2)]
        lines.append(f"| {way} | {some[0].get('steps', '')} | {' | '.join(values)} |")
    return lines


def first_below(rows: list[dict[str, Any]]) -> list[str]:
    """Where the alarm with its usual limits would have ended each run."""
    lines = ["| | seed | ended at step | agreement | CKA |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        below = [look for look in row.get("looks", []) if min(look[1:]) < 0.5]
        if below:
            step, agreement, cka = below[0]
            lines.append(f"| {row['way']} | {row['seed']} | {step} of {row['steps']} | {agreement:.2f} | {cka:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/continued_drift"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    options = parser.parse_args()
    made = about(same_command("continued_drift.py", sys.argv[1:]))
    rows = [row for seed in range(options.seeds) for row in measured(seed, options.work / str(seed))]
    lines = [
        "# How far continued pre-training drifts", "", paragraph(__doc__, 2), "", f"Mean ± standard deviation of "
        f"{options.seeds} seed(s); agreement of features that know nothing of each other is {NEAREST / 511:.2f}.", "",
        *table(rows), "", "## Where the alarm would have ended a run (either below 0.5)", "", *first_below(rows), "",
        made_by(made, ("torch", "timm", "scikit-learn")),
    ]  # fmt: skip
    write(options.out, "continued_drift", {"about": made, "rows": rows}, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
