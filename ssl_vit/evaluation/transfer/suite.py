"""What a suite names: labelled sets, each with the protocol that judges it and its options; needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from ssl_vit.configs import KNNRecipe, LinearRecipe, TransferRecipe, flat
from ssl_vit.configs.cli import from_options
from ssl_vit.configs.facts import options
from ssl_vit.configs.paths import folders, missing, on_hub
from ssl_vit.configs.protocols import SOUP, Protocol, suite_protocol
from ssl_vit.configs.suites import SETS, SUITES
from ssl_vit.configs.words import TABLES
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.evaluation.transfer.real_file import read_answers
from ssl_vit.methods.supervised import FinetuneRecipe, SoupRecipe
from ssl_vit.runs.identity import digest

Config = KNNRecipe | LinearRecipe | FinetuneRecipe
_RECIPES: dict[str, type[Any]] = {"knn": KNNRecipe, "linear": LinearRecipe, "train": FinetuneRecipe}
FILES = (".yaml", ".yml")
"""Endings of suite files."""
_FORM = "FOLDER/SET/CLASS/image.png, FOLDER/SET/train/CLASS/image.png, FOLDER/SET.parquet, or what --data.path takes"
_WHOLE = (*TABLES, ".tar")
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}
_SHORT = {
    "metric": "eval.metric", **{
        name: f"eval.data.{name}" for name in ("image_column", "label_column", "target", "split", "test_split")
    },
}  # fmt: skip
"""What a suite file may write without the group of the option."""
_OWN = ("path", "group", "protocol", "labels", "real")
_TOP = ("sets", "protocol", "labels", "options")


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


@dataclass(frozen=True)
class _Told:
    """What is said of a set, before protocol and options are looked up."""

    path: str
    group: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    """By dotted names."""
    protocol: str | None = None
    labels: int | None = None
    usual: int | None = None
    """Labels of a known suite, where nobody asks for another number."""
    real: str | None = None
    imagenet: bool = False


def read_suite(cfg: TransferRecipe) -> Suite:
    """The sets that ``--suite`` names, with every option checked; no set is opened.

    Args:
        cfg: What ``--help`` lists.

    Raises:
        UserError: For names, files, keys and options that are none, and a folder without sets.
    """
    given, place = cfg.suite.strip(), Path(cfg.suite.strip()).expanduser()
    suite_protocol(cfg.transfer.protocol)
    everywhere = flat(cfg.transfer.options or {})
    if not given:
        raise UserError(
            "--suite is missing; give a folder of labelled sets, a YAML file that tells of sets, or names with commas "
            f"between them: {_known()}"
        )
    if place.suffix.lower() in FILES:
        name, (found, shared) = place.stem, _in_file(place, given)
        everywhere = shared | everywhere
    elif place.is_dir():
        name, found = place.resolve().name, _in_folder(place)
    else:
        words = list(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))
        found = _named(words)
        name = "-".join(Path(word).stem for word in words)
        name = name if len(name) <= 40 else f"{len(found)}-sets-{digest(sorted(found))[:8]}"
    entries = tuple(_entry(one, told, cfg, everywhere) for one, told in found.items())
    _check_everywhere(everywhere, entries)
    if cfg.transfer.real is not None and not any(told.imagenet for told in found.values()):
        raise UserError(
            f"--transfer.real {cfg.transfer.real} is about the set imagenet, which is not in this suite; a suite file "
            "names such answers beside a set (real: FILE)"
        )
    return Suite(re.sub(r"[^\w.-]+", "_", name) or "suite", entries)


def _known() -> str:
    return f"sets are {', '.join(SETS)}; suites are {', '.join(SUITES)}"


def _entry(name: str, told: _Told, cfg: TransferRecipe, everywhere: Mapping[str, Any]) -> Entry:
    """A set with its protocol's options: those for all sets first, then its own."""
    option = f"protocol of {name}:" if told.protocol else "--transfer.protocol"
    protocol = suite_protocol(told.protocol or cfg.transfer.protocol, option)
    recipe = SoupRecipe if protocol is SOUP else _RECIPES[protocol.use]
    known = options(recipe)
    given: dict[str, Any] = {"backbone": cfg.backbone, "seed": cfg.seed, "eval.data.path": told.path}
    given |= {"linear.protocol": protocol.name} if protocol.use == "linear" else {}
    given |= {"eval.baselines": False} if "eval.baselines" in known else {}
    given |= {"soup.kind": cfg.soup.kind, "soup.rates": list(cfg.soup.rates)} if protocol is SOUP else {}
    given |= {key: value for key, value in everywhere.items() if key in known}
    try:
        config: Config = from_options(recipe, given | dict(told.options))
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    real = told.real or (cfg.transfer.real if told.imagenet else None)
    if real is not None and not Path(real).expanduser().is_file():
        raise UserError(f"real of {name}: {missing(real)}")
    if real is not None and config.eval.held_out:
        raise UserError(
            f"real of {name}: these labels are of the test images, and eval.held_out judges on a fifth of the training "
            "labels; leave one of the two out"
        )
    most = told.labels or cfg.transfer.labels or told.usual
    answers = None if real is None else Path(real).expanduser()
    if answers is not None:
        read_answers(answers)  # its form; its classes and images are looked at when the set is opened
    return Entry(name, told.group, told.path, protocol, config, most if config.eval.labels is None else None, answers)


def _check_everywhere(everywhere: Mapping[str, Any], entries: Iterable[Entry]) -> None:
    """Refuses options for all sets that no set's protocol has."""
    known = list(dict.fromkeys(name for entry in entries for name in options(type(entry.config))))
    for name in everywhere:
        if name not in known:
            raise UserError(f"--transfer.options: no protocol of this suite has {name}{did_you_mean(name, known)}")


def _of_known(name: str) -> _Told:
    known = SETS[name]
    return _Told(known.path, known.group, known.options, imagenet=known.imagenet)


def _named(words: Iterable[str]) -> dict[str, _Told]:
    """Sets by names of the tables, paths and names on the hub."""
    found: dict[str, _Told] = {}
    for word in words:
        place = Path(word).expanduser()
        if word in SUITES:
            suite = SUITES[word]
            found |= {name: replace(_of_known(name), usual=suite.labels) for name in suite.sets}
        elif word in SETS:
            found[word] = _of_known(word)
        elif word == "digits" or place.exists() or on_hub(word):
            found[_free(place.stem if place.exists() else word.rpartition("/")[2], found)] = _Told(word)
        else:
            close = did_you_mean(word, [*SETS, *SUITES])
            raise UserError(f"--suite {word}: there is no such set, suite, folder or file{close} ({_known()})")
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    taken = set(taken)
    return next(one for one in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if one not in taken)


def _in_folder(place: Path) -> dict[str, _Told]:
    """A set for every folder and table in a folder; what cannot be one is told.

    Raises:
        UserError: Where there is none, or the folder is itself a set.
    """
    inside = sorted(p for p in place.iterdir() if not p.name.startswith("."))
    folders = [p for p in inside if p.is_dir()]
    if folders and {p.name.lower() for p in folders} <= _SPLITS:
        raise UserError(
            f"--suite {place} is one set with its splits ({', '.join(p.name for p in folders)}); name a folder of such "
            f"folders, or judge it alone: eval/knn.py --backbone RUN --eval.data.path {place}"
        )
    found: dict[str, _Told] = {}
    for one in inside:
        if _may_be_set(one):
            found[_free(one.stem if one.is_file() else one.name, found)] = _Told(str(one))
    left = [p.name for p in folders if not _may_be_set(p)]
    if not found:
        there = f"; in it {', '.join(left[:4])} hold images without folders of classes" if left else ""
        alone = f" (one set alone: eval/knn.py --backbone RUN --eval.data.path {place})" if len(left) > 1 else ""
        raise UserError(f"--suite {place} holds no labelled set{there}; expected {_FORM}{alone}")
    if left:
        say_once(f"note: no set, because nothing in it could be labels: {', '.join(left)} in {place}")
    return found


def _may_be_set(place: Path) -> bool:
    """Whether labels may lie here: folders of classes or splits, a table, shards; opening it says whether they do."""
    if place.is_file():
        return place.suffix.lower() in _WHOLE
    inside = [p for p in place.iterdir() if not p.name.startswith(".")]
    return any(p.is_dir() or p.suffix.lower() in _WHOLE for p in inside)


def _in_file(place: Path, given: str) -> tuple[dict[str, _Told], dict[str, Any]]:
    """The sets of a suite file, whose paths begin at its folder, and its options for all of them."""
    if not place.is_file():
        raise UserError(f"--suite: {missing(given)}")
    try:
        content: Any = yaml.safe_load(place.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--suite {place} is not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict) or not content.get("sets"):
        raise UserError(f"--suite {place} names no sets; it needs a line sets: with a name below it for each set")
    top = cast("dict[str, Any]", content)
    for key in top:
        if key not in _TOP:
            raise UserError(f"--suite {place} has the key {key}, which is none of {', '.join(_TOP)}"
                            f"{did_you_mean(str(key), _TOP)}")  # fmt: skip
    sets: Any = top["sets"]
    sets = {str(name): None for name in sets} if isinstance(sets, list) else sets
    if not isinstance(sets, dict):
        raise UserError(f"--suite {place}: sets: needs names of sets below it")
    shared = flat(_mapping(top.get("options"), f"--suite {place}: options"))
    found = {str(name): _told(str(name), spec, place) for name, spec in cast("dict[Any, Any]", sets).items()}
    usual = {"protocol": top.get("protocol"), "labels": _count(top.get("labels"), f"--suite {place}: labels")}
    whole = {
        name: replace(told, **{key: value for key, value in usual.items() if getattr(told, key) is None})
        for name, told in found.items()
    }
    return whole, shared


def _told(name: str, spec: Any, file: Path) -> _Told:
    """What a suite file says of one set."""
    where = f"--suite {file}: {name}"
    spec = {"path": spec} if isinstance(spec, str) else spec
    told = _mapping(spec, where)
    known = {key for recipe in (LinearRecipe, SoupRecipe, KNNRecipe) for key in options(recipe)}
    groups = {key.partition(".")[0] for key in known}
    own: dict[str, Any] = {}
    for key, value in told.items():
        if key in _SHORT:
            own[_SHORT[key]] = value
        elif key in groups:
            own |= flat({key: value})
        elif key not in _OWN and key not in known:
            names = (*_OWN, *_SHORT, *sorted(groups))
            raise UserError(f"{where} has the key {key}, which is none of {', '.join(names)}{did_you_mean(key, names)}")
        elif key in known:
            own[key] = value
    base = _of_known(name) if name in SETS else None
    path = told.get("path")
    if path is None and base is None:
        raise UserError(f"{where} has no path, and is none of the sets that are known{did_you_mean(name, SETS)} "
                        f"({_known()})")  # fmt: skip
    for key in ("eval.data.labels", "eval.data.root"):
        if isinstance(own.get(key), str):
            own[key] = ",".join(str(file.parent / one) for one in folders(own[key]))
    found = base if base is not None and path is None else _Told(_from(file, str(path)))
    real = told.get("real")
    return replace(
        found,
        group=str(told.get("group", base.group if base else "")),
        options={**found.options, **own},
        protocol=None if told.get("protocol") is None else str(told["protocol"]),
        labels=_count(told.get("labels"), f"{where}: labels"),
        real=None if real is None else str(file.parent / Path(str(real)).expanduser()),
        imagenet=base is not None and base.imagenet,
    )


def _from(file: Path, path: str) -> str:
    """Images whose path begins at the suite file; names on the hub stay."""
    place = file.parent / Path(path).expanduser()
    return str(place) if place.exists() or not (path == "digits" or on_hub(path)) else path


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
