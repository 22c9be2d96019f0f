"""Groups that look like patients, slides or tiles, in columns of a table and in names of files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs import DataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import Rows
from ssl_vit.data.sources.folder import FileRows, groups_in
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import JoinedRows
from ssl_vit.doctor.findings import Findings

_WORDS = (
    *("patient", "subject", "donor", "person", "participant", "animal", "mouse", "individual", "case", "study", "exam"),
    *("series", "specimen", "sample", "slide", "scan", "wsi", "core", "block", "section", "plate", "well", "site"),
    *(
        "field",
        "fov",
        "scene",
        "video",
        "clip",
        "sequence",
        "session",
        "camera",
        "location",
        "station",
        "farm",
        "flight",
    ),
    *("tile", "group", "batch", "lot", "part", "wafer", "panel"),
)
_WHOLE = re.compile(rf"(?<![a-z])(?:{'|'.join(_WORDS)})(?:s|id|_id|no|nr|num|number)?(?![a-z])", re.IGNORECASE)
_PIECE = re.compile(
    r"^(?:x|y|z|r|c|row|col|column|tile|patch|crop|frame|f|t|img|image|part|idx|n)?-?\d+$", re.IGNORECASE
)
_SEPARATOR = r"[-_.\s]"
_INNER = r"[^-/_.\s]+"
_LOOKED = 20_000
_TIED = 0.95
"""Groups of a column that is named like one, as a share of the images, at most."""
_FOLLOWS = 0.7
"""How well classes may tell groups. Beyond it, keeping groups together puts whole classes on one side of a split."""


class Group(NamedTuple):
    """What may tie images together."""

    option: str
    """What to give ``--data.group``."""
    words: str
    """What it groups by, for people who read no regular expressions."""
    numbers: np.ndarray
    """Int[n]: of every image."""
    examples: list[str]
    likely: bool
    """Whether a word says so."""


def examine_groups(rows: Rows, labels: np.ndarray | None, data: DataConfig) -> Findings:
    """Looks for groups, and says how to keep them together.

    Args:
        rows: All images.
        labels: Class of every image, because what classes tie together is no group, -1 where one has none; None where
            there are none.
        data: Where they are, and ``--data.group``.
    """
    found = Findings("groups")
    if data.group is not None:
        found.say("groups", f"--data.group {data.group}: a made test split keeps them together")
        return found
    group = _in_columns(rows, labels, data) or _in_names(rows, labels)
    if group is None:
        found.say("groups", "none seen in columns or file names (patients, slides, tiles of one picture)")
        return found
    sizes = np.bincount(group.numbers)
    found.say(
        "groups",
        f"{len(sizes):,} by {group.words}, e.g. {', '.join(group.examples[:3])}; of {sizes.min():,} to "
        f"{sizes.max():,} images (median {np.median(sizes):.0f})",
    )
    looks = "are named like" if group.likely else "may be"
    found.warn(
        f"these {looks} patients, slides or tiles of one picture: images of one on both sides of a made test split "
        f"make results look better than they are; keep them together with --data.group {_quoted(group.option)}"
    )
    return found


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+", text) else f"'{text}'"


def _ties(values: Iterable[object], labels: np.ndarray | None, most: float = 0.5) -> np.ndarray | None:
    """Numbers of groups; None where they are more than ``most`` of the images, or follow the classes."""
    names, numbers = np.unique([str(v) for v in values], return_inverse=True)
    if not 2 <= len(names) <= most * len(numbers):
        return None
    if labels is not None and labels.ndim == 1:
        own = labels[: len(numbers)]
        if _told_by_classes(numbers[own >= 0], own[own >= 0]) > _FOLLOWS:
            return None
    return numbers


def _told_by_classes(groups: np.ndarray, classes: np.ndarray) -> float:
    """How far knowing an image's class goes towards knowing its group: 0 not at all, 1 the whole way.

    That is Goodman and Kruskal's lambda. It is near 1 where nearly all images of a class lie in one group (names that
    tell classes, with some strays), and small where a class has many groups (patients, ill or healthy) or all classes
    have the same ones (slides that show every kind of cell).
    """
    largest = Counter[int]()
    for (_, own), images in Counter(zip(groups.tolist(), classes.tolist(), strict=True)).items():
        largest[own] = max(largest[own], images)
    guessed = int(np.bincount(groups).max()) if len(groups) else 0
    return (largest.total() - guessed) / max(1, len(groups) - guessed)


def _in_columns(rows: Rows, labels: np.ndarray | None, data: DataConfig) -> Group | None:
    """A column that is named like a group, as a run would read it."""
    first = rows.parts[0] if isinstance(rows, JoinedRows) else rows
    columns: tuple[str, ...] = getattr(first, "table", ())  # of a table; other sources have none
    for column in columns:
        if column in (*getattr(first, "columns", ()), data.label_column) or not _WHOLE.search(column.replace("_", " ")):
            continue
        try:
            parts = open_source(replace(data, group=column), labelled=False)
        except UserError:
            continue
        numbers = np.concatenate([part.groups for part in parts.values() if part.groups is not None])
        ties = _ties(numbers, labels, _TIED)
        if ties is not None:
            names = next(part.group_names for part in parts.values() if part.groups is not None)
            return Group(column, f"the column {column}", ties, list(names), likely=True)
    return None


def _names(rows: Rows) -> list[str]:
    """Paths of files as a group's expression sees them; empty where there are none."""
    if isinstance(rows, JoinedRows):
        found = [_names(part) for part in rows.parts]
        return [name for names in found for name in names] if all(found) else []
    if isinstance(rows, FileRows):
        return list(rows.paths)
    keys: Any = getattr(rows, "keys", None)  # of tar shards, as pyarrow has them
    return [] if keys is None else keys.to_pylist()


def _in_names(rows: Rows, labels: np.ndarray | None) -> Group | None:
    names = _names(rows)[:_LOOKED]
    if len(names) < 4:
        return None
    found = [group for group in (*_folders(names, labels), *_beginnings(names, labels)) if group is not None]
    likely = [group for group in found if group.likely]
    return next(iter(likely or found), None)


def _folders(names: list[str], labels: np.ndarray | None) -> list[Group | None]:
    """A folder of every file that is no class, from the outermost inwards."""
    depth = min(name.count("/") for name in names)
    found: list[Group | None] = []
    for level in range(depth):
        values = [name.split("/")[level] for name in names]
        word = sum(bool(_WHOLE.search(v)) for v in set(values)) > len(set(values)) / 2
        counted = sum(bool(re.search(r"\d", v)) for v in set(values)) > 0.9 * len(set(values))
        if word or counted:
            pattern, words = rf"^(?:[^/]+/){{{level}}}([^/]+)/", f"the {_ordinal(level + 1)} folder in the path"
            found.append(_checked(pattern, words, names, labels, word))
    return found


def _beginnings(names: list[str], labels: np.ndarray | None) -> list[Group | None]:
    """The first words of every file's name, where a number tells them apart and only pieces follow."""
    stems = [PurePosixPath(name).stem for name in names]
    words = [re.split(_SEPARATOR, stem) for stem in stems]
    usual, times = Counter(map(len, words)).most_common(1)[0]
    if times < 0.9 * len(names):
        return []
    found: list[Group | None] = []
    for k in range(1, usual):
        heads = {tuple(each[:k]) for each in words}
        rest = [word for each in words for word in each[k:]]
        counted = sum(bool(re.search(r"\d", "".join(head))) for head in heads) > 0.9 * len(heads)
        pieces = sum(bool(_PIECE.match(word)) or word.lower() in {"x", "y", "tile", "patch"} for word in rest)
        word = any(_WHOLE.search(part) for part in next(iter(heads)))
        if counted and (word or pieces > 0.9 * len(rest)):
            more = rf"(?:{_SEPARATOR}{_INNER}){{{k - 1}}}" if k > 1 else ""
            pattern = rf"(?:^|/)({_INNER}{more}){_SEPARATOR}[^/]*$"
            marks = {mark for stem in stems for mark in re.findall(_SEPARATOR, stem)[:k]}
            told = f"what stands before the {_ordinal(k)} {' or '.join(sorted(map(_mark, marks)))} in the name"
            found.append(_checked(pattern, told, names, labels, word))
    return found


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _mark(separator: str) -> str:
    return {".": "dot", " ": "space"}.get(separator, separator)


def _checked(pattern: str, words: str, names: list[str], labels: np.ndarray | None, word: bool) -> Group | None:
    """A group whose expression was tried as a run would use it."""
    try:
        values = groups_in({"all": names}, pattern)["all"]
    except UserError:
        return None
    numbers = _ties(values, labels)
    return None if numbers is None else Group(pattern, words, numbers, [*dict.fromkeys(values)], word)
