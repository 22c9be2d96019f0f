"""Masks keep the number of patches that the official code keeps, and every patch equally often."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import kept_patches, random_mask
from ssl_vit.core.randomness import bits, make_key, normal, uniform


@pytest.mark.parametrize(
    ("patches", "ratio", "kept"),
    [
        (196, 0.75, 49),
        (196, 0.9, 19),  # 19.6 is floored
        (100, 0.9, 9),  # 1 - 0.9 is a little less than 0.1 in floating point; the official code keeps 9 too
        (16, 0.75, 4),
        (2, 0.5, 1),
        (64, 0.01, 63),
    ],
)
def test_kept_patches_are_floored_as_in_the_official_code(patches: int, ratio: float, kept: int) -> None:
    assert kept_patches(patches, ratio) == kept


@given(patches=st.integers(1, 1024), ratio=st.floats(-0.5, 1.5))
def test_kept_patches_are_the_formula_or_refused(patches: int, ratio: float) -> None:
    formula = int(patches * (1 - ratio))
    if 0 <= ratio <= 1 and 0 < formula < patches:
        assert kept_patches(patches, ratio) == formula
    else:
        with pytest.raises(UserError, match=r"--mae\.mask_ratio"):
            kept_patches(patches, ratio)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.25, 1.5, 0.999, float("nan"), float("inf"), float("-inf")])
def test_a_refused_ratio_is_explained(ratio: float) -> None:
    with pytest.raises(UserError) as raised:
        kept_patches(196, ratio)
    text = str(raised.value)
    assert "--mae.mask_ratio" in text
    assert f"{ratio:g}" in text
    assert "196" in text


@pytest.mark.parametrize("patches", [4, 16, 49, 64, 100, 144, 196, 256])
def test_the_ratios_that_an_error_proposes_are_accepted(patches: int) -> None:
    with pytest.raises(UserError) as raised:
        kept_patches(patches, 1.0)
    bounds = re.search(r"between ([\d.e-]+) and ([\d.e-]+)", str(raised.value))
    assert bounds is not None
    for bound in bounds.groups():
        assert 1 <= kept_patches(patches, float(bound)) < patches


@given(batch=st.integers(1, 9), patches=st.integers(2, 200), data=st.data())
def test_visible_and_masked_patches_are_a_partition(batch: int, patches: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, patches - 1))
    draw = data.draw(st.sampled_from([bits, uniform, normal]))
    noise = draw(make_key(data.draw(st.integers(0, 2**40)), "mask", 0, torch.arange(batch)), patches)
    mask = random_mask(noise, kept)
    assert mask.keep_ids.shape == (batch, kept)
    assert mask.mask_ids.shape == (batch, patches - kept)
    together = torch.cat([mask.keep_ids, mask.mask_ids], dim=1).sort(dim=1).values
    assert torch.equal(together, torch.arange(patches).expand(batch, -1))
    shown, hidden = noise.gather(1, mask.keep_ids), noise.gather(1, mask.mask_ids)
    assert bool((shown.amax(dim=1) <= hidden.amin(dim=1)).all())


def test_equal_noise_keeps_the_first_patches() -> None:
    mask = random_mask(torch.zeros(2, 6), 2)
    assert mask.keep_ids.tolist() == [[0, 1], [0, 1]]
    assert mask.mask_ids.tolist() == [[2, 3, 4, 5], [2, 3, 4, 5]]


@pytest.mark.parametrize("patches", [16, 196])
def test_every_patch_is_kept_equally_often(patches: int) -> None:
    masks, kept = 20_000, patches // 4
    keep = random_mask(bits(make_key(5, "mask", 0, torch.arange(masks)), patches), kept).keep_ids
    counts = torch.bincount(keep.flatten(), minlength=patches).double()
    share = kept / patches
    # Drawing without replacement: the counts' spread is that of a binomial, times (N - 1) / N over N - 1 freedoms.
    statistic = float(((counts - masks * share) ** 2 / (masks * share * (1 - share))).sum()) * (patches - 1) / patches
    assert 1e-4 < stats.chi2.sf(statistic, patches - 1) < 1 - 1e-4


def test_two_patches_are_visible_together_as_often_as_chance_has_it() -> None:
    masks, patches, kept = 20_000, 16, 4
    keep = random_mask(
        bits(make_key(6, "mask", torch.arange(masks), torch.zeros(masks).long()), patches), kept
    ).keep_ids
    seen = torch.zeros(masks, patches).scatter_(1, keep, 1.0)
    together = (seen.T @ seen)[torch.triu(torch.ones(patches, patches), 1) > 0] / masks
    expected = kept * (kept - 1) / (patches * (patches - 1))
    assert float((together - expected).abs().max()) < 5 * (expected * (1 - expected) / masks) ** 0.5
