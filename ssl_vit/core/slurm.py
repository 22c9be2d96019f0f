"""What SLURM says of this process, and how the tasks of one ``srun`` become one job without a launcher.

Nothing is asked of SLURM itself: all is read from the variables that it gives every task.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from ssl_vit.core.errors import UserError

PORTS = range(12_000, 30_000)
"""Where tasks meet: below the ports that systems give away by themselves."""
SIGNS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""By which torch and Accelerate know the processes of a job."""


adopted: Task | None = None
"""This process, where it is one of several tasks that ``adopt`` has made one job."""


class Task(NamedTuple):
    """One of several tasks that ``srun`` has started."""

    rank: int
    """Its number, from 0."""
    tasks: int
    local_rank: int
    """Its number on this node."""
    local_tasks: int
    """Tasks on this node."""
    address: str
    """The first node, where task 0 runs."""
    port: int
    """Where the tasks meet: the same for all of one job step, another for the next."""


def job() -> tuple[str | None, int]:
    """The number of this process's job, None outside SLURM; and how often SLURM has started it again."""
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    return os.environ.get("SLURM_JOB_ID"), int(restarts) if restarts.isdigit() else 0


def task(variables: Mapping[str, str] = os.environ) -> Task | None:
    """This process among the tasks of its ``srun``; None where it is alone, or a launcher has joined it already.

    Args:
        variables: The environment.

    Raises:
        UserError: Where there are several tasks and nothing says how they find each other, or the job has several and
            this process was started without ``srun``.
    """
    by_srun = "SLURM_STEP_NUM_TASKS" in variables
    tasks = _number(variables, "SLURM_STEP_NUM_TASKS" if by_srun else "SLURM_NTASKS") or 1
    if tasks == 1 or "SLURM_PROCID" not in variables or "WORLD_SIZE" in variables:
        return None
    if not by_srun and in_batch_script():
        raise UserError(
            f"the job has {tasks} tasks (SLURM_NTASKS), and this process, started without srun, would be alone: write "
            "srun before the command, or --processes N behind it for processes of this node, or ask SLURM for "
            "--ntasks=1"
        )
    rank, local, nodes = (
        _number(variables, "SLURM_PROCID"),
        _number(variables, "SLURM_LOCALID"),
        variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", ""),
    )
    if rank is None or local is None or not (nodes or "MASTER_ADDR" in variables):
        missing = [name for name in ("SLURM_PROCID", "SLURM_LOCALID") if _number(variables, name) is None]
        raise UserError(
            f"srun has started {tasks} tasks, and without {', '.join(missing) or 'SLURM_JOB_NODELIST'} they cannot "
            "find each other; start them with torchrun, or one alone with srun --ntasks=1"
        )
    numbers = [_number(variables, name) or 0 for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    return Task(
        rank, tasks, local, _local_tasks(variables, tasks, local),
        variables.get("MASTER_ADDR") or first_host(nodes),
        _number(variables, "MASTER_PORT") or PORTS[(61 * numbers[0] + numbers[1]) % len(PORTS)],
    )  # fmt: skip


def adopt() -> Task | None:
    """Makes the tasks of one ``srun`` one job, for torch and Accelerate, and returns this one; None where it is alone.

    Raises:
        UserError: As ``task``.
    """
    global adopted
    found = task()
    if found is not None:
        adopted = found
        values = (found.tasks, found.rank, found.local_rank, found.local_tasks, found.address, found.port)
        os.environ.update(dict(zip(SIGNS, map(str, values), strict=True)))
    return found


def gpus(variables: Mapping[str, str] = os.environ) -> int:
    """How many GPUs of this node SLURM has given this process's job or step; 0 outside SLURM.

    Args:
        variables: The environment.
    """
    listed = [name for name in variables.get("SLURM_STEP_GPUS", "").split(",") if name]
    return _number(variables, "SLURM_GPUS_ON_NODE") or len(listed)


def first_host(nodes: str) -> str:
    """The first of a list of nodes.

    Args:
        nodes: As SLURM writes it, such as ``gpu[03-05,09],cpu1``.
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def _local_tasks(variables: Mapping[str, str], tasks: int, local: int) -> int:
    """Tasks on this node."""
    told = variables.get("SLURM_STEP_TASKS_PER_NODE") or variables.get("SLURM_TASKS_PER_NODE", "")
    counts = [
        int(found[1]) for part in told.split(",") if (found := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part))
        for _ in range(int(found[2] or 1))
    ]  # fmt: skip
    node = _number(variables, "SLURM_NODEID")
    if node is not None and node < len(counts):
        return counts[node]
    nodes = _number(variables, "SLURM_STEP_NUM_NODES") or _number(variables, "SLURM_JOB_NUM_NODES") or 1
    return max(local + 1, math.ceil(tasks / nodes))


def in_batch_script() -> bool:
    """Whether the script that was given to ``sbatch`` has started this process, and not ``srun``."""
    try:
        return any("slurm_script" in word for parent in psutil.Process().parents() for word in parent.cmdline()[:3])
    except psutil.Error:
        return False


def _number(variables: Mapping[str, str], name: str) -> int | None:
    return int(variables[name]) if variables.get(name, "").isdigit() else None
