"""What is said of sets before protocols and options are looked up: by names, and by folders of sets; needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ssl_vit.configs.paths import on_hub
from ssl_vit.configs.suites import SETS, SUITES
from ssl_vit.configs.words import TABLES
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once

_FORM = "FOLDER/SET/CLASS/image.png, FOLDER/SET/train/CLASS/image.png, FOLDER/SET.parquet, or what --data.path takes"
_WHOLE = (*TABLES, ".tar")
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}


@dataclass(frozen=True)
class Told:
    """What is said of a set."""

    path: str
    group: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    """By dotted names."""
    protocol: str | None = None
    labels: int | None = None
    usual: int | None = None
    """Labels of a known suite, where nobody asks for another number."""
    real: str | None = None
    imagenet: bool = False


def known_words() -> str:
    """All names, as errors list them."""
    return f"sets are {', '.join(SETS)}; suites are {', '.join(SUITES)}"


def of_known(name: str) -> Told:
    """A set of the table.

    Args:
        name: Which.
    """
    known = SETS[name]
    return Told(known.path, known.group, known.options, imagenet=known.imagenet)


def named(words: Iterable[str]) -> dict[str, Told]:
    """Sets by names of the tables, paths and names on the hub.

    Args:
        words: As given.

    Raises:
        UserError: For a word that is none of them.
    """
    found: dict[str, Told] = {}
    for word in words:
        place = Path(word).expanduser()
        if word in SUITES:
            suite = SUITES[word]
            found |= {name: replace(of_known(name), usual=suite.labels) for name in suite.sets}
        elif word in SETS:
            found[word] = of_known(word)
        elif word == "digits" or place.exists() or on_hub(word):
            found[_free(place.stem if place.exists() else word.rpartition("/")[2], found)] = Told(word)
        else:
            close = did_you_mean(word, [*SETS, *SUITES])
            raise UserError(f"--suite {word}: there is no such set, suite, folder or file{close} ({known_words()})")
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    taken = set(taken)
    return next(one for one in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if one not in taken)


def in_folder(place: Path) -> dict[str, Told]:
    """A set for every folder and table in a folder; what cannot be one is told.

    Args:
        place: The folder.

    Raises:
        UserError: Where there is none, or the folder is itself a set.
    """
    inside = sorted(p for p in place.iterdir() if not p.name.startswith("."))
    folders = [p for p in inside if p.is_dir()]
    if folders and {p.name.lower() for p in folders} <= _SPLITS:
        raise UserError(
            f"--suite {place} is one set with its splits ({', '.join(p.name for p in folders)}); name a folder of such "
            f"folders, or judge it alone: eval/knn.py --backbone RUN --eval.data.path {place}"
        )
    found: dict[str, Told] = {}
    for one in inside:
        if _may_be_set(one):
            found[_free(one.stem if one.is_file() else one.name, found)] = Told(str(one))
    left = [p.name for p in folders if not _may_be_set(p)]
    if not found:
        there = f"; in it {', '.join(left[:4])} hold images without folders of classes" if left else ""
        alone = f" (one set alone: eval/knn.py --backbone RUN --eval.data.path {place})" if len(left) > 1 else ""
        raise UserError(f"--suite {place} holds no labelled set{there}; expected {_FORM}{alone}")
    if left:
        say_once(f"note: no set, because nothing in it could be labels: {', '.join(left)} in {place}")
    return found


def _may_be_set(place: Path) -> bool:
    """Whether labels may lie here: folders of classes or splits, a table, shards; opening it says whether they do."""
    if place.is_file():
        return place.suffix.lower() in _WHOLE
    inside = [p for p in place.iterdir() if not p.name.startswith(".")]
    return any(p.is_dir() or p.suffix.lower() in _WHOLE for p in inside)
