"""How far features have moved from others: closed cases, and what a look keeps, says and leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedContinued, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.core.schedules import is_look
from ssl_vit.data.images import ImageSet
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone
from ssl_vit.training.drift import AGREEMENT, CKA, Drift, kept_positions, linear_cka, neighbours_kept

LIMITS = ResolvedContinued(
    rate=0.1, length=0.1, heads_first=0.1, least_agreement=0.25, least_cka=0.25, look_percent=5.0
)
RNG = np.random.default_rng(0)


def rotation(width: int) -> np.ndarray:
    return np.linalg.qr(RNG.normal(size=(width, width)))[0]


@pytest.mark.parametrize("width", [5, 300])
def test_the_same_features_turned_and_stretched_are_the_same(width: int) -> None:
    x = RNG.normal(size=(120, width)) + 1.0
    for same in (x, x @ rotation(width), 7.0 * x):
        assert neighbours_kept(x, same, 10) == 1.0
        assert linear_cka(x, same) == pytest.approx(1.0)
    assert linear_cka(x, x - 3.0) == pytest.approx(1.0)  # where the origin lies is nothing that a linear map sees


@pytest.mark.parametrize("width", [16, 2000])
def test_independent_features_share_nothing_but_chance(width: int) -> None:
    x, y = RNG.normal(size=(2, 512, width))
    assert neighbours_kept(x, y, 10) == pytest.approx(10 / 511, abs=0.008)
    assert linear_cka(x, y) == pytest.approx(0.0, abs=0.03)  # the estimate with bias has 0.8 here at width 2,000


def test_half_of_what_is_there() -> None:
    a, b = RNG.normal(size=(2, 4000, 8))
    assert linear_cka(a, np.hstack([a, b])) == pytest.approx(1 / math.sqrt(2), abs=0.02)
    around = 2 * np.pi * np.arange(4) / 4
    corners = np.stack([np.cos(around), np.sin(around)], axis=1)
    pairs, other = corners[[0, 0, 1, 1, 2, 2, 3, 3]], corners[[0, 0, 1, 1, 2, 3, 2, 3]]
    assert neighbours_kept(pairs, other, 1) == 0.5


def test_unlike_widths_and_no_spread() -> None:
    x = RNG.normal(size=(60, 12))
    assert linear_cka(x, np.hstack([x, np.zeros((60, 3))])) == pytest.approx(1.0)
    assert math.isnan(linear_cka(x, np.ones((60, 4))))


@pytest.mark.parametrize(
    ("percent", "steps", "looks"),
    [(25.0, 10, [3, 5, 8, 10]), (5.0, 7, [1, 2, 3, 4, 5, 6, 7]), (100.0, 9, [9]), (33.0, 100, [33, 66, 99, 100])],
)
def test_looks_come_every_so_many_per_cent_and_at_the_end(percent: float, steps: int, looks: list[int]) -> None:
    assert [done for done in range(1, steps + 1) if is_look(done, done - 1, steps, percent)] == looks


@pytest.fixture(scope="module")
def pool() -> ImageSet:
    return open_pool(DataConfig(), LabelledDataConfig())[0].subset(np.arange(700))


def network(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 8, 2, 24, 2, 2, "sincos", "mean"), 1)


def looking(pool: ImageSet, **limits: float) -> Drift:
    return Drift(replace(LIMITS, **limits), pool, measure_scale(pool), "mean", 64)


def test_kept_images_are_a_hashed_choice_of_the_pool(pool: ImageSet) -> None:
    chosen = kept_positions(700)
    assert len(set(chosen.tolist())) == len(chosen) == 512 and set(chosen.tolist()) < set(range(700))
    assert np.abs(np.corrcoef(np.arange(512), chosen)[0, 1]) < 0.2
    assert sorted(kept_positions(20)) == list(range(20))
    pixels = np.stack([pool.read(int(i))[0] for i in chosen[:9]])
    assert np.array_equal(looking(pool)._batch.images[:9].numpy(), pixels)
    with pytest.raises(UserError, match="5 images are too few to see drift"):
        looking(pool.subset(np.arange(5))).begin(network())


def test_a_state_within_the_limits_is_kept_and_the_first_beyond_ends_it(pool: ImageSet) -> None:
    drift, net = looking(pool), network()
    drift.begin(net)
    assert drift.look(net, 5) == {AGREEMENT: 1.0, CKA: pytest.approx(1.0)}
    assert (drift.kept["step"], drift.passed) == (5, None)
    good = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(network(1).state_dict())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=3.0)
    found = drift.look(net, 10)
    assert found[AGREEMENT] < 0.25
    assert drift.passed == {"step": 10, "agreement": found[AGREEMENT], "cka": found[CKA]}
    assert drift.kept["step"] == 5
    assert "stopped after step 10" in drift.words() and "after step 5, the last" in drift.words()
    again = looking(pool)
    again.load(drift.state())
    again.leave(net)
    assert all(torch.equal(value, good[name]) for name, value in net.state_dict().items())
    assert again.record() == drift.record()
    assert drift.record()["exported"] == {"step": 5, "agreement": 1.0, "cka": pytest.approx(1.0)}


def test_limits_of_zero_never_end_it_and_features_without_numbers_say_nothing(pool: ImageSet) -> None:
    drift, net = looking(pool, least_agreement=0.0, least_cka=0.0), network()
    drift.begin(net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=3.0)
    assert drift.look(net, 1)[AGREEMENT] < 0.5
    assert (drift.kept["step"], drift.passed) == (1, None)
    assert "no limit was passed" in drift.words()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(math.nan)
    assert drift.look(net, 2) == {}
    assert (drift.kept["step"], drift.passed) == (1, None)


def test_a_look_draws_nothing_and_leaves_the_network_as_it_was(pool: ImageSet) -> None:
    net = network().train()
    before, state = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    drift = looking(pool)
    drift.begin(net)
    drift.look(net, 1)
    assert torch.equal(state, torch.get_rng_state()) and all(part.training for part in net.modules())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
