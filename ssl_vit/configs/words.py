"""The words of a command before they are read as options: paths that stand alone, groups, names that are none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ssl_vit.configs import papers
from ssl_vit.configs.facts import Option
from ssl_vit.core.errors import UserError, did_you_mean, one_line
from ssl_vit.core.reading import check_value
from ssl_vit.core.started import usage_name

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow")
"""Endings of tables."""
_ALONE = ("help", "print_config")
"""Options without a value."""
_CONFIG = "config"
_SHORT = {"max_time": "fit.max_time"}
"""What scripts of jobs name without its group, as other programs do."""


def named(words: Sequence[str], known: Mapping[str, Option], bare: Sequence[str]) -> list[str]:
    """The words with every value behind its option: ``cells --fit.epochs 5`` as ``--fit.epochs=5 --data.path=cells``.

    Args:
        words: As typed.
        known: The recipe's options.
        bare: The options that words without a name mean, in their order.

    Raises:
        UserError: For an option that is none, lacks its value or has one that would grow while it is read, and for
            words that can mean nothing.
    """
    found: list[str] = []
    alone: list[str] = []
    given: set[str] = set()
    rest = [word for word in words if word != "--"]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            alone.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if word == "-h" or name in _ALONE:
            found.append(word.partition("=")[0])
            continue
        name = _option(name, known, bare)
        given.add(name)
        takes = name != "dry_run" or rest[:1] in (["true"], ["false"])
        if not equals and takes and rest and not rest[0].startswith("--"):
            equals, value = "=", rest.pop(0)
        if not equals and name not in ("preset", "dry_run"):
            raise UserError(f"--{name} needs a value; --help says which")
        many = name in known and _holds(known[name], tuple)
        found.append(f"--{name}{equals}" + (f"[{value}]" if many and value[:1].isdigit() else value))
    free = [name for name in bare if name not in given]
    if len(alone) > len(free):
        raise UserError(_unexpected(words, alone, free, [name for name in known if name not in (*given, *bare)]))
    found += [f"--{name}={word}" for name, word in zip(free, alone, strict=False)]
    for word in found:
        name, _, value = word.partition("=")
        check_value(name, value)
    return found


def _option(name: str, known: Mapping[str, Option], bare: Sequence[str] = ()) -> str:
    """The option that a name means: itself, the path of its group, an entry of an option that holds several.

    The first of the options that need no name (``--teacher`` for ``distill.teacher``) needs no group either, where no
    other option ends like it.
    """
    if name in known or name == _CONFIG:
        return name
    if _SHORT.get(name) in known:
        return _SHORT[name]
    if f"{name}.path" in known:
        return f"{name}.path"
    if any(name.startswith(f"{key}.") and _holds(option, dict) for key, option in known.items()):
        return name
    inside = [f"--{key}" for key in known if key.startswith(f"{name}.")]
    if inside:
        some = ", ".join(inside[:4]) + (", ..." if len(inside) > 4 else "")
        raise UserError(f"--{name} is a group of options, which takes no value itself; write one of {some}")
    last = [f"--{key}" for key in known if key.rpartition(".")[2] == name]
    if last == [f"--{key}" for key in bare[:1]]:
        return bare[0]
    if name == "max_time" and (budget := next((f"--{key}" for key in known if key.endswith(".budget")), None)):
        raise UserError(f"unknown option --max_time: it ends a training; how long this command plans for is {budget}")
    close = did_you_mean(f"--{name}", [f"--{key}" for key in (*known, _CONFIG, *_ALONE)])
    close = f"; did you mean {', '.join(last[:3])}?" if last else close
    raise UserError(f"unknown option --{name}{close} (--help lists all)")


def _holds(option: Option, kind: type) -> bool:
    return any(get_origin(one) is kind for one in (option.type, *get_args(option.type)))


def _unexpected(words: Sequence[str], alone: Sequence[str], free: Sequence[str], other: Sequence[str]) -> str:
    """What to type instead of words that stand alone, where ``free`` options are left and ``other`` ones."""
    command, word = usage_name() or "", alone[len(free)]
    folders = {str(Path(one).parent) for one in alone}
    if len(alone) > 2 and len(folders) == 1 and free and Path(word).exists():  # a pattern that the shell has filled in
        line = join([*command.split(), *folders])
        return f"{len(alone)} files stand without an option's name; name their folder: {line}"
    kept = [one for one in words if one not in alone[len(free) :]]
    table = Path(word).suffix.lower() in TABLES
    meant = next((name for name in ("data.labels" if table else "", "eval.data.path") if name in other), None)
    if meant is None or len(alone) > len(free) + 1:
        return f"unexpected word {word!r}: every option is written --group.name VALUE; --help lists them"
    line = join([*command.split(), *kept, f"--{meant}", word])
    return f"unexpected word {word!r}: if it is {_MEANT[meant]}, write {line}"


_MEANT = {"data.labels": "a table of labels", "eval.data.path": "what is judged on"}


def in_words(kind: Any) -> str:
    """What an option takes.

    Args:
        kind: Its type.
    """
    origin, inner = get_origin(kind), [one for one in get_args(kind) if one is not NoneType]
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " or ".join(map(in_words, inner))
    if origin is tuple:
        number = "whole numbers" if inner[0] is int else "numbers"
        many = "" if Ellipsis in inner else f"{len(inner)} "
        return f"{many}{number} in brackets, with commas between them"
    if origin is dict:
        return "names and values in braces, such as '{\"depth\": 4}'"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, "another value")


_LIBRARY = re.compile(
    r"pars|namespace|subcommand|unrecognized|validate|subtype|arguments|<class|\w+Arg\(|Errors?:", re.I
)


def explained(message: str, known: Mapping[str, Option]) -> str:
    """The sentence of the library that reads options, as ours: what was given, what was expected, what to do.

    Args:
        message: The library's.
        known: The recipe's options.
    """
    text = " ".join(message.split())
    if "Problems parsing config" in text:
        return f"--config: the file is not valid YAML ({text.partition(': ')[2]}); see --print_config for its form"
    if missing := re.search(r"File does not exist: '?([^']*)'?", text):
        path, recipes = one_line(missing[1].removeprefix(f"{Path.cwd()}/")), papers.names()
        near = did_you_mean(Path(path).stem, recipes) or f"; papers' recipes are {', '.join(recipes)}"
        return f"--config: there is no file {path}{near}"
    if "Unexpected config" in text:
        return "--config: the file holds no options by name; see --print_config for its form"
    if group := re.search(r"([\w.]+)\"?: Unable to load config [\"'](.*?)[\"']", text):
        given = one_line(group[2])
        return f"{group[1]} in the config file is a group of options, not {given!r}; see --print_config for its form"
    unknown = re.search(r"(?:Group|Parser) '?([\w.]*)'? ?does not accept option '([\w.]+)'", text)
    unknown = unknown or re.search(r"Option '()([\w.]+)' is not accepted", text)
    if unknown:
        name = f"{unknown[1]}.{unknown[2]}".lstrip(".")
        close = did_you_mean(f"--{name}", [f"--{one}" for one in known])
        return f"unknown option {name} in the config file{close}"
    key = re.search(r'(?:Parser key|Key) "([\w.]+)"', text)
    if key and key[1] in known:
        value = re.search(r"(?:Given value|Got value): (.*?)(?= - Expected| Given value|$)", text)
        got = f", got {one_line(value[1])}" if value and not _LIBRARY.search(value[1]) else ""
        return f"--{key[1]}: expected {in_words(known[key[1]].type)}{got}"
    return "the options cannot be read; --help lists them" if _LIBRARY.search(text) else text
