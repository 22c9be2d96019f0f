"""A batch script for SLURM that runs a command of the project, and has itself started again until it is done."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import REQUEUE


@dataclass(frozen=True)
class Batch:
    """What to ask SLURM for."""

    nodes: int = 1
    gpus: int = 1
    """Of every node: one task for each; 0 for a task that computes on the CPU."""
    cpus: int = 8
    """Of every task: what computes, and processes that load images."""
    time: str = "24:00:00"
    """After which SLURM ends the job: minutes, HH:MM:SS or DAYS-HH:MM:SS."""
    grace: int = 180
    """Seconds before that for saving."""
    name: str = "ssl_vit"
    partition: str | None = None
    account: str | None = None
    requeue: bool = True
    """Whether the job goes on in another one when its time is over."""

    def __post_init__(self) -> None:
        """Refuses numbers that make no job.

        Raises:
            UserError: Naming the option.
        """
        for name, least in (("nodes", 1), ("gpus", 0), ("cpus", 1), ("grace", 1)):
            if getattr(self, name) < least:
                raise UserError(f"--{name} {getattr(self, name)} must be at least {least}")


def script(batch: Batch, words: Sequence[str]) -> str:
    """The text of the script.

    Args:
        batch: What to ask for.
        words: Program, command and options, such as ``["ssl-vit", "mae", "--data.path", "images"]``.
    """
    asked = {
        "job-name": batch.name, "nodes": batch.nodes, "ntasks-per-node": max(1, batch.gpus),
        "gpus-per-node": batch.gpus or None, "cpus-per-task": batch.cpus, "time": batch.time,
        "partition": batch.partition, "account": batch.account, "signal": f"USR1@{batch.grace}",
        "output": "%x-%j.log", "open-mode": "append",
    }  # fmt: skip
    lines = [f"#SBATCH --{name}={value}" for name, value in asked.items() if value is not None]
    lines.append(f"#SBATCH --{'' if batch.requeue else 'no-'}requeue")
    again = (
        f"""
# {REQUEUE}: everything is saved, and the same command goes on.
if [ $status -eq {REQUEUE} ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi"""
        * batch.requeue
    )
    return f"""#!/bin/bash
{chr(10).join(lines)}

# One task per GPU; where one fails, the others are ended.
srun --kill-on-bad-exit=1 --cpus-per-task={batch.cpus} {shlex.join(words)}
status=$?
{again}
exit $status
"""
