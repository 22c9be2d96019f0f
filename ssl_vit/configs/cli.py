"""Command line and YAML to a frozen config and back, with errors for people; nothing here imports torch."""

from __future__ import annotations

import functools
import json
import os
import re
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
from ssl_vit.configs.facts import check_ranges, options
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.started import told, usage_name

R = TypeVar("R")


class _Parser(ArgumentParser):
    """jsonargparse with one-line errors that name close matches."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sys.stderr.write(f"error: {_explain(message, option_names(self))}\n")
        sys.exit(2)

    def format_help(self, *args: Any, **kwargs: Any) -> str:
        """Options, and scripts by the names that are typed here."""
        return told(super().format_help(*args, **kwargs))


class _RaisingParser(_Parser):
    """The same for options that are given in Python."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise UserError(_explain(message, option_names(self))) from ex


def option_names(parser: ArgumentParser) -> list[str]:
    """Every option a person can type, without the leading dashes."""
    found = (option for action in parser._actions for option in action.option_strings)  # pyright: ignore[reportPrivateUsage]
    return [option[2:] for option in found if (option.startswith("--") and "." in option) or option in _PLAIN]


_BARE = {"preset": presets.LIST, "dry_run": True}
"""Options that mean something without a value."""
_WORDS = ("config", "seed", "preset", "dry_run", "backbone", "classifier", "images", "results", "out")
"""Options that stand alone instead of in a group."""
_PLAIN = (*(f"--{word}" for word in _WORDS), "--help", "--print_config")


def _explain(message: str, known: list[str]) -> str:
    """Turns jsonargparse's sentence into ours: what was given, what was expected, what to do."""
    text = " ".join(message.split())
    if "Problems parsing config" in text:
        return f"--config: the file is not valid YAML ({text.partition(': ')[2]}); see --print_config for its form"
    if missing := re.search(r"File does not exist: '?([^']*)'?", text):
        path, known = missing[1].removeprefix(f"{Path.cwd()}/"), papers.names()
        near = did_you_mean(Path(path).stem, known) or f"; papers' recipes are {', '.join(known)}"
        return f"--config: there is no file {path}{near}"
    if "expected one argument" in text:
        return f"{text.removeprefix('argument ').partition(':')[0]} needs a value; --help says which"
    if unknown := re.search(r"unrecognized arguments: (.*)", text):
        word = next((w for w in unknown[1].split() if w.startswith("-")), unknown[1].split()[0])
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("-"):
            return f"unexpected argument {word!r}: every option is written --group.name VALUE; --help lists them"
        return f"unknown option --{name}{_suggest(name, known)} (--help lists all)"
    group = re.search(r"(?:Group|Parser) '?([\w.]*)'? ?does not accept option '([\w.]+)'", text)
    if group or "does not accept" in text:
        name = f"{group[1]}.{group[2]}".lstrip(".") if group else text
        return f"unknown option {name} in the config file{_suggest(name, known)}"
    if key := re.search(r'Parser key "([\w.]+)": ?(.*)', text):
        return f"--{key[1]}: {_expectation(key[2])}"
    return text


def _suggest(name: str, known: list[str]) -> str:
    return did_you_mean(f"--{name}", [f"--{k}" for k in known])


def _expectation(detail: str) -> str:
    detail = re.sub(r"<class '([\w.]+)'>", r"\1", detail).replace("typing.", "")
    expected = re.findall(r"Expected an? (.+?)(?=\. Got value| - Expected| Given value|$)", detail)
    given = re.findall(r"Given value: (\S+)", detail) or re.findall(r"Got value: (\S+)", detail)
    if expected and given:
        wanted = " or ".join(_in_words(word) for word in dict.fromkeys(expected) if word != "NoneType")
        return f"expected {wanted}, got {given[-1]}"
    return detail


_ConfigFile: Any = jsonargparse.ActionConfigFile  # pyright: ignore[reportPrivateImportUsage]


class _ConfigOrPaper(_ConfigFile):
    """A file of options, or the name of a paper's; what such a file tells of the paper is no option."""

    @staticmethod
    def apply_config(parser: Any, cfg: Any, dest: str, value: str) -> None:
        _ConfigFile.apply_config(parser, cfg, dest, papers.options_in(value, parser.recipe))


def _in_words(kind: str) -> str:
    if choices := re.fullmatch(r"Literal\[(.*)\]", kind):
        return f"{'one of ' if ',' in choices[1] else ''}{choices[1].replace(chr(39), '')}"
    return {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}.get(kind, kind)


def _parser(recipe: type[Any], description: str, kind: type[_Parser] = _Parser) -> Any:
    return _made(recipe, told(description), usage_name(), kind)


@functools.cache  # made in a tenth of a second, and a verdict reads many words
def _made(recipe: type[Any], description: str, program: str | None, kind: type[_Parser]) -> Any:
    # jsonargparse is typed only in part
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser: Any = kind(prog=program, description=description, allow_abbrev=False)
    parser.recipe = recipe
    told_of = "YAML file with options, or the name of a paper's recipe (docs/papers.md); later ones win."
    parser.add_argument("--config", action=_ConfigOrPaper, help=told_of)
    parser.add_class_arguments(recipe, as_group=False)
    declared = options(recipe)
    for action in parser._actions:
        if action.dest in declared and (limits := declared[action.dest].range):
            action.help = f"{action.help} {limits.words.capitalize()}."
        if action.dest in _BARE:
            action.nargs, action.const = "?", _BARE[action.dest]
    return parser


def parse(
    recipe: type[R], description: str, args: list[str] | None = None, listing: Callable[[], str] = presets.table
) -> R:
    """Reads the words (default: ``sys.argv[1:]``) and ``--config`` files into a recipe's frozen dataclass.

    On a mistake one line goes to stderr and the process ends with status 2; ``--preset`` without a name prints the
    listing and ends it with status 0.
    """
    parser = _parser(recipe, description)
    parsed = parser.parse_args(_named(recipe, sys.argv[1:] if args is None else args))
    try:
        fields = _fields(parser, parsed)
        preset = fields.get("preset")
        if preset == presets.LIST:
            if os.environ.get("RANK", "0") == "0":
                print(listing())
            sys.exit(0)
        if preset is not None:
            presets.named(preset)
        return recipe(**fields)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def _named(recipe: type[Any], words: list[str]) -> list[str]:
    """The words with a first one that stands alone behind the option that it means, where a recipe says which."""
    bare: str | None = getattr(recipe, "BARE", None)
    return [f"--{bare}", *words] if bare and words and not words[0].startswith("-") else list(words)


def to_dict(config: object) -> dict[str, Any]:
    """A config as nested plain dictionaries and lists, as it stands in YAML and JSON."""
    return json.loads(json.dumps(asdict(cast("Any", config))))


def to_yaml(config: object) -> str:
    """A config as YAML that ``--config`` reads back to an equal one."""
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def from_dict(recipe: type[R], values: dict[str, Any]) -> R:
    """The recipe that ``to_dict`` (or a run's config.yaml) came from; UserError for options that it does not know."""
    parser = _parser(recipe, "")
    try:
        parsed = parser.parse_object(values)
    except (jsonargparse.ArgumentError, KeyError, TypeError, ValueError) as error:
        raise UserError(_explain(str(error), option_names(parser))) from error
    return recipe(**_fields(parser, parsed))


def _fields(parser: Any, parsed: Any) -> dict[str, Any]:
    values: dict[str, Any] = parsed.__dict__
    for group, value in values.items():
        if group not in _WORDS and not isinstance(value, jsonargparse.Namespace):
            raise UserError(f"{group} in the config file is a group of options, not the value {value!r}")
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
    parser = _parser(recipe, "", _RaisingParser)
    later = sorted(flat(dict(given)).items(), key=lambda item: item[0] != "config")  # a file is what others change
    words = [f"--{name}={_text(value)}" for name, value in later]
    config = recipe(**_fields(parser, parser.parse_args(words)))
    check_ranges(config)
    return config


def as_command(script: str, config: Any) -> str:
    """The command that runs a script (path as in a clone) with these options, as it is typed here."""
    return " ".join([told(f"accelerate launch {script}"), *map(quote, as_words(config))])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
