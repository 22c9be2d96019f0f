"""RandAugment against timm's own operations on 8-bit images, and what makes it safe in batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from scipy.ndimage import gaussian_filter
from ssl_vit.core.randomness import Key, make_key
from ssl_vit.views.randaugment import apply, notice, operations, rand_augment
from timm.data.auto_augment import LEVEL_TO_ARG, NAME_TO_OP
from torch import Tensor

TIMMS = {
    "autocontrast": "AutoContrast",
    "equalise": "Equalize",
    "invert": "Invert",
    "posterise": "PosterizeIncreasing",
    "solarise": "SolarizeIncreasing",
    "solarise_add": "SolarizeAdd",
    "saturation": "ColorIncreasing",
    "contrast": "ContrastIncreasing",
    "brightness": "BrightnessIncreasing",
    "sharpness": "SharpnessIncreasing",
    "rotate": "Rotate",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateXRel",
    "translate_y": "TranslateYRel",
}
FILL = torch.tensor([100, 150, 200], dtype=torch.float64) / 255
SIZE = (37, 52)


def photo(seed: int = 0) -> np.ndarray:
    """A smooth image of 8 bits that uses part of the range."""
    noise = np.random.default_rng(seed).normal(size=(*SIZE, 3))
    smooth = gaussian_filter(noise, (1.5, 1.5, 0.5))
    smooth = (smooth - smooth.min()) / np.ptp(smooth)
    return (20 + 190 * smooth).round().astype(np.uint8)


def as_tensor(*images: np.ndarray) -> Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).double() / 255


def timms(name: str, image: np.ndarray, strength: float, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr("random.random", lambda: 1.0 if strength < 0 else 0.0)  # the sign: above .5 is negative
    level = LEVEL_TO_ARG[TIMMS[name]]
    args = () if level is None else level(abs(strength) * 10, {"translate_pct": 0.45})
    if name == "posterise":
        args = (max(1, *args),)  # timm asks for no bits at magnitude 10, which Pillow refuses
    fill = {"fillcolor": tuple(int(v) for v in (FILL * 255).round()), "resample": Image.Resampling.BILINEAR}
    return np.asarray(NAME_TO_OP[TIMMS[name]](Image.fromarray(image), *args, **fill))


@pytest.mark.parametrize("strength", [0.93, -0.93, 0.41, -0.27, 1.0])
@pytest.mark.parametrize("name", TIMMS)
def test_every_operation_is_timms(name: str, strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    image = photo()
    if name == "equalise":
        image = np.tile(image, (3, 3, 1))  # with too few pixels Pillow leaves an image alone
    expected = timms(name, image, strength, monkeypatch).astype(float)
    found = apply(as_tensor(image), [name], torch.tensor([strength], dtype=torch.float64), FILL)
    difference = np.abs(found[0].permute(1, 2, 0).numpy() * 255 - expected)
    assert np.abs(expected - image).mean() > 0.05  # it does something
    if name in ("equalise", "invert", "posterise", "solarise", "solarise_add"):
        assert difference.max() < 1e-9
    else:  # Pillow rounds or cuts to whole levels, what they blend with too
        assert difference.max() <= (1.6 if name in ("saturation", "contrast", "sharpness") else 1.0 + 1e-9)


def test_equalise_leaves_an_image_of_few_pixels_or_one_level_alone() -> None:
    images = torch.stack([as_tensor(photo()[:9, :9])[0], torch.full((3, 9, 9), 0.4, dtype=torch.float64)])
    assert torch.equal(apply(images, ["equalise"] * 2, torch.ones(2, dtype=torch.float64), FILL), images)


def test_constant_channels_survive_autocontrast() -> None:
    images = torch.full((1, 3, 4, 4), 0.25, dtype=torch.float64)
    assert torch.equal(apply(images, ["autocontrast"], torch.ones(1, dtype=torch.float64), FILL), images)


def test_a_threshold_is_not_crossed_by_rounding_errors() -> None:
    level = torch.full((2, 1, 3, 3), 26 / 255, dtype=torch.float64)  # the threshold at magnitude 9
    level[1] -= 1e-12
    for name in ("solarise", "posterise", "equalise"):
        found = apply(level, [name] * 2, torch.full((2,), 0.9, dtype=torch.float64), FILL[:1])
        assert float((found[0] - found[1]).abs().max()) < 1e-11


@pytest.mark.parametrize(("channels", "bits"), [(3, 8), (1, 8), (3, 16), (1, 16), (4, 16)])
def test_what_makes_no_sense_is_not_drawn(channels: int, bits: int) -> None:
    found = set(operations(channels, bits))
    assert ("saturation" in found) == (channels == 3)
    for name in ("equalise", "invert", "posterise", "solarise", "solarise_add"):
        assert (name in found) == (bits == 8)
    assert {"brightness", "contrast", "sharpness", "autocontrast", "rotate", "translate_y"} <= found
    assert bool(notice(channels, bits)) == (len(found) < 15)
    for name in set(operations(3, 8)) - found:
        assert name in notice(channels, bits)
    images = torch.rand(40, channels, 12, 12, dtype=torch.float64)
    fill = torch.full((channels,), 0.5)
    result = rand_augment(make_key(0, "a", torch.arange(40)), images, magnitude=9.0, fill=fill, bits=bits)
    assert result.shape == images.shape
    assert bool(((result >= 0) & (result <= 1)).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_sample_is_changed_alike_in_any_batch(dtype: torch.dtype) -> None:
    key = make_key(5, "a", torch.arange(60))
    images = torch.rand(60, 3, 17, 23, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = images.clone()
    fill = FILL.to(dtype)
    whole = rand_augment(key, images, magnitude=9.0, fill=fill, bits=8)
    assert whole.dtype == dtype
    assert torch.equal(images, before)
    for chosen in ([3], [59, 0, 7], [5, 5], list(range(59, 19, -1))):
        rows = torch.tensor(chosen)
        part = rand_augment(Key(key.low[rows], key.high[rows]), images[rows], magnitude=9.0, fill=fill, bits=8)
        assert torch.allclose(part, whole[rows], rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-6)


def test_draws_have_timms_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    n, seen = 20_000, []

    def spy(images: Tensor, names: list[str | None], strength: Tensor, fill: Tensor) -> Tensor:
        seen.append((names, strength))
        return images

    monkeypatch.setattr("ssl_vit.views.randaugment.apply", spy)
    key = make_key(0, "a", torch.arange(n))
    rand_augment(key, torch.zeros(n, 3, 1, 1), magnitude=9.0, fill=torch.zeros(3), bits=8)
    assert len(seen) == 2
    numbers = []
    for names, strength in seen:
        applied = np.array([name is not None for name in names])
        assert abs(applied.mean() - 0.5) < 4.5 * 0.5 / n**0.5
        counts = [names.count(name) for name in operations(3, 8)]
        assert stats.chisquare(counts).pvalue > 1e-4
        assert abs(float((strength > 0).double().mean()) - 0.5) < 4.5 * 0.5 / n**0.5
        level = strength.abs().double() * 10
        assert float(level.max()) == 10.0  # clipped: two deviations above the mean
        below = level[level < 9].numpy()
        assert stats.kstest(9 - below, stats.halfnorm(scale=0.5).cdf).pvalue > 1e-4
        numbers.append([applied.astype(float), level.numpy(), (strength > 0).double().numpy()])
    together = np.corrcoef(np.concatenate(numbers)) - np.eye(6)
    assert np.abs(together).max() < 4.5 / n**0.5


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 2)])
def test_tiny_images_are_no_problem(size: tuple[int, int]) -> None:
    images = torch.rand(60, 3, *size, dtype=torch.float64)
    result = rand_augment(make_key(0, "a", torch.arange(60)), images, magnitude=9.0, fill=FILL, bits=8)
    assert bool(result.isfinite().all())
