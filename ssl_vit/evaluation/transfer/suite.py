"""What a suite names: labelled sets, each with the protocol that judges it and its options; needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from ssl_vit.configs import TransferConfig, TransferRecipe, to_dict
from ssl_vit.configs.cli import from_options
from ssl_vit.configs.evaluation import SoupConfig
from ssl_vit.configs.paths import missing
from ssl_vit.configs.protocols import Protocol, suite_protocol
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.evaluation.transfer.allowed import (
    Config,
    all_taken,
    by_dots,
    changed,
    check_taken,
    check_undecided,
    read_by,
    recipe_of,
    taken,
)
from ssl_vit.evaluation.transfer.real_file import read_answers
from ssl_vit.evaluation.transfer.suite_file import FILES, in_file
from ssl_vit.evaluation.transfer.told import Told, in_folder, known_words, named
from ssl_vit.methods.supervised import SoupRecipe
from ssl_vit.runs.identity import digest


@dataclass(frozen=True)
class Entry:
    """One set of a suite."""

    name: str
    group: str
    """Whose mean it is part of; empty for none."""
    path: str
    protocol: Protocol
    config: Config
    """Options of the protocol, but for the run's folder."""
    most: int | None = None
    """Training labels to use at most, where ``config`` does not say how many."""
    real: Path | None = None
    """Several right answers for each of its test images."""

    @property
    def slug(self) -> str:
        """Its name as files have it."""
        return re.sub(r"[^\w.-]+", "_", self.name)


class Suite(NamedTuple):
    """What is judged, in its order."""

    name: str
    entries: tuple[Entry, ...]
    asked: Mapping[str, Any]
    """All that the command asked for, and what it came to for each set, as plain data."""
    usual: bool = False
    """Whether it is one by names, and nothing else was asked for."""

    @property
    def file(self) -> str:
        """Name of its table: other sets and options that make a suite of this name have another."""
        return self.name if self.usual else f"{self.name}-{digest(self.asked)[:8]}"


def read_suite(cfg: TransferRecipe) -> Suite:
    """The sets that ``--suite`` names, with every option checked; no set is opened.

    What was typed comes before what a suite file says, and there a set's own words before those for all.

    Args:
        cfg: What ``--help`` lists.

    Raises:
        UserError: For names, files, keys and options that are none, and a folder without sets.
    """
    given, place = cfg.suite.strip(), Path(cfg.suite.strip()).expanduser()
    suite_protocol(cfg.transfer.protocol)
    typed, shared = by_dots(cfg.transfer.options or {}), dict[str, Any]()
    check_undecided(typed, "--transfer.options")
    if not given:
        raise UserError(
            "--suite is missing; give a folder of labelled sets, a YAML file that tells of sets, or names with commas "
            f"between them: {known_words()}"
        )
    if place.suffix.lower() in FILES:
        name, (found, shared) = place.stem, in_file(place, given)
    elif place.is_dir():
        name, found = place.resolve().name, in_folder(place)
    else:
        words = list(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))
        found = named(words)
        name = "-".join(Path(word).stem for word in words)
        name = name if len(name) <= 40 else f"{len(found)}-sets-{digest(sorted(found))[:8]}"
    entries = tuple(_entry(one, told, cfg, shared, typed) for one, told in found.items())
    _check_everywhere(shared, entries, f"--suite {place}: options", _protocol_typed(cfg))
    _check_everywhere(typed, entries, "--transfer.options")
    _check_everywhere(_typed_groups(cfg), entries, "--soup")
    if cfg.transfer.real is not None and not any(told.imagenet for told in found.values()):
        raise UserError(
            f"--transfer.real {cfg.transfer.real} is about the set imagenet, which is not in this suite; a suite file "
            "names such answers beside a set (real: FILE)"
        )
    here = place.exists() or any(Path(one.path).expanduser().exists() for one in entries)
    usual = not here and not cfg.run.dir and cfg.transfer == TransferConfig() and not _typed_groups(cfg)
    return Suite(re.sub(r"[^\w.-]+", "_", name) or "suite", entries, _asked(cfg, entries), usual)


def _asked(cfg: TransferRecipe, entries: Iterable[Entry]) -> dict[str, Any]:
    """What was asked for: the command's own options, and those of every set that are not the usual ones."""
    sets = [
        {"name": one.name, "path": _whole(one.path), "protocol": one.protocol.name, "labels": one.most,
         "real": None if one.real is None else _whole(str(one.real)), "options": changed(one.config)}
        for one in entries
    ]  # fmt: skip
    transfer = to_dict(cfg.transfer)
    transfer["real"] = transfer["real"] and _whole(transfer["real"])
    whose = {"backbone": _whole(cfg.backbone)} if cfg.run.dir else {}  # a folder that networks may share
    return {"suite": _whole(cfg.suite.strip()), **whose, **transfer, **_typed_groups(cfg), "sets": sets}


def _whole(path: str) -> str:
    """A path from wherever it is looked at; names that are no paths stay."""
    place = Path(path).expanduser()
    return str(place.resolve()) if path != "digits" and place.exists() else path


def _typed_groups(cfg: TransferRecipe) -> dict[str, Any]:
    """Options of protocols that the command has itself, where they are not the usual ones."""
    usual = SoupConfig()
    found = {f"soup.{f.name}": getattr(cfg.soup, f.name) for f in fields(usual)
             if getattr(cfg.soup, f.name) != getattr(usual, f.name)}  # fmt: skip
    return found | ({"seed": cfg.seed} if cfg.seed else {})


def _entry(name: str, told: Told, cfg: TransferRecipe, shared: Mapping[str, Any], typed: Mapping[str, Any]) -> Entry:
    """A set with its protocol's options: those for all sets first, then its own, and at last what was typed."""
    protocol = _protocol(name, told, cfg)
    may, own = taken(protocol), dict(told.options)
    if protocol.name == (told.protocol or protocol.name):
        check_taken(own, protocol, name)
    else:  # typed instead of the file's, so that its options need not fit
        file_protocol = suite_protocol(told.protocol or "", f"protocol of {name}:")
        check_taken(own, file_protocol, name)
        if lost := [key for key in own if key not in may]:
            say_once(f"note: {name} is judged by {protocol.name} instead of {file_protocol.name}, without "
                     f"{', '.join(lost)}")  # fmt: skip
        own = {key: value for key, value in own.items() if key in may}
    given: dict[str, Any] = {"eval.baselines": False} if "eval.baselines" in may else {}
    given |= {key: value for key, value in shared.items() if key in may} | own
    if cfg.transfer.labels is not None:
        given.pop("eval.labels", None)
    given |= {key: value for key, value in (_typed_groups(cfg) | dict(typed)).items() if key in may}
    given |= {"backbone": cfg.backbone, "eval.data.path": told.path}
    given |= {"linear.protocol": protocol.name} if protocol.use == "linear" else {}
    try:
        config: Config = from_options(recipe_of(protocol), given)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if isinstance(config, SoupRecipe) and not config.soup.rates:
        raise UserError(f"{name}: --soup.rates: at least one, a multiple of the learning rate for each fine-tuning")
    most = cfg.transfer.labels or told.labels or told.usual
    most = most if config.eval.labels is None else None
    return Entry(name, told.group, told.path, protocol, config, most, _real(name, told, cfg, config))


def _protocol(name: str, told: Told, cfg: TransferRecipe) -> Protocol:
    """That of a set; the usual one is as if nothing were typed."""
    if told.protocol is None or _protocol_typed(cfg):
        return suite_protocol(cfg.transfer.protocol)
    return suite_protocol(told.protocol, f"protocol of {name}:")


def _protocol_typed(cfg: TransferRecipe) -> bool:
    return cfg.transfer.protocol != TransferConfig().protocol


def _real(name: str, told: Told, cfg: TransferRecipe, config: Config) -> Path | None:
    """The file of several right answers for a set, whose form is checked."""
    given = (cfg.transfer.real if told.imagenet else None) or told.real
    if given is None:
        return None
    file = Path(given).expanduser()
    if not file.is_file():
        raise UserError(f"real of {name}: {missing(given)}")
    if config.eval.held_out:
        raise UserError(
            f"real of {name}: these labels are of the test images, and eval.held_out judges on a fifth of the training "
            "labels; leave one of the two out"
        )
    read_answers(file)  # its classes and images are looked at when the set is opened
    return file


def _check_everywhere(given: Iterable[str], entries: Iterable[Entry], where: str, typed: bool = False) -> None:
    """Refuses options for all sets that no protocol has; where one was ``typed``, those of the file's own may stay."""
    known = list(dict.fromkeys(name for entry in entries for name in taken(entry.protocol)))
    for name in given:
        if name not in known and not (typed and name in all_taken()):
            near = read_by(name) or did_you_mean(name, known)
            raise UserError(f"{where}: no protocol of this suite has {name}{near}")
