"""Writes README's table of results from the files in benchmarks/results: ``python docs/make_results.py``."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: made by docs/make_results.py -->\n", "<!-- results: end -->\n"
ROWS = [("digits", "digits", 20, "top1"), ("digits", "digits", 1438, "top1"), ("CIFAR-10", "cifar10", 500, "top1"),
        ("cells in flow", "cells16", 128, "balanced"), ("cells in flow", "cells16", 641, "balanced"),
        ("magnetic tiles", "magtile", 98, "balanced")]  # fmt: skip
"""What the images are called, their file, how many labels, and the metric."""
COLUMNS = {
    "MAE, fine-tuned": [("MAE", "fine-tuning")], "from scratch": [("from scratch", "supervised")],
    "MAE, linear probe": [("MAE", "linear-cached")], "random weights, linear": [("random weights", "linear-cached")],
    "raw pixels: k-NN, linear": [("raw pixels", "k-NN, pixels"), ("raw pixels", "linear-cached")],
}  # fmt: skip

WORDS = "k-means of patches"
"""The reference of the league that needs no network."""
AS_GOOD = "As good as MAE: on digits neighbours in raw pixels, on cells training from scratch."


def table() -> str:
    """The table as Markdown."""
    heads = ["images", "labels", *COLUMNS]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for title, name, labels, metric in ROWS:
        rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
        cells = [_cell(rows, ways, labels, metric) for ways in COLUMNS.values()]
        lines.append([f"[{title}](benchmarks/results/{name}.md)", f"{labels:,}", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{_best()}\n{AS_GOOD} {_tiles()}\n"


def readme() -> str:
    """README.md with the table between its marks."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def _cell(rows: list[dict[str, Any]], ways: list[tuple[str, str]], labels: int, metric: str) -> str:
    """Mean and deviation over draws; of several ways, their means."""
    found = [
        [row[metric] for row in rows if (row["method"], row["protocol"], row["labels"]) == (*way, labels)]
        for way in ways
    ]
    means = [f"{statistics.mean(values):.1f}" for values in found]
    if len(found) > 1 or len(found[0]) == 1:
        return ", ".join(means)
    return f"{means[0]} ± {statistics.stdev(found[0]):.1f}"


def _best() -> str:
    """What the league's finals reached: means over runs that were trained, of the deviation over draws, too."""
    found = list[str]()
    for name, images in (("league", "CIFAR-10 with 500 labels"), ("league_cells16", "cells with 128 labels")):
        final = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["final"]
        rows = [row for row in final["rows"] if row.get("words", "").startswith("recipes/lejepa.py")]
        keys = ("linear", "deviation", "minutes")
        linear, spread, minutes = (statistics.mean(row[key] for row in rows) for key in keys)
        took = f"[{minutes:.0f} minutes of a core](benchmarks/results/{name}.md)"
        plain = [row["linear"] for row in final["rows"] if row["entry"] == WORDS]
        beside = f"; {WORDS}, made in seconds, {statistics.mean(plain):.1f}" if plain else ""
        found.append(f"{images} {linear:.1f} ± {spread:.1f} ({len(rows)} runs of {took}{beside})")
    last = json.loads((RESULTS / "photographs.json").read_text(encoding="utf-8"))["curve"][-1]
    few, place = last["10 %"], "benchmarks/results/photographs.md"
    found.append(
        f"photographs of 64 px with 947 labels {statistics.mean(few):.1f} ± {statistics.stdev(few):.1f} "
        f"(1 run of [{last['minutes']:.0f} minutes of a core]({place}))"
    )
    return f"A better linear probe, by LeJEPA on a small ResNet: {', '.join(found)}."


def _tiles() -> str:
    """What is left where no training and no probe does better than guessing: neighbours."""
    final = json.loads((RESULTS / "league_magtile.json").read_text(encoding="utf-8"))["final"]
    plain = statistics.mean(row["linear"] for row in final["rows"] if row["entry"] == WORDS)
    place = "benchmarks/results/league_magtile.md"
    rows = json.loads((RESULTS / "magtile.json").read_text(encoding="utf-8"))["rows"]
    near = _cell(rows, [("MAE", "k-NN, cls")], 98, "balanced")
    return (
        f"On tiles no training and no probe of a network is clearly above guessing (16.7); a probe of [{WORDS} reaches "
        f"{plain:.1f}]({place}), k-NN in MAE's features {near}."
    )


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
