"""Where the commands of a sweep run: processes of this machine, or jobs that submitit hands to a scheduler."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.core.signals import REQUEUE

PROGRAM = (sys.executable, "-m", "ssl_vit")


@dataclass
class LocalJob:
    """A process of this machine, and what it starts."""

    process: subprocess.Popen[bytes]
    slot: int

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def stop(self, number: int) -> None:
        """Passes a signal on."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


@dataclass
class Local:
    """Processes of this machine; several at a time share its cores, and its GPUs one by one."""

    at_once: int = 1
    gpus: tuple[str, ...] = ()
    """Numbers of the GPUs; empty to leave them to each command."""
    _jobs: list[LocalJob] = field(default_factory=list[LocalJob])

    def start(self, words: tuple[str, ...], log: Path) -> LocalJob:
        """Starts a command in a session of its own: Ctrl-C reaches it once, through the sweep.

        Args:
            words: Behind ``ssl-vit``.
            log: What it says is added to this file.
        """
        self._jobs = [job for job in self._jobs if job.status() is None]
        slot = min(set(range(self.at_once)) - {job.slot for job in self._jobs})
        variables = dict(os.environ)
        if self.at_once > 1:
            variables.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // self.at_once)))
        if self.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[slot :: self.at_once])
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as said:
            process = subprocess.Popen(
                [*PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=variables,
                start_new_session=True,
            )  # fmt: skip
        job = LocalJob(process, slot)
        self._jobs.append(job)
        return job


def local(at_once: int) -> Local:
    """This machine, for so many commands at a time.

    Args:
        at_once: With several, each gets its share of the GPUs that are visible.

    Raises:
        UserError: For more commands than GPUs, where there are any.
    """
    if at_once == 1 or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        return Local(at_once)
    import torch

    count = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if 0 < count < at_once:
        raise UserError(
            f"--at_once {at_once}: this machine has {count} GPU(s); give at most {count}, or set ACCELERATE_USE_CPU=1"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Local(at_once, tuple(visible.split(",") if visible and count else map(str, range(count))))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Command:
    """What a job of submitit does: a command of the project, submitted again when the job's time is over."""

    def __init__(self, words: tuple[str, ...], log: str) -> None:
        """Takes words behind ``ssl-vit``, and the file that gets what they say."""
        self.words, self.log = words, log
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Runs it to its end and returns its status."""
        with Path(self.log).open("ab") as said:
            self._process = subprocess.Popen([*PROGRAM, *self.words], stdout=said, stderr=subprocess.STDOUT)
            return self._process.wait()

    def checkpoint(self) -> Any:
        """Called by submitit before the time is over: the command saves, and the same one goes on in another job."""
        import submitit

        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            psutil.Process(self._process.pid).wait()  # Popen.wait is what the signal interrupted, and would wait for it
        return submitit.helpers.DelayedSubmission(Command(self.words, self.log))


@dataclass
class SubmittedJob:
    """A job of submitit."""

    job: Any
    left: bool = False

    def status(self) -> int | None:
        """Its exit status; None while it waits or runs, REQUEUE where the sweep has left it to itself."""
        if self.left:
            return REQUEUE
        if not self.job.done():
            return None
        try:
            return max(int(one) for one in self.job.results())
        except Exception:  # whatever happens to jobs
            return 1

    def stop(self, number: int) -> None:
        """Leaves the job, which goes on, and which the same sweep finds again."""
        self.left = True


@dataclass
class Submitted:
    """Jobs that a scheduler runs when it can."""

    executor: Any
    folder: Path
    at_once: int
    """Jobs that wait or run."""

    def start(self, words: tuple[str, ...], log: Path) -> SubmittedJob:
        """Submits a command, or finds the job that an earlier start of the sweep submitted for it.

        Args:
            words: Behind ``ssl-vit``.
            log: What it says is added to this file.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        record = self.folder / f"{log.stem}-{words[0]}.job"
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            before = pickle.loads(record.read_bytes())
            if not before.done():
                return SubmittedJob(before)
        job = self.executor.submit(Command(words, str(log.resolve())))
        write_bytes_atomically(record, pickle.dumps(job))
        return SubmittedJob(job)


def submitted(cluster: str, parameters: dict[str, Any], out: Path, at_once: int | None) -> Submitted:
    """A scheduler, through submitit.

    Args:
        cluster: ``slurm``, or ``local`` for processes of this machine in the manner of a scheduler.
        parameters: What submitit is to ask for: ``timeout_min``, ``gpus_per_node``, ``slurm_partition``, ...
        out: The sweep's folder.
        at_once: Most jobs that wait or run; None for all.

    Raises:
        UserError: Without submitit, without the scheduler, and for parameters that it does not know.
    """
    try:
        import submitit
    except ImportError:
        raise UserError(f"--submit {cluster} needs submitit: pip install 'ssl_vit[slurm]'") from None
    folder = out / "jobs"
    try:
        # A run may need more jobs than submitit would let it have.
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=1000)
        executor.update_parameters(**{"name": "ssl_vit", **parameters})
    except (RuntimeError, TypeError, ValueError, NameError) as error:
        raise UserError(f"--submit {cluster}: {' '.join(str(error).split())}") from error
    return Submitted(executor, folder, at_once or 10_000)
