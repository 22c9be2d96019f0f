"""Batched crops: exactly torch's antialiased bicubic of the cropped image, boxes as torchvision draws them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from ssl_vit.core.randomness import Key, make_key, normal
from ssl_vit.data.boxes import centre_crop, random_resized_crop, to_canvas, whole_pixels
from ssl_vit.data.decoding.resize import Interpolation
from ssl_vit.views.augment import (
    crop_bytes,
    crop_resize,
    crops_in_bytes,
    pad_crop,
    random_shift,
    resize_weights,
)
from torch import Tensor
from torchvision.transforms import RandomResizedCrop


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


KERNELS: tuple[Interpolation, ...] = ("bicubic", "bilinear")


def resampling(length: int, out: int, kernel: Interpolation = "bicubic") -> Tensor:
    """Torch's weights [out, length] along one axis; torch 2.15 goes wrong where the other axis becomes one pixel."""
    if length == 1:
        return torch.ones(out, 1, dtype=torch.float64)
    eye = torch.eye(length, dtype=torch.float64)[None, None]
    return F.interpolate(eye, size=(out, length), mode=kernel, antialias=True, align_corners=False)[0, 0]


@st.composite
def crops(draw: st.DrawFn, least: int) -> tuple[int, int, int, int, int, int]:
    height, width = draw(st.integers(least, 40)), draw(st.integers(least, 40))
    h, w = draw(st.integers(least, height)), draw(st.integers(least, width))
    return height, width, draw(st.integers(0, height - h)), draw(st.integers(0, width - w)), h, w


@given(crop=crops(2), out=st.integers(2, 45), kernel=st.sampled_from(KERNELS), whole=st.booleans())
def test_a_crop_is_torchs_interpolation_of_the_cropped_image(
    crop: tuple[int, ...], out: int, kernel: Interpolation, whole: bool
) -> None:
    height, width, top, left, h, w = crop
    image = noise(1, 3, height, width)
    box = torch.tensor([[top, left, h, w]], dtype=torch.float32)
    cut = image[:, :, top : top + h, left : left + w].contiguous()
    expected = F.interpolate(cut, size=(out, out), mode=kernel, antialias=True, align_corners=False)
    found = crop_resize(image, box, out, interpolation=kernel, whole=whole)
    assert float((found - expected).abs().max()) < 1e-9


@given(crop=crops(1), out=st.integers(1, 45), kernel=st.sampled_from(KERNELS), whole=st.booleans())
def test_crops_down_to_one_pixel_are_torchs_weights(
    crop: tuple[int, ...], out: int, kernel: Interpolation, whole: bool
) -> None:
    height, width, top, left, h, w = crop
    image = noise(1, 2, height, width)
    box = torch.tensor([[top, left, h, w]], dtype=torch.float32)
    cut = image[:, :, top : top + h, left : left + w]
    expected = resampling(h, out, kernel) @ cut @ resampling(w, out, kernel).T
    found = crop_resize(image, box, out, interpolation=kernel, whole=whole)
    assert float((found - expected).abs().max()) < 1e-9


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("height", "width", "out"), [(7, 5, 6), (12, 20, 9)])
def test_weights_from_the_table_are_those_of_every_crop(
    kernel: Interpolation, height: int, width: int, out: int
) -> None:
    rows = [(t, h) for h in range(1, height + 1) for t in range(height - h + 1)]
    columns = [(left, w) for w in range(1, width + 1) for left in range(width - w + 1)]
    number = max(len(rows), len(columns))
    boxes = torch.tensor(
        [[*rows[i % len(rows)], *columns[i % len(columns)]] for i in range(number)], dtype=torch.float32
    )[:, [0, 2, 1, 3]]
    images, flip = noise(number, 1, height, width), torch.arange(number) % 3 == 0
    expected = crop_resize(images, boxes, out, flip, kernel)
    assert torch.allclose(crop_resize(images, boxes, out, flip, kernel, whole=True), expected, rtol=0, atol=1e-12)


def test_every_sample_has_its_own_crop_and_flip() -> None:
    images = noise(4, 3, 20, 30)
    boxes = torch.tensor([[0, 0, 20, 30], [3, 5, 7, 9], [10, 0, 10, 2], [0, 29, 1, 1]], dtype=torch.float32)
    flip = torch.tensor([False, True, True, False])
    together = crop_resize(images, boxes, 8, flip)
    for i in range(4):
        alone = crop_resize(images[i : i + 1], boxes[i : i + 1], 8, flip[i : i + 1])
        assert float((alone[0] - together[i]).abs().max()) < 1e-12
    plain = crop_resize(images, boxes, 8)
    for i in range(4):
        expected = plain[i].flip(-1) if flip[i] else plain[i]
        assert float((together[i] - expected).abs().max()) < 1e-12


@given(crop=crops(1), out=st.integers(1, 45), shift=st.floats(0, 0.99))
def test_a_flip_mirrors_exactly(crop: tuple[int, ...], out: int, shift: float) -> None:
    height, width, top, left, h, w = crop
    image = noise(1, 1, height, width)
    left = min(left + shift, width - w)  # boxes on a canvas are not whole numbers
    box = torch.tensor([[top, left, h, w]], dtype=torch.float32)
    mirrored = crop_resize(image, box, out, torch.tensor([True]))
    assert torch.allclose(mirrored, crop_resize(image, box, out).flip(-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 8, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_whole_image_at_its_own_size_is_unchanged(size: int, dtype: torch.dtype) -> None:
    images = noise(2, 3, size, size).to(dtype)
    whole = torch.tensor([[0.0, 0.0, size, size]] * 2)
    assert torch.equal(crop_resize(images, whole, size), images)
    assert torch.equal(crop_resize(images, whole, size, torch.tensor([True, False]))[0], images[0].flip(-1))


@given(size=st.integers(1, 40), out=st.integers(1, 60), data=st.data())
def test_constant_images_stay_constant(size: int, out: int, data: st.DataObject) -> None:
    extent = data.draw(st.floats(1, size))
    start = data.draw(st.floats(0, size - extent))
    box = torch.tensor([[start, start, extent, extent]])
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        result = crop_resize(torch.full((1, 1, size, size), 0.7, dtype=dtype), box, out)
        assert float((result - 0.7).abs().max()) < tolerance


@given(size=st.integers(1, 60), out=st.integers(1, 60), data=st.data())
def test_weights_sum_to_one_and_stay_inside_the_crop(size: int, out: int, data: st.DataObject) -> None:
    extent = data.draw(st.floats(1, size))
    start = data.draw(st.floats(0, size - extent))
    weights = resize_weights(torch.tensor([start]), torch.tensor([extent]), size, out, None)[0]
    assert weights.shape == (out, size)
    assert bool(weights.isfinite().all())
    assert float((weights.sum(dim=1) - 1).abs().max()) < 1e-4
    centres = torch.arange(size) + 0.5
    outside = (centres < start - 1e-3) | (centres > start + extent + 1e-3)
    assert not weights[:, outside].any()


# In bytes


def pictures(number: int, height: int, width: int) -> Tensor:
    """Noise that no kernel takes beyond the range, where Pillow and torch clamp between their passes."""
    return (noise(number, 3, height, width) * 20 + 128).clamp(80, 176).round().to(torch.uint8)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("out", [24, 60])
def test_crops_in_bytes_are_pillows(kernel: Interpolation, layout: torch.memory_format, out: int) -> None:
    images = pictures(5, 50, 70).contiguous(memory_format=layout)
    boxes = torch.tensor([[0, 0, 50, 70], [3, 5, 41, 30], [40, 60, 10, 10], [49, 0, 1, 70], [0, 69, 50, 1]]).float()
    flip = torch.tensor([False, True, False, True, True])
    found = crop_bytes(images, boxes, out, flip, kernel)
    assert found.dtype == torch.uint8
    for i, (top, left, h, w) in enumerate(boxes.long().tolist()):
        cut = Image.fromarray(images[i].permute(1, 2, 0).numpy().copy()).crop((left, top, left + w, top + h))
        resized = np.asarray(cut.resize((out, out), Image.Resampling[kernel.upper()])).transpose(2, 0, 1).astype(int)
        expected = resized[:, :, ::-1] if flip[i] else resized
        assert np.abs(found[i].numpy() - expected).max() <= 1
    exact = crop_resize(images.double().contiguous(), boxes, out, flip, kernel)
    assert float((found.double() - exact).abs().max()) <= 1.5  # two roundings
    alone = torch.cat([crop_bytes(images[i : i + 1], boxes[i : i + 1], out, flip[i : i + 1], kernel) for i in range(5)])
    assert torch.equal(alone, found)
    plain = crop_bytes(images, boxes, out, None, kernel)
    assert torch.equal(torch.where(flip[:, None, None, None], plain.flip(3), plain), found)


def test_bytes_are_for_large_8_bit_images() -> None:
    image = torch.zeros(1, 3, 50, 50, dtype=torch.uint8)
    assert crops_in_bytes(image, 16)
    assert crops_in_bytes(image[:, :, :20, :20], 50)
    assert not crops_in_bytes(image[:, :, :32, :32], 32)
    assert not crops_in_bytes(image.int(), 16)
    assert not crops_in_bytes(image.to("meta"), 16)


@given(size=st.tuples(st.integers(1, 900), st.integers(1, 900)), seed=st.integers(0, 999))
def test_boxes_of_whole_pixels_are_the_nearest_and_stay_inside(size: tuple[int, int], seed: int) -> None:
    sizes, canvas = torch.tensor([size] * 10, dtype=torch.float32), (31, 47)
    exact = to_canvas(draw(sizes, (0.01, 1.0), (0.5, 2.0), seed), sizes, canvas)
    boxes = whole_pixels(exact, canvas)
    assert torch.equal(boxes, boxes.round())
    assert torch.equal(whole_pixels(boxes, canvas), boxes)
    assert float(boxes[:, :2].min()) >= 0
    assert float(boxes[:, 2:].min()) >= 1
    assert bool((boxes[:, :2] + boxes[:, 2:] <= torch.tensor(canvas)).all())
    for edge in (0, 1):
        moved = boxes[:, :2] + edge * boxes[:, 2:] - exact[:, :2] - edge * exact[:, 2:]
        wide = exact[:, 2:] >= 1.5  # narrower ones may have to grow to a pixel
        assert float((moved.abs() * wide).max()) <= 0.5 + 1e-4


# Padded crops


@pytest.mark.parametrize("size", [3, 8, 20, 32])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_a_padded_crop_is_a_part_of_the_reflected_image(size: int, dtype: torch.dtype) -> None:
    pad, number = size // 8, 40
    images = torch.arange(number * 3 * size * size).view(number, 3, size, size).to(dtype)
    shift = random_shift(make_key(3, "crop", torch.arange(number)), size)
    flip = torch.arange(number) % 2 == 1
    found = pad_crop(images, shift, flip)
    assert found.dtype == dtype
    for i, (down, right) in enumerate(shift.tolist()):
        padded = np.pad(images[i].numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        expected = padded[:, down : down + size, right : right + size]
        assert np.array_equal(found[i].numpy(), expected[:, :, ::-1] if flip[i] else expected)
    assert torch.equal(pad_crop(images, shift)[~flip], found[~flip])
    alone = torch.cat([pad_crop(images[i : i + 1], shift[i : i + 1], flip[i : i + 1]) for i in range(number)])
    assert torch.equal(alone, found)
    layout = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(pad_crop(layout, shift, flip), found)


def test_every_shift_is_equally_likely() -> None:
    shift = random_shift(make_key(0, "crop", torch.arange(8100)), 32)
    counts = torch.bincount(shift[:, 0] * 9 + shift[:, 1], minlength=81)
    assert len(counts) == 81
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    assert random_shift(make_key(0, "crop", torch.arange(9)), 7).unique().tolist() == [0]


def test_a_crop_moves_with_its_image() -> None:
    images = noise(1, 1, 32, 32)
    moved = images.roll((4, 7), dims=(2, 3))
    one = crop_resize(images, torch.tensor([[3.25, 2.5, 10.5, 9.75]]), 12)
    other = crop_resize(moved, torch.tensor([[7.25, 9.5, 10.5, 9.75]]), 12)
    assert float((one - other).abs().max()) < 1e-9


# Boxes


def draw(sizes: Tensor, scale: tuple[float, float], ratio: tuple[float, float], seed: int = 0) -> Tensor:
    key = make_key(seed, "crop", 0, torch.arange(len(sizes)))
    return random_resized_crop(key, sizes, scale, ratio)


@given(
    size=st.tuples(st.integers(1, 600), st.integers(1, 600)),
    scale=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(lambda s: (min(s), max(s))),
    stretch=st.floats(1, 3),
    seed=st.integers(0, 2**40),
)
def test_boxes_are_whole_and_inside(
    size: tuple[int, int], scale: tuple[float, float], stretch: float, seed: int
) -> None:
    boxes = draw(torch.tensor([size] * 50, dtype=torch.float32), scale, (1 / stretch, stretch), seed)
    assert torch.equal(boxes, boxes.round())
    top, left, h, w = boxes.unbind(1)
    assert float(h.min()) >= 1
    assert float(w.min()) >= 1
    assert float(top.min()) >= 0
    assert float(left.min()) >= 0
    assert float((top + h).max()) <= size[0]
    assert float((left + w).max()) <= size[1]


@pytest.mark.parametrize("size", [(100, 100), (80, 100), (100, 77), (500, 400)])
@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.35, 1.0), (0.08, 0.5)])
def test_area_and_ratio_are_in_range(size: tuple[int, int], scale: tuple[float, float]) -> None:
    low, high = 3 / 4, 4 / 3
    boxes = draw(torch.tensor([size] * 3000, dtype=torch.float32), scale, (low, high)).double()
    h, w = boxes[:, 2], boxes[:, 3]
    area = size[0] * size[1]
    # Sides are rounded to pixels, so a box is in range when some box within half a pixel is.
    assert bool(((h + 0.5) * (w + 0.5) >= scale[0] * area).all())
    assert bool(((h - 0.5) * (w - 0.5) <= scale[1] * area).all())
    assert bool(((w + 0.5) / (h - 0.5) >= low).all())
    assert bool(((w - 0.5) / (h + 0.5) <= high).all())


def test_area_ratio_and_place_are_distributed_as_torchvision_draws_them() -> None:
    # Large enough for rounding not to show, small enough a share for the first candidate always to fit.
    size, scale, (low, high) = 10_000, (0.1, 0.4), (3 / 4, 4 / 3)
    top, left, h, w = draw(torch.full((8000, 2), float(size)), scale, (low, high)).double().unbind(1)
    columns = {
        "area": (h * w / size**2 - scale[0]) / (scale[1] - scale[0]),
        "ratio": ((w / h).log() - math.log(low)) / (math.log(high) - math.log(low)),
        "top": top / (size - h),
        "left": left / (size - w),
    }
    for name, column in columns.items():
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-4, name
    between = np.corrcoef(np.stack([c.numpy() for c in columns.values()])) - np.eye(4)
    assert np.abs(between).max() < 4.5 / 8000**0.5


def test_whole_images_come_first_where_torchvision_gives_up_too() -> None:
    # A third of the candidates for [0.8, 1] do not fit; those that do keep torchvision's distribution.
    scale, ratio = (0.8, 1.0), (3 / 4, 4 / 3)
    ours = draw(torch.full((4000, 2), 64.0), scale, ratio)
    torch.manual_seed(0)
    image = torch.empty(1, 64, 64)
    theirs = np.array([RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(4000)])
    for column in range(4):
        assert stats.ks_2samp(ours[:, column].numpy(), theirs[:, column]).pvalue > 1e-4


@pytest.mark.parametrize("size", [(2000, 3), (3, 2000), (1, 1), (1, 50), (50, 1), (2, 2000), (7, 900)])
def test_extreme_images_get_torchvisions_central_crop(size: tuple[int, int]) -> None:
    scale, ratio = ((0.5, 1.0) if size == (1, 1) else (0.2, 1.0)), (3 / 4, 4 / 3)
    boxes = draw(torch.tensor([size] * 20, dtype=torch.float32), scale, ratio)
    expected = RandomResizedCrop.get_params(torch.empty(1, *size), list(scale), list(ratio))
    assert boxes.unique(dim=0).tolist() == [[float(v) for v in expected]]


@pytest.mark.parametrize("size", [(1, 1), (2000, 3), (3, 2000), (1, 40)])
def test_extreme_images_survive_the_whole_way(size: tuple[int, int]) -> None:
    sizes = torch.tensor([size] * 4, dtype=torch.float32)
    for canvas in ((16, 16), size):
        images = noise(4, 1, *canvas).float()
        for boxes in (draw(sizes, (0.2, 1.0), (3 / 4, 4 / 3)), centre_crop(sizes)):
            result = crop_resize(images, to_canvas(boxes, sizes, canvas), 16)
            assert result.shape == (4, 1, 16, 16)
            assert bool(result.isfinite().all())
            assert float(result.abs().max()) < 3 * float(images.abs().max())


def test_a_box_depends_on_its_own_key_and_size_alone() -> None:
    sizes = (normal(make_key(0, "sizes", torch.arange(30)), 2).abs() * 100 + 20).round()
    key = make_key(0, "crop", 0, torch.arange(30))
    whole = random_resized_crop(key, sizes, (0.2, 1.0), (3 / 4, 4 / 3))
    chosen = torch.tensor([29, 4, 4, 17])
    part = random_resized_crop(Key(key.low[chosen], key.high[chosen]), sizes[chosen], (0.2, 1.0), (3 / 4, 4 / 3))
    assert torch.equal(part, whole[chosen])
    assert len(whole.unique(dim=0)) == 30


def test_the_central_square_is_a_share_of_the_short_side() -> None:
    sizes = torch.tensor([[100.0, 60.0], [50.0, 200.0], [1.0, 1.0], [2.0, 9.0]])
    assert centre_crop(sizes).tolist() == [[20, 0, 60, 60], [0, 75, 50, 50], [0, 0, 1, 1], [0, 3.5, 2, 2]]
    shares = torch.tensor([0.5, 1.0, 0.1, 0.25])
    assert centre_crop(sizes, shares).tolist() == [[35, 15, 30, 30], [0, 75, 50, 50], [0, 0, 1, 1], [0.5, 4, 1, 1]]


def test_boxes_keep_their_place_on_the_canvas() -> None:
    sizes = torch.tensor([[100.0, 200.0], [32.0, 32.0]])
    boxes = torch.tensor([[10.0, 20.0, 50.0, 100.0], [4.0, 0.0, 28.0, 32.0]])
    square = to_canvas(boxes, sizes, (32, 32))
    assert torch.allclose(square, torch.tensor([[3.2, 3.2, 16.0, 16.0], [4.0, 0.0, 28.0, 32.0]]))
    assert torch.allclose(to_canvas(boxes, sizes, (50, 400))[0], torch.tensor([5.0, 40.0, 25.0, 200.0]))


@given(
    size=st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    canvas=st.tuples(st.integers(1, 64), st.integers(1, 64)),
    seed=st.integers(0, 999),
)
def test_boxes_on_the_canvas_have_a_pixel_and_stay_inside(
    size: tuple[int, int], canvas: tuple[int, int], seed: int
) -> None:
    sizes = torch.tensor([size] * 10, dtype=torch.float32)
    top, left, h, w = to_canvas(draw(sizes, (0.01, 1.0), (0.5, 2.0), seed), sizes, canvas).unbind(1)
    assert float(h.min()) >= 1
    assert float(w.min()) >= 1
    slack = 2e-5  # float32; resize_weights forgives five times as much
    assert float(top.min()) >= -slack
    assert float(left.min()) >= -slack
    assert float((top + h).max()) <= canvas[0] + slack
    assert float((left + w).max()) <= canvas[1] + slack
