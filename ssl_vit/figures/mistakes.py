"""Where a classifier is sure and wrong: often the most telling images of a set, and those whose label is in doubt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ssl_vit.data.images import ImageSet
from ssl_vit.figures.panels import LINE, MUTED, WRONG, sheet
from ssl_vit.figures.pixels import colouring, cut, thumbnails
from ssl_vit.figures.words import class_names, file_name

_COLUMNS = 4


class Answers(NamedTuple):
    """What a classifier says of test images."""

    predicted: Int[np.ndarray, " n"]
    """Class numbers."""
    confidence: Float[np.ndarray, " n"]
    """Probability of the predicted class, in [0, 1]."""
    positions: Int[np.ndarray, " n"]
    """Where the images are in the test set."""


def surest_mistakes(
    predicted: Int[np.ndarray, " n"], confidence: Float[np.ndarray, " n"], labels: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " m"]:
    """Rows of all wrong answers, the surest first; of equally sure ones the first."""
    wrong = np.flatnonzero(predicted != labels)
    return wrong[np.argsort(-confidence[wrong], kind="stable")]


def per_cent(confidence: float) -> str:
    """Whole per cent, but near certainty with one decimal and never a certainty that no answer has."""
    if confidence < 0.985:
        return f"{confidence:.0%}"
    return f"{confidence:.1%}" if confidence < 0.9995 else "> 99.9%"


def save_mistakes(
    test: ImageSet, answers: Answers, path: Path, *, size: int, title: str, most: int = 12
) -> Int[np.ndarray, " m"]:
    """Draws the wrong answers that a classifier was surest of, with what it said and what is right; none, no picture.

    Args:
        test: Labelled test images of one class each.
        answers: What the classifier says.
        path: PNG to write.
        size: Side of the network's input in pixels: images are shown as it sees them.
        title: Of the picture.
        most: Images that are drawn at most.

    Returns:
        Rows of all wrong answers, the surest first: the first ``most`` of them are drawn.
    """
    wrong = surest_mistakes(answers.predicted, answers.confidence, test.truth[answers.positions])
    if not len(wrong):
        return wrong
    drawn = wrong[:most]
    positions = answers.positions[drawn]
    images = thumbnails(cut(test, positions, size), test.form.bits)
    names = class_names(test.classes)
    which = f"the {most} surest of them" if len(wrong) > most else "all of them"
    notes = [
        f"{len(wrong):,} of {len(answers.predicted):,} answers are wrong; here are {which}, the surest first.",
        "In brackets: the probability that the classifier gave its answer.",
        colouring(*test.form),
    ]
    rows = -(-len(drawn) // _COLUMNS)
    page = sheet(rows, _COLUMNS, title=title, notes=notes, under=0.55)
    for number, (row, position, image) in enumerate(zip(drawn, positions, images, strict=True)):
        place = divmod(number, _COLUMNS)
        page.draw(*place, image)
        said = f"said {names[answers.predicted[row]]} ({per_cent(float(answers.confidence[row]))})"
        right = f"is {names[test.truth[position]]}"
        page.describe(*place, [(said, WRONG), (right, LINE), (file_name(test.where(int(position))), MUTED)])
    for number in range(len(drawn), rows * _COLUMNS):
        page.axes[divmod(number, _COLUMNS)].set_axis_off()
    page.save(path)
    return wrong
