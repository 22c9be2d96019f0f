"""RUN/diverged.jsonl: steps that training did not take, the images of their batches, and that these are left out.

It is the one record of which batches a run never draws again, so that it goes on in the same way after any end. A line
counts once it is whole; what a crash left of another is passed over.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ssl_vit.core.files import make_way
from ssl_vit.core.reading import json_lines

NAME = "diverged.jsonl"


def tell(folder: Path, record: dict[str, Any]) -> None:
    """Adds a batch that is left out; it is on the disk when this returns.

    Args:
        folder: The run's.
        record: ``batch`` is its number, counted from 0 as if none were left out; the rest is for people.
    """
    path = folder / NAME
    make_way(path)
    with path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():  # half a line of a crash ends where this one begins
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def batches_left_out(folder: Path) -> list[int]:
    """Numbers of the batches that a run never draws, in ascending order; each once.

    Args:
        folder: The run's.
    """
    told = (line.get("batch") for line in json_lines(folder / NAME).whole)
    return sorted({batch for batch in told if type(batch) is int and batch >= 0})  # true is a number to Python
