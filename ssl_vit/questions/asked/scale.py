"""Does bigger keep improving? Width and depth doubled, at two numbers of labels, from scratch and pre-trained."""

from __future__ import annotations

import math
from typing import Any

from ssl_vit.questions.drawing import LOOKS, Line, forest_panel, lines_panel
from ssl_vit.questions.numbers import Finding, Numbers, contrast, judged, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import SCRATCH, Scope, Training, start_title
from ssl_vit.questions.words import told
from ssl_vit.report.cells import heading, operations, seconds

_STARTS = (SCRATCH, "mae")
_AXES = ("width", "depth")
_SLOPE, _HELPS = "slope", "helps"
CLAIMS = {_SLOPE: "every doubling adds something", _HELPS: "a doubling adds more after pre-training"}


def _counts(scope: Scope) -> tuple[int, ...]:
    """The two numbers of labels: few, and all."""
    *fewer, most = scope.labels
    return (fewer[min((len(fewer) + 1) // 2, len(fewer) - 1)], most) if fewer else (most,)


def _sizes(scope: Scope, axis: str) -> tuple[int, ...]:
    return scope.widths() if axis == "width" else scope.depths()


def _of(scope: Scope, axis: str, size: int, start: str, labels: int) -> list[Training]:
    return scope.each_draw(scope.sized(**{axis: size}, start=start, labels=labels))


def trainings(scope: Scope) -> list[Training]:
    """Every size along both axes, at two numbers of labels, from scratch and after MAE.

    Args:
        scope: How much is done.
    """
    return [
        one
        for axis in _AXES
        for size in _sizes(scope, axis)
        for start in _STARTS
        for labels in _counts(scope)
        for one in _of(scope, axis, size, start, labels)
    ]


def slope_weights(sizes: tuple[int, ...]) -> list[float]:
    """Weights of scores whose sum is the least-squares slope over the logarithm to base 2: gain per doubling.

    Args:
        sizes: At least two different ones.
    """
    x = [math.log2(size) for size in sizes]
    mean = math.fsum(x) / len(x)
    whole = math.fsum((one - mean) ** 2 for one in x)
    return [(one - mean) / whole for one in x]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """Slopes per doubling, and whether pre-training makes them steeper.

    Args:
        scope: What was done.
        numbers: What came out.
    """
    rows, contrasts, unit = [], [], f"{numbers.unit} per doubling"
    for axis in _AXES:
        sizes = _sizes(scope, axis)
        weights = slope_weights(sizes)
        for labels in _counts(scope):
            terms = {}
            for start in _STARTS:
                of = [_of(scope, axis, size, start, labels) for size in sizes]
                terms[start] = list(zip(weights, of, strict=True))
                rows.append({
                    "axis": axis, "labels": labels, "start": start, "name": start_title(start), "sizes": list(sizes),
                    "points": [mean_of(numbers.units(one), numbers.clusters) for one in of],
                    "flops": [numbers.cost(one, "flops") for one in of],
                    "seconds": [numbers.cost(one, "seconds") for one in of],
                })  # fmt: skip
                name = f"{axis}, {labels:,} labels, {start_title(start)}"
                contrasts.append(contrast(numbers, _SLOPE, name, terms[start], group=labels, unit=unit))
            steeper = [*terms["mae"], *((-weight, one) for weight, one in terms[SCRATCH])]
            name = f"{axis}, {labels:,} labels"
            contrasts.append(contrast(numbers, _HELPS, name, steeper, group=labels, unit=unit))
    return {"metric": numbers.metric, "counts": list(_counts(scope)), "rows": rows, "comparisons": judged(contrasts)}


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """What a doubling adds after pre-training, and that it adds more than from scratch.

    Args:
        finding: Of ``judge``.
    """
    slopes = [one for one in of_claim(finding, _SLOPE) if one["name"].endswith(start_title("mae"))]
    return [*slopes, *of_claim(finding, _HELPS)]


def answer(finding: Finding) -> str:
    """Whether doublings add something, from scratch and after pre-training.

    Args:
        finding: Of ``judge``.
    """
    slopes = told("a gain by every doubling", of_claim(finding, _SLOPE))
    return f"{slopes} {told('more of it after pre-training', of_claim(finding, _HELPS))}".strip()


def _costs(finding: Finding, axis: str) -> str:
    """What the largest costs, against the smallest, with all labels."""
    parts: list[str] = []
    for row in finding["rows"]:
        if row["axis"] != axis or row["labels"] != finding["counts"][-1]:
            continue
        (first, *_, last), (less, *_, more) = row["flops"], row["seconds"]
        if None in (first, last, less, more):
            continue
        parts.append(
            f"{row['name']} from {operations(first)} and {seconds(less)} to {operations(last)} and {seconds(more)} of "
            "one device"
        )
    known = "; ".join(parts) or "not known of all sizes"
    return f"The cost of one network, with its pre-training: {known}."


def figures(finding: Finding) -> list[Figure]:
    """Accuracy over width and over depth, over operations and over device time, and the slopes.

    Args:
        finding: Of ``judge``.
    """
    y, found = heading(finding["metric"]), list[Figure]()
    looks_of = {SCRATCH: LOOKS["scratch"], "mae": LOOKS["mae"]}
    for axis in _AXES:
        panels = []
        own = [row for row in finding["rows"] if row["axis"] == axis]
        for labels in finding["counts"]:
            lines = [
                Line(row["name"], looks_of[row["start"]], row["sizes"], row["points"])
                for row in own if row["labels"] == labels
            ]  # fmt: skip
            ticks = lines[0].x
            panels.append(lines_panel(f"{labels:,} labels", lines, x=axis, y=y, ticks=ticks, log=True))
        slopes = [one for one in of_claim(finding, _SLOPE) if one["name"].startswith(axis)]
        helps = [one for one in of_claim(finding, _HELPS) if one["name"].startswith(axis)]
        words = (
            f"{told(f'a gain by every doubling of the {axis}', slopes)} {told('more of it after pre-training', helps)}"
        )
        found.append(Figure(f"scale-{axis}", panels, words, columns=2))
        known = [row for row in own if row["labels"] == finding["counts"][-1]]
        costs = [
            lines_panel(
                f"{axis.capitalize()}: over {title}",
                [Line(row["name"], looks_of[row["start"]], [cost / scale for cost in row[what]], row["points"])
                 for row in known if None not in row[what]],
                x=x, y=y, log=True,
            )
            for title, what, scale, x in (
                ("operations", "flops", 1e9, "10^9 operations, with pre-training"),
                ("device time", "seconds", 1.0, "seconds of one device, with pre-training"),
            )
            if any(None not in row[what] for row in known)
        ]  # fmt: skip
        if costs:
            found.append(Figure(f"scale-{axis}-cost", costs, _costs(finding, axis), columns=2))
    rows = of_claim(finding, _SLOPE)
    looks_in = [looks_of[SCRATCH if "scratch" in row["name"] else "mae"] for row in rows]
    unit = rows[0]["unit"]
    panel = forest_panel("Gain by a doubling", rows, looks_in, unit)
    return [*found, Figure("scale-slopes", [panel], told("a gain by every doubling", rows))]


QUESTION = Question(
    name="scale",
    title="Does bigger keep improving?",
    short="scaling",
    literature="ViTs gain with every doubling as long as data grow with them; on few images larger ones gain nothing "
    "without pre-training (Dosovitskiy et al. 2021, section 4.4; Zhai et al. 2022; He et al. 2022, table 3).",
    judged="The ViT's width is doubled at the usual depth, and its depth at half the usual width. All are trained at "
    "two numbers of labels for as many steps, from scratch and after MAE for as many epochs. A slope is the "
    "least-squares gain per doubling.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
)
