"""Views: pixel scales, the evaluation crop, masks and soft targets; a sample's view is its own in any batch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import make_key
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.data.sources.folder import FileRows
from ssl_vit.data.targets import measure_targets
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.objectives.mae import mae_view, normalise_targets, pixel_patches
from ssl_vit.objectives.supervised import supervised_view
from ssl_vit.views import training
from ssl_vit.views.evaluation import eval_images
from ssl_vit.views.training import View, drop_path_factors, geometry, left_out, train_images

RAW = PixelScale((0.0,), (1.0,), 8)
COLOUR = PixelScale((0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 8)
PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
VARIED = ResolvedAugment(crop_scale=(0.2, 1.0), flip=True, policy="3-augment", erasing=0.0)
TUNED = ResolvedAugment(crop_scale=(0.2, 1.0), flip=True, policy="randaugment", erasing=0.25)
UNMIXED = ResolvedSupervised(pool="cls", mixup=0.0, cutmix=0.0)
RATES = linear_rates(6, UNMIXED.drop_path)
F64 = torch.float64


def train_geometry(*given: Any) -> torch.Tensor:
    return geometry(*given)(slice(None))


def batch_of(
    n: int,
    canvas: tuple[int, int] = (24, 24),
    *,
    sizes: tuple[float, float] | None = None,
    channels: int = 3,
    deep: bool = False,
    epoch: int = 0,
) -> Batch:
    generator = torch.Generator().manual_seed(n)
    # 8-bit noise stays away from black and white, so that no overshoot of the resampling could be clamped.
    low, high, dtype = (0, 65536, torch.int32) if deep else (80, 176, torch.uint8)
    images = torch.randint(low, high, (n, channels, *canvas), generator=generator).to(dtype)
    size = torch.tensor([sizes or canvas] * n, dtype=torch.float32)
    index = torch.arange(n) * 7
    native = sizes is None or sizes == canvas
    return Batch(images, index, torch.full((n,), epoch), size, native, torch.arange(n) % 5)


def part(batch: Batch, chosen: list[int]) -> Batch:
    assert batch.labels is not None
    return Batch(
        batch.images[chosen],
        batch.index[chosen],
        batch.epoch[chosen],
        batch.sizes[chosen],
        batch.native,
        batch.labels[chosen],
    )


def array_set(pixels: np.ndarray) -> ImageSet:
    form = Format(pixels.shape[1], 8 * pixels.dtype.itemsize)
    size = (pixels.shape[2], pixels.shape[3])
    return ImageSet("arrays", ArrayRows(pixels, "arrays"), np.arange(len(pixels)), form, Sizes(size, min(size)), "")


# Scale


@given(seed=st.integers(0, 999), channels=st.sampled_from([1, 3]), bits=st.sampled_from([8, 16]))
def test_restore_undoes_normalise(seed: int, channels: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    mean, std = rng.uniform(0, 1, channels), rng.uniform(0.01, 1, channels)
    scale = PixelScale(tuple(mean.tolist()), tuple(std.tolist()), bits)
    images = torch.from_numpy(rng.uniform(0, 1, (2, channels, 4, 5)))
    normal = scale.normalise(images)
    for c in range(channels):
        assert torch.allclose(normal[:, c], (images[:, c] - mean[c]) / std[c], rtol=0, atol=1e-12)
    assert torch.allclose(scale.restore(normal), images, rtol=0, atol=1e-12)
    assert torch.allclose(scale.normalise(scale.restore(images)), images, rtol=0, atol=1e-9)


def test_scaled_pixels_are_shares_of_the_whole_range() -> None:
    narrow = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert RAW.scaled(narrow, F64).flatten().tolist() == pytest.approx([0, 0.2, 1])
    wide = torch.tensor([0, 13107, 65535], dtype=torch.int32).view(1, 1, 1, 3)
    assert PixelScale((0.0,), (1.0,), 16).scaled(wide, torch.float32).flatten().tolist() == pytest.approx([0, 0.2, 1])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_the_measured_scale_is_numpys(kind: type) -> None:
    top = np.iinfo(kind).max
    pixels = np.random.default_rng(0).integers(0, top, (50, 3, 6, 7)).astype(kind)
    pixels[:, 1] //= 3
    pixels[:, 2] = 77  # a constant channel
    scale = measure_scale(array_set(pixels))
    shares = pixels.astype(np.float64) / top
    assert scale.bits == 8 * pixels.dtype.itemsize
    assert scale.mean == pytest.approx(shares.mean(axis=(0, 2, 3)), abs=1e-12)
    assert scale.std[:2] == pytest.approx(shares.std(axis=(0, 2, 3))[:2], abs=1e-9)
    assert scale.std[2] == 1.0
    normal = scale.normalise(scale.scaled(torch.from_numpy(pixels.astype(np.int32)), F64))
    assert float(normal[:, 2].abs().max()) < 1e-9
    assert float(normal[:, :2].mean()) == pytest.approx(0, abs=1e-9)
    assert float(normal[:, 0].std(unbiased=False)) == pytest.approx(1, abs=1e-9)


def test_the_scale_is_measured_on_images_from_the_whole_set() -> None:
    pixels = np.repeat(np.arange(100, dtype=np.uint8), 4).reshape(100, 1, 2, 2)
    few = measure_scale(array_set(pixels), at_most=5)
    assert few.mean[0] * 255 == pytest.approx(np.mean([0, 24, 49, 74, 99]), abs=0.5)
    assert measure_scale(array_set(pixels)).mean[0] * 255 == pytest.approx(49.5)


def test_the_scale_is_exact_and_the_same_in_any_order() -> None:
    # Rounding would depend on the order, and processes could disagree in the last bit.
    pixels = np.random.default_rng(0).integers(60_000, 65_536, (40, 2, 30, 30)).astype(np.uint16)
    scale = measure_scale(array_set(pixels))
    assert measure_scale(array_set(pixels[::-1].copy())) == scale
    exact = [int(v) for v in pixels[:, 0].flatten()]
    mean = Fraction(sum(exact), len(exact))
    variance = Fraction(sum(v * v for v in exact), len(exact)) - mean**2
    assert scale.mean[0] == pytest.approx(float(mean / 65535), rel=1e-15)
    assert scale.std[0] == pytest.approx(float(variance) ** 0.5 / 65535, rel=1e-14)


def test_a_faint_channel_is_standardised_and_a_dead_one_is_left_alone() -> None:
    pixels = np.full((30, 3, 20, 20), 500, dtype=np.uint16)
    pixels[:, 0, ::40, 0] += 1  # one grey level in one pixel of 400: a deviation of 0.05 levels
    pixels[0, 1, 0, 0] += 1  # one pixel of 12,000: nothing to learn from, and noise if it were blown up
    scale = measure_scale(array_set(pixels))
    assert scale.std[0] * 65535 == pytest.approx((1 / 400 * 399 / 400) ** 0.5, rel=1e-9)
    assert scale.std[1:] == (1.0, 1.0)
    normal = scale.normalise(scale.scaled(torch.from_numpy(pixels.astype(np.int32)), F64))
    assert float(normal[:, 1:].abs().max()) < 1e-4


def test_the_scale_of_windows_is_that_of_whole_images() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 1, 20, 30)).astype(np.uint8)
    images = array_set(pixels)
    assert measure_scale(images.on_canvas(None, 8, 8)) == measure_scale(images)


def shares(images: torch.Tensor, norm_pix: bool) -> list[float]:
    """Of each channel in the loss of a prediction of zero."""
    targets = pixel_patches(images, 4)
    if norm_pix:
        targets = normalise_targets(targets)
    parts = targets.unflatten(2, (-1, images.shape[1])).square().sum(dim=(0, 1, 2))
    return (parts / parts.sum()).tolist()


@pytest.mark.parametrize("norm_pix", [False, True])
def test_no_channel_dominates_maes_targets(norm_pix: bool) -> None:
    # Three channels of the same kind, bright to the ratio of 1 : 100 : 10,000.
    rng = np.random.default_rng(0)
    coarse = np.kron(rng.uniform(0, 4, (200, 3, 4, 4)), np.ones((1, 1, 4, 4)))
    bright = (coarse + rng.uniform(0, 2, (200, 3, 16, 16))) * np.array([1, 100, 10_000])[:, None, None]
    pixels = np.rint(bright).astype(np.uint16)
    images = torch.from_numpy(pixels.astype(np.int32))
    scale = measure_scale(array_set(pixels))
    assert shares(scale.normalise(scale.scaled(images, F64)), norm_pix) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert max(shares(scale.scaled(images, F64), norm_pix)) > 0.6  # as it would be without
    dead = np.concatenate([pixels, np.full_like(pixels[:, :1], 700)], axis=1)
    scale = measure_scale(array_set(dead))
    parts = shares(scale.normalise(scale.scaled(torch.from_numpy(dead.astype(np.int32)), F64)), norm_pix)
    # Among channels that live, one that does not has no say but the patch's mean, which norm_pix takes from all.
    assert parts[:3] == pytest.approx([sum(parts[:3]) / 3] * 3, abs=0.02)
    assert parts[3] < (0.1 if norm_pix else 1e-9)


def test_the_scale_leaves_unreadable_images_out(tmp_path: Path) -> None:
    for i, value in enumerate((10, 20, 60)):
        Image.new("L", (3, 3), value).save(tmp_path / f"{i}.png")
    rows = FileRows(tmp_path, ["0.png", "1.png", "2.png", "gone.png"])
    images = ImageSet("files", rows, np.arange(4), Format(1, 8), Sizes((3, 3), 3), "")
    assert measure_scale(images).mean[0] * 255 == pytest.approx(30)
    with pytest.raises(UserError, match="files"):
        measure_scale(images.subset(np.array([3])))


# Evaluation


def test_images_of_the_models_size_are_only_normalised() -> None:
    batch = batch_of(3)
    expected = COLOUR.normalise(batch.images.double() / 255)
    assert torch.equal(eval_images(batch, COLOUR, 24, F64), expected)


@pytest.mark.parametrize(
    ("canvas", "size", "side"),
    [
        ((112, 160), 96, 98),  # large images lose an eighth: resize to 256, crop 224
        ((256, 256), 224, 224),
        ((64, 96), 64, 64),  # no larger than the input: the whole short side
        ((80, 100), 96, 80),
        ((96, 128), 32, 96),  # small inputs: the whole short side
        ((20, 24), 64, 20),
    ],
)
def test_the_evaluation_crop_is_the_central_square(canvas: tuple[int, int], size: int, side: int) -> None:
    batch = batch_of(2, canvas)
    top, left = (canvas[0] - side) // 2, (canvas[1] - side) // 2
    cut = (batch.images.double() / 255)[:, :, top : top + side, left : left + side].contiguous()
    expected = F.interpolate(cut, size=(size, size), mode="bicubic", antialias=True, align_corners=False)
    assert float((eval_images(batch, COLOUR, size, F64) - COLOUR.normalise(expected)).abs().max()) < 1e-9


def test_the_evaluation_crop_is_central_in_the_original_not_on_the_canvas() -> None:
    # 100 x 200 squeezed onto 50 x 50: its central square is columns 12.5 to 37.5 of the canvas.
    batch = batch_of(2, (50, 50), sizes=(100.0, 200.0))
    result = eval_images(batch, COLOUR, 25, F64)
    assert result.shape == (2, 3, 25, 25)
    outer = batch.images.clone()
    outer[:, :, :, :12] = 0
    outer[:, :, :, 38:] = 255
    assert torch.equal(eval_images(replace(batch, images=outer), COLOUR, 25, F64), result)
    for column in (13, 36):
        inner = batch.images.clone()
        inner[:, :, :, column] = 255
        changed = eval_images(replace(batch, images=inner), COLOUR, 25, F64)
        assert float((changed - result).abs().max()) > 0.1


def test_evaluation_has_nothing_random() -> None:
    one, other = batch_of(4, (40, 50)), batch_of(4, (40, 50), epoch=9)
    assert torch.equal(eval_images(one, COLOUR, 16, F64), eval_images(other, COLOUR, 16, F64))


# Training


def test_no_augmentation_is_none() -> None:
    batch = batch_of(3)
    assert torch.equal(train_geometry(batch, 0, COLOUR, PLAIN, 24, F64), batch.images.double() / 255)


def test_half_of_the_images_are_flipped_and_nothing_else() -> None:
    batch = batch_of(2000, (4, 4), channels=1)
    cfg = replace(PLAIN, flip=True)
    images = batch.images.double() / 255
    result = train_geometry(batch, 0, RAW, cfg, 4, F64)
    flipped = (result == images.flip(3)).flatten(1).all(dim=1)
    assert bool((flipped | (result == images).flatten(1).all(dim=1)).all())
    assert abs(float(flipped.double().mean()) - 0.5) < 4.5 * 0.5 / 2000**0.5
    again = train_geometry(replace(batch, epoch=batch.epoch + 1), 0, RAW, cfg, 4, F64)
    other = (again == images.flip(3)).flatten(1).all(dim=1)
    assert abs(float((flipped ^ other).double().mean()) - 0.5) < 4.5 * 0.5 / 2000**0.5


def test_no_cropping_of_larger_images_is_their_central_square() -> None:
    batch = batch_of(3, (30, 40))
    cut = (batch.images.double() / 255)[:, :, :, 5:35].contiguous()
    expected = F.interpolate(cut, size=(16, 16), mode="bicubic", antialias=True, align_corners=False)
    assert float((train_geometry(batch, 0, COLOUR, PLAIN, 16, F64) - expected).abs().max()) < 1e-9


def test_crops_are_drawn_in_the_originals_coordinates() -> None:
    # One picture on two canvases: the crops show the same part of it. Each pixel holds its own place.
    def ramp(height: int, width: int) -> torch.Tensor:
        rows = (torch.arange(height) + 0.5) / height
        columns = (torch.arange(width) + 0.5) / width
        return torch.stack([rows[:, None].expand(height, width), columns.expand(height, width)])

    cfg = ResolvedAugment(crop_scale=(0.1, 0.3), flip=False, policy="none", erasing=0.0)
    scale = PixelScale((0.0, 0.0), (1.0, 1.0), 16)
    shown = []
    for canvas in ((60, 120), (90, 90)):
        images = (ramp(*canvas) * 65535).round().to(torch.int32).expand(20, -1, -1, -1).contiguous()
        index = torch.arange(20)
        batch = Batch(images, index, torch.zeros_like(index), torch.tensor([[60.0, 120.0]] * 20), False, None)
        shown.append(train_geometry(batch, 5, scale, cfg, 8, F64).mean(dim=(2, 3)))
    assert float((shown[0] - shown[1]).abs().max()) < 0.01
    assert float(shown[0].std(dim=0).min()) > 0.05  # and they are not all the middle


def smooth_batch(number: int, canvas: tuple[int, int], size: tuple[float, float]) -> Batch:
    coarse = torch.rand(number, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    images = (F.interpolate(coarse, size=canvas, mode="bilinear") * 255).round().to(torch.uint8)
    index = torch.arange(number)
    sizes = torch.tensor([size] * number)
    return Batch(images, index, torch.zeros_like(index), sizes, canvas == size, None)


CROPPED = [
    ResolvedAugment(crop_scale=(0.2, 1.0), flip=True, policy="none", erasing=0.0),
    ResolvedAugment(crop_scale=(0.2, 1.0), flip=False, policy="none", interpolation="bilinear", erasing=0.0),
    ResolvedAugment(crop_scale=(1.0, 1.0), flip=True, policy="none", crop="pad", erasing=0.0),
    ResolvedAugment(crop_scale=(1.0, 1.0), flip=True, policy="none", erasing=0.0),
]


@pytest.mark.parametrize("cfg", CROPPED)
@pytest.mark.parametrize("canvas", [(24, 24), (60, 60), (50, 90)])
@pytest.mark.parametrize("size", [(60.0, 60.0), (83.0, 121.0)])
def test_pixels_depend_on_neither_pieces_nor_the_batch(
    cfg: ResolvedAugment, canvas: tuple[int, int], size: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = smooth_batch(7, canvas, size)
    whole = train_images(batch, 4, COLOUR, cfg, 24, torch.float32)
    assert torch.allclose(whole, COLOUR.normalise(train_geometry(batch, 4, COLOUR, cfg, 24, torch.float32)), atol=1e-5)
    # In integers a level is 1/255, and two roundings are within two of them; smooth pictures do not overshoot.
    exact = COLOUR.normalise(train_geometry(batch, 4, COLOUR, cfg, 24, F64))
    assert float((whole - exact).abs().max()) <= 2 / 255 / min(COLOUR.std)
    monkeypatch.setattr(training, "_AT_ONCE", 3 * 24 * 24 * 2)
    assert torch.allclose(train_images(batch, 4, COLOUR, cfg, 24, torch.float32), whole, rtol=0, atol=1e-5)
    some = torch.tensor([5, 2])
    part = replace(
        batch, images=batch.images[some], index=batch.index[some], epoch=batch.epoch[some], sizes=batch.sizes[some]
    )
    assert torch.allclose(train_images(part, 4, COLOUR, cfg, 24, torch.float32), whole[some], rtol=0, atol=1e-5)


def test_interpolation_and_padding_are_as_asked() -> None:
    batch = smooth_batch(6, (24, 24), (24.0, 24.0))
    cubic, linear = (train_geometry(batch, 0, COLOUR, replace(c, flip=False), 24, F64) for c in CROPPED[:2])
    assert 1e-4 < float((cubic - linear).abs().max()) < 0.1
    padded = train_geometry(batch, 0, COLOUR, replace(CROPPED[2], flip=False), 24, F64)
    middle = batch.images[:, :, 6:18, 6:18].double() / 255
    for i in range(6):  # three pixels of padding: every crop holds the middle of its image, somewhere
        found = padded[i].unfold(1, 12, 1).unfold(2, 12, 1).permute(1, 2, 0, 3, 4)
        assert bool((found == middle[i]).flatten(2).all(dim=2).any())
    assert not torch.equal(padded, batch.images.double() / 255)
    # Other images are first resized as they would be without: their central square.
    other = smooth_batch(6, (40, 50), (40.0, 50.0))
    square = train_geometry(other, 0, COLOUR, replace(CROPPED[3], flip=False), 24, F64)
    padded = train_geometry(other, 0, COLOUR, replace(CROPPED[2], flip=False), 24, F64)
    assert bool(((padded[0] - square[0, :, 11, 11, None, None]).abs().amax(dim=0) < 1e-12).any())


@pytest.mark.parametrize("cfg", [PLAIN, VARIED])
def test_mae_views_have_images_and_a_partition_of_patches(cfg: ResolvedAugment) -> None:
    batch = batch_of(6)
    inputs = mae_view(COLOUR, cfg, size=24, patches=36, kept=9, dtype=torch.float32)(batch, 3)
    assert set(inputs) == {"images", "keep_ids", "mask_ids"}
    assert inputs["images"].shape == (6, 3, 24, 24)
    assert inputs["images"].dtype == torch.float32
    assert inputs["keep_ids"].shape == (6, 9)
    both = torch.cat([inputs["keep_ids"], inputs["mask_ids"]], dim=1).sort(dim=1).values
    assert torch.equal(both, torch.arange(36).expand(6, -1))
    assert len({tuple(row) for row in inputs["keep_ids"].tolist()}) == 6
    if cfg is PLAIN:
        assert torch.allclose(inputs["images"], COLOUR.normalise(batch.images.float() / 255))


VIEWS: dict[str, View] = {
    "MAE": mae_view(COLOUR, VARIED, size=16, patches=64, kept=16, dtype=F64),
    "MAE without augmentation": mae_view(COLOUR, PLAIN, size=24, patches=64, kept=16, dtype=F64),
    "labels": supervised_view(COLOUR, VARIED, UNMIXED, size=16, drop_rates=RATES, classes=5, dtype=F64),
    "labels, no colour": supervised_view(
        COLOUR,
        replace(VARIED, policy="none"),
        UNMIXED,
        size=24,
        drop_rates=RATES,
        classes=5,
        dtype=F64,
    ),
    "labels, MAE's recipe": supervised_view(COLOUR, TUNED, UNMIXED, size=24, drop_rates=RATES, classes=5, dtype=F64),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("sizes", [None, (60.0, 35.0)])
def test_a_sample_has_the_same_view_in_any_batch_and_place(name: str, sizes: tuple[float, float] | None) -> None:
    batch, view = batch_of(12, sizes=sizes), VIEWS[name]
    whole = view(batch, 3)
    for chosen in ([5], [11, 3, 0], [7, 6, 5, 4, 3, 2, 1, 0], [2, 2]):
        some = view(part(batch, chosen), 3)
        assert set(some) == set(whole)
        for key, value in some.items():
            expected = whole[key][chosen]
            if value.is_floating_point():
                assert torch.allclose(value, expected, rtol=0, atol=1e-10), key
            else:
                assert torch.equal(value, expected), key


@pytest.mark.parametrize("name", ["MAE", "labels", "labels, MAE's recipe"])
def test_another_visit_or_seed_gives_another_view(name: str) -> None:
    view, drawn = VIEWS[name], "keep_ids" if name == "MAE" else "drop"
    first, again = view(batch_of(8), 3), view(batch_of(8), 3)
    for key in first:
        assert torch.equal(first[key], again[key])
    for other in (view(batch_of(8, epoch=1), 3), view(batch_of(8), 4)):
        assert not torch.equal(other[drawn], first[drawn])
        for i in range(8):
            assert not torch.equal(other["images"][i], first["images"][i])


def test_supervised_views_have_smoothed_targets() -> None:
    batch = batch_of(10)
    inputs = supervised_view(COLOUR, PLAIN, replace(UNMIXED, label_smoothing=0.2), size=24, classes=5, dtype=F64)(
        batch, 0
    )
    assert set(inputs) == {"images", "targets"}
    assert batch.labels is not None
    assert torch.allclose(inputs["targets"], F.one_hot(batch.labels, 5).double() * 0.8 + 0.04)
    assert torch.equal(inputs["images"], COLOUR.normalise(batch.images.double() / 255))


def test_several_labels_are_smoothed_towards_the_middle() -> None:
    labels = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]], dtype=F64)
    loss = replace(UNMIXED, label_smoothing=0.2)
    view = supervised_view(COLOUR, PLAIN, loss, size=24, classes=3, kind="multilabel", dtype=F64)
    targets = view(replace(batch_of(2), labels=labels), 0)["targets"]
    assert torch.allclose(targets, torch.tensor([[0.1, 0.9, 0.9], [0.1, 0.1, 0.1]], dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("offset", "unit"), [(0.0, 1e-12), (0.1, 1e-9), (1e9, 1.0), (0.0, 1e12)])
def test_numbers_are_standardised_in_every_unit(offset: float, unit: float) -> None:
    labels = offset + unit * np.arange(10.0)[:, None]
    assert measure_targets(labels).std == pytest.approx(labels.std(axis=0), rel=1e-6)
    assert measure_targets(np.full((10, 1), offset or unit)).std == (1.0,)


def test_numbers_are_standardised_and_mixed_but_not_smoothed() -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal((1000.0, -3.0, 7.0), (50.0, 0.1, 0.0), (10, 3))
    scale = measure_targets(labels)
    assert np.abs(scale.restore(scale.standardise(labels)) - labels).max() < 1e-9
    assert scale.std[2] == 1.0  # a constant target stays finite
    batch = replace(batch_of(10), labels=torch.from_numpy(scale.standardise(labels)))
    plain, mixed = (
        supervised_view(
            COLOUR, PLAIN, replace(UNMIXED, mixup=mixup), size=24, classes=3, kind="regression", dtype=F64
        )(batch, 0)["targets"]
        for mixup in (0.0, 0.8)
    )  # fmt: skip
    assert float(plain.mean(dim=0).abs().max()) < 1e-9
    assert (plain[:, :2].std(dim=0, correction=0) - 1).abs().max() < 1e-9
    pairs = torch.arange(10) ^ 1
    low, high = torch.minimum(plain, plain[pairs]), torch.maximum(plain, plain[pairs])
    assert bool(((mixed >= low - 1e-9) & (mixed <= high + 1e-9)).all())
    assert not torch.allclose(plain, mixed)


@pytest.mark.parametrize("mixes", [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_supervised_views_mix_neighbours(mixes: tuple[float, float]) -> None:
    batch = batch_of(10)
    loss = replace(UNMIXED, mixup=mixes[0], cutmix=mixes[1], label_smoothing=0.0)
    inputs = supervised_view(COLOUR, PLAIN, loss, size=24, classes=10, dtype=F64)(
        replace(batch, labels=torch.arange(10)), 0
    )
    targets = inputs["targets"]
    assert float((targets.sum(dim=1) - 1).abs().max()) < 1e-12
    plain = COLOUR.normalise(batch.images.double() / 255)
    for i in range(10):
        assert set(targets[i].nonzero().flatten().tolist()) <= {i, i ^ 1}
        low, high = torch.minimum(plain[i], plain[i ^ 1]), torch.maximum(plain[i], plain[i ^ 1])
        assert bool(((inputs["images"][i] >= low - 1e-9) & (inputs["images"][i] <= high + 1e-9)).all())
    assert float((inputs["images"] - plain).abs().max()) > 0.1


def test_drop_path_is_all_or_nothing_and_keeps_the_expectation() -> None:
    n, depth, rate = 40_000, 5, 0.4
    rates = linear_rates(depth, rate)
    assert rates is not None
    factors = drop_path_factors(make_key(0, "drop-path", 0, torch.arange(n)), rates)
    assert factors.shape == (n, depth, 2)
    for block in range(depth):
        dropped = rate * block / (depth - 1)  # from nothing at the first block to the rate at the last
        values = factors[:, block].unique().tolist()
        assert values == pytest.approx([1.0] if block == 0 else [0.0, 1 / (1 - dropped)])
        for branch in range(2):
            share = float((factors[:, block, branch] == 0).double().mean())
            assert abs(share - dropped) <= 4.5 * (dropped * (1 - dropped) / n) ** 0.5
            deviation = (dropped / (1 - dropped) / n) ** 0.5
            assert abs(float(factors[:, block, branch].double().mean()) - 1) <= 4.5 * deviation + 1e-6
    # Both branches of a block, and neighbouring blocks, are dropped independently.
    zero = (factors[:, 1:] == 0).double().flatten(1).numpy()
    between = np.corrcoef(zero.T) - np.eye(zero.shape[1])
    assert np.abs(between).max() < 4.5 / n**0.5


def test_masks_crops_and_flips_of_a_sample_are_independent() -> None:
    # One hash for several purposes would tie what is hidden to what is flipped.
    n = 4000
    batch = batch_of(n, (4, 4), channels=1)
    view = mae_view(RAW, replace(PLAIN, flip=True), size=4, patches=4, kept=1, dtype=F64)
    inputs = view(batch, 0)
    flipped = (inputs["images"] == (batch.images.double() / 255).flip(3)).flatten(1).all(dim=1)
    counts = np.histogram2d(flipped.double().numpy(), inputs["keep_ids"][:, 0].double().numpy(), (2, 4))[0]
    assert stats.chi2_contingency(counts).pvalue > 1e-4


def test_16_bit_images_keep_their_depth() -> None:
    batch = batch_of(2, channels=1, deep=True)
    scale = PixelScale((0.5,), (0.25,), 16)
    expected = (batch.images.double() / 65535 - 0.5) / 0.25
    assert torch.allclose(eval_images(batch, scale, 24, F64), expected, rtol=0, atol=1e-12)
    inputs = mae_view(scale, PLAIN, size=24, patches=36, kept=9, dtype=F64)(batch, 0)
    assert torch.allclose(inputs["images"], expected, rtol=0, atol=1e-12)


def test_training_pixels_stay_in_range_where_sharp_edges_are_resized() -> None:
    # Bicubic weights overshoot at edges; Pillow and torchvision clamp, and the docstring promises [0, 1].
    squares = (torch.arange(48)[:, None] // 8 + torch.arange(48)[None] // 8) % 2
    board = (squares * 255).to(torch.uint8).expand(4, 1, -1, -1).contiguous()
    index = torch.arange(4)
    batch = Batch(board, index, torch.zeros_like(index), torch.tensor([[48.0, 48.0]] * 4), True, None)
    cfg = ResolvedAugment(crop_scale=(0.2, 0.5), flip=False, policy="none", erasing=0.0)
    result = train_geometry(batch, 0, RAW, cfg, 32, F64)
    assert float(result.min()) >= 0
    assert float(result.max()) <= 1


@pytest.mark.parametrize(
    ("policy", "channels", "bits", "names"),
    [
        ("none", 1, 16, ""), ("3-augment", 3, 8, ""), ("jitter", 3, 8, ""), ("randaugment", 3, 8, ""),
        ("3-augment", 1, 8, "3-Augment leaves out grey: it makes"),
        ("3-augment", 5, 16, "3-Augment leaves out grey, solarise: they make"),
        ("jitter", 1, 8, "The jitter leaves out saturation, hue, grey: they make"),
        ("randaugment", 2, 8, "RandAugment leaves out saturation: it makes"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_for_the_images_is_said(policy: Any, channels: int, bits: int, names: str) -> None:
    expected = (f"note: {names} no sense for {channels} channel(s) of {bits} bits",) if names else ()
    assert left_out(replace(PLAIN, policy=policy), channels, bits) == expected
