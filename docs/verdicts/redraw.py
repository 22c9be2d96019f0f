"""Draws charts of the reports here again, from the tables in their Markdown: ``python docs/verdicts/redraw.py``.

Raw results of these verdicts were not kept, so ``ssl-vit report`` cannot make them again. Curves, differences and
labels saved are drawn from the printed numbers, which have one decimal; the cells' confusion and balance from the
numbers that their pictures showed. Losses stand in no table, and stay as they were drawn. The README's first picture,
docs/label_efficiency.png, is two panels of digits-longer.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from ssl_vit.configs.metrics import METRICS
from ssl_vit.methods.starts import starts
from ssl_vit.report.charts import drawing, plots
from ssl_vit.report.charts.canvas import HEIGHT, WIDTH, Chart, Key, Panel, make_chart
from ssl_vit.report.charts.drawing import Line, Mark
from ssl_vit.report.charts.placing import has_room
from ssl_vit.report.look import LONGER, looks

HERE = Path(__file__).parent
NAN = float("nan")
HEADS = {"train": "All weights trained", "linear": "Linear probe", "knn": "k-NN"}
USES = {"linear probe": "linear", "k-NN": "knn"}
LOOKS = looks(starts())
TITLES = {start.title: name for name, start in starts().items()}
NUMBER = r"([+-]?[\d.]+)"
CELLS = ["G1", "S", "G2", "Prophase", "Mitosis_late"]
CONFUSED = {
    "MAE, linear probe": ("mae", [[2095, 155, 0, 0, 0], [196, 1926, 128, 0, 0], [0, 118, 1806, 298, 28],
                                  [0, 0, 319, 1149, 52], [0, 0, 11, 166, 103]]),
    "from scratch, at the cost of pre-training": ("scratch", [
        [673, 2, 0, 0, 0], [322, 353, 0, 0, 0], [0, 230, 419, 24, 2], [0, 5, 98, 348, 5], [0, 6, 7, 37, 34]]),
}  # fmt: skip


def table(text: str, head: str) -> tuple[list[str], list[list[str]]]:
    """The first table below a heading: its headings and rows."""
    part = text[text.index(f"\n{head}\n") :]
    found = re.search(r"\n((?:\|.*\n)+)", part)
    assert found, head
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].strip().splitlines()]
    return rows[0], rows[2:]


def numbers(cell: str) -> list[float]:
    """Value and interval of a cell, with stars or without: NaN for what is not there."""
    found = re.match(rf"\**{NUMBER}[ \\*]*(?:\({NUMBER} to {NUMBER})?", cell)
    return [NAN] * 3 if not found else [NAN if part is None else float(part) for part in found.groups()]


def method(name: str) -> tuple[str, str, str]:
    """Start, use and the name at a line."""
    title, _, use = name.partition(", ")
    if use == "at the cost of pre-training":
        return "longer", "train", name
    return TITLES[title], USES.get(use, "train"), title


def curves(text: str, metric: str, uses: tuple[str, ...] = tuple(HEADS)) -> Chart:
    """Label efficiency, a panel for each of some uses of labels."""
    heads, rows = table(text, "## All methods beside each other")
    counts = [int(head.split()[0].replace(",", "")) for head in heads[1:]]
    found: dict[tuple[str, str], Line] = {}
    for name, *cells in rows:
        start, use, short = method(name)
        look = LONGER if start == "longer" else LOOKS[start]
        points = {n: Mark(look, *numbers(cell)) for n, cell in zip(counts, cells, strict=True) if cell != "-"}
        found[start, use] = Line(short, look, points)
    always = [found.pop((start, "train")) for start in ("longer", "scratch") if (start, "train") in found]
    lines = {use: [*(line for (_, own), line in found.items() if own == use), *always] for use in uses}
    ends = [v for some in lines.values() for line in some for m in line.points.values() for v in m[1:4] if v == v]
    low, high = min(ends), max(ends)
    low, high = max(low - 0.06 * (high - low), 0.0), min(high + 0.06 * (high - low), 100.0)
    limits = (0.0 if low < 0.25 * high else low, high)
    named = all(has_room((line.name for line in some), HEIGHT - 0.8) for some in lines.values())
    assert named
    draw = partial(drawing.curves, counts=counts, limits=limits, heading=METRICS[metric].heading, named=named)
    return make_chart("curves", [Panel(HEADS[use], partial(draw, lines=some), "") for use, some in lines.items()])


def differences(text: str) -> Chart:
    """To the baseline."""
    heads, rows = table(text, "### At every number of labels")
    counts = [head.split()[0] for head in heads[1:]]
    groups: dict[str, dict[str, list[Mark]]] = {use: {n: [] for n in counts} for use in HEADS}
    known: dict[str, str] = {}
    for name, *cells in rows:
        start, use, short = method(name)
        known[short] = start
        for n, cell in zip(counts, cells, strict=True):
            value, low, high = numbers(cell)
            if value == value:
                groups[use][n].append(Mark(LOOKS[start], value, low, high, cell.startswith("**")))
    ends = [v for own in groups.values() for some in own.values() for m in some for v in m[1:4] if v == v] + [0.0]
    margin = 0.05 * (max(ends) - min(ends))
    limits = (min(ends) - margin, max(ends) + margin)
    height = max(0.95 + len(own) * (0.16 + 0.12 * max(map(len, own.values()))) for own in groups.values())
    across = "difference, points (right of the line: better)"
    panels = [Panel(HEADS[use], partial(drawing.forest, rows=own, limits=limits, heading=across), "", height)
              for use, own in groups.items()]  # fmt: skip
    order = [name for name in LOOKS if name in known.values()]
    titles = {start: short for short, start in known.items()}
    return make_chart(
        "differences", panels, legend=[Key(titles[name], LOOKS[name], line=False) for name in order], note=plots.HOLLOW
    )


def saved(text: str) -> tuple[Chart, str] | None:
    """Labels needed for what the baseline reaches with all."""
    if "\n## Labels saved\n" not in text:
        return None
    heads, rows = table(text, "## Labels saved")
    bars: list[tuple[str, Mark]] = []
    for name, *cells in rows:
        cell, (start, _, _) = cells[-1], method(name)
        if cell == "-":
            continue
        value = float(found[1]) if (found := re.search(rf"\({NUMBER} % of all", cell)) else NAN
        both, only = re.search(rf"{NUMBER} % to {NUMBER} %", cell), re.search(rf"{NUMBER} % or (more|less)", cell)
        low, high = (float(both[1]), float(both[2])) if both else (NAN, NAN)
        if only:
            low, high = (float(only[1]), NAN) if only[2] == "more" else (NAN, float(only[1]))
        bars.append((name, Mark(LOOKS[start], value, low, high)))
    whole = heads[-1].split()[-1]
    draw = partial(drawing.shares, bars=bars, heading=f"labels needed, % of all {whole}")
    words = "; ".join(f"{n} {f'{m.value:.0f} %' if m.value == m.value else 'not reached'}" for n, m in bars) + "."
    return make_chart("saved", [Panel("To reach the baseline", draw, words, 0.95 + 0.36 * len(bars))]), words


def cells() -> list[Chart]:
    """Confusion and balance of the cells."""
    matrices = [Panel(name, partial(drawing.confusion, counts=np.array(counts, dtype=float), names=CELLS,
                                    look=LOOKS[start]), "", WIDTH)
                for name, (start, counts) in CONFUSED.items()]  # fmt: skip
    draw = partial(drawing.balance, names=CELLS, train=[675, 675, 675, 454, 84], test=[225, 225, 225, 152, 28])
    balance = Panel("Images per class", draw, "", 2.0)
    return [
        make_chart("confusion", matrices, columns=2, note=plots.confusion_words(len(CELLS))),
        make_chart("classes", [balance]),
    ]


def main() -> None:
    """Every report here."""
    for path in sorted(HERE.glob("*/report.md")):
        text = path.read_text()
        heading = re.search(r"\n([^\n]+): mean over draws, and its", text)
        assert heading
        metric = next(name for name, one in METRICS.items() if one.heading == heading[1])
        charts = [curves(text, metric), differences(text)]
        if (found := saved(text)) is not None:
            charts.append(found[0])
            text = re.sub(r"!\[[^\]]*\]\(figures/saved.png\)", f"![{found[1]}](figures/saved.png)", text)
            path.write_text(text)
        if path.parent.name == "digits-longer":
            (HERE.parent / "label_efficiency.png").write_bytes(curves(text, metric, ("train", "knn")).png)
        for chart in charts + (cells() if path.parent.name == "cells16" else []):
            (path.parent / "figures" / f"{chart.name}.png").write_bytes(chart.png)


if __name__ == "__main__":
    main()
