"""A config as the words that a person would type for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from shlex import quote
from typing import Any, TypeVar, cast

from ssl_vit.configs.cli import read_words, to_dict
from ssl_vit.core.started import told

R = TypeVar("R")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary with dotted names."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def as_words(config: Any) -> list[str]:
    """Every option that differs from the recipe's default, so that ``parse`` makes an equal config of them."""
    given = _given(to_dict(config), to_dict(type(config)()))
    return [word for name, value in given.items() for word in (f"--{name}", _text(value))]


def _given(tree: dict[str, Any], usual: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What differs from the defaults, with dotted names; a dictionary that is no group is a value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(usual[key], dict):
            found |= _given(value, usual[key], f"{prefix}{key}.")
        elif value != usual[key]:
            found[prefix + key] = value
    return found


def from_options(recipe: type[R], options: Mapping[str, Any]) -> R:
    """A recipe from options with their dotted names or in groups, checked as those of the command line are.

    Raises:
        UserError: On a mistake.
    """
    return read_words(recipe, [f"--{name}={_text(value)}" for name, value in flat(dict(options)).items()])


def as_command(script: str, config: Any) -> str:
    """The command that runs a script (path as in a clone) with these options, as it is typed here."""
    return " ".join([told(f"accelerate launch {script}"), *map(quote, as_words(config))])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
