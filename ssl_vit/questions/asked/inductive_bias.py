"""Why? What every network loses when images are permuted: the drop is its inductive bias."""

from __future__ import annotations

from typing import Any

from ssl_vit.questions.drawing import forest_panel, net_look
from ssl_vit.questions.numbers import Finding, Numbers, contrast, judged, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import NETS, OTHERS, PERMUTED, VIT, Scope, Training
from ssl_vit.questions.words import told, unchanged
from ssl_vit.report.charts.canvas import Panel

_WORDS = {
    "patches": "patches permuted", "pixels": "pixels permuted inside every patch", "all": "all pixels permuted",
}  # fmt: skip
_VIT, _MORE = "vit", "more"
CLAIMS = {
    **{kind: f"loses something with {words}" for kind, words in _WORDS.items()},
    _VIT: "the ViT is unchanged",
    _MORE: "loses more than the ViT with patches permuted",
}  # fmt: skip
_NETS = (VIT, *OTHERS)


def trainings(scope: Scope) -> list[Training]:
    """Every network on images as they are and by every permutation, with all labels and nothing else varied.

    Args:
        scope: How much is done.
    """
    return [
        training
        for images in ("whole", *PERMUTED)
        for net in _NETS
        for training in scope.each_draw(scope.training(net, images=images, plain=True))
    ]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """The drop of every network by every permutation.

    Args:
        scope: What was done.
        numbers: What came out.
    """

    def of(net: str, images: str) -> list[Training]:
        return scope.each_draw(scope.training(net, images=images, plain=True))

    rows = [
        {
            "net": net, "name": NETS[net].title,
            "points": {
                images: mean_of(numbers.units(of(net, images)), numbers.clusters) for images in ("whole", *PERMUTED)
            },
        }
        for net in _NETS
    ]  # fmt: skip
    lost = {(net, images): [(1, of(net, "whole")), (-1, of(net, images))] for net in _NETS for images in PERMUTED}
    contrasts = [contrast(numbers, _VIT, _WORDS[i], lost[VIT, i], expected=0) for i in ("patches", "pixels")]
    contrasts += [contrast(numbers, "all", NETS[VIT].title, lost[VIT, "all"])]
    contrasts += [contrast(numbers, i, NETS[net].title, lost[net, i]) for i in PERMUTED for net in OTHERS]
    contrasts += [
        contrast(
            numbers, _MORE, NETS[net].title,
            [*lost[net, "patches"], *((-weight, one) for weight, one in lost[VIT, "patches"])],
        )
        for net in OTHERS
    ]  # fmt: skip
    return {
        "labels": scope.labels[-1], "metric": numbers.metric, "unit": numbers.unit, "rows": rows,
        "comparisons": judged(contrasts),
    }  # fmt: skip


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """What others lose more than the ViT.

    Args:
        finding: Of ``judge``.
    """
    return of_claim(finding, _MORE)


def answer(finding: Finding) -> str:
    """Who loses more than the ViT when patches change places.

    Args:
        finding: Of ``judge``.
    """
    return told("a larger loss than the ViT where patches are permuted", stands_on(finding))


def figures(finding: Finding) -> list[Figure]:
    """Drops as rows with intervals, a panel for each permutation.

    Args:
        finding: Of ``judge``.
    """
    panels, sentences = list[Panel](), list[str]()
    names = {NETS[net].title: net for net in _NETS}
    for kind, words in _WORDS.items():
        others, vit = of_claim(finding, kind), [one for one in of_claim(finding, _VIT) if one["name"] == words]
        rows = [{**one, "name": NETS[VIT].title} for one in vit] + others
        looks_of = [net_look(names[row["name"]]) for row in rows]
        panels.append(forest_panel(words.capitalize(), rows, looks_of, f"{finding['unit']} lost"))
        sentences.append(told(f"a loss with {words}", others))
    same = unchanged("no change of the ViT, which learns positions and patches from nothing", of_claim(finding, _VIT))
    return [Figure("bias", panels, " ".join([same, *sentences]))]


QUESTION = Question(
    name="bias",
    title="Why? What does each network take for granted?",
    short="inductive bias",
    literature="Convolutions take for granted that neighbouring pixels belong together; a ViT has to learn it "
    "(Dosovitskiy et al. 2021, section 3.1). With positions and weights drawn independently, a ViT cannot know the "
    "order of patches, nor of pixels inside them: permuted by one fixed rule, images are as good to it as before.",
    judged="All networks are trained again on images permuted by one fixed permutation, the same for training and test "
    "images: of patches, of pixels inside every patch, of all pixels. Every draw has its own. "
    "Nothing else is varied. What a network loses is what it takes for granted.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
)
