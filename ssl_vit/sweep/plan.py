"""What a sweep runs: every combination of the values of some options, with several seeds; mistakes are told before."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from ssl_vit.configs import to_dict
from ssl_vit.configs.cli import from_words
from ssl_vit.configs.facts import options
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.files import write_atomically
from ssl_vit.core.reading import read_object
from ssl_vit.core.started import module_of, options_of, scripts
from ssl_vit.methods import LABELLED, METHODS
from ssl_vit.runs import lock
from ssl_vit.runs.identity import differences, digest, identity, remove

JUDGES = ("knn", "linear-probe")
RECORD = "sweep.json"
_OWN = {
    "seed": "--seeds says how many there are, from --seed on",
    "run.dir": "--out names the folder of all runs",
    "dry_run": "it makes no run; type it with the command itself",
    "fit.max_time": "a sweep starts again what was ended so; end the sweep itself, as with 'timeout --preserve-status "
    "-s USR1 230m' before the command: its runs save, and the same command goes on",
}
"""Options that a sweep gives to its runs."""


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    command: str
    words: tuple[str, ...]
    """Options of the command, the same for all runs."""
    over: tuple[str, ...]
    """NAME=VALUE,VALUE for every option that is varied."""
    out: Path
    seeds: int = 1
    judge: str | None = None
    """What judges a pre-trained network after its run, one of ``JUDGES``."""
    on_test: bool = False
    """Judge on the test images although several settings are compared."""


@dataclass(frozen=True)
class Child:
    """One run of a sweep."""

    folder: Path
    setting: str
    """Values of the options that are varied, in words."""
    seed: int
    words: tuple[str, ...]
    """Behind ``ssl-vit``."""
    config: Any
    """The same as options."""
    judged_by: tuple[str, ...]
    """Behind ``ssl-vit`` when it is trained; empty where nothing judges it."""
    result: Path | None
    """Where that leaves its numbers."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.setting}, seed {self.seed}" if self.setting else f"seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Every run of a sweep."""

    asked: Asked
    children: tuple[Child, ...]
    held_out: bool
    """Whether runs are judged on a fifth of the training labels instead of the test images."""
    settings: tuple[str, ...] = field(default=())


def make_plan(asked: Asked) -> Plan:
    """The runs that were asked for, each checked as though it had been typed alone.

    Args:
        asked: What was typed.

    Raises:
        UserError: For the first thing that no run could be started with.
    """
    known = scripts()
    trains = [*METHODS, *LABELLED]
    if asked.command not in trains:
        why = "trains no network" if asked.command in known else "is no command"
        raise UserError(
            f"sweep {asked.command}: {asked.command} {why}; a sweep is over {', '.join(trains)}"
            f"{did_you_mean(asked.command, trains)}"
        )
    module = module_of(known[asked.command])
    recipe = options_of(module)
    if asked.seeds < 1:
        raise UserError(f"--seeds {asked.seeds} must be at least 1")
    if asked.judge is not None and asked.command in LABELLED:
        raise UserError(f"--judge {asked.judge}: runs of {asked.command} judge themselves; leave it out")
    over = _varied(asked, recipe)
    typed = {word[2:].partition("=")[0] for word in asked.words if word.startswith("--")}
    for name in sorted(typed & {"run.dir", "dry_run", *over}):
        why = "is given and varied; leave one of them out" if name in over else f"is not for typing: {_OWN[name]}"
        raise UserError(f"--{name} {why}")
    alone = from_words(recipe, list(asked.words))
    if alone.fit.max_time is not None:  # also in a file of options
        raise UserError(f"--max_time is not for a sweep: {_OWN['fit.max_time']}")
    first = alone.seed
    several = len(list(product(*over.values()))) > 1
    judged = asked.judge is not None or asked.command in LABELLED
    held_out = judged and several and not asked.on_test and "eval.held_out" not in typed
    words = list(asked.words)
    if held_out and asked.command in LABELLED:
        words.append("--eval.held_out=true")
    children: list[Child] = []
    for values in product(*over.values()):
        given = [f"--{name}={value}" for name, value in zip(over, values, strict=True)]
        setting = _canonical(recipe, [*words, *given], tuple(over))
        for seed in range(first, first + asked.seeds):
            folder = asked.out / "runs" / _folder_name(setting, seed)
            own = (*words, *given, f"--seed={seed}", f"--run.dir={folder}")
            config = from_words(recipe, list(own))
            if hasattr(module, "check"):
                module.check(config)
            judged_by, result = _judging(asked.judge, folder, held_out)
            children.append(Child(folder, setting, seed, (asked.command, *own), config, judged_by, result))
    settings = tuple(dict.fromkeys(child.setting for child in children))
    if len(settings) * asked.seeds < len(children):
        raise UserError("--over names one value twice; name each once")
    return Plan(asked, tuple(children), held_out, settings)


def _varied(asked: Asked, recipe: type[Any]) -> dict[str, list[str]]:
    known, over = options(recipe), dict[str, list[str]]()
    for given in asked.over:
        name, equals, values = given.removeprefix("--").partition("=")
        if not equals or not values:
            raise UserError(f"--over {given} names no values; write --over {name or 'NAME'}=VALUE,VALUE")
        if name in _OWN:
            raise UserError(f"--over {name}: {_OWN[name]}")
        if name not in known:
            raise UserError(
                f"--over {name}: {asked.command} has no such option{did_you_mean(name, known)} "
                f"(ssl-vit {asked.command} --help lists all)"
            )
        if name in over:
            raise UserError(f"--over {name} is given twice; name all of its values at once")
        over[name] = split(values)
    return over


def split(values: str) -> list[str]:
    """Values with commas between them; those inside brackets, braces and quotation marks belong to a value.

    Args:
        values: Such as ``1e-3,2e-3`` or ``[0.2,1],[0.5,1]``.
    """
    found, depth, quoted = [""], 0, ""
    for letter in values:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        depth += 0 if quoted else (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0 and not quoted:
            found.append("")
        else:
            found[-1] += letter
    return [value.strip() for value in found]


def _canonical(recipe: type[Any], words: list[str], names: Sequence[str]) -> str:
    """What is varied as the options come out of the words: 1e-3 and 0.001 are one value."""
    config = from_words(recipe, words)
    values = {name: json.loads(json.dumps(reduce(getattr, name.split("."), config), default=str)) for name in names}
    return ", ".join(f"{name}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items())


def _folder_name(setting: str, seed: int) -> str:
    """Letters that need no quotation marks, and no commas, which separate runs elsewhere."""
    plain = setting.replace(", ", "+")
    short = re.sub(r"[^\w.+=-]+", "_", plain)[:120]
    unique = short if short == plain else f"{short}-{digest(setting)[:6]}"
    return f"{unique}-seed-{seed}" if setting else f"seed-{seed}"


def _judging(judge: str | None, folder: Path, held_out: bool) -> tuple[tuple[str, ...], Path | None]:
    if judge is None:
        return (), None
    name = {"knn": "knn", "linear-probe": "linear-cached"}[judge] + ("-held-out" if held_out else "")
    words = (judge, f"--backbone={folder}", *(("--eval.held_out=true",) if held_out else ()))
    return words, folder / "results" / f"{name}.json"


def _on_held_out(record: Mapping[str, Any]) -> bool | None:
    """Whether labelled runs are judged on held-out labels; None of others."""
    group: Any = record.get("options", {}).get("eval", {})
    return group.get("held_out")


def remember(plan: Plan) -> None:
    """Writes what a sweep is, or refuses to go on with another one in its folder.

    More values, more seeds and longer training make it larger; other options would make another sweep.

    Args:
        plan: The runs.

    Raises:
        UserError: For another sweep.
    """
    path = plan.asked.out / RECORD
    first: object = plan.children[0].config
    common = identity(to_dict(first), type(first))
    names = [given.removeprefix("--").partition("=")[0] for given in plan.asked.over]
    for name in ("seed", *names):
        remove(common, name)
    now = {"command": plan.asked.command, "over": sorted(names), "judge": plan.asked.judge, "options": common}
    if path.exists():
        before = read_object(path, "give --out another folder")
        ours = ("command", "over", "options")
        was, is_now = _on_held_out(before), _on_held_out(now)
        if plan.asked.command in LABELLED and was is not None and is_now is not None and was != is_now:
            kinds = {True: "held-out labels", False: "the test images"}
            hint = "type --on_test" if is_now else "type --eval.held_out true, and no --on_test"
            raise UserError(
                f"--out {plan.asked.out} holds runs that were judged on {kinds[was]}; these would be judged on "
                f"{kinds[is_now]}, which needs other runs; give --out another folder, or {hint}"
            )
        if changed := differences({k: before.get(k) for k in ours}, {k: now[k] for k in ours}):
            raise UserError(f"--out {plan.asked.out} holds another sweep ({changed}); give --out another folder")
    elif any(file.name not in (lock.NAME, f"{RECORD}.part") for file in plan.asked.out.iterdir()):
        raise UserError(f"--out {plan.asked.out} is not empty and holds no sweep (no {RECORD}); name a new folder")
    write_atomically(path, json.dumps(now, indent=1) + "\n")
