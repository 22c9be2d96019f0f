"""Command line and YAML to a frozen config and back, with errors for people; nothing here imports torch."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn, TypeVar, cast

import jsonargparse
import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from ssl_vit.configs import papers, presets
from ssl_vit.configs.facts import Option, check_ranges, options
from ssl_vit.configs.protocols import probe_named, suite_protocol
from ssl_vit.configs.words import explained, named
from ssl_vit.core.errors import UserError, one_line, reason
from ssl_vit.core.files import regular
from ssl_vit.core.glossary import words_in
from ssl_vit.core.reading import check_yaml
from ssl_vit.core.started import told, usage_name
from ssl_vit.core.text import hanging

R = TypeVar("R")


class _Parser(ArgumentParser):
    """jsonargparse with one-line errors that name close matches."""

    known: Mapping[str, Option] = {}
    """The recipe's options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise UserError(explained(message, self.known)) from ex

    def format_help(self, *args: Any, **kwargs: Any) -> str:
        """Options, and scripts by the names that are typed here; house words are explained before them."""
        text = told(super().format_help(*args, **kwargs))
        described, options, rest = text.partition("\noptions:")
        words = "\n".join(hanging(word.name, word.meaning) for word in words_in(rest))
        return f"{described}\nwords:\n{words}\n{options}{rest}" if words else text


_ConfigFile: Any = jsonargparse.ActionConfigFile  # pyright: ignore[reportPrivateImportUsage]


class _ConfigOrPaper(_ConfigFile):
    """A file of options, or the name of a paper's; what such a file tells of the paper is no option."""

    @staticmethod
    def apply_config(parser: Any, cfg: Any, dest: str, value: str) -> None:
        if (path := papers.place(value)) is not None:
            check_yaml(path)
        else:
            _check_place(value)
        _ConfigFile.apply_config(parser, cfg, dest, papers.options_in(value, parser.recipe))


def _check_place(given: str) -> None:
    try:
        regular(Path(given).expanduser())
    except OSError as error:
        raise UserError(f"--config: {one_line(given)} is no file ({reason(error)}); name a YAML file") from error


_BARE = {"preset": presets.LIST, "dry_run": True}
"""Options that mean something without a value."""


def _parser(recipe: type[Any], description: str = "", *, explains: bool = False) -> Any:
    return _made(recipe, told(description), usage_name(), explains)


@functools.cache  # made in a tenth of a second, and a verdict reads many words
def _made(recipe: type[Any], description: str, program: str | None, explains: bool) -> Any:
    # jsonargparse is typed only in part; reading the options' docstrings takes half of the time
    set_parsing_settings(docstring_parse_attribute_docstrings=explains)
    parser: Any = _Parser(prog=program, description=description, allow_abbrev=False)
    parser.recipe, parser.known = recipe, options(recipe)
    told_of = "YAML file with options, or the name of a paper's recipe (docs/papers.md); later ones win."
    parser.add_argument("--config", action=_ConfigOrPaper, help=told_of)
    parser.add_class_arguments(recipe, as_group=False)
    for action in parser._actions:
        if action.dest in parser.known and (limits := parser.known[action.dest].range):
            action.help = f"{action.help} {limits.words.capitalize()}."
        if action.dest in _BARE:
            action.nargs, action.const = "?", _BARE[action.dest]
    return parser


def parse(
    recipe: type[R], description: str, args: list[str] | None = None, listing: Callable[[], str] = presets.table
) -> R:
    """Reads the words (default: ``sys.argv[1:]``) and ``--config`` files into a recipe's frozen dataclass.

    Words without an option's name are values of the recipe's ``BARE`` options, in their order. On a mistake one line
    goes to stderr and the process ends with status 2; ``--preset`` without a name prints the listing and ends it with
    status 0.
    """
    words, bare = sys.argv[1:] if args is None else args, getattr(recipe, "BARE", ())
    parser = _parser(recipe, description, explains=not {"-h", "--help"}.isdisjoint(words))
    try:
        fields = _fields(parser, parser.parse_args(named(words, parser.known, bare)))
        if fields.get("preset") == presets.LIST:
            if os.environ.get("RANK", "0") == "0":
                print(listing())
            sys.exit(0)
        config = recipe(**fields)
        _check_names(config)
        return config
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def to_dict(config: object) -> dict[str, Any]:
    """A config as nested plain dictionaries and lists, as it stands in YAML and JSON."""
    return json.loads(json.dumps(asdict(cast("Any", config))))


def to_yaml(config: object) -> str:
    """A config as YAML that ``--config`` reads back to an equal one."""
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def from_dict(recipe: type[R], values: dict[str, Any]) -> R:
    """The recipe that ``to_dict`` (or a run's config.yaml) came from; UserError for options that it does not know."""
    parser = _parser(recipe)
    try:
        parsed = parser.parse_object(values)
    except UserError:
        raise
    except (jsonargparse.ArgumentError, KeyError, TypeError, ValueError) as error:
        raise UserError(explained(str(error), parser.known)) from error
    return recipe(**_fields(parser, parsed))


def _fields(parser: Any, parsed: Any) -> dict[str, Any]:
    values: dict[str, Any] = parsed.__dict__
    for group, value in values.items():
        if group not in (*parser.known, "config") and not isinstance(value, jsonargparse.Namespace):
            raise UserError(f"{group} in the config file is a group of options, not the value {one_line(repr(value))}")
    fields: dict[str, Any] = parser.instantiate(parsed).__dict__
    return {name: value for name, value in fields.items() if name != "config"}


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


def from_options(recipe: type[R], given: Mapping[str, Any]) -> R:
    """A recipe from ``{"fit": {"epochs": 5}, "optim.base_lr": 1e-3}``, checked as on the command line (UserError)."""
    later = sorted(flat(dict(given)).items(), key=lambda item: item[0] != "config")  # a file is what others change
    return from_words(recipe, [f"--{name}={_text(value)}" for name, value in later])


def from_words(recipe: type[R], words: list[str]) -> R:
    """A recipe from the words of a command line, checked as there; a mistake is a UserError."""
    parser = _parser(recipe)
    config = recipe(**_fields(parser, parser.parse_args(named(words, parser.known, getattr(recipe, "BARE", ())))))
    check_ranges(config)
    _check_names(config)
    return config


def _check_names(config: object) -> None:
    """Refuses values of options that are names of a table: their type cannot list what is in it."""
    if (preset := getattr(config, "preset", None)) is not None:
        presets.named(preset)
    if (linear := getattr(config, "linear", None)) is not None:
        probe_named(linear.protocol)
    if (transfer := getattr(config, "transfer", None)) is not None:
        suite_protocol(transfer.protocol)


def as_command(script: str, config: Any) -> str:
    """The command that runs a script (path as in a clone) with these options, as it is typed here."""
    return " ".join([told(f"accelerate launch {script}"), *map(quote, as_words(config))])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, Path) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda one: one.item() if hasattr(one, "item") else str(one))  # NumPy's numbers
