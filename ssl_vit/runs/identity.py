"""What makes two runs the same: the part of their options that changes results, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, cast

from ssl_vit.configs import flat
from ssl_vit.configs.facts import Effect, options
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
    """The part of a config that changes results.

    Args:
        config: A recipe as nested dictionaries, as it stands in config.yaml.
        recipe: Its class.
    """
    return _without(config, [recipe], lambda effect: not effect.run)


def with_meaning(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that gives a number its meaning.

    Args:
        config: A recipe, or some groups of it, as nested dictionaries.
    """
    known = [r for r in known_recipes() if config.keys() <= {name.partition(".")[0] for name in options(r)}]
    return _without(config, known or known_recipes(), lambda effect: not effect.protocol)


def _without(
    config: dict[str, Any], recipes: Iterable[type[Any]], superfluous: Callable[[Effect], bool]
) -> dict[str, Any]:
    """A copy without the options that have this effect in any of the recipes."""
    copy = deepcopy(config)
    for recipe in recipes:
        for name, option in options(recipe).items():
            if superfluous(option.effect):
                remove(copy, name)
    return copy


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Names that differ between two nested dictionaries as ``name old -> new``, at most five; empty where none do."""
    old, new = flat(before), flat(after)
    changed = [
        f"{key} {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
    ]
    return "; ".join([*changed[:5], "..."] if len(changed) > 5 else changed)
