"""Memory of the machine: how much of it is free, and arrays in it that all processes see."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ssl_vit.core.machine import own_groups


def free_memory() -> int:
    """Bytes that can be had: of the machine, or of the container or job that this process is confined to (cgroup 2)."""
    return min([psutil.virtual_memory().available, *map(_free_in, own_groups())])


def _free_in(group: Path) -> int:
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:  # no limits here
        return sys.maxsize
    # Files that were read but not lately count as used, and are given up when memory is asked for.
    return sys.maxsize if limit == "max" else max(0, int(limit) - int(used) + int(held.get("inactive_file", 0)))


class SharedArray:
    """Zeros that every process of the machine can write into.

    On Linux they have no name in any folder, so that nothing is left of a process that was killed; other processes
    open them through the maker's list of open files. Elsewhere they are a temporary file until they are closed.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, path: str | None = None) -> None:
        """Makes an array, or opens the one that another process, which must still hold it, made at this path."""
        self.shape, self.dtype, self._made = shape, np.dtype(dtype), path is None
        size = math.prod(shape) * self.dtype.itemsize
        if path is not None:
            self._number = os.open(path, os.O_RDWR)
        elif sys.platform == "linux":
            self._number = os.memfd_create("ssl_vit")
            path = f"/proc/{os.getpid()}/fd/{self._number}"
        else:
            self._number, path = tempfile.mkstemp(prefix="ssl_vit-")
        self.path = path
        if self._made:
            os.truncate(self._number, size)
        self.array = np.frombuffer(mmap.mmap(self._number, size), self.dtype).reshape(shape)
        if not self._made:
            os.close(self._number)  # the map has its own

    def __reduce__(self) -> tuple[Any, ...]:
        """Opens it in another process."""
        return SharedArray, (self.shape, self.dtype, self.path)

    def close(self) -> None:
        """Lets no more processes open it; those that have, and this one, keep the array."""
        if self._made:
            os.close(self._number)
            if sys.platform != "linux":
                Path(self.path).unlink()
