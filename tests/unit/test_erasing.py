"""Random erasing: one box per image, of the stated sizes, filled with normal noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from ssl_vit.core.randomness import Key, make_key
from ssl_vit.views.mixing import erase

CONSTANT = 100.0  # no noise is ever this large


def test_boxes_and_noise_have_the_papers_distribution() -> None:
    n, size = 4000, 40
    images = torch.full((n, 3, size, size), CONSTANT)
    result = erase(make_key(0, "erasing", torch.arange(n)), images, 0.25)
    assert bool((images == CONSTANT).all())
    changed = result != CONSTANT
    hit = changed.flatten(1).any(dim=1)
    assert abs(float(hit.double().mean()) - 0.25) < 4.5 * (0.25 * 0.75 / n) ** 0.5
    areas, tops = [], []
    for mask in changed[hit]:
        assert bool((mask == mask[0]).all())  # all channels
        rows, columns = mask[0].any(dim=1), mask[0].any(dim=0)
        h, w = int(rows.sum()), int(columns.sum())
        assert int(mask[0].sum()) == h * w  # one full box
        assert int(rows.nonzero().max() - rows.nonzero().min()) == h - 1
        assert 0.3 * 0.8 <= h / w <= 1 / (0.3 * 0.8)  # rounding to whole pixels
        areas.append(h * w / size**2)
        tops.append((float(rows.nonzero().min()) + 0.5) / (size - h + 1))
    assert 0.01 < min(areas) < 0.04
    assert 0.3 < max(areas) < 0.36
    assert np.mean(areas) == pytest.approx((0.02 + 1 / 3) / 2, abs=0.01)
    assert stats.kstest(tops, "uniform").statistic < 0.06  # whole pixels: not exactly uniform
    noise = result[changed].double().numpy()
    assert abs(noise.mean()) < 4.5 / len(noise) ** 0.5
    assert noise.std() == pytest.approx(1.0, abs=0.01)


def test_a_sample_is_erased_alike_in_any_batch() -> None:
    key, images = make_key(1, "erasing", torch.arange(30)), torch.rand(30, 2, 13, 9, dtype=torch.float64)
    whole = erase(key, images, 0.6)
    assert not torch.equal(whole, images)
    for chosen in ([4], [29, 3], list(range(29, 4, -1))):
        rows = torch.tensor(chosen)
        assert torch.equal(erase(Key(key.low[rows], key.high[rows]), images[rows], 0.6), whole[rows])


def test_never_and_always_and_where_no_box_fits() -> None:
    key = make_key(1, "erasing", torch.arange(200))
    images = torch.rand(200, 1, 16, 16)
    assert torch.equal(erase(key, images, 0.0), images)
    assert bool((erase(key, images, 1.0) != images).flatten(1).any(dim=1).all())
    single = torch.rand(200, 1, 1, 1)
    assert torch.equal(erase(key, single, 1.0), single)
