"""What SLURM has in its queue. Submitit asks the accounting alone, which a cluster may lack, and which forgets."""

from __future__ import annotations

import os
import subprocess
import time
from typing import NamedTuple

from ssl_vit.core.notices import say_once

EVERY = 60.0
"""Seconds between two questions: the scheduler has others to serve."""
_PATIENCE = 30.0
"""Seconds that an answer may take."""
WAITS = frozenset({
    "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESV_DEL_HOLD", "SPECIAL_EXIT",
})  # fmt: skip
"""States of a job that goes on, or will, and that submitit takes for ended."""


class Answer(NamedTuple):
    """What was answered."""

    number: int
    """Of the question."""
    jobs: frozenset[str] | None
    """Numbers of this user's jobs that have not ended; None where there was no answer."""


class Queue:
    """The queue, asked at most once every ``EVERY`` seconds for all jobs."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self._answer, self._next = Answer(0, None), 0.0

    def look(self) -> Answer:
        """The last answer, or a new one where it is time for it."""
        if time.monotonic() >= self._next:
            self._answer = Answer(self._answer.number + 1, _asked())
            self._next = time.monotonic() + EVERY
        return self._answer


def _asked() -> frozenset[str] | None:
    command = ["squeue", "--noheader", f"--user={os.getuid()}", "--format=%A"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        why = done.stderr if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        done, why = None, str(error)
    if done is not None and not done.returncode:
        return frozenset(done.stdout.split())
    why = " ".join(why.split())
    say_once(f"note: squeue does not answer ({why}); a job that is lost may be waited for until it does")
    return None


class Absence:
    """Whether one job has gone without a word: it was in no queue twice in a row, a while apart.

    Once is not enough: what a job leaves may come late to a shared disk.
    """

    def __init__(self, queue: Queue, job: str) -> None:
        """Not yet.

        Args:
            queue: Of this cluster.
            job: Its number.
        """
        self._queue, self._job = queue, job
        self._seen = self._missing = 0

    def sure(self) -> bool:
        """Whether it is."""
        number, jobs = self._queue.look()
        if number != self._seen and jobs is not None:
            self._seen, self._missing = number, 0 if self._job in jobs else self._missing + 1
        return self._missing >= 2
