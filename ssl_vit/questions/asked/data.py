"""Does a ViT need more data than a CNN?"""

from __future__ import annotations

from typing import Any

from ssl_vit.configs.metrics import METRICS
from ssl_vit.questions.drawing import Line, lines_panel, net_look
from ssl_vit.questions.numbers import Contrast, Finding, Numbers, contrast, judged, log_odds, mean_of, of_claim
from ssl_vit.questions.question import Figure, Question
from ssl_vit.questions.scope import CNN, METHODS, NETS, OTHERS, SCRATCH, VIT, Scope, Training, start_title
from ssl_vit.questions.words import told
from ssl_vit.report.cells import heading
from ssl_vit.report.charts.canvas import Panel

_FEW, _SHRINKS = "few", "shrinks"
CLAIMS = {
    _FEW: "ahead of the ViT with the fewest labels",
    _SHRINKS: "that lead, in log odds, is smaller with all labels",
}  # fmt: skip


def _contestants() -> list[tuple[str, str]]:
    """Network and start: the ViT first."""
    return [(VIT, SCRATCH), *((net, SCRATCH) for net in OTHERS), *((VIT, method) for method in METHODS)]


def _name(net: str, start: str) -> str:
    return start_title(start) if net == VIT else NETS[net].title


def trainings(scope: Scope) -> list[Training]:
    """Every network from scratch, and the ViT after every method, at every number of labels.

    Args:
        scope: How much is done.
    """
    return [
        training
        for net, start in _contestants()
        for labels in scope.labels
        for training in scope.each_draw(scope.training(net, start=start, labels=labels))
    ]


def judge(scope: Scope, numbers: Numbers) -> Finding:
    """Leads over the ViT with the fewest labels, and how much of them is left with all.

    Args:
        scope: What was done.
        numbers: What came out.
    """

    def of(net: str, start: str, labels: int) -> list[Training]:
        return scope.each_draw(scope.training(net, start=start, labels=labels))

    fewest, most = scope.labels[0], scope.labels[-1]
    rows = [
        {
            "net": net, "start": start, "name": _name(net, start),
            "points": [mean_of(numbers.units(of(net, start, n)), numbers.clusters) for n in scope.labels],
            "seconds": numbers.cost(of(net, start, most), "seconds"),
            "flops": numbers.cost(of(net, start, most), "flops"),
        }
        for net, start in _contestants()
    ]  # fmt: skip
    contrasts = [
        contrast(
            numbers,
            _FEW,
            _name(net, start),
            [(1, of(net, start, fewest)), (-1, of(VIT, SCRATCH, fewest))],
            group=fewest,
        )
        for net, start in _contestants()[1:]
    ]
    metric = METRICS[numbers.metric]
    if most > fewest and metric.percent and metric.per_image:  # others have no odds, and near 100 % points mislead
        for net, start in _contestants()[1:]:
            terms: list[tuple[float, list[Training]]] = [
                (1, of(net, start, fewest)), (-1, of(VIT, SCRATCH, fewest)), (-1, of(net, start, most)),
                (1, of(VIT, SCRATCH, most)),
            ]  # fmt: skip
            matrix = log_odds(numbers, terms)
            contrasts.append(Contrast(_SHRINKS, _name(net, start), matrix, unit="log odds", clusters=numbers.clusters))
    found = judged(contrasts)
    leads = {one["name"] for one in found if one["claim"] == _FEW and (one["estimate"] or 0) > 0}
    for one in found:
        if one["claim"] == _SHRINKS and one["name"] not in leads:
            one["outcome"] = "unknown"  # there is no lead that could shrink
    return {"labels": list(scope.labels), "metric": numbers.metric, "rows": rows, "comparisons": found}


def stands_on(finding: Finding) -> list[dict[str, Any]]:
    """The ResNet's lead, and how it shrinks, where there is one.

    Args:
        finding: Of ``judge``.
    """
    own = [one for one in finding["comparisons"] if one["name"] == NETS[CNN].title]
    return own if (own[0]["estimate"] or 0) > 0 else own[:1]


def answer(finding: Finding) -> str:
    """Of the ResNet, which is what the question is about.

    Args:
        finding: Of ``judge``.
    """
    own, few, most = stands_on(finding), finding["labels"][0], finding["labels"][-1]
    first = told(f"a CNN of the ViT's size ahead with {few:,} labels", own[:1])
    second = told(f"that lead smaller with all {most:,} labels", own[1:])
    return f"{first} {second}".strip()


def figures(finding: Finding) -> list[Figure]:
    """Accuracy over the number of labels: networks from scratch, and the ViT after pre-training.

    Args:
        finding: Of ``judge``.
    """
    labels, few, most = finding["labels"], finding["labels"][0], finding["labels"][-1]

    y, panels, sentences = heading(finding["metric"]), list[Panel](), list[str]()
    for title, own in (
        ("From scratch, networks of one size", [row for row in finding["rows"] if row["start"] == SCRATCH]),
        ("The ViT after pre-training", [row for row in finding["rows"] if row["net"] == VIT]),
    ):
        lines = [Line(row["name"], net_look(row["net"], row["start"]), labels, row["points"]) for row in own]
        panels.append(lines_panel(title, lines, x="labelled training images", y=y, ticks=labels, log=True))
        names = {row["name"] for row in own}
        sentences += [
            told(words, [one for one in of_claim(finding, claim) if one["name"] in names])
            for claim, words in (
                (_FEW, f"ahead of the ViT from scratch with {few:,} labels"),
                (_SHRINKS, f"that lead smaller with all {most:,} labels"),
            )
        ]
    return [Figure("data", panels, " ".join(filter(None, sentences)), columns=2)]


QUESTION = Question(
    name="data",
    title="Does a ViT need more data than a CNN?",
    short="data needs",
    literature="With few images ViTs fall behind CNNs of the same size, and overtake them with very many (Dosovitskiy "
    "et al. 2021, figures 3 and 4). Networks that put some convolution back, and pre-training without labels, close "
    "the gap (Hassani et al. 2021; He et al. 2022).",
    judged="Networks of about the same parameters and operations are trained on the same draws of labels for as many "
    "steps, with the same images and preset, untuned; the ViT also after pre-training on all images. The claim is the "
    "CNN's lead with the fewest labels, and that it shrinks, in log odds of a right answer: near 100 % every lead in "
    "points is small. Numbers that are no share of right answers have no odds, and of them only the lead is asked.",
    claims=CLAIMS,
    trainings=trainings,
    judge=judge,
    stands_on=stands_on,
    answer=answer,
    figures=figures,
)
