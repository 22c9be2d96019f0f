"""What do self-supervised ViTs learn? Attention and frequencies, block by block (Park et al. 2023)."""

from __future__ import annotations

from typing import Any

from ssl_vit.questions.drawing import LOOKS, Line, lines_panel
from ssl_vit.questions.numbers import Contrast, Finding, Numbers, judged, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import METHODS, SCRATCH, TITLES, VIT, Look, Scope, Training
from ssl_vit.questions.words import told
from ssl_vit.report.charts.canvas import Panel

MEASURES = {
    "distance": ("Attention distance", "pixels", "mean distance in pixels"),
    "information": ("Mutual information of attention", "", "normalised, 0 to 1"),
    "amplitude": ("Amplitude of the highest frequency", "", "logarithm, against the mean"),
}
"""Array: what it is called, the unit of its differences, what stands beside its axis."""
_CLAIM_WORDS = {
    "distance": "attention that reaches further than MAE's in the last block",
    "information": "attention that depends less on the query than MAE's in the last block",
    "amplitude": "less of high frequencies than MAE in the last block",
}
CLAIMS = dict(_CLAIM_WORDS)
_NAMES = {**TITLES, "supervised": "supervised", "random": "untrained"}


def _of(scope: Scope, what: str) -> Training:
    """The network of a line: a pre-trained one as it is, one trained on labels, or none of both."""
    if what == "supervised":
        return scope.training(VIT)
    return Training(VIT, start=SCRATCH if what == "random" else what)


def _looks(scope: Scope, what: str) -> list[Look]:
    return [Look("blocks", one) for one in scope.each_draw(_of(scope, what))]


def trainings(scope: Scope) -> list[Training]:
    """The supervised ViT; the others are looked at as pre-training left them.

    Args:
        scope: How much is done.
    """
    return scope.each_draw(scope.training(VIT))


def looks(scope: Scope) -> list[Look]:
    """Every block of every network.

    Args:
        scope: How much is done.
    """
    return [look for what in _NAMES for look in _looks(scope, what)]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """The three measures by block, and the methods against MAE in the last one.

    Args:
        scope: What was done.
        numbers: What came out.
    """
    clusters = numbers.looked_clusters
    found = {(what, name): numbers.read(_looks(scope, what), name) for what in _NAMES for name in MEASURES}
    rows = [
        {
            "start": what, "name": _NAMES[what], "measure": name,
            "points": [
                mean_of(None if matrix is None else matrix[:, block], clusters) for block in range(scope.depth)
            ],
        }
        for (what, name), matrix in found.items()
    ]  # fmt: skip
    contrasts: list[Contrast] = []
    for group, (name, (_, unit, _)) in enumerate(MEASURES.items()):
        mae = found["mae", name]
        for method in (one for one in METHODS if one != "mae"):
            own, further = found[method, name], 1 if name == "distance" else -1
            matrix = None if own is None or mae is None else further * (own[:, -1] - mae[:, -1])
            contrasts.append(Contrast(name, _NAMES[method], matrix, unit=unit, group=group, clusters=clusters))
    return {"depth": scope.depth, "rows": rows, "comparisons": judged(contrasts)}


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """How DINO differs from MAE, which is what the literature compares.

    Args:
        finding: Of ``judge``.
    """
    return [one for one in finding["comparisons"] if one["name"] == TITLES["dino"]]


def answer(finding: Finding) -> str:
    """How DINO differs from MAE.

    Args:
        finding: Of ``judge``.
    """
    own = {"comparisons": stands_on(finding)}
    return " ".join(told(_CLAIM_WORDS[name], of_claim(own, name)) for name in MEASURES)


def figures(finding: Finding) -> list[Figure]:
    """The three measures over the blocks.

    Args:
        finding: Of ``judge``.
    """
    looks_of = {"supervised": LOOKS["scratch"], "random": LOOKS["random"]} | {m: LOOKS[m] for m in METHODS}
    blocks = list(range(1, finding["depth"] + 1))
    panels: list[Panel] = []
    for name, (title, _, axis) in MEASURES.items():
        lines = [
            Line(row["name"], looks_of[row["start"]], blocks, row["points"], dashed=row["start"] == "random")
            for row in finding["rows"] if row["measure"] == name
        ]  # fmt: skip
        panels.append(lines_panel(title, lines, x="block", y=axis, ticks=blocks))
    words = (told(claim, of_claim(finding, name)) for name, claim in _CLAIM_WORDS.items())
    return [Figure("learned", panels, " ".join(words))]


QUESTION = Question(
    name="learned",
    title="What do self-supervised ViTs learn?",
    short="what is learned",
    literature="Methods that compare views look at the whole image: in late blocks their attention reaches far, is "
    "alike for all queries, and high frequencies are lost. Masked modelling keeps attention local and high frequencies "
    "(Park et al. 2023, of MoCo v3 and SimMIM).",
    judged="Of the ViT after MAE, DINO and LeJEPA, after training on all labels, and untrained, every block is read on "
    "test images: the mean distance that attention reaches, the normalised mutual information of queries and keys (0: "
    "all queries attend alike), and the amplitude of the highest frequency of its features against their mean.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
    looks=looks,
)
