"""Files that list several right answers per image, such as ImageNet's real.json; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from ssl_vit.core.errors import UserError, reason

Answer = list[str | int]
"""Names or numbers of the classes that are right for an image; none where it has no label."""


def read_answers(file: Path) -> list[Answer] | dict[str, Answer]:
    """What a file of several right answers says: by the images' order or number, or by names of their files.

    Whether the classes and the names are those of a set is not looked at here.

    Args:
        file: JSON.

    Raises:
        UserError: For what cannot be read, and another form.
    """
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=lambda pairs: _once(pairs, file))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file} cannot be read as JSON ({reason(error)})") from error
    if isinstance(content, dict):
        return {name: _answer(one, file) for name, one in cast("dict[str, Any]", content).items()}
    if isinstance(content, list):
        return [_answer(one, file) for one in cast("list[Any]", content)]
    raise UserError(f"{file} is neither a list of lists of classes nor a mapping from files to them")


def _once(pairs: list[tuple[str, Any]], file: Path) -> dict[str, Any]:
    """A mapping; of a name that stands twice, JSON would keep the last one without a word."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UserError(f"{file} has the name {name} twice; leave one of them")
        found[name] = value
    return found


def _answer(given: Any, file: Path) -> Answer:
    if not isinstance(given, list):
        raise UserError(f"{file}: the right answers of an image are a list, and {given!r} is none")
    for one in cast("list[Any]", given):
        if isinstance(one, bool) or not isinstance(one, str | int):  # true is a number to Python
            raise UserError(f"{file}: a class is a name or a number, and {one!r} is neither")
    return cast("Answer", given)
