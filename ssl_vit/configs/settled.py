"""Options as given and as resolved are two types: in the second nothing that a run needs is open."""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, TypeVar

OPEN: Any = None
"""What stands behind a field of a resolved group: it has no default, ``settle`` takes a value for it."""

T = TypeVar("T", bound="Resolved")


class Resolved:
    """Base of resolved groups: a dataclass that narrows the open fields of the group as given."""

    def __post_init__(self) -> None:
        """Refuses (TypeError) open fields: a mistake of this program, not of its user."""
        narrowed = (name for kind in type(self).__mro__ if issubclass(kind, Resolved) for name in get_annotations(kind))
        still = [name for name in narrowed if getattr(self, name) is None]
        if still:
            raise TypeError(f"{type(self).__name__} leaves {', '.join(still)} open")


def settle(kind: type[T], given: object, **taken: Any) -> T:
    """A resolved group of that kind: what was given, but for the values that are ``taken``."""
    return kind(**{**vars(given), **taken})


def fill(kind: type[T], given: object, **usual: Any) -> T:
    """A resolved group of that kind: what was given, and what is ``usual`` where it was left open (None)."""
    return settle(kind, given, **{name: value for name, value in usual.items() if getattr(given, name) is None})
