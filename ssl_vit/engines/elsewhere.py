"""Engines that others wrote: submitit hands units to a scheduler as jobs, Ray spreads them as tasks over its nodes."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import yaml

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.core.signals import ENDING, REQUEUE
from ssl_vit.engines.local import Local, LocalJob
from ssl_vit.engines.queue import WAITS, Absence, Queue
from ssl_vit.engines.unit import LOST, Unit

Executor = Literal["local", "submitit", "ray"]
EXECUTORS: tuple[Executor, ...] = get_args(Executor)
_EXTRAS = {"submitit": "slurm", "ray": "ray"}
_ALL = 10_000


def asked_of(job: Sequence[str]) -> dict[str, Any]:
    """What every unit asks of an engine.

    Args:
        job: NAME=VALUE each.
    """
    return {name: _value(name, value) for name, _, value in (one.partition("=") for one in job)}


_LISTS = ("slurm_setup", "slurm_srun_args")


def _value(name: str, text: str) -> Any:
    """Lists, tables, yes and no as YAML has them, and numbers; what SLURM is told stays as it was typed."""
    value: Any = text
    if text[:1] in ("[", "{") or text.lower() in ("true", "false"):
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UserError(f"--job {name}={text} cannot be read: {' '.join(str(error).split())}") from error
    elif re.fullmatch(r"-?(0|[1-9]\d*)", text):
        value = int(text)
    elif re.fullmatch(r"\d*\.\d+", text) and not name.startswith("slurm_"):
        value = float(text)
    return [value] if name in _LISTS and not isinstance(value, list) else value


def check_executor(executor: Executor, job: Sequence[str], group: str = "") -> None:
    """Tells what is wrong with an engine before there is work for it.

    Args:
        executor: Which.
        job: NAME=VALUE each.
        group: Before the names of both options, such as ``verdict.``.

    Raises:
        UserError: Without its package, without the scheduler, and for what it cannot be asked for.
    """
    if executor == "local":
        if job:
            raise UserError(f"--{group}job {job[0]} is for submitit and ray; give --{group}executor as well")
        return
    option = f"--{group}executor {executor}"
    if find_spec(executor) is None:
        raise UserError(f"{option} needs the package {executor}: pip install 'ssl_vit[{_EXTRAS[executor]}]'")
    try:
        if executor == "submitit":
            with TemporaryDirectory() as folder:
                _submitting(Path(folder), asked_of(job))
        else:
            asked = asked_of(job)
            if "num_returns" in asked:
                raise UserError(f"--{group}job num_returns: a unit returns its status alone; leave it out")
            _remote(asked)
    except (RuntimeError, TypeError, ValueError, NameError, AssertionError) as error:
        raise UserError(f"{option}: {' '.join(str(error).split())}") from error


def elsewhere(executor: Executor, job: Sequence[str], folder: Path, at_once: int | None) -> Submitted | Ray:
    """An engine that ``check_executor`` has nothing against.

    Args:
        executor: submitit or ray.
        job: NAME=VALUE each, what every unit asks for.
        folder: Where it may keep what it needs.
        at_once: Most units that wait or run; None for all that submitit is given, or that Ray has room for.
    """
    asked = asked_of(job)
    if executor == "submitit":
        submitting = _submitting(folder, asked)
        queue = Queue() if submitting.cluster == "slurm" else None
        return Submitted(submitting, folder, _ALL if at_once is None else at_once, queue)
    return Ray(asked, at_once)


def _submitting(folder: Path, asked: Mapping[str, Any]) -> Any:
    import submitit

    asked = {"name": "ssl_vit", "timeout_min": 240, **asked}
    # A unit may need more jobs than submitit would let it have.
    executor = submitit.AutoExecutor(folder, cluster=asked.pop("cluster", "slurm"), slurm_max_num_timeout=1000)
    executor.update_parameters(**asked)
    return executor


class Submission:
    """What a job of submitit does: a unit, in a process of its own that saves while submitit puts the job back."""

    def __init__(self, content: bytes) -> None:
        """Takes what a unit runs as pickle has it, for that process alone to read."""
        self.content = content
        self._job: LocalJob | None = None

    def __call__(self) -> int:
        """Runs it and returns its status."""
        self._job = Local().run(partial(_unpacked, self.content))
        return self._job.wait()

    def checkpoint(self) -> Any:
        """Called by submitit before the time is over: the unit saves, and goes on in another job."""
        import submitit

        if self._job is not None:
            self._job.end()
        return submitit.helpers.DelayedSubmission(Submission(self.content))


def _unpacked(content: bytes) -> int:
    return pickle.loads(content)()


@dataclass
class SubmittedJob:
    """A job of submitit."""

    job: Any
    log: Path
    absence: Absence | None = None
    """Of SLURM alone."""
    left: bool = False
    ended: int | None = None

    def status(self) -> int | None:
        """What its unit returned; None while it waits or runs, REQUEUE where this session has left it to itself."""
        if self.left:
            return REQUEUE
        if self.ended is None:
            self.ended = self._status()
        return self.ended

    def goes_on(self) -> bool:
        """Whether it waits or runs, as far as the scheduler's accounting knows."""
        if not self.job.done():
            return True
        return self.absence is not None and not self.job.paths.result_pickle.exists() and self.job.state in WAITS

    def _status(self) -> int | None:
        if self.goes_on():
            if self.absence is None or not self.absence.sure():
                return None
            return _lost(self.log, f"job {self.job.job_id} is no longer in the queue and has left no result")
        try:
            return max((int(one) for one in self.job.results()), key=abs)
        except Exception as error:  # whatever happens to jobs
            return _lost(self.log, error)

    def stop(self) -> None:
        """Leaves the job, which goes on, and which the same command finds again."""
        self.left = True


def _lost(log: Path, error: Exception | str) -> int:
    with log.open("a", encoding="utf-8") as said:
        said.write(f"error: {' '.join(str(error).split())}\n")
    return LOST


@dataclass
class Submitted:
    """Jobs that a scheduler runs when it can."""

    executor: Any
    folder: Path
    at_once: int
    """Jobs that wait or run."""
    queue: Queue | None = None
    """SLURM's."""
    pause = 0.2

    def start(self, unit: Unit) -> SubmittedJob:
        """Submits a unit, or finds the job that an earlier session submitted for it.

        Raises:
            UserError: Where the scheduler takes no job.
        """
        unit.log.parent.mkdir(parents=True, exist_ok=True)
        record = self.folder / f"{unit.name}.job"
        with suppress(Exception):  # also what another version of submitit wrote
            before = pickle.loads(record.read_bytes())
            if (found := self._job(before, unit)).goes_on():
                return found
        try:
            job = self.executor.submit(Submission(pickle.dumps(unit.run)))
        except RuntimeError as error:
            raise UserError(f"{unit.name} cannot be submitted: {' '.join(str(error).split())}") from error
        write_bytes_atomically(record, pickle.dumps(job))
        return self._job(job, unit)

    def _job(self, job: Any, unit: Unit) -> SubmittedJob:
        return SubmittedJob(job, unit.log, None if self.queue is None else Absence(self.queue, job.job_id))

    def close(self) -> None:
        """Jobs end by themselves."""


def _remote(asked: Mapping[str, Any]) -> Any:
    """A function that Ray runs somewhere. What is lost is begun again by one rule for all engines, not by Ray's."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told unless a person wants it
    import ray

    return ray.remote(max_retries=0, **asked)(_there)


def _needed(asked: Mapping[str, Any]) -> dict[str, float]:
    """What a unit takes of a node, by Ray's names."""
    kind = asked.get("accelerator_type")
    return {
        "CPU": asked.get("num_cpus", 1), "GPU": asked.get("num_gpus", 0), "memory": asked.get("memory", 0),
        **asked.get("resources", {}), **({f"accelerator_type:{kind}": 0.001} if kind else {}),
    }  # fmt: skip


def _there(folder: str, run: Callable[[], int]) -> int:
    os.chdir(folder)
    return run()


@dataclass
class RayJob:
    """A task of Ray."""

    task: Any
    log: Path

    def status(self) -> int | None:
        """What its unit returned; None while it waits or runs."""
        import ray
        from ray.exceptions import RayError, TaskCancelledError

        if not ray.wait([self.task], timeout=0)[0]:
            return None
        try:
            return ray.get(self.task)
        except TaskCancelledError:
            return REQUEUE
        except RayError as error:
            return _lost(self.log, error)

    def stop(self) -> None:
        """Raises what Ctrl-C raises, where it runs."""
        import ray

        ray.cancel(self.task)


class Ray:
    """The Ray that RAY_ADDRESS names, or one that is started here."""

    pause = 0.05

    def __init__(self, asked: Mapping[str, Any], at_once: int | None) -> None:
        """Joins it.

        Args:
            asked: Of Ray for every unit: num_cpus, num_gpus, ...
            at_once: Most units that wait or run; None for as many as there is room for.

        Raises:
            UserError: Where it cannot be had, or there is no room for one.
        """
        self._remote = _remote(asked)
        import ray

        self._own = not ray.is_initialized()
        if self._own:
            before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGINT)}
            try:
                # Left to itself Ray waits for minutes for a cluster of this machine that was killed.
                address = None if os.environ.get("RAY_ADDRESS") else "local"
                ray.init(address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
            except Exception as error:  # whatever keeps it from starting
                raise UserError(f"Ray cannot be reached or started: {' '.join(str(error).split())}") from error
            for number, handler in before.items():  # Ray's own would end this process before its units have saved
                signal.signal(number, handler)
        there = ray.cluster_resources()
        needed = _needed(asked)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= count for name, count in needed.items()) for node in nodes):
            self.close()
            wants = ", ".join(f"{name} {count:g}" for name, count in needed.items() if count)
            raise UserError(f"no node of this Ray has all that a unit asks for ({wants})")
        room = min((int(there.get(name, 0) // count) for name, count in needed.items() if count), default=1)
        if not room:
            self.close()
            has = ", ".join(f"{there.get(name, 0):g} {name}s" for name in needed)
            raise UserError(f"this Ray has {has}, fewer than a unit asks for ({needed['CPU']} and {needed['GPU']})")
        self.at_once = room if at_once is None else at_once

    def start(self, unit: Unit) -> RayJob:
        """Hands a unit to Ray."""
        unit.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            return RayJob(self._remote.remote(str(Path.cwd()), unit.run), unit.log)
        except (TypeError, ValueError) as error:  # what it looks at no earlier
            raise UserError(f"{unit.name} cannot be given to Ray: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Leaves Ray, and ends it where it was started here."""
        import ray

        if self._own:
            ray.shutdown()
