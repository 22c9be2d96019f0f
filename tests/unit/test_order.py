"""The order of an epoch: every position once, blocks close together, another order in every epoch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.data.order import BUFFER, epoch_order

LENGTHS = st.lists(st.integers(1, 3000), min_size=1, max_size=30)


def blocks_of(lengths: list[int], mixed: bool = False) -> np.ndarray:
    """Numbers of blocks of these lengths, one after another or strewn over the positions."""
    blocks = np.repeat(np.arange(len(lengths)), lengths)
    return np.random.default_rng(0).permutation(blocks) if mixed else blocks


@given(lengths=LENGTHS, seed=st.integers(0, 2**40), epoch=st.integers(0, 10**6), mixed=st.booleans())
def test_every_position_comes_once(lengths: list[int], seed: int, epoch: int, mixed: bool) -> None:
    blocks = blocks_of(lengths, mixed)
    for chosen in (None, blocks):
        order = epoch_order(seed, epoch, len(blocks), chosen)
        assert np.array_equal(np.sort(order), np.arange(len(blocks)))


@given(lengths=LENGTHS, epoch=st.integers(0, 100), mixed=st.booleans())
def test_only_a_buffer_of_images_is_open(lengths: list[int], epoch: int, mixed: bool) -> None:
    blocks = blocks_of(lengths, mixed)
    visited = blocks[epoch_order(3, epoch, len(blocks), blocks)]
    first = {b: int(np.flatnonzero(visited == b)[0]) for b in np.unique(visited)}
    last = {b: int(np.flatnonzero(visited == b)[-1]) for b in np.unique(visited)}
    for place in range(0, len(visited), 500):
        held = sum(lengths[b] for b in first if first[b] <= place <= last[b])
        assert held < BUFFER + max(lengths)


def test_small_blocks_are_mixed_with_each_other() -> None:
    blocks = blocks_of([10] * 1000)
    visited = blocks[epoch_order(0, 0, len(blocks), blocks)]
    assert len(set(visited[:1000].tolist())) > 300  # 410 blocks fill the buffer
    assert not np.array_equal(np.sort(np.unique(visited[:2000])), np.arange(len(np.unique(visited[:2000]))))


def test_blocks_larger_than_the_buffer_come_one_by_one() -> None:
    blocks = blocks_of([BUFFER, BUFFER + 7, 2 * BUFFER])
    order = epoch_order(0, 0, len(blocks), blocks)
    assert np.count_nonzero(np.diff(blocks[order])) == 2
    for b in range(3):
        own = order[blocks[order] == b]
        assert not np.array_equal(own, np.sort(own))


def test_orders_differ_by_epoch_and_seed_and_by_nothing_else() -> None:
    blocks = blocks_of([100] * 80)
    for chosen in (None, blocks):
        orders = [epoch_order(seed, epoch, 8000, chosen) for seed in (0, 1, 2**33) for epoch in range(4)]
        assert len({tuple(order.tolist()) for order in orders}) == len(orders)
        for order in orders[1:]:  # as independent orders do, they agree in about one position
            assert np.count_nonzero(order == orders[0]) < 40
        np.random.seed(9)
        torch.manual_seed(9)
        assert np.array_equal(orders[0], epoch_order(0, 0, 8000, None if chosen is None else chosen.copy()))


def test_names_of_blocks_do_not_matter_only_which_are_together() -> None:
    blocks = blocks_of([700] * 20)
    assert np.array_equal(epoch_order(1, 2, len(blocks), blocks), epoch_order(1, 2, len(blocks), 5 + 3 * blocks))
