"""What to label next: the images that a classifier is least certain of, as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ssl_vit.core.files import write_atomically
from ssl_vit.report.cells import NOTHING, Table, table
from ssl_vit.report.page.blocks import Page, Picture, Section, Thumbnail, Thumbnails, Words
from ssl_vit.report.page.render import html

QUESTION = "What to label next?"


class Doubtful(NamedTuple):
    """An image to label next."""

    file: str
    png: bytes
    shares: Sequence[tuple[str, float]]
    """Names and probabilities that tell what the doubt is about."""


class Answered(NamedTuple):
    """What a classifier says of many images."""

    images: str
    """The folder of the images, or their name."""
    whole: int
    """How many there are, with those that were left out."""
    judged: str
    """What the classifier was worth on test images; empty where nobody knows."""
    certainty: Sequence[float]
    """Of every image that could be read."""
    predicted: Sequence[str]
    """What is said of each."""
    several: bool
    """Whether an image may have several labels."""


def page(found: Answered, doubts: Sequence[Doubtful], title: str) -> str:
    """The page's text: one file that loads nothing.

    Args:
        found: What the classifier says.
        doubts: The least certain images, the least certain first.
        title: The images' name.
    """
    certainty = np.asarray(found.certainty, dtype=np.float64)
    what = "the least certain label of the image" if found.several else "the likeliest class"
    low = int((certainty < 0.6).sum())
    numbers = [
        (f"{len(certainty):,}", "images predicted"),
        (_share(certainty), "median certainty"),
        (f"{low:,}", "below 60 % certain"),
    ]
    judged = "What this classifier is worth is not on record."
    if found.judged:
        judged = f"How far to trust it: {found.judged}."
    shown = Thumbnails(Thumbnail(Picture(one.file, "", one.png), one.shares) for one in doubts)
    note = (
        f"Files are in {found.images}. Certainty is the probability of {what}. Probabilities are the network's own "
        "word: it may be sure and wrong, so some of the certain ones deserve a look, too."
    )
    return html(
        Page(
            title=title, question=QUESTION, refused=False, beside=(judged,), numbers=tuple(numbers),
            sentence=_sentence(len(doubts), found.whole),
            sections=(
                Section("next", "Least certain first", (Words(note, note=True), shown)),
                Section("predicted", "What was predicted", (_counts(found, certainty),)),
            ),
        )
    )  # fmt: skip


def _sentence(shown: int, whole: int) -> str:
    if shown == whole > 1:
        return f"All {whole:,} images are here. Label from the first one on: the classifier is least certain of it."
    return f"Label these first: the {shown:,} of {whole:,} images that the classifier is least certain of."


def _share(certainty: np.ndarray) -> str:
    return f"{100 * float(np.median(certainty)):.0f} %" if len(certainty) else NOTHING


def _counts(found: Answered, certainty: np.ndarray) -> Table:
    predicted = np.asarray(found.predicted, dtype=object)
    names, counts = np.unique(predicted.astype(str), return_counts=True)
    rows = [
        (str(names[k]), f"{counts[k]:,}", _share(certainty[predicted == names[k]]))
        for k in np.argsort(-counts, kind="stable")[:50]
    ]  # fmt: skip
    return table(("prediction", "images", "median certainty"), rows, 1)


def write_page(path: Path, found: Answered, doubts: Sequence[Doubtful], title: str) -> None:
    """Writes the page, whole or not at all.

    Args:
        path: The file.
        found: What the classifier says.
        doubts: The least certain images.
        title: The images' name.
    """
    write_atomically(path, page(found, doubts, title))


def is_page(path: Path) -> bool:
    """Whether a file is one that ``write_page`` left; others are not to be replaced.

    Args:
        path: A file that is there.
    """
    return path.is_file() and QUESTION.encode() in path.read_bytes()
