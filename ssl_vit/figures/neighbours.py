"""What a representation takes for alike: test images, and the training images nearest to them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ssl_vit.core.text import shortened
from ssl_vit.data.images import ImageSet
from ssl_vit.evaluation.features import Features
from ssl_vit.figures.panels import LINE, RIGHT, WRONG, sheet
from ssl_vit.figures.pixels import colouring, cut, thumbnails
from ssl_vit.figures.words import class_names, drawable

_LETTERS = 16  # that fit under a panel
_LEGENDS = {
    "class": "✓ and a solid blue frame: the same class; ✗ and a dashed orange frame: another class.",
    "multilabel": "✓ and a solid blue frame: the same labels; ✗ and a dashed orange frame: other labels.",
}


def spread_over_classes(labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n K"], count: int) -> Int[np.ndarray, " q"]:
    """Rows of a few images: as many of every class, in the order of classes, chosen without a look at any result.

    Args:
        labels: One class per image, else rows are spread over the whole set.
        count: How many at most; with more classes than that, one each of evenly spaced classes.
    """
    if labels.ndim > 1:
        return np.arange(len(labels))[_evenly(len(labels), count)]
    classes = np.unique(labels)
    classes = classes[_evenly(len(classes), count)]
    members = [np.flatnonzero(labels == c) for c in classes]
    return np.concatenate([rows[_evenly(len(rows), count // len(classes))] for rows in members])


def _evenly(count: int, most: int) -> Int[np.ndarray, " q"]:
    """Up to so many of ``count`` places, evenly spaced; a single one is in the middle."""
    most = min(count, most)
    return np.linspace(0, count - 1, most).round().astype(int) if most > 1 else np.array([count // 2])


def nearest(train: Features, test: Features, queries: Int[np.ndarray, " q"], count: int = 6) -> Int[np.ndarray, "q k"]:
    """The training images that are most similar to some test images by the cosine of their features.

    Args:
        train: Features of the training images.
        test: Features of the test images, by ascending position.
        queries: Positions in the test set.
        count: Neighbours of each.

    Returns:
        Positions in the training set, the nearest first; of equally near ones the first.
    """
    asked = test.x[np.searchsorted(test.index, queries)]
    lengths = np.linalg.norm(train.x, axis=1).clip(min=1e-12)
    similarity = asked @ train.x.T / lengths  # the length of a query changes nothing in its order
    return train.index[np.argsort(-similarity, axis=1, kind="stable")[:, :count]]


def alike(
    train: ImageSet, test: ImageSet, queries: Int[np.ndarray, " q"], neighbours: Int[np.ndarray, "q k"]
) -> Bool[np.ndarray, "q k"] | None:
    """Which neighbours have the class (or exactly the labels) of their query; None where labels are numbers."""
    if test.kind == "regression":
        return None
    own, others = test.truth[queries][:, None], train.truth[neighbours]
    return own == others if test.kind == "class" else (own == others).all(axis=2)


def save_neighbours(
    train: ImageSet, test: ImageSet, queries: Int[np.ndarray, " q"], found: dict[str, Int[np.ndarray, "q k"]],
    path: Path, *, size: int, title: str,
) -> None:  # fmt: skip
    """Draws a row per test image: the image, then its neighbours; with several representations a row for each.

    Args:
        train: Labelled.
        test: Labelled.
        queries: Positions in the test set.
        found: Positions in the training set by the representation's name, the nearest first.
        path: PNG to write.
        size: Side of the network's input in pixels: images are shown as it sees them.
        title: Of the picture.
    """
    lines, count = len(found), next(iter(found.values())).shape[1]
    used, place = np.unique(np.stack(list(found.values())), return_inverse=True)
    images = torch.cat([cut(test, queries, size), cut(train, used, size)])
    asked, shown = np.split(thumbnails(images, test.form.bits), [len(queries)])
    shown = shown[place.reshape(lines, len(queries), count)]
    names = class_names(test.classes, _LETTERS)
    several = " in each representation" if lines > 1 else ""
    notes = [
        "Left: test images, chosen without a look at any result. Beside each: the "
        f"{count} most similar training images{several}, the most similar first.",
        _LEGENDS.get(test.kind, ""),
        colouring(*test.form),
    ]
    page = sheet(
        len(queries) * lines, count + 1, title=title, notes=notes, under=0.2,
        apart=0.95 if lines > 1 else 0.15, gap=0.12,
    )  # fmt: skip
    for number, query in enumerate(asked):
        for line, (name, neighbours) in enumerate(found.items()):
            row, same = number * lines + line, alike(train, test, queries, neighbours)
            if line:
                page.axes[row, 0].set_axis_off()
            else:
                page.draw(row, 0, query)
                page.describe(row, 0, [(_said(test, names, queries[number]), LINE)])
            if lines > 1:
                page.name_row(row, textwrap.fill(shortened(drawable(name.partition(" (")[0]), 40), 14), column=1)
            for column, image in enumerate(shown[line, number]):
                page.draw(row, column + 1, image)
                words, colour = _said(train, names, neighbours[number, column]), LINE
                if same is not None:
                    right = bool(same[number, column])
                    words, colour = f"{'✓' if right else '✗'} {words}", RIGHT if right else WRONG
                    page.surround(row, column + 1, colour, dashed=not right)
                page.describe(row, column + 1, [(words, colour)])
    page.save(path)


def _said(images: ImageSet, names: list[str], position: int | np.integer) -> str:
    """An image's label in few words."""
    label = images.truth[position]
    if images.kind == "class":
        return names[label]
    if images.kind == "regression":
        return shortened(", ".join(f"{value:.3g}" for value in label), _LETTERS)
    return shortened(", ".join(names[i] for i in np.flatnonzero(label)) or "none", _LETTERS)
