"""Colour and intensity: what has to stay the same does, for every channel count, bit depth and batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tvf
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.ndimage import gaussian_filter
from ssl_vit.core.randomness import Key, make_key, uniform
from ssl_vit.views import colour
from ssl_vit.views.colour import (
    blur,
    blur_by_products,
    brightness,
    contrast,
    grey,
    hue,
    jitter,
    luma,
    saturation,
    solarise,
    three_augment,
)
from torch import Tensor

SHAPES = st.tuples(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(1, 12), st.integers(1, 12))


def pixels(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def keys(n: int, seed: int = 0) -> Key:
    return make_key(seed, "colour", 0, torch.arange(n))


def test_grey_is_luma_on_every_channel() -> None:
    images = pixels(2, 3, 5, 7)
    result = grey(images)
    assert result.shape == images.shape
    luma = np.tensordot(np.array([0.299, 0.587, 0.114]), images.numpy(), axes=(0, 1))
    for channel in range(3):
        assert np.abs(result[:, channel].numpy() - luma).max() < 1e-12
    again = grey(result)
    assert torch.allclose(again, result, rtol=0, atol=1e-12)
    assert torch.allclose(grey(torch.ones(1, 3, 2, 2)), torch.ones(1, 3, 2, 2))


def test_solarise_inverts_the_bright_half() -> None:
    values = torch.tensor([0.0, 0.2, 0.499, 0.5, 0.75, 1.0]).view(1, 1, 1, 6)
    assert solarise(values).flatten().tolist() == pytest.approx([0.0, 0.2, 0.499, 0.5, 0.25, 0.0])
    images = pixels(3, 3, 9, 9)
    result = solarise(images)
    assert float(result.min()) >= 0
    assert float(result.max()) <= 0.5
    dark = images < 0.5
    assert torch.equal(result[dark], images[dark])


@given(shape=SHAPES, sigma=st.floats(0.1, 2.0))
def test_blur_keeps_constants_and_range(shape: tuple[int, int, int, int], sigma: float) -> None:
    sigmas = torch.full((shape[0],), sigma)
    constant = torch.full(shape, 0.3, dtype=torch.float64)
    assert float((blur(constant, sigmas) - constant).abs().max()) < 1e-12
    images = pixels(*shape)
    result = blur(images, sigmas)
    assert result.shape == images.shape
    for one, other in zip(result, images, strict=True):
        for a, b in zip(one, other, strict=True):
            assert float(b.min()) - 1e-12 <= float(a.min())
            assert float(a.max()) <= float(b.max()) + 1e-12


@pytest.mark.parametrize("size", [(20, 20), (7, 30), (13, 13)])
def test_blur_is_a_gaussian_of_each_samples_width(size: tuple[int, int]) -> None:
    images, sigmas = pixels(3, 3, *size), torch.tensor([0.1, 0.8, 2.0], dtype=torch.float64)
    result = blur(images, sigmas)
    for i, sigma in enumerate(sigmas.tolist()):
        for channel in range(3):
            # scipy calls torch's "reflect" edges "mirror".
            expected = gaussian_filter(images[i, channel].numpy(), sigma, mode="mirror", radius=6)
            assert np.abs(result[i, channel].numpy() - expected).max() < 1e-12


def test_blur_of_almost_no_width_changes_nothing() -> None:
    images = pixels(2, 1, 8, 8)
    assert torch.allclose(blur(images, torch.tensor([0.1, 0.1])), images, rtol=0, atol=1e-12)


@given(shape=SHAPES, strength=st.floats(0, 0.9), seed=st.integers(0, 100))
def test_jitter_stays_in_range_and_its_middle_is_no_change(
    shape: tuple[int, int, int, int], strength: float, seed: int
) -> None:
    images = pixels(*shape, seed=seed)
    middle = torch.full((shape[0], 2), 0.5)
    assert torch.allclose(jitter(images, middle, strength), images, rtol=0, atol=1e-12)
    result = jitter(images, uniform(keys(shape[0], seed), 2), strength)
    assert float(result.min()) >= 0
    assert float(result.max()) <= 1


def test_jitter_is_brightness_then_contrast_about_the_mean() -> None:
    images = 0.4 + 0.2 * pixels(2, 3, 6, 6)  # away from the ends, so that nothing is clamped
    brighter = jitter(images, torch.tensor([[1.0, 0.5], [0.0, 0.5]]), 0.3)
    assert torch.allclose(brighter[0], images[0] * 1.3, rtol=0, atol=1e-7)
    assert torch.allclose(brighter[1], images[1] * 0.7, rtol=0, atol=1e-7)
    contrast = jitter(images, torch.tensor([[0.5, 1.0], [0.5, 0.0]]), 0.3)
    for i, factor in enumerate((1.3, 0.7)):
        assert float(contrast[i].mean()) == pytest.approx(float(images[i].mean()), abs=1e-7)
        assert float(contrast[i].std() / images[i].std()) == pytest.approx(factor, abs=1e-6)


# One operation with one amount per sample, as torchvision has it on fractions


@pytest.fixture
def torchvisions_luma(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow and ITU-R 601 weight red by 0.299, which torchvision rounds to 0.2989."""
    monkeypatch.setattr(colour, "_LUMA", (0.2989, 0.587, 0.114))


def some_images() -> Tensor:
    """Noise, grey, one channel without light, primary colours, two channels alike."""
    images = pixels(8, 3, 14, 17, dtype=torch.float32)
    images[1] = images[1, :1]
    images[2, 1] = 0
    images[3] = (images[3] > 0.5).float()
    images[4, 2] = images[4, 0]
    images[5, 0] = images[5, 1]
    images[6] *= 1e-4
    return images


@pytest.mark.usefixtures("torchvisions_luma")
@pytest.mark.parametrize(
    ("own", "torchvisions", "amounts"),
    [
        (brightness, tvf.adjust_brightness, (0.0, 2.0)),
        (lambda x, f: contrast(x, f, rgb=True), tvf.adjust_contrast, (0.0, 2.0)),
        (saturation, tvf.adjust_saturation, (0.0, 2.0)),
        (hue, tvf.adjust_hue, (-0.5, 0.5)),
        (lambda x, s: blur(x, s), lambda x, s: tvf.gaussian_blur(x, [13, 13], [s, s]), (0.1, 2.0)),
        (
            lambda x, s: blur_by_products(x[..., :14], s, 6),
            lambda x, s: tvf.gaussian_blur(x[..., :14], [13, 13], [s, s]),
            (0.1, 2.0),
        ),
        (lambda x, _: grey(x), lambda x, _: tvf.rgb_to_grayscale(x, 3), (0.0, 1.0)),
        (lambda x, _: solarise(x), lambda x, _: tvf.solarize(x, 0.5), (0.0, 1.0)),
    ],
    ids=["brightness", "contrast", "saturation", "hue", "blur", "blur_by_products", "grey", "solarise"],
)
def test_operations_are_torchvisions(
    own: Callable[[Tensor, Tensor], Tensor],
    torchvisions: Callable[[Tensor, float], Tensor],
    amounts: tuple[float, float],
) -> None:
    images = some_images()
    before = images.clone()
    values = torch.linspace(*amounts, len(images))
    found = own(images, values)
    for image, value, result in zip(images, values.tolist(), found, strict=True):
        assert float((result - torchvisions(image, value)).abs().max()) < 1e-5
    assert torch.equal(images, before)


def test_contrast_of_other_channels_is_about_the_mean_of_all() -> None:
    images = 0.3 + 0.4 * pixels(2, 5, 6, 6)
    found = contrast(images, torch.tensor([0.5, 1.2]), rgb=False)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    factor = torch.tensor([0.5, 1.2]).double()[:, None, None, None]
    assert torch.allclose(found, mean + (images - mean) * factor, rtol=0, atol=1e-12)


@given(seed=st.integers(0, 1000), first=st.floats(-1, 1), second=st.floats(-1, 1))
def test_hue_turns_a_circle_and_keeps_the_least_and_the_largest(seed: int, first: float, second: float) -> None:
    images = pixels(2, 3, 5, 5, seed=seed)
    images[1] = images[1, :1]  # grey
    one, other = (torch.full((2,), turn, dtype=torch.float64) for turn in (first, second))
    found = hue(images, one)
    assert torch.allclose(found.amin(dim=1), images.amin(dim=1), rtol=0, atol=1e-12)
    assert torch.allclose(found.amax(dim=1), images.amax(dim=1), rtol=0, atol=1e-12)
    assert torch.allclose(found[1], images[1], rtol=0, atol=1e-12)
    assert torch.allclose(hue(found, other), hue(images, one + other), rtol=0, atol=1e-9)
    assert torch.allclose(hue(images, torch.ones(2)), images, rtol=0, atol=1e-12)


def test_a_third_of_a_turn_moves_every_channel_on() -> None:
    images = pixels(1, 3, 8, 8)
    assert torch.allclose(hue(images, torch.full((1,), 1 / 3, dtype=torch.float64)), images.roll(1, dims=1), atol=1e-9)


@given(n=st.integers(1, 3), size=st.integers(1, 20), sigma=st.floats(0.1, 3.0))
def test_blur_by_products_is_blur(n: int, size: int, sigma: float) -> None:
    images, sigmas = pixels(n, 2, size, size), torch.linspace(0.2, sigma, n).double()
    assert torch.allclose(blur_by_products(images, sigmas, 6), blur(images, sigmas), rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [0, 1, 4, 15, 40])
def test_a_blur_reaches_as_far_as_asked(reach: int) -> None:
    images = pixels(1, 1, 16, 16)
    found = blur_by_products(images, torch.tensor([3.0], dtype=torch.float64), reach)
    expected = gaussian_filter(images[0, 0].numpy(), 3.0, mode="mirror", radius=min(reach, 15))
    assert np.abs(found[0, 0].numpy() - expected).max() < 1e-12


def test_six_pixels_to_each_side_are_enough_for_a_deviation_of_two() -> None:
    images, sigma = pixels(1, 1, 30, 30), torch.tensor([2.0])
    assert float((blur(images, sigma) - blur_by_products(images, sigma, 14)).abs().max()) < 2e-3


def test_luma_is_the_weighted_sum_to_the_last_bit() -> None:
    for dtype in (torch.float32, torch.float64):
        images = pixels(4, 3, 9, 11, dtype=dtype)
        weights = images.new_tensor((0.299, 0.587, 0.114))[:, None, None]
        assert torch.equal(luma(images), (images * weights).sum(dim=1, keepdim=True))


@given(shape=SHAPES, bits=st.sampled_from([8, 16]), seed=st.integers(0, 1000), single=st.booleans())
def test_three_augment_keeps_shape_type_and_range(
    shape: tuple[int, int, int, int], bits: int, seed: int, single: bool
) -> None:
    images = pixels(*shape, seed=seed, dtype=torch.float32 if single else torch.float64)
    before = images.clone()
    result = three_augment(keys(shape[0], seed), images, bits=bits)
    assert result.shape == images.shape
    assert result.dtype == images.dtype
    assert bool(result.isfinite().all())
    assert float(result.min()) >= 0
    assert float(result.max()) <= 1
    assert torch.equal(images, before)


def kinds(key: Key) -> Tensor:
    """Which of grey, solarise and blur (0, 1, 2) a sample gets, by the first of its numbers."""
    return (uniform(key, 4)[:, 0] * 3).long()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", [8, 16])
def test_what_makes_no_sense_is_left_out(channels: int, bits: int) -> None:
    n = 60
    images, key = pixels(n, channels, 8, 8), keys(n)
    result = three_augment(key, images, bits=bits)
    only_jitter = jitter(images, uniform(key, 4)[:, 2:], 0.3)
    untouched = (result - only_jitter).abs().amax(dim=(1, 2, 3)) < 1e-12
    kind = kinds(key)
    assert set(kind.tolist()) == {0, 1, 2}
    assert bool(untouched[kind == 0].all()) == (channels == 1 or bits == 16)
    assert bool(untouched[kind == 1].all()) == (bits == 16)
    assert not untouched[kind == 2].any()  # blur makes sense everywhere
    if channels == 3 and bits == 8:
        coloured = (result - result[:, :1]).abs().amax(dim=(1, 2, 3)) > 1e-6
        assert torch.equal(coloured, kind != 0)


def test_the_three_are_equally_likely_and_independent_of_the_jitter() -> None:
    key = keys(30_000)
    kind, u = kinds(key), uniform(key, 4).double()
    assert stats.chisquare(torch.bincount(kind).numpy()).pvalue > 1e-4
    for k in range(3):
        for column in (1, 2, 3):
            assert stats.kstest(u[kind == k, column].numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sample_is_changed_alike_in_any_batch(channels: int) -> None:
    images, key = pixels(20, channels, 9, 9), keys(20)
    whole = three_augment(key, images, bits=8)
    for chosen in ([3], [19, 0, 7], [5, 5, 5, 5]):
        part = three_augment(Key(key.low[chosen], key.high[chosen]), images[chosen], bits=8)
        assert torch.allclose(part, whole[chosen], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_tiny_images_are_no_problem(size: tuple[int, int]) -> None:
    result = three_augment(keys(12), pixels(12, 3, *size), bits=8)
    assert bool(result.isfinite().all())
