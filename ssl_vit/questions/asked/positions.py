"""Positions: what do they bring, and which kind?"""

from __future__ import annotations

from typing import Any

from ssl_vit.configs import metrics
from ssl_vit.questions.drawing import LOOKS, forest_panel, maps_panel
from ssl_vit.questions.numbers import Finding, Numbers, contrast, judged, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import POSITIONS, RELATIVE, VIT, Look, Scope, Training
from ssl_vit.questions.words import number, told, unchanged

TITLES = {
    "none": "none", "learnable": "1-D, learnable", "factorised": "2-D, learnable", "sincos": "sine-cosine start",
    RELATIVE: "relative",
}  # fmt: skip
_SOME, _ALIKE = "some", "alike"
CLAIMS = {_SOME: "better than no positions", _ALIKE: "no different from 1-D positions"}
_SHOWN = 4
"""Patches along a side of which a map is shown, at most."""


def _training(scope: Scope, kind: str) -> Training:
    return scope.training(RELATIVE) if kind == RELATIVE else scope.training(VIT, positions=kind)


def trainings(scope: Scope) -> list[Training]:
    """The ViT with every kind of positions, on all labels.

    Args:
        scope: How much is done.
    """
    return [one for kind in (*POSITIONS, RELATIVE) for one in scope.each_draw(_training(scope, kind))]


def looks(scope: Scope) -> list[Look]:
    """The first draw's networks that have positions.

    Args:
        scope: How much is done.
    """
    return [Look("positions", _training(scope, kind)) for kind in TITLES if kind != "none"]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """Every kind against none, and against 1-D ones.

    Args:
        scope: What was done.
        numbers: What came out.
    """
    of = {kind: scope.each_draw(_training(scope, kind)) for kind in TITLES}
    rows = [
        {"kind": kind, "name": name, **mean_of(numbers.units(of[kind]), numbers.clusters)}
        for kind, name in TITLES.items()
    ]
    contrasts = [
        contrast(numbers, _SOME, name, [(1, of[kind]), (-1, of["none"])])
        for kind, name in TITLES.items()
        if kind != "none"
    ]
    contrasts += [
        contrast(numbers, _ALIKE, name, [(1, of[kind]), (-1, of["learnable"])], expected=0)
        for kind, name in TITLES.items()
        if kind not in ("none", "learnable")
    ]
    maps = {}
    for kind in TITLES:
        read = None if kind == "none" else numbers.read([Look("positions", _training(scope, kind))], "similarity")
        if read is not None:
            maps[kind] = [[[round(float(v), 4) for v in row] for row in one] for one in read[0]]
    return {
        "grid": scope.grid, "labels": scope.labels[-1], "metric": numbers.metric, "unit": numbers.unit, "rows": rows,
        "maps": maps, "comparisons": judged(contrasts),
    }  # fmt: skip


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """What positions bring, and that their kind brings nothing more.

    Args:
        finding: Of ``judge``.
    """
    return [*of_claim(finding, _SOME), *of_claim(finding, _ALIKE)]


def answer(finding: Finding) -> str:
    """What positions bring, and whether their kind matters.

    Args:
        finding: Of ``judge``.
    """
    alike = unchanged("no difference from 1-D positions", of_claim(finding, _ALIKE))
    return f"{told('better than no positions', of_claim(finding, _SOME))} {alike}".strip()


def figures(finding: Finding) -> list[Figure]:
    """Scores against no positions, and maps of how alike positions are.

    Args:
        finding: Of ``judge``.
    """
    some, looks_of = of_claim(finding, _SOME), [LOOKS["relative"] if o["name"] == TITLES[RELATIVE] else LOOKS["scratch"]
                                                for o in of_claim(finding, _SOME)]  # fmt: skip
    panel = forest_panel("Gain over no positions", some, looks_of, f"{finding['unit']}, right of the line: better")
    none = next(row for row in finding["rows"] if row["kind"] == "none")
    value = none["value"]
    known = "" if value is None else f" Without positions: {metrics.shown(finding['metric'], value)}."
    found = [Figure("positions", [panel], f"{answer(finding)}{known}")]
    if finding["maps"]:
        panels = [
            maps_panel(
                TITLES[kind], maps, finding["grid"], LOOKS["relative" if kind == RELATIVE else "random"],
                f"Maps for {len(maps)} patches of how alike positions are, {TITLES[kind]}.",
            )
            for kind, maps in finding["maps"].items()
        ]  # fmt: skip
        found.append(Figure("positions-maps", panels, _near(finding), columns=4))
    return found


def neighbourhood(maps: list[list[list[float]]], places: list[tuple[int, int]]) -> float:
    """How much more alike the positions of neighbours are than those of patches further away; 0 for no order.

    Args:
        maps: [M][grid][grid] of M patches.
        places: Row and column of each.
    """
    near, far = list[float](), list[float]()
    for (row, column), one in zip(places, maps, strict=True):
        for r, line in enumerate(one):
            for c, value in enumerate(line):
                away = max(abs(r - row), abs(c - column))
                if away:
                    (near if away == 1 else far).append(value)
    return sum(near) / len(near) - sum(far) / len(far) if near and far else 0.0


def shown(grid: int) -> list[tuple[int, int]]:
    """Row and column of the patches of which a map is shown: evenly spaced, at most 4 x 4 of them.

    Args:
        grid: Patches along a side.
    """
    count = min(grid, _SHOWN)
    at = [round(i * (grid - 1) / max(1, count - 1)) for i in range(count)]
    return [(row, column) for row in at for column in at]


def _near(finding: Finding) -> str:
    told_of: list[str] = []
    for kind, maps in finding["maps"].items():
        more = neighbourhood(maps, shown(finding["grid"]))
        words = f"{number(more, '')} for {TITLES[kind]}"
        told_of.append(words)
    return (
        "In the first draw's networks: how much more alike neighbours' positions are than those of other patches "
        "(cosine; of relative ones, the bias of the first block as a share of its largest): "
        f"{', '.join(told_of)}. Full colour is alike; there is one small map for each patch."
    )


QUESTION = Question(
    name="positions",
    title="Do positions matter, and which kind?",
    short="positions",
    literature="Without positions a ViT sees a bag of patches and is clearly worse; which kind it has makes hardly a "
    "difference (Dosovitskiy et al. 2021, appendix D.4: 1-D, 2-D and relative ones within 0.3 points).",
    judged="The same ViT is trained on all labels without positions, with one learnable row per patch (1-D), with a "
    "learnable row and column (2-D), with a table that begins as sines and cosines and learns on, and with relative "
    "ones in every block's attention. Beside the scores stand maps of how alike the positions of patches are after "
    "training.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
    looks=looks,
)
