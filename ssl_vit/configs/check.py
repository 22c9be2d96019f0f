"""Ranges of numeric options, and trackers, checked before anything is imported or opened."""

from __future__ import annotations

from functools import reduce
from typing import Any, cast

from ssl_vit.configs.facts import options
from ssl_vit.configs.trackers import trackers_in
from ssl_vit.core.errors import UserError


def check_ranges(config: object) -> None:
    """Refuses numbers outside the range beside their option, and trackers that cannot be used.

    Args:
        config: A recipe.

    Raises:
        UserError: Naming the option, the value and the range.
    """
    for name, option in options(type(config)).items():
        if option.range is None:
            continue
        value: object = reduce(getattr, name.split("."), config)
        for number in cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and not option.range.holds(number):
                raise UserError(f"--{name} {number:.10g} must be {option.range.words}")
    trackers_in(getattr(getattr(config, "run", None), "log_with", None))
