"""What of the machine this process may use: control groups and CPU cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def own_groups() -> Iterator[Path]:
    """Folders of the control groups (version 2) that this process is confined to, the innermost first."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    for group in (_GROUPS / line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        while group.is_relative_to(_GROUPS):
            yield group
            group = group.parent


def threads() -> int:
    """Logical CPU cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """CPU cores that compute for this process: those of the machine, of its affinity, and of its groups' quotas."""
    quotas = [_quota(group / "cpu.max") for group in own_groups()]
    whole = min([psutil.cpu_count(logical=False) or threads(), threads(), *filter(None, quotas)])
    return max(1, int(whole))


def _quota(path: Path) -> float | None:
    """Cores that a group may take on average; None where it has no limit."""
    try:
        taken, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if taken == "max" else int(taken) / int(period)
