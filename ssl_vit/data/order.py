"""The order of an epoch: a hash of seed and epoch, over all images at once or block by block."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ssl_vit.core.randomness import permutation

BUFFER = 4096
"""Images among which the order is mixed where they are read in blocks."""


def epoch_order(seed: int, epoch: int, n: int, blocks: Int[np.ndarray, " n"] | None) -> Int[np.ndarray, " n"]:
    """Every position of n images exactly once, in the order they are visited.

    ``blocks`` say which block (shard, row group) each image lies in; None shuffles everything at once. Otherwise blocks
    come in hashed order, and whole blocks of at least ``BUFFER`` images together are mixed, so that only so many blocks
    are open at a time.
    """
    if blocks is None:
        return permutation(seed, "order", epoch, n=n).numpy()
    members = np.argsort(blocks, kind="stable")
    _, starts, counts = np.unique(blocks[members], return_index=True, return_counts=True)
    turn = permutation(seed, "blocks", epoch, n=len(starts)).numpy()
    mixed, held = list[np.ndarray](), list[np.ndarray]()
    for block in turn:
        held.append(members[starts[block] : starts[block] + counts[block]])
        if sum(map(len, held)) >= BUFFER or block == turn[-1]:
            together = np.concatenate(held)
            mixed.append(together[permutation(seed, "buffer", epoch, len(mixed), n=len(together)).numpy()])
            held = []
    return np.concatenate(mixed)
