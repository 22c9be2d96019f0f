"""What makes two runs the same: the part of their options that changes results, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, cast

from ssl_vit.configs import flat
from ssl_vit.configs.facts import Option, options
from ssl_vit.methods import known_recipes


def digest(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def remove(tree: dict[str, Any], dotted: str) -> None:
    """Takes ``group.name`` out of a nested dictionary, in place; nothing happens where it has none."""
    *groups, last = dotted.split(".")
    for group in groups:
        tree = cast("dict[str, Any]", tree.get(group, {}))
    tree.pop(last, None)


def identity(config: dict[str, Any], recipe: type[Any]) -> dict[str, Any]:
    """The part of a config, as it stands in config.yaml of a recipe of that class, that changes results."""
    return _without(config, ((name, option, option.effect.run) for name, option in options(recipe).items()))


def with_meaning(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config, or of some groups of one or several, that gives a number its meaning."""
    known = (item for recipe in known_recipes() for item in options(recipe).items())
    return _without(config, ((name, option, option.effect.protocol) for name, option in known))


def _without(config: dict[str, Any], known: Iterable[tuple[str, Option, bool]]) -> dict[str, Any]:
    """A copy without options that do not count, and without later ones that are open, as is their group."""
    copy, given = deepcopy(config), flat(config)
    for name, option, counts in known:
        if not counts or (option.later and given.get(name) is None):
            remove(copy, name)
            if option.later and copy.get(group := name.partition(".")[0]) == {}:
                del copy[group]
    return copy


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Names that differ between two nested dictionaries as ``name old -> new``, at most five; empty where none do."""
    old, new = flat(before), flat(after)
    changed = [
        f"{key} {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
    ]
    return "; ".join([*changed[:5], "..."] if len(changed) > 5 else changed)
