"""Translation: how much do features change where images are shifted a little?"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ssl_vit.questions.drawing import Line, lines_panel, net_look
from ssl_vit.questions.numbers import Contrast, Finding, Numbers, judged, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import NETS, OTHERS, VIT, Look, Scope, Training
from ssl_vit.questions.words import told

_NETS = (VIT, *OTHERS)
_LESS, _LEARNT = "less", "learnt"
CLAIMS = {_LESS: "changes less than the ViT, trained", _LEARNT: "changes less once it is trained"}
_UNIT = ""
_NOTHING = dict.fromkeys(("value", "low", "high"), 0.0)
"""What an image that stays changes."""


def trainings(scope: Scope) -> list[Training]:
    """Every network from scratch on all labels.

    Args:
        scope: How much is done.
    """
    return [one for net in _NETS for one in scope.each_draw(scope.training(net))]


def _looks(scope: Scope, net: str, *, trained: bool) -> list[Look]:
    of = scope.training(net) if trained else Training(net)
    return [Look("shifts", one) for one in scope.each_draw(of)]


def looks(scope: Scope) -> list[Look]:
    """Every network, trained and untrained.

    Args:
        scope: How much is done.
    """
    return [look for net in _NETS for trained in (False, True) for look in _looks(scope, net, trained=trained)]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """Relative change of features by shift, and who changes less than the ViT half a patch away.

    Args:
        scope: What was done.
        numbers: What came out.
    """
    middle = max(1, scope.patch // 2)
    found: dict[tuple[str, bool], Float[np.ndarray, "R S I"] | None] = {
        (net, trained): numbers.read(_looks(scope, net, trained=trained), "change")
        for net in _NETS
        for trained in (False, True)
    }
    clusters = numbers.looked_clusters
    rows = [
        {
            "net": net, "name": NETS[net].title, "trained": trained,
            "points": [
                mean_of(None if matrix is None else matrix[:, s], clusters) if s else _NOTHING
                for s in range(scope.patch + 1)
            ],
        }
        for (net, trained), matrix in found.items()
    ]  # fmt: skip

    def less(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        return None if one is None or other is None else one[:, middle] - other[:, middle]

    contrasts = [
        Contrast(_LESS, NETS[net].title, less(found[VIT, True], found[net, True]), unit=_UNIT, clusters=clusters)
        for net in OTHERS
    ]
    contrasts += [
        Contrast(
            _LEARNT, NETS[net].title, less(found[net, False], found[net, True]), unit=_UNIT, group=1, clusters=clusters
        )
        for net in _NETS
    ]
    return {
        "patch": scope.patch, "middle": middle, "rows": rows, "labels": scope.labels[-1],
        "comparisons": judged(contrasts),
    }  # fmt: skip


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """What others change less than the ViT.

    Args:
        finding: Of ``judge``.
    """
    return of_claim(finding, _LESS)


def answer(finding: Finding) -> str:
    """Who changes less than the ViT.

    Args:
        finding: Of ``judge``.
    """
    words = f"trained features that change less than the ViT's under a shift of {finding['middle']} px"
    return told(words, stands_on(finding))


def figures(finding: Finding) -> list[Figure]:
    """Change over the shift, untrained and trained.

    Args:
        finding: Of ``judge``.
    """
    shifts = list(range(finding["patch"] + 1))
    panels = [
        lines_panel(
            title,
            [Line(row["name"], net_look(row["net"]), shifts, row["points"])
             for row in finding["rows"] if row["trained"] is trained],
            x="shift in pixels, up to one patch", y="change of features", ticks=shifts, zero=True,
        )
        for title, trained in (("Untrained", False), (f"Trained on {finding['labels']:,} labels", True))
    ]  # fmt: skip
    pixels = f"{finding['middle']} px"
    sentences = (
        told(f"less change than the ViT under a shift of {pixels}, once trained", of_claim(finding, _LESS)),
        told("less change after training than before", of_claim(finding, _LEARNT)),
        "1 is the change to another image.",
    )
    return [Figure("translation", panels, " ".join(sentences), columns=2)]


QUESTION = Question(
    name="translation",
    title="Do features stay where an image is shifted?",
    short="translation",
    literature="Convolutions move with an image, and what reads their mean does not notice (LeCun et al. 1989), but "
    "for their strides (Zhang 2019). A ViT cuts an image at fixed places: moved by less than a patch, every patch is "
    "another.",
    judged="Images are shifted by 0 to one patch, down and to the right; what leaves at one side comes back at the "
    "other. The change of a network's features is divided by its mean change from one image to another, so that 1 "
    "means as different as two images are. Networks are seen before training and after training on all labels.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
    looks=looks,
)
