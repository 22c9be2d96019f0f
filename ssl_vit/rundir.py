"""The run directory: config.yaml, environment.json, metrics.jsonl, checkpoints/, figures/, results/, backbone/.

Reading and writing it needs no torch, so reports can be made anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, cast

import yaml

from ssl_vit import __version__
from ssl_vit.configs import flat, to_dict, to_yaml
from ssl_vit.errors import UserError

_WITHOUT_EFFECT = [
    "preset",
    "run.dir",
    "verdict.budget",
    "verdict.jobs",
    "verdict.plan_only",
    "data.workers",
    "data.cache",
    "data.on_leak",
    "data.transductive",
    "eval.batch_size",
    "eval.precision",
    "eval.compile",
    "eval.keep_features",
    "eval.baselines",
    "eval.metric",
    "fit.epochs",
    "fit.min_steps",
    "fit.micro_batch",
    "fit.recompute",
    "fit.channels_last",
    "fit.compile",
    "fit.profile",
    "fit.log_every",
    "fit.checkpoint_steps",
    "fit.checkpoint_minutes",
    "fit.keep_checkpoints",
    "dino.export",
    "dino.on_collapse",
    "dino.collapse_patience",
    "dino.check_steps",
    "dino.loss_chunk",
]
"""Options that change neither the numbers of a run nor what they mean (preset: what it filled is
recorded option by option; epochs and least steps: a run may be extended; transductive: the images that it adds are
told by their fingerprint)."""
_OF_A_VERDICT = ("preset", "eval.metric")
"""But options of a verdict: it records them as given and not what they fill, and its numbers are of its metric."""

_PACKAGES = [
    "torch",
    "timm",
    "accelerate",
    "datasets",
    "scikit-learn",
    "numpy",
    "scipy",
    "statsmodels",
    "pillow",
    "jinja2",
    "jsonargparse",
    "matplotlib",
    "safetensors",
    "torchvision",
    "simplejpeg",
]


def digest(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Versions of Python, this project and what it stands on."""
    found = {"python": platform.python_version(), "ssl_vit": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the checkout this code runs from, with ``+changes`` where it was edited; None outside one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def hardware() -> dict[str, Any]:
    """Processor, cores and system."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return {"cpu": name, "cores": os.cpu_count(), "system": platform.platform()}


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that a crash leaves the old one or the new one, never half of either."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """As ``write_atomically``, for bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def remove(tree: dict[str, Any], dotted: str) -> None:
    """Takes ``group.name`` out of a nested dictionary, in place; nothing happens where it has none."""
    *groups, last = dotted.split(".")
    for group in groups:
        tree = cast("dict[str, Any]", tree.get(group, {}))
    tree.pop(last, None)


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that changes results."""
    copy = cast("dict[str, Any]", json.loads(json.dumps(config)))
    for option in _WITHOUT_EFFECT:
        if "verdict" not in config or option not in _OF_A_VERDICT:
            remove(copy, option)
    return copy


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Names that differ between two nested dictionaries as ``name old -> new``, at most five; empty where none do."""
    old, new = flat(before), flat(after)
    changed = [
        f"{key} {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
    ]
    return "; ".join([*changed[:5], "..."] if len(changed) > 5 else changed)


@dataclass(frozen=True)
class RunDir:
    """One run's directory; only the main process writes."""

    path: Path
    writes: bool
    config: str = ""
    """The options as YAML, not yet written where they extend a run."""
    about: dict[str, Any] | None = None
    """What environment.json says of this start."""

    @property
    def backbone(self) -> Path:
        """The exported backbone."""
        return self.path / "backbone"

    @property
    def classifier(self) -> Path:
        """The exported classifier of a run on labels."""
        return self.path / "classifier"

    @property
    def checkpoints(self) -> Path:
        """Where training continues from."""
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        """Pictures."""
        return self.path / "figures"

    def log(self, record: dict[str, Any], file: str = "metrics.jsonl") -> None:
        """Appends one JSON object as a line."""
        if not self.writes:
            return
        with (self.path / file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")

    def confirm(self) -> None:
        """Records options and environment, once nothing refuses this start; the first start's record stays on top."""
        if not self.writes or not self.config:
            return
        path = self.path / "environment.json"
        before = cast("dict[str, Any]", json.loads(path.read_text())) if path.exists() else {}
        if self.has_started() and before:
            before["continued"] = [*before.get("continued", []), self.about]
        else:
            before = self.about or {}
        write_atomically(path, json.dumps(before, indent=1) + "\n")
        write_atomically(self.path / "config.yaml", self.config)

    def has_started(self) -> bool:
        """Whether any step of training, or unit of a verdict's work, has left a trace."""
        return any((self.path / name).exists() for name in ("checkpoints", "metrics.jsonl", "units"))

    def rewind(self, step: int) -> None:
        """Forgets what was logged after a step, because training continues from there."""
        if not self.writes:
            return
        for file in ("metrics.jsonl", "timing.jsonl", "health.jsonl"):
            path = self.path / file
            if path.exists():
                kept = [line for line in path.read_text().splitlines() if _step_of(line) <= step]
                write_atomically(path, "".join(line + "\n" for line in kept))

    def record(self, key: str, value: object) -> None:
        """Adds something that became known during the run to environment.json."""
        path = self.path / "environment.json"
        if self.writes:
            about = cast("dict[str, Any]", json.loads(path.read_text())) if path.exists() else {}
            write_atomically(path, json.dumps({**about, key: value}, indent=1) + "\n")

    def training_speed(self) -> dict[str, float]:
        """Medians of timing.jsonl, and the most memory; empty where nothing was trained."""
        path = self.path / "timing.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not lines:
            return {}
        medians = {name: median(line[name] for line in lines) for name in lines[0] if name != "step"}
        return medians | {"peak_memory": max(line["peak_memory"] for line in lines)}

    def write_result(self, name: str, result: dict[str, Any]) -> Path:
        """Writes results/NAME.json with versions, commit, command and hardware beside the result."""
        path = self.path / "results" / f"{name}.json"
        if self.writes:
            about = {"versions": versions(), "commit": commit(), "command": command(), "hardware": hardware()}
            about |= {"training_speed": speed} if (speed := self.training_speed()) else {}
            write_atomically(path, json.dumps({**result, "made_with": about}, indent=1) + "\n")
        return path


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line from a crash


def command() -> str:
    """How this process was called, as one types it in a clone of the project."""
    script, root = Path(sys.argv[0]).absolute(), Path(__file__).resolve().parent.parent
    name = script.relative_to(root) if script.is_relative_to(root) else sys.argv[0]
    return shlex.join([str(name), *sys.argv[1:]])


def open_run(
    script: str, config: Any, *, data: str, fingerprint: str, writes: bool, accelerator: dict[str, Any]
) -> RunDir:
    """Opens a run's directory, or the one it continues.

    Only the main process looks and writes: the others would see half of what it does.

    Args:
        script: Name of the recipe, the default directory begins with it.
        config: The resolved recipe.
        data: What the source is called.
        fingerprint: Hash of the training images; other images are another run.
        writes: Whether this is the main process.
        accelerator: What is known about devices and processes, for environment.json.

    Raises:
        UserError: When the directory holds a run with another config, or something that is no run.
    """
    values = to_dict(config)
    given = config.run.dir
    name = "".join(c if c.isalnum() else "_" for c in Path(data).name) or "data"
    unique = digest([identity(values), fingerprint])[:8]
    path = Path(given).expanduser() if given else Path("runs") / f"{script}-{name}-{unique}"
    if path.exists() and not path.is_dir():
        raise UserError(f"--run.dir {path} is a file; name a folder")
    stored, environment = path / "config.yaml", path / "environment.json"
    about = {
        "command": command(), "versions": versions(), "commit": commit(),
        "hardware": {**hardware(), **accelerator}, "script": script, "data_fingerprint": fingerprint,
    }  # fmt: skip
    run = RunDir(path, writes, to_yaml(config), about)
    if not writes:
        return run
    if stored.exists():
        if run.has_started():
            _check_same(path, stored, environment, values, fingerprint)
    elif path.is_dir() and any(path.iterdir()):
        raise UserError(f"--run.dir {path} is not empty and holds no run (no config.yaml); name a new folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not run.has_started():
            run.confirm()
    except OSError as error:
        raise UserError(f"--run.dir {path} cannot be written: {error.strerror}") from error
    return run


def _check_same(path: Path, stored: Path, environment: Path, values: dict[str, Any], fingerprint: str) -> None:
    try:
        before = cast("dict[str, Any]", yaml.safe_load(stored.read_text()) or {})
    except yaml.YAMLError as error:
        raise UserError(f"{stored} is not valid YAML; name a new --run.dir") from error
    changed = differences(identity(before), identity(values))
    if changed:
        raise UserError(
            f"--run.dir {path} already holds a run with another config ({changed}); "
            "name another folder, or repeat its command to continue it"
        )
    if environment.exists():
        made_of = json.loads(environment.read_text()).get("data_fingerprint")
        if made_of not in (None, fingerprint):
            raise UserError(f"--run.dir {path} holds a run on other images (they have changed); name another folder")
