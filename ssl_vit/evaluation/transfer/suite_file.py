"""Suites as YAML files: what they say of each set, and of all; needs no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml

from ssl_vit.configs.paths import HUB, check_table, folders, is_remote, missing, on_hub
from ssl_vit.configs.suites import SETS
from ssl_vit.core.errors import UserError, did_you_mean, reason
from ssl_vit.evaluation.transfer.allowed import all_taken, by_dots, check_undecided
from ssl_vit.evaluation.transfer.told import Told, known_words, of_known

FILES = (".yaml", ".yml")
"""Endings of suite files."""
SHORT = {
    "metric": "eval.metric", **{
        name: f"eval.data.{name}" for name in ("image_column", "label_column", "target", "split", "test_split")
    },
}  # fmt: skip
"""What a suite file may write without the group of the option."""
_OWN = ("path", "group", "protocol", "labels", "real")
_TOP = ("sets", "protocol", "labels", "options")


def in_file(place: Path, given: str) -> tuple[dict[str, Told], dict[str, Any]]:
    """The sets of a suite file, whose paths begin at its folder, and its options for all of them.

    Args:
        place: The file.
        given: As it was named.

    Raises:
        UserError: For what is no such file, unknown keys, values of other kinds, and paths that lead nowhere.
    """
    if not place.is_file():
        raise UserError(f"--suite: {missing(given)}")
    where = f"--suite {place}"
    try:
        content: Any = yaml.safe_load(place.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid YAML ({' '.join(reason(error).split())})") from error
    if not isinstance(content, dict) or not content.get("sets"):
        raise UserError(f"{where} names no sets; it needs a line sets: with a name below it for each set")
    top = cast("dict[Any, Any]", content)
    for key in map(str, top):
        if key not in _TOP:
            raise UserError(f"{where} has the key {key}, which is none of {', '.join(_TOP)}{did_you_mean(key, _TOP)}")
    sets: Any = top["sets"]
    sets = {str(name): None for name in sets} if isinstance(sets, list) else sets
    if not isinstance(sets, dict):
        raise UserError(f"{where}: sets: needs names of sets below it")
    shared = by_dots(_mapping(top.get("options"), f"{where}: options"))
    check_undecided(shared, f"{where}: options")
    found = {str(name): _told(str(name), spec, place) for name, spec in cast("dict[Any, Any]", sets).items()}
    usual = {"protocol": _word(top.get("protocol"), f"{where}: protocol"),
             "labels": _count(top.get("labels"), f"{where}: labels")}  # fmt: skip
    whole = {
        name: replace(told, **{key: value for key, value in usual.items() if getattr(told, key) is None})
        for name, told in found.items()
    }
    return whole, shared


def _told(name: str, spec: Any, file: Path) -> Told:
    """What a suite file says of one set."""
    where = f"--suite {file}: {name}"
    told = _mapping({"path": spec} if isinstance(spec, str) else spec, where)
    own = _options(told, where)
    base = of_known(name) if name in SETS else None
    if base is None and "path" not in told:
        raise UserError(f"{where} has no path, and is none of the sets that are known{did_you_mean(name, SETS)} "
                        f"({known_words()})")  # fmt: skip
    for key in ("eval.data.labels", "eval.data.root"):
        if isinstance(own.get(key), str):
            own[key] = ",".join(str(file.parent / one) for one in folders(own[key]))
    if isinstance(own.get("eval.data.labels"), str):
        check_table(f"{where}: --eval.data.labels", own["eval.data.labels"])
    for folder in folders(own.get("eval.data.root")) if isinstance(own.get("eval.data.root"), str) else ():
        if not folder.is_dir():
            raise UserError(f"{where}: --eval.data.root {folder} is no folder; name that where file names begin")
    found = Told(_from(file, told["path"], f"{where}: path")) if "path" in told else base or Told("")
    usual_group = base.group if base else ""
    return replace(
        found,
        group=_word(told["group"], f"{where}: group") or "" if "group" in told else usual_group,
        options={**found.options, **own},
        protocol=_word(told.get("protocol"), f"{where}: protocol"),
        labels=_count(told.get("labels"), f"{where}: labels"),
        real=None if told.get("real") is None else _local(file, told["real"], f"{where}: real"),
        imagenet=base is not None and base.imagenet,
    )


def _options(told: dict[str, Any], where: str) -> dict[str, Any]:
    """Those of one set by dotted names, from all that is said of it."""
    own = {SHORT.get(key, key): value for key, value in told.items() if key not in _OWN}
    found = by_dots(own)
    check_undecided(found, where)
    groups = sorted({name.partition(".")[0] for name in all_taken()})
    names = (*_OWN, *SHORT, *groups)
    for key in told:
        if key not in names and key.partition(".")[0] not in groups:
            raise UserError(f"{where} has the key {key}, which is none of {', '.join(names)}{did_you_mean(key, names)}")
    return found


def _from(file: Path, path: Any, where: str) -> str:
    """Images whose path begins at the suite file; names on the hub and addresses stay."""
    place = _local(file, path, where)
    if Path(place).exists():
        return place
    if path == "digits" or is_remote(path):
        return path
    if HUB.fullmatch(path) and on_hub(path) and not Path(place).parent.is_dir():
        return path
    raise UserError(f"{where}: {missing(place)}")


def _local(file: Path, path: Any, where: str) -> str:
    """A path that begins at the suite file."""
    if not isinstance(path, str) or not path.strip():
        raise UserError(f"{where} is a name or a path, and has {path!r}; put it in quotes where it is one")
    return str(file.parent / Path(path).expanduser())


def _word(value: Any, where: str) -> str | None:
    """A name, which YAML may take for a number; None where nothing is said."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return None if value is None or not str(value).strip() else str(value).strip()
    raise UserError(f"{where} is one name, and has {value!r}")


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where} needs names with values below it, and has {value!r}")
    return {str(key): one for key, one in cast("dict[Any, Any]", value).items()}


def _count(value: Any, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise UserError(
        f"{where} is a number of labels, and has {value!r}; a table of labels is eval: {{data: {{labels:}}}}"
    )
