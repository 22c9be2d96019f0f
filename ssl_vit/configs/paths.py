"""Paths among the options: what can be told of them before anything heavy is imported."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

from ssl_vit.configs.facts import options
from ssl_vit.configs.words import TABLES
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.files import refuse_address

HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?")
"""How the Hugging Face Hub writes names of data sets: owner/name or owner/name:config."""
_REMOTE = ("s3://", "hf://")
_IMAGES = ("data.path", "eval.data.path", "images")
_LABELS = ("data.labels", "eval.data.labels")
_ROOTS = ("data.root", "eval.data.root")
_WRITTEN = ("run.dir", "out")


def check_paths(config: object) -> None:
    """Refuses paths of images and labels that lead nowhere.

    Args:
        config: A recipe.

    Raises:
        UserError: For the first of them, with what is there instead.
    """
    given: dict[str, Any] = {name: reduce(getattr, name.split("."), config) for name in options(type(config))}
    for name in filter(given.get, _IMAGES):
        path = given[name]
        known = path == "digits" or is_remote(path) or on_hub(path)
        if not known and not Path(path).expanduser().exists():
            bare = name in getattr(config, "BARE", ())  # what is typed without its option's name is told without it
            raise UserError(missing(path) if bare else f"--{name}: {missing(path)}")
    for name in filter(given.get, _LABELS):
        check_table(f"--{name}", given[name])
    for name in filter(given.get, _ROOTS):
        for folder in folders(given[name]):
            if not folder.is_dir():
                raise UserError(f"--{name} {folder} is no folder; name the folder where file names of tables begin")


def check_written(config: object) -> None:
    """Refuses addresses where a folder or file is named to write.

    Args:
        config: A recipe.

    Raises:
        UserError: For the first of them.
    """
    for name in filter(options(type(config)).__contains__, _WRITTEN):
        refuse_address(f"--{name}", reduce(getattr, name.split("."), config) or "")


def is_remote(path: str) -> bool:
    """Whether a path is an address in object storage.

    Args:
        path: As given.
    """
    return path.startswith(_REMOTE)


def on_hub(path: str) -> bool:
    """Whether a path that is not there may be a data set of the Hugging Face Hub.

    Args:
        path: As given.
    """
    place = Path(path).expanduser()
    return HUB.fullmatch(path) is not None and not place.exists() and not place.parent.is_dir()


def missing(path: str) -> str:
    """Says that nothing is there, and what is called alike.

    Args:
        path: As given.
    """
    place = Path(path).expanduser()
    if "://" in path:
        return f"there is no file or folder {path}; of addresses those in {' and '.join(_REMOTE)} are read"
    beside = [p.name for p in place.parent.iterdir()] if place.parent.is_dir() else []
    nor = "" if place.parent.is_dir() else f" (nor the folder {place.parent})"
    return f"there is no file or folder {path}{nor}{did_you_mean(place.name, ['digits', *beside])}"


def check_table(option: str, path: str) -> Path:
    """The file of a table of labels.

    Args:
        option: Which option names it.
        path: As given.

    Raises:
        UserError: Where there is none, or something else.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise UserError(f"{option}: {missing(path)}")
    if place.suffix.lower() not in TABLES or not place.is_file():
        raise UserError(
            f"{option} {path} is no table ({' '.join(TABLES)}); a folder of labelled images goes to --eval.data.path"
        )
    return place


def folders(root: str | None) -> list[Path]:
    """The folders of ``--data.root``.

    Args:
        root: As given.
    """
    return [Path(part.strip()).expanduser() for part in (root or "").split(",") if part.strip()]
