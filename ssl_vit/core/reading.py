"""Files that may be damaged: read whole, in parts, or told in one line; and YAML that stays as small as its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import content_of

_LARGEST = 1 << 20
"""Bytes of a YAML file."""
_NODES, _DEPTH = 100_000, 64
"""Values that YAML may come to once its references are followed, and groups within groups."""
_LETTERS = 100
"""Letters that count as one more value: a long text that is referred to again and again is large where it is shown."""
_DEEP = f"has more than {_DEPTH} groups within groups"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Lines(NamedTuple):
    """What a file of JSON lines holds."""

    whole: list[dict[str, Any]]
    texts: list[str]
    """The lines that these came from."""
    damaged: list[int]
    """Numbers of other lines, counted from 1; half a last line, which a crash leaves, is not one of them."""


def loads(text: str | bytes) -> Any:
    """As ``json.loads``, which runs out of stack where lists hold lists a thousand times.

    Args:
        text: JSON.

    Raises:
        ValueError: For what is none.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists within lists, too many") from None


def json_lines(path: Path) -> Lines:
    """The objects of a file with one in each line; nothing where there is no such file, or something else.

    Args:
        path: Such as metrics.jsonl.
    """
    found = Lines([], [], [])
    try:
        content = content_of(path)
    except (FileNotFoundError, IsADirectoryError):
        return found
    *ended, last = content.split(b"\n")
    for number, raw in enumerate([*ended, last], 1):
        try:
            text = raw.decode()
            value: object = loads(text)
        except ValueError:
            value, text = None, ""
        if isinstance(value, dict):
            found.whole.append(cast("dict[str, Any]", value))
            found.texts.append(text)
        elif number <= len(ended):
            found.damaged.append(number)
    return found


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """A JSON object from a file.

    Args:
        path: Where it is.
        remedy: What to do where it is missing or damaged, as the end of a sentence.

    Raises:
        UserError: Where there is none.
    """
    found = object_in(path)
    if found is None:
        raise UserError(f"{path} {'is damaged' if path.exists() else 'is missing'}; {remedy}")
    return found


def object_in(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None where it is missing or damaged.

    Args:
        path: Where it is.
    """
    try:
        return object_there(path)
    except OSError:
        return None


def object_there(path: Path) -> dict[str, Any] | None:
    """As ``object_in``, for a file that is to be written anew where it is damaged.

    Args:
        path: Where it is.

    Raises:
        OSError: Where it cannot be read, and may be whole.
    """
    try:
        found: object = loads(content_of(path))
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def mapping_in(path: Path) -> dict[str, Any] | None:
    """The names and values of a YAML file; None where it is missing or damaged, or its names are no words.

    Args:
        path: Where it is.
    """
    try:
        found: object = read_yaml(path)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in cast("dict[object, Any]", found)):
        return None
    return cast("dict[str, Any]", found)


def read_yaml(path: Path) -> Any:
    """What a YAML file holds, once it is known to be of a bounded size.

    Args:
        path: Where it is.

    Raises:
        OSError: Where it cannot be read.
        ValueError: Where it is too large, also by its references, or is no text.
        yaml.YAMLError: Where it is no YAML.
    """
    return yaml.load(_read(path), _LOADER)


def check_yaml(path: Path) -> None:
    """Refuses a YAML file that would grow while it is read, or is no text; other mistakes are left to its reader.

    Args:
        path: Where it is.

    Raises:
        UserError: Naming it.
    """
    try:
        _read(path)
    except _TooLarge as error:
        raise UserError(f"{path} {error}; a file of options is small and needs no references") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start:,}); name a YAML file") from None
    except (OSError, ValueError, yaml.YAMLError):
        return


def check_value(name: str, text: str) -> None:
    """As ``check_yaml`` for the value of an option, which is read as YAML, too.

    Args:
        name: The option as typed.
        text: Its value.

    Raises:
        UserError: Naming it.
    """
    try:
        _check(text)
    except _TooLarge as error:
        raise UserError(f"{name} {error}; the value of an option is small and needs no references") from None
    except (ValueError, yaml.YAMLError):  # then it is read as text
        return


class _TooLarge(ValueError):
    """A file that would take all memory."""


def _events(text: str) -> Iterator[Any]:
    """Of YAML, one by one; the parser has a bound of its own for lists in one line."""
    try:
        yield from cast("Any", yaml).parse(text, _LOADER)
    except yaml.YAMLError as error:
        if "nesting depth" in str(error):
            raise _TooLarge(_DEEP) from None
        raise


def _read(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        raise _TooLarge(f"is larger than {_LARGEST:,} bytes")
    text = content_of(path).decode()
    _check(text)
    return text


def _check(text: str) -> None:
    if len(text) > _LARGEST:
        raise _TooLarge(f"is larger than {_LARGEST:,} bytes")
    known: dict[str, int] = {}
    nested: list[tuple[str | None, int]] = []
    for event in _events(text):
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            nested.append((anchor, 1))
            if len(nested) > _DEPTH:
                raise _TooLarge(_DEEP)
            continue
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == outer for outer, _ in nested):
                raise _TooLarge("refers to itself")
            count = known.get(anchor or "", 1)  # what refers to nothing is no YAML
        elif isinstance(event, yaml.ScalarEvent):
            count = 1 + len(event.value) // _LETTERS
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, count = nested.pop()
        else:
            continue
        if anchor is not None:
            known[anchor] = count
        if nested:
            nested[-1] = nested[-1][0], nested[-1][1] + count
        if count > _NODES:
            raise _TooLarge(f"comes to more than {_NODES:,} values")
