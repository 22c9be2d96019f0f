"""Does continued pre-training from a network of other images pay, and does it forget?

    python benchmarks/bench_continued.py --start RUN --data cifar10 cells16::image,dna,ssc magtile::@tile_group

RUN is a network pre-trained on other photographs (``ssl-vit mae --data.path imagenette160 --preset px64 --fit.epochs
16``). It stands for public weights. Every set is pre-trained on with MAE in as many epochs: from the network's weights
with the usual options; with its last two blocks alone; carelessly, at the whole rate without a warm-up of the decoder,
layer decay or alarm; and from random weights. Beside them stand the network as it is, random weights and raw pixels.
Everything is judged frozen, by k-NN and a logistic probe, on the same draws of labels and the same test images.
Finished runs are kept in --work, so it continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import ssl_vit

from reports import RESULTS, about, made_by, paragraph, same_command

SETS = {"cifar10": "photographs of 32 px", "cifar10-4000": "photographs of 32 px, 4,000 of them",
        "cells16": "cells in flow, 40 px, three channels of 16 bits",
        "magtile": "magnetic tiles of many sizes, grey"}  # fmt: skip
CARELESS: dict[str, Any] = {
    "continued": {"rate": 1.0, "heads_first": 0.0, "least_agreement": 0.0, "least_cka": 0.0},
    "optim": {"layer_decay": 0.9999},
}
WAYS: dict[str, dict[str, Any] | None] = {
    "the network as it is": None, "continued": {}, "continued, last two blocks": {"continued": {"blocks": 2}},
    "continued carelessly": CARELESS, "from random weights": {},
}  # fmt: skip
PROTOCOLS = ("knn", "logistic")


def options_of(data: str) -> tuple[str, dict[str, Any]]:
    """A set's name, and the options that name its images: PATH::COLUMNS@GROUP."""
    path, _, columns = data.partition("::")
    column, _, group = columns.partition("@")
    return Path(path).name, {"path": path, **({"image_column": column} if column else {}),
                             **({"group": group} if group else {})}  # fmt: skip


def pretrained(name: str, way: str, images: dict[str, Any], options: argparse.Namespace) -> Path:
    """The run that pre-trains on a set in one way."""
    more = WAYS[way] or {}
    scratch = way == "from random weights"
    model = scratch_model(options.start) if scratch else {"weights": str(options.start)}
    fit = {"epochs": options.epochs, **({"batch_size": options.batch} if options.batch else {})}
    run = ssl_vit.pretrain("mae", **{"data": images, "model": model, "fit": fit, "preset": "px64",
                                     "out": run_of(options.work, name, way), **more})  # fmt: skip
    return Path(run.path)


def scratch_model(start: Path) -> dict[str, Any]:
    """The same network with random weights."""
    config = json.loads((start / "backbone" / "config.json").read_text())["model_args"]
    return {"img_size": config["img_size"], "patch_size": config["patch_size"], "width": config["embed_dim"],
            "depth": config["depth"], "heads": config["num_heads"], "name": "vit_tiny"}  # fmt: skip


def judged(run: Path, name: str, way: str, images: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """k-NN and a logistic probe of every draw at every number of labels."""
    rows: list[dict[str, Any]] = []
    for labels in options.labels:
        for draw in range(options.draws):
            for protocol in PROTOCOLS:
                place = options.work / name / "judged" / f"{way}-{protocol}-{labels}-{draw}"
                found = ssl_vit.evaluate(
                    run, protocol, labels=labels, out=place,
                    **{"eval": {"draw": draw, "data": {k: v for k, v in images.items() if k != "group"},
                                "metric": options.metric}},
                )  # fmt: skip
                shared = {"set": name, "labels": labels, "draw": draw, "protocol": protocol}
                rows += [
                    {**shared, "way": row["method"] if row["method"] in BESIDE else way, "value": row[found.metric]}
                    for row in found.rows if row.get("headline", protocol != "knn")
                ]  # fmt: skip
    return rows


BESIDE = ("raw pixels", "random weights")


def table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Mean and standard deviation over draws, by way and number of labels."""
    own = [row for row in rows if row["set"] == name]
    columns = sorted({(row["protocol"], row["labels"]) for row in own}, key=lambda c: (PROTOCOLS.index(c[0]), c[1]))
    heads = [f"{'k-NN' if protocol == 'knn' else protocol}, {labels:,}" for protocol, labels in columns]
    lines = [f"| {SETS.get(name, name)} | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(columns)}"]
    for way in (*WAYS, *BESIDE):
        cells: list[str] = []
        for protocol, labels in columns:
            values = {
                r["draw"]: r["value"] for r in own if (r["way"], r["protocol"], r["labels"]) == (way, protocol, labels)
            }
            found = list(values.values())
            cells.append("" if not found else f"{mean(found):.1f} ± {stdev(found) if len(found) > 1 else 0:.1f}")
        if any(cells):
            lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


def drifts(work: Path, names: list[str]) -> list[str]:
    """What the drift alarm recorded of every continued run: of its export, and which limit was passed."""
    lines = ["| set | way | neighbours kept | CKA | limit passed |", "| --- | --- | ---: | ---: | --- |"]
    for name in names:
        for way in WAYS:
            path = run_of(work, name, way) / "environment.json"
            drift = json.loads(path.read_text()).get("drift") if path.exists() else None
            if drift:
                end = drift["exported"]
                passed = f"at step {drift['passed']['step']}" if drift["passed"] else "no"
                lines.append(f"| {name} | {way} | {end['agreement']:.0%} | {end['cka']:.3f} | {passed} |")
    return lines


def run_of(work: Path, name: str, way: str) -> Path:
    """Where a run is kept."""
    return work / name / way.replace(", ", "-").replace(" ", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, required=True, help="run of a network that others stand for")
    parser.add_argument("--data", nargs="+", required=True, help="sources; PATH::COLUMNS@GROUP names columns")
    parser.add_argument("--work", type=Path, default=Path("runs/continued"), help="where runs and numbers are kept")
    parser.add_argument("--epochs", type=float, default=20.0, help="of pre-training on a set")
    parser.add_argument("--batch", type=int, help="images of a step; default: the preset's")
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 200, 800])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--metric", default="balanced")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for data in options.data:
        name, images = options_of(data)
        for way in WAYS:
            run = options.start if WAYS[way] is None else pretrained(name, way, images, options)
            rows += judged(run, name, way, images, options)
    names = [options_of(data)[0] for data in options.data]
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    made = about(same_command("bench_continued.py", words))
    (options.out / "continued.json").write_text(json.dumps({"about": made, "rows": rows}, indent=1) + "\n")
    parts = [line for name in names for line in ("", f"## {name}", "", *table(name, rows))]
    text = [
        "# Continued pre-training",
        "",
        paragraph(__doc__, 2),
        *parts,
        "",
        "## Drift",
        "",
        *drifts(options.work, names),
    ]
    (options.out / "continued.md").write_text("\n".join([*text, "", made_by(made)]) + "\n")


if __name__ == "__main__":
    main()
