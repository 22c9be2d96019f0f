"""Opens a set of a suite; what is wrong with its images and labels is told by the keys of a suite file."""

from __future__ import annotations

import re
from pathlib import Path

from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.data.sources.part import SPLITS
from ssl_vit.evaluation.transfer.suite_file import SHORT

_OPTION = re.compile(r"--(?:eval\.)?data\.(\w+)")
_KEYS = {"path", *(name.removeprefix("eval.data.") for name in SHORT.values())}


def open_set(data: DataConfig, named: LabelledDataConfig) -> Labelled:
    """Training and test images of a set.

    Args:
        data: Of the run that made the backbone.
        named: The set.

    Raises:
        UserError: As ``open_labelled``, in the words of a suite.
    """
    try:
        return open_labelled(data, named)
    except UserError as error:
        raise UserError(_in_words_of_a_suite(str(error), named.path or "")) from error


def _in_words_of_a_suite(message: str, path: str) -> str:
    """An error of ``open_labelled``, which names options of other commands."""
    told = "; in a suite file, name other images (path:) or the column of their labels (label_column:)"
    if message.startswith("labels are needed") and (name := _only_class(Path(path).expanduser())):
        return f"{path} has only one class ({name}), and two are needed{told}"
    if "labels of one class only" in message:
        return message + told
    found = _OPTION.sub(lambda match: f"{match[1]}:" if match[1] in _KEYS else f"eval.data.{match[1]}:", message)
    return found if found == message else f"{found} (keys of a suite file)"


def _only_class(place: Path) -> str | None:
    """The one class that a folder holds, of all its splits; None where it is no such folder."""
    inside = _folders(place)
    if inside and all(folder.name.lower() in SPLITS for folder in inside):
        inside = [folder for split in inside for folder in _folders(split)]
    names = {folder.name for folder in inside}
    return names.pop() if len(names) == 1 else None


def _folders(place: Path) -> list[Path]:
    return [p for p in place.iterdir() if p.is_dir() and not p.name.startswith(".")] if place.is_dir() else []
