"""Whether all processes of a job see the same images: every node opens them by itself, perhaps from a disk of its own.

A copy that is older, or was cut short, would be trained on without a word: processes draw positions in the set, and
the same position would be another image. Some sums over processes would not come together at all.
"""

from __future__ import annotations

import json
import socket

from ssl_vit.core.dist import gather_lists, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet

_SHOWN = 4
"""Nodes, and kinds of what they see, that are named."""


def same_everywhere(*sets: ImageSet) -> None:
    """Refuses images that are not the same on all processes (every process must call it); free with one process.

    Args:
        sets: Of one source: a pool, or training and test images.

    Raises:
        UserError: On all of them alike, where number or fingerprint differ.
    """
    if rank_and_world()[1] == 1:
        return
    seen = " + ".join(f"{len(images):,}" for images in sets)
    prints = " + ".join(images.fingerprint for images in sets)
    hosts: dict[str, list[str]] = {}
    for told in gather_lists([json.dumps([f"{seen} images (fingerprint {prints})", socket.gethostname()])]):
        what, host = json.loads(told)
        hosts.setdefault(what, []).append(host)
    if len(hosts) > 1:
        raise UserError(
            f"the processes of this job see different images in {sets[0].name}: "
            f"{_some([f'{what} on {_some([*dict.fromkeys(on)])}' for what, on in hosts.items()], '; ')}; copy the same "
            "files to every node, or give one path that all nodes share"
        )


def _some(words: list[str], between: str = ", ") -> str:
    """The first few, and how many more there are."""
    more = len(words) - _SHOWN
    return between.join(words[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
