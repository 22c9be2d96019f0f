"""Several right answers per image: a scorer for labels such as ImageNet's ReaL (Beyer et al. 2020, section 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Int

from ssl_vit.core.errors import UserError, reason
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.part import name_of

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


def right_answers(file: Path, test: ImageSet, positions: Int[np.ndarray, " n"]) -> list[frozenset[int]]:
    """Right class numbers of some test images.

    Two forms are read. A list of lists of class numbers, as real.json is: image i of ImageNet's validation images by
    the number in its file's name; where no file has such a name, the images in their order. Or a mapping from names of
    files to lists of names or numbers of classes.

    Args:
        file: JSON.
        test: The test images, with one class each.
        positions: Which of them.

    Raises:
        UserError: For another form, classes that the set does not have, and images that cannot be told apart.
    """
    if test.kind != "class":
        raise UserError(f"{file} has several right classes for an image, and the images of {test.name} have no classes")
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read as JSON ({reason(error)})") from error
    names = [name_of(test.rows, int(test.ids[i])) for i in positions.tolist()]
    if isinstance(content, Mapping):
        by_name = {Path(str(key)).name: value for key, value in cast("dict[str, Any]", content).items()}
        given = [by_name.get(Path(name).name, []) for name in names]
    elif isinstance(content, list):
        given = _by_number(cast("list[Any]", content), names, positions, len(test), file)
    else:
        raise UserError(f"{file} is neither a list of lists of classes nor a mapping from files to them")
    numbers = {name: i for i, name in enumerate(test.classes)}
    return [_classes(one, numbers, file) for one in given]


def _by_number(
    content: list[Any], names: Sequence[str], positions: Int[np.ndarray, " n"], images: int, file: Path
) -> list[Any]:
    found = [_NUMBER.search(name) for name in names]
    if all(found):
        places = [int(match[1]) - 1 for match in found if match is not None]
    elif any(found) or len(content) != images:
        raise UserError(
            f"{file} lists {len(content):,} images by their order, and there are {images:,} test images that are not "
            "named ILSVRC2012_val_00000001 and so on; give a mapping from names of files to classes"
        )
    else:
        places = positions.tolist()
    if max(places, default=0) >= len(content):
        raise UserError(f"{file} lists {len(content):,} images, and image {max(places) + 1:,} is to be judged")
    return [content[place] for place in places]


def _classes(given: Any, numbers: Mapping[str, int], file: Path) -> frozenset[int]:
    """Class numbers of one image; a name is looked up before a number is taken for one."""
    if not isinstance(given, list):
        raise UserError(f"{file}: the right answers of an image are a list, and {given!r} is none")
    found: set[int] = set()
    for one in cast("list[Any]", given):
        number = numbers.get(one) if isinstance(one, str) else one
        if not isinstance(number, int) or not 0 <= number < len(numbers):
            raise UserError(f"{file} has the class {one!r}, which none of the {len(numbers):,} classes is")
        found.add(number)
    return frozenset(found)
