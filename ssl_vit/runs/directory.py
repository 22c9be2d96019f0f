"""The run directory: config.yaml, environment.json, metrics.jsonl, checkpoints/, figures/, results/, backbone/.

Reading and writing it needs no torch, so reports can be made anywhere.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

from ssl_vit.configs import to_dict, to_yaml
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.files import append_line, write_atomically
from ssl_vit.core.notices import say_once
from ssl_vit.core.reading import json_lines, mapping_in, object_there
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
            append_line(self.path / file, json.dumps(record))
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
            self._tell_arithmetic(before)
            self._write("environment", before | {"continued": [*_list(before.get("continued")), self.about]})
        else:
            self._write("environment", self.about or {})
        write_atomically(self.path / "config.yaml", self.config)

    def _tell_arithmetic(self, before: dict[str, Any]) -> None:
        """A run that goes on on another device may compute otherwise there where options leave that open."""
        last = [before, *_list(before.get("continued"))][-1]
        old, new = (_mapping(start.get("hardware")) for start in (_mapping(last), self.about or {}))
        for name, option in (("mixed_precision", "--fit.precision"), ("matrix_products", "--fit.products")):
            if name in old and name in new and old[name] != new[name]:
                was, now = ("fp32" if value == "no" else value for value in (old[name], new[name]))
                say_once(
                    f"note: the run goes on with {now}, before it had {was}; where it can be had, {option} keeps it"
                )

    def _environment(self) -> dict[str, Any]:
        return _environment_in(self.path) or {}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / f"{name}.json", json.dumps(content, indent=1) + "\n")

    def has_started(self) -> bool:
        """Whether any step of training, or task of a verdict's work, has left a trace."""
        return any((self.path / name).exists() for name in ("checkpoints", "metrics.jsonl", "units"))

    def rewind(self, step: int) -> None:
        """Forgets what was logged after a step, because training continues from there; tells of lines that are lost."""
        for path in (self.path / file for file in ("metrics.jsonl", "timing.jsonl", "health.jsonl")):
            if not self.writes or not path.exists():
                continue
            lines = json_lines(path)
            if lines.damaged and step:
                places = ", ".join(map(str, lines.damaged[:5])) + (", ..." if len(lines.damaged) > 5 else "")
                sys.stderr.write(
                    f"warning: {len(lines.damaged)} line(s) of {path} cannot be read ({places}) and are left out; "
                    "training does not need them\n"
                )
            kept = [t for t, line in zip(lines.texts, lines.whole, strict=True) if step and _step_of(line) <= step]
            write_atomically(path, "".join(line + "\n" for line in kept))
        for follower in self.followers:
            follower.rewind(step + 1 if step else 0)

    def record(self, key: str, value: object) -> None:
        """Adds something that became known during the run to environment.json."""
        if self.writes:
            self._write("environment", {**self._environment(), key: value})

    def training_speed(self) -> dict[str, float]:
        """Medians of timing.jsonl, and the most memory; empty where nothing was trained."""
        path = self.path / "timing.jsonl"
        lines = [line for line in json_lines(path).whole if isinstance(line.get("peak_memory"), int | float)]
        if not lines:
            return {}
        known = set[str].intersection(*map(set, lines)) - {"step", "watch_seconds"}
        medians = {name: median(line[name] for line in lines) for name in sorted(known)}
        return medians | {"peak_memory": max(line["peak_memory"] for line in lines)}

    def write_result(self, name: str, result: dict[str, Any]) -> Path:
        """Writes results/NAME.json with versions, commit, command and hardware beside the result."""
        if self.writes:
            about = {"versions": versions(), "commit": commit(), "command": command(), "hardware": hardware()}
            about |= {"training_speed": speed} if (speed := self.training_speed()) else {}
            self._write(f"results/{name}", {**result, "made_with": about})
            sums.note(self.path / "results", [f"{name}.json"])
        for follower in self.followers:
            follower.result(name, result)
        return self.path / "results" / f"{name}.json"


def _environment_in(path: Path) -> dict[str, Any] | None:
    """What environment.json says; None where it is missing, damaged, or says it in values that no run writes.

    Raises:
        UserError: Where it cannot be read: it may be whole, and nothing may take its place.
    """
    file = path / "environment.json"
    try:
        found = object_there(file)
    except OSError as error:
        raise UserError(
            f"{file} cannot be read ({reason(error)}); it was not changed, and the same command goes on once it can be "
            "read"
        ) from error
    texts = ("script", "data_fingerprint", "options")
    return None if found is None or any(not isinstance(found.get(name, ""), str) for name in texts) else found


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _step_of(line: dict[str, Any]) -> float:
    step = line.get("step")
    return float(step) if isinstance(step, int | float) else float("inf")


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
        "options": digest(identity(values, recipe)),
    }  # fmt: skip
    run = RunDir(path, writes, to_yaml(config), about)
    if not writes:
        return run
    stored = path / "config.yaml"
    if not stored.exists() and path.is_dir() and not all(_is_begun(file.name) for file in path.iterdir()):
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


def _is_begun(name: str) -> bool:
    """Whether a file is one that a start leaves that was killed before it had written its config."""
    begun = (lock.NAME, lock.ENDED, "environment.json", "config.yaml")
    return name.removesuffix(".part") in begun or name.startswith(f"{lock.NAME}.")


_VARIED = "; on labels, how images vary follows from how many training sees (docs/runs.md: Stopping and going on)"
"""What a change of these options nobody typed comes from, mostly."""


def _check_same(path: Path, values: dict[str, Any], recipe: type[Any], fingerprint: str) -> None:
    about = _environment_in(path)
    before = mapping_in(path / "config.yaml")
    wanted = identity(values, recipe)
    if before is None:
        # What it said is known by its hash where the other file is whole.
        if about is None or about.get("options") != digest(wanted):
            raise UserError(
                f"{path / 'config.yaml'} is damaged, and whether these are the options of the run cannot be told; name "
                "a new --run.dir, or put the file back"
            )
        sys.stderr.write(f"warning: {path / 'config.yaml'} is damaged; it is written anew, as these are its options\n")
    elif changed := _changed(before, wanted, recipe):
        varied = _VARIED if "augment." in changed and "supervised" in wanted else ""
        raise UserError(
            f"--run.dir {path} already holds a run with another config ({changed}); "
            f"name another folder, or repeat its command to continue it{varied}"
        )
    if about is None and (path / "environment.json").exists():
        sys.stderr.write(
            f"warning: {path / 'environment.json'} is damaged and begins anew: what it told of earlier starts is lost, "
            "and whether the images are still the same cannot be told\n"
        )
    made_of = None if about is None else about.get("data_fingerprint")
    if made_of not in (None, fingerprint):
        same_images = str(made_of).rpartition("-")[2] == fingerprint.rpartition("-")[2]  # what is before are weights
        other = "from other weights" if same_images else "on other images"
        raise UserError(f"--run.dir {path} holds a run {other} (they have changed); name another folder")


def _changed(before: dict[str, Any], wanted: dict[str, Any], recipe: type[Any]) -> str:
    """What differs between the options of a run and others, in words; empty where nothing does."""
    try:
        return differences(identity(before, recipe), wanted)
    except (AttributeError, KeyError, TypeError, ValueError):  # groups that are values, or the other way round
        return "config.yaml is no config of this command"
