"""Run directories as they are found on a disk: what each is, how far it is, and what cannot be read; writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import yaml

from ssl_vit.configs import flat
from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.configs.networks import NETWORKS, short_name
from ssl_vit.core.files import content_of
from ssl_vit.core.reading import loads, read_yaml
from ssl_vit.core.schedules import whole_steps
from ssl_vit.core.signals import REQUEUE
from ssl_vit.methods import LABELLED
from ssl_vit.runs import lock
from ssl_vit.runs.networks import FILES, RELEASED

State = Literal["running", "done", "stopped", "crashed", "waiting"]
DEPTH = 4
"""Folders below the named one in which runs are looked for."""
_TRAINED = ("finetune", "transfer")
"""Folders in a run that hold what was trained from its network."""
_TAIL = 1 << 16
"""Bytes at the end of a file that hold its last line."""


class Score(NamedTuple):
    """The number that a result file leads with."""

    metric: str
    value: float
    file: str

    def __str__(self) -> str:
        """The value, with its metric where that is not the share of right answers, and labels that were held out."""
        words = ["" if self.metric == "top1" else METRICS[self.metric].words, "held out" * ("-held-out" in self.file)]
        return " ".join([shown(self.metric, self.value), *filter(None, words)])


@dataclass(frozen=True)
class Run:
    """One run directory."""

    path: Path
    method: str
    """Name of the command that trains it."""
    data: str
    network: str
    state: State
    told: str
    """The state in words."""
    step: int
    """Steps that its metrics tell of."""
    saved: int
    """Step of the newest checkpoint; 0 for none."""
    steps: int | None
    """Of the whole run; None where nothing tells."""
    knn: Score | None
    """On all labels."""
    changed: float
    """When it was last written, in seconds since 1970."""
    config: dict[str, Any]
    """config.yaml."""
    about: dict[str, Any]
    """environment.json."""


class Unread(NamedTuple):
    """A folder that is no run, or a damaged one."""

    path: Path
    why: str


def find(folder: Path) -> Iterator[Run | Unread]:
    """What lies in a folder: itself where it is a run, else runs below it; every other folder right in it is told.

    Args:
        folder: Exists. A run's fine-tunings are runs, those for a transfer suite, too; what a verdict made for itself
            is part of the verdict.
    """
    if _may_be_run(folder):
        yield read(folder)
        trained = [p for name in _TRAINED for p in _folders(folder / name)]
        trained += [member for p in _folders(folder / "transfer") for member in _folders(p)]  # of soups
        yield from (read(place) for place in trained if _may_be_run(place))
        return
    if (folder / "sweep.json").exists():
        folder = folder / "runs"
    for place in _folders(folder):
        if place.name == RELEASED:  # weights from elsewhere
            continue
        found = list(_below(place, DEPTH))
        yield from found or [Unread(place, "holds no run (no config.yaml)")]


def _below(folder: Path, depth: int) -> Iterator[Run | Unread]:
    if _may_be_run(folder):
        yield from find(folder)
    elif depth > 1:
        for place in _folders(folder):
            yield from _below(place, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError:
        return []


def _may_be_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("config.yaml", "environment.json"))


def read(path: Path) -> Run | Unread:
    """A run directory, or why it cannot be read as one.

    Args:
        path: Its place.
    """
    try:
        return _read(path)
    except _Damaged as error:
        return Unread(path, str(error))
    except OSError as error:
        return Unread(path, f"cannot be read: {error.strerror}")
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return Unread(path, "is damaged: its files hold other values than a run writes")


_FACTS: dict[str, type] = {"versions": dict, "hardware": dict, "started_from": dict, "drift": dict}
"""Of environment.json, with what is read of them."""


class _Damaged(ValueError):
    """A file that is not what a run writes."""


def _read(path: Path) -> Run:
    about = _mapping(path / "environment.json", _from_json, "JSON")
    method = about.get("script")
    if not isinstance(method, str):
        raise _Damaged("is no run of ssl_vit (environment.json names no script)")
    if wrong := [name for name, kind in _FACTS.items() if not isinstance(about.get(name, kind()), kind)]:
        raise _Damaged(f"is damaged: environment.json has {', '.join(wrong)} of another kind")
    holder = lock.holder(path)
    if holder is not None and holder[1] and not (path / "config.yaml").exists():
        config: dict[str, Any] = {}
    else:
        config = _mapping(path / "config.yaml", read_yaml, "YAML")
    given = flat(config)
    last = last_line(path / "metrics.jsonl")
    step, steps = int(last.get("step", 0)), _whole(given, last)
    drift: dict[str, Any] = about.get("drift") or {}
    passed = drift.get("passed")
    if passed:  # the alarm has ended it there
        steps = passed["step"]
    saved = max(
        (
            int(file.stem[5:])
            for kind in ("pt", "shards")
            for file in path.glob(f"checkpoints/step_*.{kind}")
            if file.stem[5:].isdigit()
        ),
        default=0,
    )
    state, told = _state(path, method, holder, step, saved, steps)
    told += " (ended by its drift alarm)" if passed and state == "done" else ""
    files = [file for name in ("metrics.jsonl", "environment.json") if (file := path / name).exists()]
    return Run(
        path, method, _data(path, given), _network(path, config), state, told, step, saved, steps, _knn(path),
        files[0].stat().st_mtime, config, about,
    )  # fmt: skip


def _from_json(path: Path) -> Any:
    return loads(content_of(path))


def _mapping(path: Path, read: Callable[[Path], Any], kind: str) -> dict[str, Any]:
    try:
        content: object = read(path)
    except FileNotFoundError:
        raise _Damaged(f"is damaged, or no run of ssl_vit: it holds no {path.name}") from None
    except (ValueError, yaml.YAMLError):
        raise _Damaged(f"is damaged: {path.name} is not valid {kind}") from None
    if not isinstance(content, dict):
        raise _Damaged(f"is damaged: {path.name} holds no options or facts")
    return cast("dict[str, Any]", content)


def last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a file of JSON lines with a step; empty where there is none.

    Args:
        path: Such as metrics.jsonl.
    """
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for text in reversed(lines):
        try:
            found = loads(text)
        except ValueError:  # half a line from a crash
            continue
        line = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if isinstance(line.get("step"), (int, float)):
            return line
    return {}


def _whole(given: dict[str, Any], last: dict[str, Any]) -> int | None:
    """Steps of the whole run."""
    epochs, epoch = given.get("fit.epochs"), last.get("epoch")
    if not (isinstance(epochs, (int, float)) and isinstance(epoch, (int, float)) and epoch > 0):
        return None
    return whole_steps(epochs * last["step"] / epoch, int(given.get("fit.min_steps") or 0))


def _state(
    path: Path, method: str, holder: tuple[lock.Owner, bool] | None, step: int, saved: int, steps: int | None
) -> tuple[State, str]:
    done = _is_done(path, method, step, steps)
    of = f" of {steps:,}" if steps is not None else ""
    at = f"at step {saved:,}{of}" if saved else "" if method == "verdict" else "before its first checkpoint"
    if holder is not None and holder[1]:
        owner = holder[0]
        if done:
            return "done", f"done; in use by {owner.command}"
        where = f" on {owner.host}, process {owner.pid}"
        return "running", (f"running, step {step:,}{of}" if step else "running, not yet logged") + where
    if done:
        return "done", f"done, {steps:,} steps" if steps is not None else "done"
    if holder is not None:
        kept = f" (step {saved:,} is saved)" if step and saved else ""
        return "crashed", f"crashed after step {step:,}{of}{kept}" if step else "crashed before its first logged step"
    try:
        ended = loads(content_of(path / lock.ENDED))
        status, why, job = int(ended["status"]), str(ended["why"]), ended["job"]
    except (OSError, ValueError, KeyError, TypeError):
        return "stopped", f"stopped {at}".rstrip()
    if status == REQUEUE and job is not None:
        return "waiting", f"waiting to be requeued, job {job}, {at}"
    if why:
        return "crashed", f"crashed {f'after step {step:,}{of}' if step else 'before its first step'}: {why}"
    return "stopped", f"stopped {at}".rstrip()


def _is_done(path: Path, method: str, step: int, steps: int | None) -> bool:
    """Whether everything is there that the command leaves at its end."""
    if method == "verdict":
        return (path / "report.html").exists()
    labelled = method in LABELLED
    judged = not labelled or (path / "results" / f"{method}.json").exists()
    trained = steps is not None and step >= steps
    there = trained and judged and all((path / "backbone" / name).exists() for name in FILES)
    return there and not _of_fewer_steps(path, method if labelled else None, step)


def _of_fewer_steps(path: Path, judged: str | None, step: int) -> bool:
    """Whether network or result are those of a run that was made longer since, and ended before it left new ones."""
    try:
        if judged is not None:
            made = loads((path / "results" / f"{judged}.json").read_text(encoding="utf-8"))["rows"][0]["steps"]
        else:
            about = _exported(path, None)["ssl_vit"]
            made = step if "continued" in about else about["step"]  # drift may have ended it before its last step
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False
    return isinstance(made, int) and made < step


def _exported(path: Path, backbone: str | None) -> dict[str, Any]:
    """config.json of the network that a run ended with, or began with; empty where there is none to be found."""
    around = next((p.parent for p in [*path.parents][:2] if p.name in _TRAINED), path)
    given = [Path(backbone).expanduser() / "backbone", Path(backbone).expanduser()] if backbone else []
    for folder in (path / "backbone", around / "backbone", *given):
        try:
            found = loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return {}


def _of(backbone: str) -> str:
    """Stands where nothing is known but the run that the network is of."""
    place = Path(backbone)
    return f"of {place.parent.name if place.name == 'backbone' else place.name}"


def _data(path: Path, given: dict[str, Any]) -> str:
    """Where its images are; a fine-tuning without options of its own has those of its backbone."""
    name, backbone = given.get("data.path") or given.get("eval.data.path"), given.get("backbone")
    if name is None and backbone:
        about = flat(_exported(path, str(backbone)))
        name = about.get("ssl_vit.eval_data.path") or about.get("ssl_vit.data.path") or _of(str(backbone))
    return str(name or "-")


def _network(path: Path, config: dict[str, Any]) -> str:
    """A network in a few letters; a fine-tuning's is that of its backbone, at its own input."""
    model: dict[str, Any] = config.get("model") or {}
    backbone = config.get("backbone")
    if model.get("name") is None and backbone:
        model = _recorded(_exported(path, str(backbone))) | {k: v for k, v in model.items() if v is not None}
        if "name" not in model:
            return _of(str(backbone))
    name, side, patch, args = (model.get(key) for key in ("name", "img_size", "patch_size", "args"))
    if name is None:
        return "-"
    if family := short_name(str(name), args):
        return f"{family}{f', {side} px' if side else ''}"
    width, depth, heads = (model.get(key) for key in ("width", "depth", "heads"))
    sizes: dict[tuple[Any, ...], str] = {(n.width, n.depth, n.heads): n.name for n in NETWORKS.values()}
    other = sizes.get((width, depth, heads)) or (f"{depth} x {width}" if width and depth else None)
    short = other or re.sub(r"_patch\d+_\d+.*", "", str(name))
    return f"{short}{f'/{patch}' if patch else ''}{f', {side} px' if side else ''}"


def _recorded(exported: dict[str, Any]) -> dict[str, Any]:
    """A network's options as ``--model`` has them, from config.json of its folder; empty where that tells none."""
    args, name = exported.get("model_args"), exported.get("architecture")
    if not isinstance(name, str) or not isinstance(args, dict):
        return {}
    given = cast("dict[str, Any]", args)
    size: Any = flat(exported).get("pretrained_cfg.input_size")
    side: dict[str, Any] = {"img_size": cast("list[Any]", size)[-1]} if isinstance(size, list) and size else {}
    if not {"embed_dim", "depth", "patch_size"} <= given.keys() or not isinstance(given["depth"], int):
        return {"name": name, "args": given, **side}
    named = {"width": "embed_dim", "depth": "depth", "heads": "num_heads", "patch_size": "patch_size"}
    return {"name": name, **side, **{ours: given.get(timms) for ours, timms in named.items()}}


def _knn(path: Path) -> Score | None:
    """Of k-NN on all labels: the usual one, else the newest, which is on other images or held-out labels."""
    files = [file for file in path.glob("results/knn*.json") if "-labels-draw-" not in file.name]
    newest = max(files, key=lambda file: (file.name == "knn.json", file.stat().st_mtime), default=None)
    return None if newest is None else score(newest)


def score(path: Path) -> Score | None:
    """What a result file leads with; None where it is damaged or has no value.

    Args:
        path: RUN/results/NAME.json.
    """
    try:
        content = loads(content_of(path))
        metric = content["protocol"]["metric"]
        row = next(row for row in content["rows"] if row.get("headline", True))
        return Score(metric, float(row[metric]), str(Path("results", path.name))) if metric in METRICS else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
