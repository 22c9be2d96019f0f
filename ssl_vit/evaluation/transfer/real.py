"""Several right answers per image: a scorer for labels such as ImageNet's ReaL (Beyer et al. 2020, section 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.part import name_of
from ssl_vit.evaluation.transfer.real_file import Answer, read_answers

HEADING = "ReaL %"
"""Of the accuracy in tables."""
WORDS = "ReaL accuracy"
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
"""How ImageNet names its validation images: from 1 to 50,000."""


class Real(NamedTuple):
    """What answers are worth by labels of which several may be right."""

    accuracy: float
    """Share of the images with a label whose answer is among theirs, in percent."""
    images: int
    """That have a label, and were judged."""
    skipped: int
    """That were answered and have none."""


class Right(NamedTuple):
    """What a file says of a set's test images."""

    of_each: list[frozenset[int]]
    """Right class numbers of every test image; empty where it has no label."""
    names: int = 0
    """That the file has; none where it goes by numbers."""
    strange: int = 0
    """Of them, those that are no test image's."""


def real_accuracy(predicted: Int[np.ndarray, " n"], right: Sequence[frozenset[int]]) -> Real:
    """The share of answers that are among the right ones; images without any are left out.

    Args:
        predicted: A class number per image.
        right: Right class numbers of each image; empty where it has no label.

    Raises:
        UserError: Where no image has a label.
    """
    hits = [int(answer) in labels for answer, labels in zip(predicted, right, strict=True) if labels]
    if not hits:
        raise UserError("none of the test images has a label among the right answers (real); they are of other images")
    return Real(100.0 * float(np.mean(hits)), len(hits), len(right) - len(hits))


def right_answers(file: Path, test: ImageSet) -> Right:
    """Right class numbers of all test images.

    Two forms are read. A list of lists of class numbers, as real.json is: image i of ImageNet's validation images by
    the number in its file's name; where no file has such a name, the images in their order. Or a mapping from names of
    files, with or without folders, to lists of names or numbers of classes.

    Args:
        file: JSON.
        test: The test images, with one class each.

    Raises:
        UserError: For another form, classes that the set does not have, images that cannot be told apart, and where no
            test image has a label.
    """
    if test.kind != "class":
        raise UserError(f"{file} has several right classes for an image, and the images of {test.name} have no classes")
    content, strange = read_answers(file), 0
    names = [name_of(test.rows, int(row)) for row in test.ids]
    if isinstance(content, dict):
        found = _by_name(list(content), names, file)
        given = [[] if key is None else content[key] for key in found]
        strange = len(content) - len({key for key in found if key is not None})
    else:
        given = _by_number(content, names, file)
    numbers = {name: i for i, name in enumerate(test.classes)}
    right = [_classes(one, numbers, file) for one in given]
    if not any(right):
        of = f"; its names are such as {next(iter(content))}, and theirs such as {names[0]}" if strange else ""
        raise UserError(f"none of the test images of {test.name} has a label in {file}{of}")
    return Right(right, len(content) if isinstance(content, dict) else 0, strange)


def _by_name(keys: Sequence[str], names: Sequence[str], file: Path) -> list[str | None]:
    """The name in the file for each image: the longest that its path ends with.

    Where an image is known by less than that (a table that keeps bare names), the one name that ends with it. A name
    that fits several images is refused: images of different classes are often called alike.
    """
    by_parts: dict[tuple[str, ...], str] = {}
    for key in keys:
        parts = PurePosixPath(key).parts
        if parts in by_parts:
            raise UserError(f"{file} names one image as {by_parts[parts]} and as {key}; leave one of them")
        by_parts[parts] = key
    longer: dict[tuple[str, ...], list[str]] = {}
    for parts, key in by_parts.items():
        for i in range(1, len(parts)):
            longer.setdefault(parts[i:], []).append(key)
    found: list[str | None] = []
    users: dict[str, str] = {}
    for name in names:
        parts = Path(name).parts
        ends = [by_parts[parts[i:]] for i in range(len(parts)) if parts[i:] in by_parts]  # the longest first
        fitting = ends[:1] or longer.get(parts, [])
        if len(fitting) > 1:
            raise UserError(
                f"{file}: the test image {name} may be {fitting[0]} or {fitting[1]}, and its folder is not known; give "
                "each image a name of its own"
            )
        key = fitting[0] if fitting else None
        if key is not None and key in users:
            raise UserError(
                f"{file}: {key} may be the test image {users[key]} or {name}; write as much of their folders before "
                "their names as tells them apart"
            )
        if key is not None:
            users[key] = name
        found.append(key)
    return found


def _by_number(content: list[Answer], names: Sequence[str], file: Path) -> list[Answer]:
    found = [_NUMBER.search(name) for name in names]
    if all(found):
        places = [int(match[1]) - 1 for match in found if match is not None]
    elif any(found) or len(content) != len(names):
        raise UserError(
            f"{file} lists {len(content):,} images by their order, and there are {len(names):,} test images that are "
            "not named ILSVRC2012_val_00000001 and so on; give a mapping from names of files to classes"
        )
    else:
        places = list(range(len(names)))
    if max(places, default=0) >= len(content):
        raise UserError(f"{file} lists {len(content):,} images, and image {max(places) + 1:,} is to be judged")
    return [content[place] for place in places]


def _classes(given: Answer, numbers: Mapping[str, int], file: Path) -> frozenset[int]:
    """Class numbers of one image; a name is looked up before a number is taken for one."""
    found: set[int] = set()
    for one in given:
        number = numbers.get(one) if isinstance(one, str) else one
        if number is None or not 0 <= number < len(numbers):
            raise UserError(f"{file} has the class {one!r}, which none of the {len(numbers):,} classes is")
        found.add(number)
    return frozenset(found)
