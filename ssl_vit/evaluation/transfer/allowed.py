"""Which options a set of a suite may have: those that its protocol reads, but for what the suite decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

from ssl_vit.configs import KNNRecipe, LinearRecipe, flat, to_dict
from ssl_vit.configs.facts import options
from ssl_vit.configs.protocols import PROTOCOLS, SOUP, Protocol
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.methods.supervised import FinetuneRecipe, SoupRecipe

Config = KNNRecipe | LinearRecipe | FinetuneRecipe
_RECIPES: dict[str, type[Config]] = {"knn": KNNRecipe, "linear": LinearRecipe, "train": FinetuneRecipe}
_DECIDED = {
    "backbone": "the network is named behind the command: ssl-vit transfer RUN SUITE",
    "eval.data.path": "a suite file says it by path: below the set",
    "linear.protocol": "a suite file says it by protocol:, the command by --transfer.protocol",
    "run": "the command has it for all sets (--run.dir and others)",
    "dry_run": "a suite has no dry run",
    "data.facts": "it is for a dry run, which a suite does not have",
}
"""Options, and a group of them, that no set has for itself, and what to write instead."""


def recipe_of(protocol: Protocol) -> type[Config]:
    """The class of a protocol's options.

    Args:
        protocol: Of a suite.
    """
    return SoupRecipe if protocol is SOUP else _RECIPES[protocol.use]


@cache
def taken(protocol: Protocol) -> tuple[str, ...]:
    """Options by which a set may change what a protocol does, by dotted names.

    Args:
        protocol: Of a suite.
    """
    groups = {read.partition(".")[0] for one in PROTOCOLS.values() if one.use == protocol.use for read in one.reads}
    reads = {*protocol.reads, "fit.precision"}
    return tuple(
        name for name in options(recipe_of(protocol))
        if _decided(name) is None and (_group(name) not in groups or {_group(name), name} & reads)
    )  # fmt: skip


def all_taken() -> dict[str, list[str]]:
    """Every option that some protocol takes, and which do."""
    found: dict[str, list[str]] = {}
    for protocol in (one for one in (*PROTOCOLS.values(), SOUP) if one.run):
        for name in taken(protocol):
            found.setdefault(name, []).append(protocol.name)
    return found


def by_dots(tree: Mapping[Any, Any]) -> dict[str, Any]:
    """A nested mapping with dotted names; YAML may have numbers for names, and groups with nothing below them."""
    named = {str(key): by_dots(value) if isinstance(value, dict) else value for key, value in tree.items()}
    groups = {_group(name) for name in all_taken() if "." in name}
    return {key: value for key, value in flat(cast("dict[str, Any]", named)).items()
            if not (key in groups and value is None)}  # fmt: skip


def check_undecided(names: Iterable[str], where: str) -> None:
    """Refuses options that the suite decides.

    Args:
        names: By dots.
        where: They stand.
    """
    for name in names:
        if (instead := _decided(name)) is not None:
            raise UserError(f"{where}: {name} is decided by the suite; {instead}")


def check_taken(names: Iterable[str], protocol: Protocol, where: str) -> None:
    """Refuses options of one set that its protocol does not have, or does not read.

    Args:
        names: By dots.
        protocol: Of the set.
        where: They stand.
    """
    may = taken(protocol)
    for name in (one for one in names if one not in may):
        if name in all_taken():
            raise UserError(f"{where}: --{name} has no effect with the protocol {protocol.name}{read_by(name)}")
        raise UserError(f"{where}: unknown option --{name}{did_you_mean(f'--{name}', [f'--{one}' for one in may])}")


def read_by(name: str) -> str:
    """Which protocols an option is of, as the end of a sentence; empty where it is of none."""
    readers = all_taken().get(name)
    return f"; it is for {', '.join(readers)}" if readers else ""


def changed(config: Config) -> dict[str, Any]:
    """What differs from a protocol's defaults, but for what the suite decides.

    Args:
        config: Options of a set.
    """
    usual = flat(to_dict(type(config)()))
    return {name: value for name, value in flat(to_dict(config)).items()
            if value != usual.get(name) and _decided(name) is None}  # fmt: skip


def _group(name: str) -> str:
    return name.partition(".")[0]


def _decided(name: str) -> str | None:
    return _DECIDED.get(name) or _DECIDED.get(_group(name))
