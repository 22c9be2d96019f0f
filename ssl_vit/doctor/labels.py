"""Classes and their balance, or what else labels are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssl_vit.data.sources.known import KnownLabels
from ssl_vit.data.sources.part import Part, given
from ssl_vit.doctor.findings import Findings, listed
from ssl_vit.doctor.headers import Headers
from ssl_vit.leaks.relations import counted
from ssl_vit.report.cells import Row, table
from ssl_vit.report.page.blocks import Block, Fold

_UNEVEN = 3.0
"""Times as many images of the largest class as of the smallest, from which on classes count as uneven."""
_FEWEST = 10
_OPEN = 12
"""Classes that a line names, and rows of a table that is not folded."""


def examine_labels(parts: Sequence[tuple[str, Part]], why_not: str) -> Findings:
    """What labels there are, how many of each, and how evenly.

    Args:
        parts: Splits by name, opened with their labels.
        why_not: What is wrong with the labels; empty where nothing is.
    """
    found = Findings("labels")
    labelled = [(name, part) for name, part in parts if part.labels is not None]
    if not labelled:
        found.say(
            "labels", f"none can be read: {why_not}" if why_not else "none: pre-training needs none, judging does"
        )
        return found
    kind, names = labelled[0][1].kind, labelled[0][1].classes
    every = {name: np.asarray(part.labels) for name, part in labelled}
    values = {name: labels[given(labels)] for name, labels in every.items()}
    missing = sum(len(part.rows) for _, part in parts) - sum(map(len, values.values()))
    found.say("without labels", counted(missing, "image") if missing else "")
    if kind == "regression":
        return _numbers(found, np.concatenate(list(values.values())), names)
    counts = np.stack([_counted(v, len(names)) for v in values.values()])
    whole = counts.sum(axis=0)
    order = np.argsort(-whole, kind="stable")
    what = "labels, any number of them per image" if kind == "multilabel" else "classes"
    line, told = what.partition(",")[0], [f"{names[c]} {whole[c]:,}" for c in order]
    found.say(line, f"{len(names):,} {what}: {listed(told, _OPEN)}")
    if len(told) > _OPEN:
        found.cut.add(line)  # the table below has all
    present = whole[whole > 0]
    if not len(present):
        found.warn("no image has any of the labels: there is nothing to learn from them")
        return found
    if kind == "class" and len(present) < 2:
        found.warn(f"all images are of one class, {names[order[0]]}: judging needs two")
        return found
    ratio = present.max() / present.min()
    uneven = f"uneven: {ratio:.3g} times as many images of {names[order[0]]} as of {names[order[len(present) - 1]]}"
    found.say("balance", uneven if ratio >= _UNEVEN else f"even: within a factor of {ratio:.2g}")
    if ratio >= _UNEVEN and kind == "class":
        found.warn("classes are uneven, so results lead with balanced accuracy, the mean over classes")
    rare = [names[c] for c in order if whole[c] < _FEWEST]
    if rare:
        found.warn(f"fewer than {_FEWEST} images of {listed(rare)}: nothing certain can be said about them")
    for name, row in zip(values, counts, strict=True):
        lost = [names[c] for c in order if not row[c] and whole[c]]
        if lost and kind == "class":
            found.warn(f"the split {name} has no image of {listed(lost)}")
    found.shown.append(_table(names, counts, list(values), order, sum(map(len, values.values()))))
    return found


def contradictions(found: Findings, headers: Headers, known: KnownLabels) -> None:
    """Warns of files that are equal to the last byte and have different labels.

    Args:
        found: What is told of labels.
        headers: Of all images.
        known: Their labels.
    """
    wrong: list[tuple[int, int]] = []
    for group in headers.copies():
        first, *others = [i for i in group if known.given[i]] or group[:1]
        wrong += [(first, i) for i in others if not np.array_equal(known.values[first], known.values[i])]
    if wrong:
        names = [" and ".join(headers.rows.where(i) for i in pair) for pair in wrong[:2]]
        found.warn(
            f"{counted(len(wrong), 'file')} equal to another to the last byte and labelled otherwise: {listed(names)}; "
            "one of either is wrong"
        )


def _counted(labels: np.ndarray, classes: int) -> np.ndarray:
    return labels.sum(axis=0).astype(int) if labels.ndim == 2 else np.bincount(labels, minlength=classes)


def _numbers(found: Findings, values: np.ndarray, names: Sequence[str]) -> Findings:
    for name, column in zip(names, values.reshape(len(values), -1).T, strict=True):
        low, middle, high = np.percentile(column, (0, 50, 100))
        found.say("number", f"{name}: {low:.4g} to {high:.4g}, median {middle:.4g}, deviation {column.std():.3g}")
    return found


def _table(names: Sequence[str], counts: np.ndarray, splits: list[str], order: np.ndarray, images: int) -> Block:
    """Of so many labelled images: one may have several labels."""
    whole = counts.sum(axis=0)
    several = len(splits) > 1
    rows: list[Row] = []
    for c in map(int, order):
        apart = [f"{row[c]:,}" for row in counts] if several else []
        rows.append([names[c], *apart, f"{whole[c]:,}", f"{100 * whole[c] / images:.1f} %"])
    made = table(("class", *(splits if several else ()), "images", "share"), rows, 1, head="Images of each class")
    return made if len(rows) <= _OPEN else Fold(f"All {len(rows):,} classes", (made,))
