"""Writes docs/options.md from what is declared of the options: ``python docs/make_options.py``."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ssl_vit.configs import flat, to_dict
from ssl_vit.configs.facts import Effect, Option, options
from ssl_vit.methods import known_recipes
from ssl_vit.questions.options import Questions
from ssl_vit.verdict.options import verdict_recipe

PAGE = Path(__file__).with_name("options.md")
HEAD = """# Options

<!-- made by docs/make_options.py; edit the dataclasses in ssl_vit instead -->

Every option is written `--GROUP.NAME VALUE`, or stands in a YAML file that `--config FILE` reads; the later one wins.
`--print_config` prints all options of a command as such a file, and a run keeps its own in `config.yaml`.

An empty default is open: it is filled from the images, the preset or the backbone, as the text says. Options with *
may have another value when a run is started again. They change no result, or are recorded by what they fill; a larger
`--fit.epochs` makes the run longer.

The verdict runs the methods, and has their options behind their names: its `--mae.optim.lr` is `--optim.lr` of mae.
When a verdict is started again, these and its `--preset` have to stay as they were.
"""
_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


@dataclass(frozen=True)
class Entry:
    """One declaration, as a row of a table shows it."""

    name: str
    option: Option
    """Without what it changes, which a command that runs others may see in another way."""
    text: str


def page(recipes: Iterable[type[Any]]) -> str:
    """The reference as Markdown: which groups each command takes, then a table of every group's options.

    Args:
        recipes: The commands' recipes; where several declare one option in the same way, it is one row.
    """
    commands = {command(recipe): recipe for recipe in recipes}
    titles: dict[str, str] = {}
    rows: dict[str, dict[Entry, dict[str, Any]]] = {}
    for name, recipe in commands.items():
        usual = flat(to_dict(recipe()))
        for entry in entries(recipe):
            whose, _, inner = entry.name.partition(".")
            if whose in commands and inner in options(commands[whose]):
                continue  # another command's option, told there
            group = entry.name.rpartition(".")[0].partition(".")[0]
            rows.setdefault(group, {}).setdefault(entry, {})[name] = usual[entry.name]
        for field in fields(recipe):
            kind = type(getattr(recipe(), field.name))
            if is_dataclass(kind):
                titles.setdefault(field.name, _first(kind))
    taken = {
        group: [name for name in commands if any(name in takers for takers in found.values())]
        for group, found in rows.items()
    }
    table = "\n".join(
        f"| `{name}` | {', '.join(f'[{group}](#{group})' for group in rows if group and name in taken[group])} |"
        for name in commands
    )
    idle = {(name, key) for name in commands for key, o in options(commands[name]).items() if not o.effect.run}
    parts = [HEAD, f"| command | groups of options |\n| --- | --- |\n{table}\n"]
    for group, found in rows.items():
        told = f"## {group}\n\n{titles[group]} " if group else "## Without a group\n\n"
        lines = [_row(entry, takers, taken[group], idle) for entry, takers in found.items()]
        words = f"{told}Taken by {_listed(taken[group])}."
        parts.append("\n".join([f"{words}\n\n| option | value | default | |\n| --- | --- | --- | --- |", *lines, ""]))
    return "\n".join(parts)


def command(recipe: type[Any]) -> str:
    """What a person calls, from the first line of the recipe's docstring."""
    found = re.search(r"\w+/(\w+)\.py", inspect.getdoc(recipe) or "")
    return found[1].replace("_", "-") if found else recipe.__name__.removesuffix("Recipe").lower()


def entries(recipe: type[Any]) -> list[Entry]:
    """A recipe's options with their texts, in the order of their declaration."""
    texts = _texts(recipe())
    return [
        Entry(name, replace(option, effect=Effect()), texts.get(name, "")) for name, option in options(recipe).items()
    ]


def _texts(config: Any) -> dict[str, str]:
    """The string under every field, by dotted names."""
    found: dict[str, str] = {}
    for base in reversed(type(config).__mro__):
        if not is_dataclass(base):
            continue
        try:
            source = inspect.getsource(base)
        except OSError:  # made by make_dataclass, of classes that have one
            continue
        (tree,) = ast.parse(textwrap.dedent(source)).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= {f"{field.name}.{name}": text for name, text in _texts(value).items()}
    return found


def _row(entry: Entry, takers: Mapping[str, Any], all_takers: Sequence[str], idle: set[tuple[str, str]]) -> str:
    value = words_of(entry.option.type)
    if limits := entry.option.range:
        value += f", {limits.words}" if limits.high == math.inf else f", {limits.low:.10g} to {limits.high:.10g}"
    mark = " *" if any((name, entry.name) in idle for name in takers) else ""
    others = [name for name in all_takers if name not in takers]
    only = f" ({_listed(takers)})" if len(takers) <= len(others) else f" (not {_listed(others)})" if others else ""
    text = re.sub(r"``(.+?)``", r"`\1`", entry.text).replace("|", r"\|").replace("<", r"\<")
    return f"| `--{entry.name}`{mark} | {value} | {_defaults(takers)} | {text}{only} |"


def _defaults(takers: Mapping[str, Any]) -> str:
    """What is taken when nothing is given; with the commands where they differ."""
    by_value: dict[str, list[str]] = {}
    for name, value in takers.items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        by_value.setdefault(f"`{text}`" if text else "", []).append(name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value or 'open'} ({_listed(names)})" for value, names in by_value.items())


def words_of(kind: Any) -> str:
    """A type in words: "whole number", "2 numbers", "`cls` or `mean`"."""
    if get_origin(kind) is Literal:
        *first, last = (f"`{choice}`" for choice in get_args(kind))
        return f"{', '.join(first)} or {last}" if first else last
    if get_origin(kind) is tuple:
        each, *others = get_args(kind)
        return f"{words_of(each)}s" if others == [...] else f"{len(others) + 1} {words_of(each)}s"
    if get_origin(kind) is dict:
        return "names and values"
    if kind in _KINDS:
        return _KINDS[kind]
    return " or ".join(words_of(part) for part in get_args(kind) if part is not type(None))


def _first(kind: type[Any]) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


if __name__ == "__main__":
    PAGE.write_text(page((*known_recipes(), verdict_recipe(), Questions)), encoding="utf-8")
