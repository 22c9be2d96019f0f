"""Random numbers as hashes: right distributions, no correlation between neighbours, one stream per sample."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from ssl_vit.core import randomness
from ssl_vit.core.randomness import (
    Key,
    bits,
    make_key,
    normal,
    permutation,
    uniform,
)

N = 1 << 16
LEAST = 1e-4  # smallest p-value accepted; the seeds are fixed, so a pass today is a pass for ever

# Every way in which two numbers of a run can be neighbours: thousands of consecutive ones of each.
NEIGHBOURS = {
    "counters": lambda draw: draw(make_key(3, "mask", 0, 0), N)[0],
    "indices": lambda draw: draw(make_key(3, "mask", 0, torch.arange(N)), 1)[:, 0],
    "epochs": lambda draw: draw(make_key(3, "mask", torch.arange(N), torch.full((N,), 7)), 1)[:, 0],
    "indices beyond 32 bits": lambda draw: draw(make_key(3, "mask", 0, torch.arange(N) << 32), 1)[:, 0],
    "seeds": lambda draw: torch.cat([draw(make_key(s, "mask", 0, torch.arange(64)), 1)[:, 0] for s in range(1 << 9)]),
    "seeds of one sample": lambda draw: torch.cat([draw(make_key(s, "mask", 0, 5), 1)[:, 0] for s in range(1 << 11)]),
    "purposes": lambda draw: torch.cat([draw(make_key(3, f"p{p}", 0, 5), 1)[:, 0] for p in range(1 << 11)]),
}


def is_flat(counts: np.ndarray) -> bool:
    return bool(stats.chisquare(counts).pvalue > LEAST)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_neighbouring_numbers_are_uniform_and_independent(neighbours: str) -> None:
    u = NEIGHBOURS[neighbours](uniform).double().numpy()
    assert stats.kstest(u, "uniform").pvalue > LEAST
    assert is_flat(np.histogram(u, 64, (0.0, 1.0))[0])
    for lag in (1, 2, 3, 4, 8, 16, 64, 256):
        a, b = u[:-lag], u[lag:]
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a)), f"lag {lag}"
        assert is_flat(np.histogram2d(a, b, 8, ((0, 1), (0, 1)))[0].ravel()), f"lag {lag}"


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_every_bit_is_fair_and_independent_of_the_others(neighbours: str) -> None:
    words = NEIGHBOURS[neighbours](bits).to(torch.int64).numpy()
    each = (words[:, None] >> np.arange(32)) & 1
    assert np.abs(each.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(words))
    between = np.corrcoef(each.T) - np.eye(32)
    assert np.abs(between).max() < 5 / np.sqrt(len(words))
    changes = (each[1:] ^ each[:-1]).mean(axis=0)
    assert np.abs(changes - 0.5).max() < 5 * 0.5 / np.sqrt(len(words))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, "mask", 0, 0), (0, "mask", 0, 1)),
        ((0, "mask", 0, 0), (0, "mask", 1, 0)),
        ((0, "mask", 0, 1), (0, "mask", 1, 0)),
        ((0, "mask", 0, 0), (1, "mask", 0, 0)),
        ((0, "mask", 0, 0), (0, "crop", 0, 0)),
        ((0, "mask", 0), (0, "mask", 0, 0)),
        ((0, "mask", 0, 0), (0, "mask", 0, 1 << 32)),
        ((0, "mask", 0, 0), (1 << 32, "mask", 0, 0)),
    ],
)
def test_two_streams_have_nothing_in_common(one: tuple, other: tuple) -> None:
    a, b = (uniform(make_key(*words), N)[0].double().numpy() for words in (one, other))
    for shift in (0, 1, -1):  # nor may one be the other one a step later
        assert abs(np.corrcoef(a, np.roll(b, shift))[0, 1]) < 4.5 / np.sqrt(N)
    assert is_flat(np.histogram2d(a, b, 16, ((0, 1), (0, 1)))[0].ravel())
    # As many equal 24-bit numbers as chance gives (256 expected), not a shared stretch.
    assert len(np.intersect1d(a, b)) < 256 + 5 * 16


def test_uniform_numbers_stay_below_one() -> None:
    u = uniform(make_key(1, "edge", 0, torch.arange(4096)), 1024)
    assert u.dtype == torch.float32
    assert float(u.min()) >= 0.0
    assert float(u.max()) < 1.0
    assert float(u.max()) > 1 - 1e-5
    assert float(u.min()) < 1e-5
    assert torch.equal(u * 2**24, (u * 2**24).round())


def test_normal_numbers_are_normal_and_finite() -> None:
    x = normal(make_key(2, "noise", 0, torch.arange(512)), 512)
    assert x.shape == (512, 512)
    assert bool(x.isfinite().all())
    flat = x.flatten().double().numpy()
    assert stats.kstest(flat, "norm").pvalue > LEAST
    edges = stats.norm.ppf(np.linspace(0, 1, 65))
    assert is_flat(np.histogram(flat, edges)[0])
    assert abs(stats.kurtosis(flat)) < 5 * np.sqrt(24 / len(flat))
    for pairs in ((x[:, :-1], x[:, 1:]), (x[:-1], x[1:])):
        a, b = (p.flatten().double().numpy() for p in pairs)
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a))
        assert abs(np.corrcoef(a**2, b**2)[0, 1]) < 4.5 / np.sqrt(len(a))


def plain_hash(seed: int, purpose: str, *words: int, n: int) -> list[int]:
    """The same hash in Python's own integers, as the docstrings describe it."""

    def finish(x: int) -> int:
        x ^= x >> 16
        x = x * 0x7FEB352D & 0xFFFFFFFF
        x ^= x >> 15
        x = x * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    parts = [seed, seed >> 32, zlib.crc32(purpose.encode())]
    for word in words:
        parts += [word, word >> 32]
    lanes = []
    for lane in (0x243F6A88, 0x85A308D3):
        for part in parts:
            lane = finish(((lane ^ part & 0xFFFFFFFF) + 0x9E3779B9) & 0xFFFFFFFF)
        lanes.append(lane)
    low, high = lanes
    return [finish(finish((c * 0x9E3779B9 + low) & 0xFFFFFFFF) ^ high) for c in range(n)]


WORDS = st.integers(-(2**63), 2**63 - 1)


@given(seed=WORDS, purpose=st.text(max_size=5), epoch=WORDS, index=WORDS)
def test_any_64_bit_words_hash_as_unsigned_arithmetic_says(seed: int, purpose: str, epoch: int, index: int) -> None:
    expected = plain_hash(seed, purpose, epoch, index, n=5)
    as_numbers = bits(make_key(seed, purpose, epoch, index), 5)
    as_tensors = bits(make_key(seed, purpose, torch.tensor([epoch, 0]), torch.tensor([index, 0])), 5)
    mixed = bits(make_key(seed, purpose, epoch, torch.tensor([0, index])), 5)
    assert [v & 0xFFFFFFFF for v in as_numbers[0].tolist()] == expected
    assert torch.equal(as_tensors[0], as_numbers[0])
    assert torch.equal(mixed[1], as_numbers[0])


@given(chosen=st.lists(st.integers(0, 63), min_size=1, max_size=20))
def test_a_sample_draws_the_same_numbers_in_any_batch(chosen: list[int]) -> None:
    epoch, index = torch.arange(64) // 10, torch.arange(64) * 1_000_003
    for draw in (bits, uniform, normal):
        whole = draw(make_key(4, "crop", epoch, index), 6)
        part = draw(make_key(4, "crop", epoch[chosen], index[chosen]), 6)
        assert torch.equal(part, whole[chosen])


def test_drawing_more_numbers_leaves_the_first_ones() -> None:
    key = make_key(4, "crop", 0, torch.arange(5))
    assert torch.equal(bits(key, 30)[:, :7], bits(key, 7))


def test_no_two_samples_of_a_run_share_a_key() -> None:
    epochs, images = 400, 2000
    epoch, index = torch.arange(epochs).repeat_interleave(images), torch.arange(images).repeat(epochs)
    key = make_key(0, "mask", epoch, index)
    both = (key.high.to(torch.int64) << 32) | (key.low.to(torch.int64) & 0xFFFFFFFF)
    assert len(both.unique()) == epochs * images
    # The halves start apart: if they moved together 64 bits would be worth 32.
    low, high = (half.double().numpy() for half in key)
    assert abs(np.corrcoef(low, high)[0, 1]) < 4.5 / np.sqrt(len(low))


def test_indices_beyond_32_bits_are_told_apart() -> None:
    index = torch.tensor([0, 1, 2**31, 2**32, 2**32 + 1, 2**33, 2**40, 2**62, -1, -(2**32)])
    rows = bits(make_key(0, "mask", 0, index), 8)
    assert len({tuple(row) for row in rows.tolist()}) == len(index)


def test_negative_and_huge_seeds_are_told_apart() -> None:
    seeds = [0, 1, -1, -2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, -(2**63), 2**64 - 3]
    rows = {tuple(bits(make_key(seed, "mask", 0), 8)[0].tolist()) for seed in seeds}
    assert len(rows) == len(seeds)
    orders = {tuple(permutation(seed, "order", 0, n=30).tolist()) for seed in seeds}
    assert len(orders) == len(seeds)


def test_a_key_of_plain_numbers_has_one_element() -> None:
    key = make_key(0, "mask", 1, 2)
    assert isinstance(key, Key)
    assert key.low.shape == key.high.shape == (1,)
    assert key.low.dtype == key.high.dtype == torch.int32


@given(n=st.integers(1, 300), seed=WORDS, epoch=st.integers(0, 10**6))
def test_a_permutation_has_every_number_once(n: int, seed: int, epoch: int) -> None:
    order = permutation(seed, "order", epoch, n=n)
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(n))
    assert torch.equal(order, permutation(seed, "order", epoch, n=n))


def test_permutations_differ_by_epoch_seed_and_purpose() -> None:
    drawn = [
        permutation(seed, purpose, epoch, n=40).tolist()
        for seed in (0, 1, 2)
        for purpose in ("order", "folds")
        for epoch in (0, 1, 2)
    ]
    assert len({tuple(order) for order in drawn}) == len(drawn)


def test_every_order_of_four_is_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(2400):
        order = tuple(permutation(9, "order", epoch, n=4).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert is_flat(np.array(list(counts.values())))


def test_every_image_comes_equally_often_at_every_place() -> None:
    n, epochs = 12, 1500
    where = np.zeros((n, n))
    orders = np.stack([permutation(9, "order", epoch, n=n).numpy() for epoch in range(epochs)])
    for place in range(n):
        where[place] = np.bincount(orders[:, place], minlength=n)
    # Rows and columns both add up to `epochs`: (n - 1) squared degrees of freedom.
    statistic = ((where - epochs / n) ** 2 / (epochs / n)).sum() * (n - 1) / n
    assert stats.chi2.sf(statistic, (n - 1) ** 2) > LEAST
    # Who follows whom says nothing about the next epoch.
    first = orders[:, 0]
    assert is_flat(np.histogram2d(first[:-1], first[1:], 4, ((0, n), (0, n)))[0].ravel())


def test_a_large_permutation_keeps_nothing_in_place() -> None:
    n = 1_000_000
    order = permutation(0, "order", 0, n=n).numpy()
    assert np.array_equal(np.sort(order), np.arange(n))
    assert (order == np.arange(n)).sum() <= 10  # one expected
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 4.5 / np.sqrt(n)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4.5 / np.sqrt(n)


@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    word=st.integers(-(2**62), 2**62),
    index=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5),
    n=st.integers(1, 9),
)
def test_the_host_and_other_devices_draw_the_same(seed: int, word: int, index: list[int], n: int) -> None:
    starts = [seed & 0xFFFFFFFF, 7]
    parts: list[int | torch.Tensor] = [torch.tensor(index), word, word >> 32]
    here = randomness._key_on_host(starts, parts, len(index))
    there = randomness._key_there(starts, parts, len(index), torch.device("cpu"))
    assert torch.equal(here.low, there.low) and torch.equal(here.high, there.high)
    assert torch.equal(bits(here, n), randomness._bits_there(here, n))
