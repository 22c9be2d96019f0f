"""The run directory: config.yaml, environment.json, metrics.jsonl, checkpoints/, figures/, results/, backbone/.

Reading and writing it needs no torch, so reports can be made anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

import yaml

from ssl_vit.configs import to_dict, to_yaml
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.runs import lock
from ssl_vit.runs.identity import differences, digest, identity
from ssl_vit.runs.provenance import command, commit, hardware, versions


@dataclass(frozen=True)
class RunDir:
    """One run's directory; only the main process writes."""

    path: Path
    writes: bool
    config: str = ""
    """The options as YAML, not yet written where they extend a run."""
    about: dict[str, Any] | None = None
    """What environment.json says of this start."""
    followers: list[Any] = field(default_factory=lambda: [], compare=False)
    """What else is told lines, pictures and results (``training.trackers.Follower``)."""

    @property
    def backbone(self) -> Path:
        """The exported backbone."""
        return self.path / "backbone"

    def log(self, record: dict[str, Any], file: str = "metrics.jsonl") -> None:
        """Appends one JSON object as a line."""
        if self.writes:
            with (self.path / file).open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(record) + "\n")
        for follower in self.followers:
            follower.line(record, file)

    def show(self, picture: Path, step: int) -> None:
        """Tells of a picture that was drawn after so many steps."""
        for follower in self.followers:
            follower.picture(picture, step)

    def confirm(self) -> None:
        """Records options and environment, once nothing refuses this start; the first start's record stays on top."""
        if not self.writes or not self.config:
            return
        lock.tell_end(self.path)
        before = self._environment()
        if self.has_started() and before:
            self._write("environment", before | {"continued": [*before.get("continued", []), self.about]})
        else:
            self._write("environment", self.about or {})
        write_atomically(self.path / "config.yaml", self.config)

    def _environment(self) -> dict[str, Any]:
        path = self.path / "environment.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / f"{name}.json", json.dumps(content, indent=1) + "\n")

    def has_started(self) -> bool:
        """Whether any step of training, or task of a verdict's work, has left a trace."""
        return any((self.path / name).exists() for name in ("checkpoints", "metrics.jsonl", "units"))

    def rewind(self, step: int) -> None:
        """Forgets what was logged after a step, because training continues from there."""
        for path in (self.path / file for file in ("metrics.jsonl", "timing.jsonl", "health.jsonl")):
            if self.writes and path.exists():
                kept = [line for line in path.read_text().splitlines() if step and _step_of(line) <= step]
                write_atomically(path, "".join(line + "\n" for line in kept))

    def record(self, key: str, value: object) -> None:
        """Adds something that became known during the run to environment.json."""
        if self.writes:
            self._write("environment", {**self._environment(), key: value})

    def training_speed(self) -> dict[str, float]:
        """Medians of timing.jsonl, and the most memory; empty where nothing was trained."""
        path = self.path / "timing.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not lines:
            return {}
        medians = {name: median(line[name] for line in lines) for name in lines[0].keys() - {"step", "watch_seconds"}}
        return medians | {"peak_memory": max(line["peak_memory"] for line in lines)}

    def write_result(self, name: str, result: dict[str, Any]) -> Path:
        """Writes results/NAME.json with versions, commit, command and hardware beside the result."""
        if self.writes:
            about = {"versions": versions(), "commit": commit(), "command": command(), "hardware": hardware()}
            about |= {"training_speed": speed} if (speed := self.training_speed()) else {}
            self._write(f"results/{name}", {**result, "made_with": about})
        for follower in self.followers:
            follower.result(name, result)
        return self.path / "results" / f"{name}.json"


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line from a crash


def open_run(
    script: str, config: Any, *, data: str, fingerprint: str, writes: bool, accelerator: dict[str, Any]
) -> RunDir:
    """Opens a run's directory, or the one it continues.

    Only the main process looks and writes: the others would see half of what it does.

    The default directory begins with the ``script``; images of another ``fingerprint`` are another run; what is
    known of devices and processes (``accelerator``) stands in environment.json.

    Raises:
        UserError: When the directory holds a run with another config, or something that is no run, or is in use.
    """
    values, recipe = to_dict(config), cast("type[Any]", type(config))
    given = config.run.dir
    name = "".join(c if c.isalnum() else "_" for c in Path(data).name) or "data"
    unique = digest([identity(values, recipe), fingerprint])[:8]
    path = Path(given).expanduser() if given else Path("runs") / f"{script}-{name}-{unique}"
    if path.exists() and not path.is_dir():
        raise UserError(f"--run.dir {path} is a file; name a folder")
    about = {
        "command": command(), "versions": versions(), "commit": commit(),
        "hardware": {**hardware(), **accelerator}, "script": script, "data_fingerprint": fingerprint,
    }  # fmt: skip
    run = RunDir(path, writes, to_yaml(config), about)
    if not writes:
        return run
    stored = path / "config.yaml"
    if not stored.exists() and path.is_dir() and any(file.name not in _BEGUN for file in path.iterdir()):
        raise UserError(f"--run.dir {path} is not empty and holds no run (no config.yaml); name a new folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.hold(path)
        if run.has_started() and stored.exists():
            _check_same(path, values, recipe, fingerprint)
        elif not run.has_started():
            run.confirm()
    except OSError as error:
        raise UserError(f"--run.dir {path} cannot be written: {error.strerror}") from error
    return run


_BEGUN = (lock.NAME, lock.ENDED, "environment.json", "environment.json.part", "config.yaml.part")
"""What a start leaves that was killed before it had written its config."""


def _check_same(path: Path, values: dict[str, Any], recipe: type[Any], fingerprint: str) -> None:
    stored, environment = path / "config.yaml", path / "environment.json"
    try:
        before = cast("dict[str, Any]", yaml.safe_load(stored.read_text()) or {})
    except yaml.YAMLError as error:
        raise UserError(f"{stored} is not valid YAML; name a new --run.dir") from error
    if changed := differences(identity(before, recipe), identity(values, recipe)):
        raise UserError(
            f"--run.dir {path} already holds a run with another config ({changed}); "
            "name another folder, or repeat its command to continue it"
        )
    if environment.exists():
        made_of = json.loads(environment.read_text()).get("data_fingerprint")
        if made_of not in (None, fingerprint):
            same_images = (
                str(made_of).rpartition("-")[2] == fingerprint.rpartition("-")[2]
            )  # what is before are weights
            other = "from other weights" if same_images else "on other images"
            raise UserError(f"--run.dir {path} holds a run {other} (they have changed); name another folder")
