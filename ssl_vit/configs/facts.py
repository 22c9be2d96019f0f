"""What stands beside an option: ``Annotated[float, Range(0, 1), SAME_RUN]``, and how to read it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from types import MappingProxyType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from ssl_vit.configs.trackers import trackers_in
from ssl_vit.core.errors import UserError


@dataclass(frozen=True)
class Range:
    """Least and greatest number, both allowed (the greatest may be infinite); of a tuple it holds for each."""

    low: int | float
    high: int | float = math.inf
    ceiling: int | float = math.inf
    """What nobody means to exceed: told only to those who do, before it takes all memory."""

    def holds(self, number: int | float) -> bool:
        """Whether a number lies inside."""
        return self.low <= number <= self.high  # NaN is in no range

    @property
    def words(self) -> str:
        """The range as it stands after "must be"."""
        least = "positive" if 0 < self.low <= _LEAST_POSITIVE and self.high == math.inf else f"at least {self.low:.10g}"
        return least if self.high == math.inf else f"{least} and at most {self.high:.10g}"


_LEAST_POSITIVE = 1e-5
"""Bounds below this are there to exclude 0: "positive" says all that a person needs."""

POSITIVE = Range(1e-30)
"""Any number above zero."""


@dataclass(frozen=True)
class Effect:
    """What a value of the option changes; without this fact, both."""

    run: bool = True
    """A run with another value is another run: its numbers differ, or what they mean."""
    protocol: bool = True
    """Numbers with another value do not stand in one table."""


NO_EFFECT = Effect(run=False, protocol=False)
"""How something is done, not what."""
SAME_RUN = Effect(run=False)
"""A run with another value is the same one (or a longer one), which its results tell."""
SAME_PROTOCOL = Effect(protocol=False)
"""Another value makes other numbers, which stand beside the first as those of another seed do."""


@dataclass(frozen=True)
class Later:
    """The option came when there were runs without it: while it is open (None), no hash knows of it."""


LATER = Later()


@dataclass(frozen=True)
class Option:
    """What is declared of one option: its type without facts, where its numbers must lie, what it changes."""

    type: Any
    range: Range | None = None
    effect: Effect = Effect()
    later: bool = False
    """Whether it is left out of hashes while it is open (``Later``)."""


@cache
def options(group: type[Any]) -> Mapping[str, Option]:
    """All options of a recipe by their dotted names, in the order of their declaration.

    Fields are options or groups of them: dataclasses again. An effect beside a group's field is that of all its
    options, whatever stands beside them.
    """
    found: dict[str, Option] = {}
    declared = _declared(group)
    for name in (field.name for field in fields(group)):
        kind, limits, effect, later = declared[name]
        if is_dataclass(kind):
            for key, option in options(cast("type[Any]", kind)).items():
                found[f"{name}.{key}"] = option if effect is None else replace(option, effect=effect)
        else:
            found[name] = Option(kind, limits, effect or Effect(), later)
    return MappingProxyType(found)


def _declared(group: type[Any]) -> dict[str, tuple[Any, Range | None, Effect | None, bool]]:
    """Every field with its facts; a class that only narrows a type keeps the facts of the class above it."""
    found: dict[str, tuple[Any, Range | None, Effect | None, bool]] = {}
    for base in reversed(group.__mro__):
        hints = get_type_hints(base, include_extras=True)
        for name in hints.keys() & inspect.get_annotations(base).keys():
            _, limits, effect, later = found.get(name, (None, None, None, False))
            kind, *beside = get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
            limits = next((fact for fact in beside if isinstance(fact, Range)), limits)
            effect = next((fact for fact in beside if isinstance(fact, Effect)), effect)
            found[name] = (kind, limits, effect, later or LATER in beside)
    return found


def check_ranges(config: object) -> None:
    """Refuses (UserError) numbers that are endless or outside the range beside their option, and unusable trackers."""
    for name, option in options(type(config)).items():
        value: object = reduce(getattr, name.split("."), config)
        for number in cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,):
            if not isinstance(number, (int, float)):
                continue
            if option.range is not None and not option.range.holds(number):
                raise UserError(f"--{name} {_short(number)} must be {option.range.words}")
            ceiling = option.range.ceiling if option.range is not None else math.inf
            if number > ceiling:
                raise UserError(f"--{name} {_short(number)} must be at most {ceiling:.10g}")
            if isinstance(number, float) and not math.isfinite(number):
                raise UserError(f"--{name} {number} must be a number with an end")
    trackers_in(getattr(getattr(config, "run", None), "log_with", None))


def _short(number: int | float) -> str:
    return "(so many digits)" if isinstance(number, int) and abs(number) > 10**300 else f"{number:.10g}"
