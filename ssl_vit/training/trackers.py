"""What a run reports to trackers, by Accelerate's classes for them: metrics, health, pictures, results, options.

The run directory stays the record. What a tracker calls a run is kept in RUN/trackers.json, so that a run that is
continued or evaluated goes on in the same place.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import numpy as np
import yaml
from accelerate.tracking import LOGGER_TYPE_TO_CLASS
from PIL import Image

from ssl_vit.configs import flat, to_yaml
from ssl_vit.configs.trackers import trackers_in
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.notices import say_once
from ssl_vit.core.reading import loads
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.lock import at_end

PROJECT = "ssl_vit"
"""What runs are filed under, where WANDB_PROJECT, TRACKIO_PROJECT or MLFLOW_EXPERIMENT_NAME name nothing else."""
_PATIENCE = 60.0
"""Seconds for what a tracker still has to send at the end."""
_GROUPS = {"metrics.jsonl": "", "timing.jsonl": "timing/", "health.jsonl": "health/"}
"""What stands before the names of each file."""


def follow(run: RunDir, cfg: Any) -> None:
    """Has the trackers of ``--run.log_with`` follow a run, until the command ends; on the main process alone.

    One that cannot start does not end a run that has started before, as when a job is begun again on a node without a
    network: it is left out until the command ends, and goes on in the same place another time.

    Args:
        run: Opened.
        cfg: Resolved options, with the group ``run``.

    Raises:
        UserError: Where one cannot start, and the run is new.
    """
    names = trackers_in(cfg.run.log_with)
    if not (names and run.writes):
        return
    kept = run.path / "trackers.json"
    known: dict[str, str] = _read(kept)
    followers: list[Follower] = []
    for name in names:
        first = name not in known
        try:
            follower = Follower(name, run, known.get(name) or uuid4().hex[:8])
            at_end(follower.finish)
            if first or name in ("wandb", "trackio"):  # the others would have them twice
                follower.tracker.store_init_configuration(_told(run, cfg))
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            if first and not run.has_started():
                raise UserError(f"--run.log_with {name} cannot start: {why}") from error
            say_once(f"warning: --run.log_with {name} cannot start and is left out this time ({why}); the run goes on")
            continue
        followers.append(follower)
        known[name] = follower.key
    write_atomically(kept, json.dumps(known) + "\n")
    run.followers[:] = followers


class Follower:
    """One tracker of one run. It never stops the run: what fails is said once, and the tracker left out after that."""

    def __init__(self, name: str, run: RunDir, key: str) -> None:
        """Begins, or goes on.

        Args:
            name: One of ``configs.trackers.TRACKERS``.
            run: What it follows.
            key: What the run is called there; MLflow chooses by itself.
        """
        self.name, self.key, self._failed = name, key, False
        place, title = str(run.path), f"{run.path.resolve().name}-{key}"
        kind: Any = LOGGER_TYPE_TO_CLASS[name]
        if name == "tensorboard":
            self.tracker = kind(name, place)
        elif name == "wandb":
            project = os.environ.get("WANDB_PROJECT", PROJECT)
            self.tracker = kind(project, id=key, name=title, dir=place, resume="allow")
        elif name == "trackio":
            self.tracker = kind(os.environ.get("TRACKIO_PROJECT", PROJECT), name=title, resume="allow", embed=False)
        else:
            known = _read(run.path / "trackers.json").get(name)
            self.tracker = kind(PROJECT, run_id=known, run_name=run.path.resolve().name)
        self.tracker.start()
        if name == "mlflow":
            self.key = str(self.tracker.tracker.info.run_id)
        if name == "wandb":  # which drops what comes with a smaller step than the line before
            self.tracker.tracker.define_metric("step")
            self.tracker.tracker.define_metric("*", step_metric="step")

    def line(self, record: dict[str, Any], file: str) -> None:
        """A line of one of the run's files.

        Args:
            record: With ``step``.
            file: Name of the file.
        """
        if file in _GROUPS:
            values = {f"{_GROUPS[file]}{key}": value for key, value in record.items() if key != "step"}
            self._try(lambda: self._log(values, int(record["step"])))

    def rewind(self, first: int) -> None:
        """Steps are taken again, as after a checkpoint: TensorBoard would show them twice.

        Args:
            first: The first line of the run's files that is written again.
        """
        if self.name == "tensorboard":
            self._try(lambda: self._begin_again(first))

    def picture(self, path: Path, step: int) -> None:
        """A picture that a run has drawn.

        Args:
            path: A PNG file.
            step: Optimiser steps taken.
        """
        self._try(lambda: self._picture(path, step))

    def result(self, name: str, result: dict[str, Any]) -> None:
        """The numbers of an evaluation's first row.

        Args:
            name: Of its file.
            result: Its content.
        """
        row = (result.get("rows") or [{}])[0]
        numbers = {f"result/{name}/{k}": v for k, v in row.items() if isinstance(v, int | float)}
        self._try(lambda: self._log(numbers, None))

    def finish(self) -> None:
        """Sends what waits, for a minute at most: a job that was told to end has little more, and its status counts."""
        sending = Thread(target=self._try, args=(self.tracker.finish,), daemon=True)
        sending.start()
        sending.join(_PATIENCE)
        if sending.is_alive():
            self._failed = True
            say_once(f"warning: {self.name} does not end; what it still had to send may be missing there")

    def _log(self, values: dict[str, Any], step: int | None) -> None:
        if self.name == "wandb":
            self.tracker.log(values | ({} if step is None else {"step": step}))
        elif self.name == "mlflow":  # names may not hold everything that ours do
            self.tracker.log({key.replace("@", "_at_"): float(value) for key, value in values.items()}, step=step)
        else:
            self.tracker.log(values, step=step)

    def _begin_again(self, first: int) -> None:
        events = import_module("tensorboard.compat.proto.event_pb2")
        start = events.SessionLog(status=events.SessionLog.START)
        self.tracker.tracker.file_writer.add_event(events.Event(step=first, session_log=start))

    def _picture(self, path: Path, step: int) -> None:
        name = f"figures/{path.stem}"
        if self.name == "mlflow":
            self.tracker.log_artifact(str(path), "figures")
            return
        pixels = np.array(Image.open(path).convert("RGB"))
        if self.name == "tensorboard":
            self.tracker.log_images({name: pixels[None]}, step=step, dataformats="NHWC")
            self.tracker.tracker.flush()
        else:
            self._log({name: import_module(self.name).Image(pixels)}, step)

    def _try(self, report: Any) -> None:
        if self._failed:
            return
        try:
            report()
        except Exception as error:
            self._failed = True
            why = " ".join(str(error).split()) or type(error).__name__
            say_once(f"warning: {self.name} is told nothing any more ({why}); metrics.jsonl goes on")


def _told(run: RunDir, cfg: Any) -> dict[str, bool | int | float | str]:
    """The run's options, also where it is judged by others, as trackers take them: flat, no value of another type."""
    stored = run.path / "config.yaml"
    text = run.config or (stored.read_text() if stored.exists() else to_yaml(cfg))
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in flat(yaml.safe_load(text)).items() if value is not None
    }  # fmt: skip


def _read(path: Path) -> dict[str, str]:
    try:
        found = loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {name: key for name, key in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}
