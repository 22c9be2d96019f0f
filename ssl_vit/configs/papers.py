"""Recipes of papers: files of options that ``--config NAME`` finds, with what the paper says beside them.

A file in recipes/papers holds options as any config file does. Under ``paper`` it tells where they come from, what to
expect, what it costs, and the paper's own values: those that ``--dry_run`` compares with what the options come to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from ssl_vit.core import started
from ssl_vit.core.reading import mapping_in

FOLDER = started.ROOT / "recipes" / "papers"


class Paper(NamedTuple):
    """What a file tells beside its options."""

    command: str
    """The command whose options they are: ``mae``, ``linear-probe``."""
    title: str
    source: str
    """Papers with section or table, and programs."""
    expected: str
    """The paper's result with these settings."""
    cost: str
    """Operations, and the hours that the source tells."""
    data: str
    """The paper's images, as ``--data.facts`` takes them."""
    values: dict[str, Any]
    """The paper's value of options, by their dotted names, and of what follows from them (``doctor.dry_run``)."""
    differs: dict[str, str]
    """What is not the same here, and why: of options, or of what has no option."""
    network: str | None = None
    """timm's name of the network that commands on a backbone are resolved for, where none is given."""


def names() -> list[str]:
    """All recipes of papers."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def place(given: str) -> Path | None:
    """The file that ``--config`` means: one that is there, else the paper's of that name; None for neither."""
    with suppress(OSError):  # a name that is too long for a file is none
        path = Path(given).expanduser()
        if path.is_file():
            return path
        own = FOLDER / f"{path.name.removesuffix('.yaml')}.yaml"
        return own if own.is_file() else None
    return None


def options_in(given: str, recipe: type[Any]) -> str:
    """What the parser reads for ``--config``: a path, or the options alone of a file that tells of a paper.

    Args:
        given: As typed.
        recipe: Whose options are read.

    Raises:
        TypeError: For a paper's file that is incomplete, or has the options of another command; in words for people.
    """
    path = place(given)
    if path is None:
        return given
    content = _content(path)
    paper = _paper(content)
    if paper is None:
        return str(path)
    script = started.scripts().get(paper.command, "")
    if not script or started.options_of(started.module_of(script)) is not recipe:
        raise TypeError(f"--config {given} is a recipe for another command: ssl-vit {paper.command} --config {given}")
    return yaml.safe_dump({name: group for name, group in content.items() if name != "paper"})


def read(given: str) -> Paper | None:
    """What a file tells of a paper; None where it tells nothing, or cannot be read."""
    path = place(given)
    return None if path is None else _paper(_content(path))


def chosen(words: Sequence[str]) -> Paper | None:
    """The paper that the last ``--config`` of a command tells of."""
    given = [
        word.partition("=")[2] if "=" in word else following
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word.partition("=")[0] == "--config"
    ]
    return next((paper for paper in map(read, reversed(given)) if paper), None)


def _content(path: Path) -> dict[str, Any]:
    return mapping_in(path) or {}  # the parser says what is wrong


def _paper(content: Mapping[str, Any]) -> Paper | None:
    told = content.get("paper")
    if not isinstance(told, dict):
        return None
    known, given = Paper._fields, cast("dict[str, Any]", told)
    if wrong := [*(given.keys() - set(known)), *(set(known) - Paper._field_defaults.keys() - given.keys())]:
        raise TypeError(
            f"--config: {', '.join(sorted(wrong))} is unknown or missing under paper, which has {', '.join(known)}"
        )
    return Paper(**given)


class Row(NamedTuple):
    """An option, or something that has none."""

    name: str
    here: str
    paper: str
    same: bool | None
    """None where the paper says nothing."""
    why: str = ""


def compared(resolved: Mapping[str, Any], paper: Paper | None) -> list[Row]:
    """Every value that options came to beside the paper's; what the paper names first.

    Args:
        resolved: By dotted names.
        paper: None: there is nothing to compare with.
    """
    values, differs = (paper.values, paper.differs) if paper else ({}, {})
    rows = [
        Row(name, _shown(resolved.get(name)), _shown(value), same(resolved.get(name), value), differs.get(name, ""))
        for name, value in values.items()
    ]
    rows += [
        Row(name, _shown(resolved.get(name)), "", False, why) for name, why in differs.items() if name not in values
    ]
    return rows + [Row(name, _shown(v), "", None) for name, v in resolved.items() if name not in {*values, *differs}]


def same(here: object, there: object) -> bool:
    """Whether two values are equal; numbers up to rounding."""
    if isinstance(here, Sequence) and isinstance(there, Sequence) and not isinstance(here, str):
        one, other = cast("Sequence[object]", here), cast("Sequence[object]", there)
        return len(one) == len(other) and all(map(same, one, other))
    numbers = (int, float)
    if isinstance(here, numbers) and isinstance(there, numbers) and not {type(here), type(there)} & {bool}:
        return math.isclose(here, there, rel_tol=1e-9)
    return here == there


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_shown(v) for v in cast('Sequence[object]', value))}]"
    return "none" if value is None else str(value)
