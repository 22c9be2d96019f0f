"""Mixup and CutMix: right shares, right targets, pairs only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from ssl_vit.core.randomness import Key, make_key, uniform
from ssl_vit.views.mixing import beta, make_targets, mix
from torch import Tensor

MIXES = [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0), (0.2, 0.5)]


def keys(n: int, seed: int = 0) -> Key:
    return make_key(seed, "mix", 0, torch.arange(n))


def batch_of(n: int, size: tuple[int, int] = (8, 8), seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand((n, 2, *size), dtype=torch.float64, generator=generator)
    return images, torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 1.0, 4.0])
def test_beta_numbers_are_scipys_quantiles(alpha: float) -> None:
    u = torch.linspace(0.005, 0.995, 5000, dtype=torch.float64)
    assert np.abs(beta(u, alpha).numpy() - stats.beta.ppf(u.numpy(), alpha, alpha)).max() < 1e-3
    ends = beta(torch.tensor([0.0, 1.0 - 2.0**-24]), alpha)
    assert float(ends[0]) == 0.0
    assert float(ends[1]) == pytest.approx(1.0, abs=1e-3)
    drawn = beta(uniform(make_key(1, "mix"), 20_000)[0].double(), alpha).numpy()
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 1e-4
    assert np.array_equal(np.sort(drawn), drawn[np.argsort(uniform(make_key(1, "mix"), 20_000)[0].numpy())])


def test_smoothed_targets_share_out_the_mass() -> None:
    labels = torch.tensor([2, 0])
    targets = make_targets(labels, "class", classes=4, smoothing=0.1, dtype=torch.float64)
    assert targets.dtype == torch.float64
    expected = [[0.025, 0.025, 0.925, 0.025], [0.925, 0.025, 0.025, 0.025]]
    assert torch.allclose(targets, torch.tensor(expected, dtype=torch.float64))
    hard = make_targets(labels, "class", classes=4, smoothing=0.0, dtype=torch.float32)
    assert hard.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


@given(
    pairs=st.integers(1, 6),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    mixes=st.sampled_from(MIXES),
    seed=st.integers(0, 10**6),
)
def test_targets_are_the_true_shares_of_both_images(
    pairs: int, size: tuple[int, int], mixes: tuple[float, float], seed: int
) -> None:
    n = 2 * pairs
    # Image i is the constant i + 1: a mixture's mean tells how much of each it holds.
    images = (torch.arange(n, dtype=torch.float64) + 1)[:, None, None, None].expand(n, 1, *size).clone()
    mixed, targets = mix(keys(n, seed), images, torch.eye(n, dtype=torch.float64), mixup=mixes[0], cutmix=mixes[1])
    assert float((targets.sum(dim=1) - 1).abs().max()) < 1e-12
    assert float(targets.min()) >= 0
    for i in range(n):
        assert set(targets[i].nonzero().flatten().tolist()) <= {i, i ^ 1}
        expected = float(targets[i, i]) * (i + 1) + float(targets[i, i ^ 1]) * ((i ^ 1) + 1)
        assert float(mixed[i].mean()) == pytest.approx(expected, abs=1e-9)
    for i in range(0, n, 2):  # both of a pair are mixed alike
        assert float(targets[i, i]) == pytest.approx(float(targets[i + 1, i + 1]), abs=1e-12)


@given(size=st.tuples(st.integers(1, 24), st.integers(1, 24)), seed=st.integers(0, 10**6))
def test_cutmix_takes_one_box_from_the_partner(size: tuple[int, int], seed: int) -> None:
    images, targets = batch_of(4, size)
    mixed, weights = mix(keys(4, seed), images, targets, mixup=0.0, cutmix=1.0)
    for i in range(4):
        own = (mixed[i] == images[i]).all(dim=0)
        other = (mixed[i] == images[i ^ 1]).all(dim=0)
        assert bool((own ^ other).all())  # every pixel is one or the other, in all channels
        rows, columns = other.any(dim=1).nonzero(), other.any(dim=0).nonzero()
        if other.any():
            box = other[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
            assert bool(box.all())
            assert int(box.sum()) == int(other.sum())
        assert float(weights[i, i]) == pytest.approx(float(own.double().mean()), abs=1e-12)


def test_cutmix_boxes_have_the_drawn_area_before_they_are_cut_off() -> None:
    n, images = 4000, torch.zeros(4000, 1, 64, 64)
    _, targets = mix(keys(n), images, torch.eye(2).repeat(n // 2, 1), mixup=0.0, cutmix=1.0)
    kept = targets[::2, 0].double().numpy()
    # The box loses what lies beyond the edges: for an even share s, a side of sqrt(s) around an even centre keeps
    # 1 - sqrt(s) / 4 of itself on average, so the mean own share is 1 - E[(sqrt(s) - s / 4) ** 2].
    s = np.linspace(0, 1, 100_001)
    assert kept.mean() == pytest.approx(1 - np.mean((np.sqrt(s) - s / 4) ** 2), abs=0.02)


def test_mixup_blends_every_pixel_by_one_share_per_pair() -> None:
    images, targets = batch_of(8)
    mixed, weights = mix(keys(8), images, targets, mixup=0.8, cutmix=0.0)
    for i in range(8):
        share = float(weights[i, i])
        assert torch.allclose(mixed[i], share * images[i] + (1 - share) * images[i ^ 1], rtol=0, atol=1e-12)
    assert len({round(float(weights[i, i]), 9) for i in range(8)}) == 4


def test_mixup_shares_are_beta_numbers() -> None:
    n = 8000
    _, targets = mix(keys(n), torch.zeros(n, 1, 1, 1), torch.eye(2).repeat(n // 2, 1), mixup=0.8, cutmix=0.0)
    assert stats.kstest(targets[::2, 0].double().numpy(), stats.beta(0.8, 0.8).cdf).pvalue > 1e-4


def test_mixup_and_cutmix_have_half_the_chance_each() -> None:
    n = 4000
    images = torch.arange(2.0).repeat(n // 2)[:, None, None, None].expand(n, 1, 16, 16)
    mixed, _ = mix(keys(n), images, torch.eye(2).repeat(n // 2, 1), mixup=0.8, cutmix=1.0)
    blended = ((mixed > 0) & (mixed < 1)).flatten(1).any(dim=1)[::2]
    assert abs(float(blended.double().mean()) - 0.5) < 4.5 * 0.5 / (n / 2) ** 0.5


@pytest.mark.parametrize("mixes", MIXES)
def test_a_pair_is_mixed_alike_in_any_batch(mixes: tuple[float, float]) -> None:
    images, targets = batch_of(10)
    key = keys(10)
    mixed, weights = mix(key, images, targets, mixup=mixes[0], cutmix=mixes[1])
    for chosen in ([4, 5], [8, 9, 0, 1], [2, 3, 2, 3]):
        part, shares = mix(
            Key(key.low[chosen], key.high[chosen]), images[chosen], targets[chosen], mixup=mixes[0], cutmix=mixes[1]
        )
        assert torch.allclose(part, mixed[chosen], rtol=0, atol=1e-12)
        assert torch.allclose(shares, weights[chosen], rtol=0, atol=1e-12)


def test_off_means_untouched() -> None:
    images, targets = batch_of(6)
    mixed, weights = mix(keys(6), images, targets, mixup=0.0, cutmix=0.0)
    assert torch.equal(mixed, images)
    assert torch.equal(weights, targets)


def test_the_inputs_are_left_alone() -> None:
    images, targets = batch_of(6)
    before = images.clone(), targets.clone()
    mix(keys(6), images, targets, mixup=0.8, cutmix=1.0)
    assert torch.equal(images, before[0])
    assert torch.equal(targets, before[1])
