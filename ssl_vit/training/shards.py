"""Which checkpoints in parts are there and whole, without what writes and reads them: importing that takes seconds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ssl_vit.core.files import content_of, make_way, regular, sha256
from ssl_vit.core.sums import hashes_of
from ssl_vit.training.checkpoint import cannot_be_read, listed

ENDING = ".shards"
"""Of the folder of such a checkpoint."""


def remove(place: Path) -> None:
    """Removes a checkpoint; its hashes go first, so that half of it is never used."""
    beside = place.with_suffix(".shards.sha256")
    make_way(beside)
    beside.unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def newest_whole(folder: Path) -> tuple[int, Path] | None:
    """Step and place of the newest whole checkpoint in parts; damaged ones are named.

    Args:
        folder: Where checkpoints of the run are.

    Raises:
        UserError: Where one cannot be read, so that nobody knows whether it is damaged.
    """
    for place in reversed(listed(folder)):
        if not (place.name.startswith("step_") and place.name.endswith(ENDING)):
            continue
        number = place.name.removeprefix("step_").removesuffix(ENDING)
        with cannot_be_read(place):
            if number.isdigit() and _is_whole(place):
                from ssl_vit.training.sharded_checkpoint import is_of

                if is_of(place, int(number)):
                    return int(number), place
        sys.stderr.write(f"warning: the checkpoint {place} is damaged or incomplete; an older one is used\n")
    return None


def _is_whole(place: Path) -> bool:
    try:
        told = hashes_of(content_of(place.with_suffix(".shards.sha256")))
        files = {path.name: path for path in place.iterdir()}
        return bool(told) and set(told) == set(files) and all(sha256(regular(files[n])) == told[n] for n in told)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
