"""Shapes and types of the package checked at run time: by jaxtyping where there are shapes, else by beartype alone."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, isgeneratorfunction
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, install_import_hook

CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
"""What checks types. As for pyright, an int is a float, too."""

_types = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError))
_shapes = jaxtyping.jaxtyped


def check(package: str) -> None:
    """All functions and dataclasses of a package that nothing has imported yet."""
    jaxtyping.jaxtyped = checked
    install_import_hook(package, CHECKER)


def checked(*, typechecker: Any) -> Callable[[Any], Any]:
    """``jaxtyped``, which binds what every call is given to its shapes, without that where there are none."""

    def decorated(what: Any) -> Any:
        if not isfunction(what) or isgeneratorfunction(what) or _has_shapes(what):  # --help is read from dataclasses
            return _shapes(what, typechecker=typechecker)
        return _types(what)

    return decorated


def _has_shapes(function: Callable[..., Any]) -> bool:
    """Also where that is not known yet, as names are defined later; jaxtyping takes these for anything."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # whatever evaluating them raises
        return True
    return any(map(_is_shape, hints.values()))


def _is_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_is_shape, hint if isinstance(hint, list) else get_args(hint)))  # arguments of a callable are a list
