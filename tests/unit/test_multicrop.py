"""Multi-crop: shapes, draws, order of the jitter, and that a crop is its own in any batch."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision.transforms.v2.functional as tvf
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import ResolvedCrops, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import make_key, uniform
from ssl_vit.data.boxes import centre_crop, random_resized_crop
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import pooled_views
from ssl_vit.models.build import build_backbone
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.views import augment, colour, multicrop
from ssl_vit.views.crop_colours import (
    NUMBERS,
    OPERATIONS,
    Draws,
    apply,
    draw,
    group,
    notice,
    operations,
)
from ssl_vit.views.multicrop import multicrop_view, views_for
from torch import Tensor

PAPER = ResolvedCrops(
    (0.4, 1.0), (0.05, 0.4), 4, 8, (3 / 4, 4 / 3), True, 1.0, 0.8, 0.2, (1.0, 0.1, 0.5), (0.1, 2.0), 0.2
)
OFF = ResolvedCrops((1.0, 1.0), (1.0, 1.0), 3, 16, (1.0, 1.0), False, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), (0.1, 2.0), 0.0)
RGB = operations(3, 8)
NOTHING = len(OPERATIONS)
TORCHVISIONS = {
    "brightness": tvf.adjust_brightness,
    "contrast": tvf.adjust_contrast,
    "saturation": tvf.adjust_saturation,
    "hue": tvf.adjust_hue,
    "blur": lambda image, sigma: tvf.gaussian_blur(image, [13, 13], [sigma, sigma]),
    "grey": lambda image, _: tvf.rgb_to_grayscale(image, 3),
    "solarise": lambda image, _: tvf.solarize(image, 0.5),
}


def raw(channels: int = 3, bits: int = 8) -> PixelScale:
    return PixelScale((0.0,) * channels, (1.0,) * channels, bits)


def batch_of(n: int, side: int = 16, *, channels: int = 3, deep: bool = False, first: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(5)
    high, dtype = (65536, torch.int32) if deep else (256, torch.uint8)
    images = torch.randint(0, high, (first + n, channels, side, side), generator=generator).to(dtype)[first:]
    index = torch.arange(first, first + n) * 11
    return Batch(images, index, torch.zeros(n, dtype=torch.int64), torch.full((n, 2), float(side)), True, None)


def made(
    batch: Batch, cfg: ResolvedCrops = PAPER, *, seed: int = 0, size: int = 16, drop: float = 0.0
) -> dict[str, Tensor]:
    channels = batch.images.shape[1]
    scale = raw(channels, 16 if batch.images.dtype == torch.int32 else 8)
    return multicrop_view(scale, cfg, size=size, drop_rates=linear_rates(5, drop), dtype=torch.float32)(batch, seed)


def draws_of(n: int, view: int, cfg: ResolvedCrops = PAPER, names: tuple[str, ...] = RGB) -> Draws:
    u = uniform(make_key(3, "t", torch.arange(n), view), NUMBERS)
    return draw(u, torch.full((n,), view), cfg, names)


# What comes out


@pytest.mark.parametrize(("channels", "deep"), [(1, False), (3, False), (5, False), (1, True), (3, True)])
def test_shapes_and_keys(channels: int, deep: bool) -> None:
    found = made(batch_of(6, 20, channels=channels, deep=deep), drop=0.3)
    assert {name: tuple(x.shape) for name, x in found.items()} == {
        "globals": (6, 2, channels, 16, 16),
        "locals": (6, 4, channels, 8, 8),
        "drop_globals": (6, 2, 5, 2),
        "drop_locals": (6, 4, 5, 2),
    }
    for name in ("globals", "locals"):
        assert bool(((found[name] >= 0) & (found[name] <= 1)).all())
        assert float(found[name].std()) > 0.05
    assert bool((found["drop_globals"][:, :, 0] == 1).all())  # no rate at the first block
    assert 0 in found["drop_locals"]


def test_what_is_switched_off_is_absent() -> None:
    batch = batch_of(3)
    assert set(made(batch)) == {"globals", "locals"}
    assert set(made(batch, replace(PAPER, local_crops=0))) == {"globals"}
    assert set(made(batch, replace(PAPER, local_crops=0), drop=0.1)) == {"globals", "drop_globals"}


def test_global_crops_may_be_smaller_than_what_the_network_is_judged_at() -> None:
    torch.manual_seed(0)
    cfg = replace(PAPER, local_crops=0, global_size=12)
    for model in (
        ResolvedModel("resnet_small_images", 16, pool="mean"),
        ResolvedModel("vit_tiny_patch16_224", 16, 4, 8, 1, 2, pool="mean"),
    ):
        net = build_backbone(model, 3)
        view, sees, _ = views_for(net, model, cfg, 0.0, raw(), torch.float32)
        found = view(batch_of(2, 20), 0)
        assert found["globals"].shape == (2, 2, 3, 12, 12)
        assert sees.startswith("2 crops of 12 px")
        vectors = pooled_views(net, "mean", [(found["globals"], None)])
        assert vectors.shape == (2, 2, net.embed_dim)
    args = {"patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
    fixed = ResolvedModel("beit_base_patch16_224", 16, pool="mean", args=args)
    with pytest.raises(UserError, match=r"cannot read global crops of 6 pixels .*; use --crops\.global_size 16, or"):
        views_for(build_backbone(fixed, 3), fixed, replace(cfg, global_size=6), 0.0, raw(), torch.float32)


def test_with_everything_off_the_images_come_through() -> None:
    batch = batch_of(4)
    found = made(batch, OFF)
    expected = batch.images.float() / 255
    for name, views in (("globals", 2), ("locals", 3)):
        assert torch.equal(found[name], expected[:, None].expand(-1, views, -1, -1, -1))
    flipped = made(batch, replace(OFF, flip=True, local_crops=9))["locals"]
    same = (flipped == expected[:, None]).flatten(2).all(dim=2)
    mirrored = (flipped == expected[:, None].flip(4)).flatten(2).all(dim=2)
    assert bool((same ^ mirrored).all())
    assert 0 < int(same.sum()) < same.numel()


@pytest.mark.parametrize(
    ("change", "views"),
    [
        ({"solarise": 1.0}, [1]),
        ({"blur": (1.0, 0.0, 0.0), "blur_sigma": (0.5, 2.0)}, [0]),
        ({"blur": (0.0, 1.0, 0.0), "blur_sigma": (0.5, 2.0)}, [1]),
        ({"blur": (0.0, 0.0, 1.0), "blur_sigma": (0.5, 2.0)}, [2, 3, 4]),
        ({"blur": (1.0, 1.0, 1.0), "blur_sigma": (0.1, 0.15)}, []),  # too narrow to do anything
        ({"grey": 1.0}, [0, 1, 2, 3, 4]),
        ({"jitter": 1.0, "jitter_chance": 1.0}, [0, 1, 2, 3, 4]),
        ({"jitter": 1.0}, []),  # no chance
        ({"jitter_chance": 1.0}, []),  # no strength
    ],
)
def test_each_change_is_made_to_its_own_views(change: dict[str, Any], views: list[int]) -> None:
    batch = batch_of(3)
    found = made(batch, replace(OFF, **change))
    together = torch.cat([found["globals"], found["locals"]], dim=1)
    same = (together == (batch.images.float() / 255)[:, None]).flatten(2).all(dim=2)
    for view in range(5):
        assert same[:, view].tolist() == [view not in views] * 3


def test_double_precision_is_the_same_view() -> None:
    batch = batch_of(6)
    view = multicrop_view(raw(), PAPER, size=16, drop_rates=None, dtype=torch.float64)
    for name, expected in made(batch).items():
        found = view(batch, 0)[name]
        assert found.dtype == torch.float64
        # A pixel at the middle of the range may be solarised in one of them only.
        assert float(((found - expected).abs() > 1e-5).double().mean()) < 1e-3


def test_images_used_whole_are_resized_as_for_evaluation_where_their_size_is_another() -> None:
    batch = batch_of(3, 24)
    boxes = centre_crop(batch.sizes)
    expected = augment.crop_resize(batch.images.float() / 255, boxes, 16).clamp(0, 1)
    found = made(batch, OFF)["globals"]
    assert float((found - expected[:, None]).abs().max()) < 1e-6


@pytest.mark.parametrize("flip", [False, True])
def test_large_crops_on_a_cpu_are_the_same_rounded_to_8_bits(flip: bool) -> None:
    coarse = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, size=(70, 70), mode="bilinear")
    batch = replace(batch_of(3, 70), images=(smooth * 255).round().to(torch.uint8), sizes=torch.full((3, 2), 93.0))
    cfg = replace(OFF, global_scale=(0.3, 0.9), local_scale=(0.1, 0.3), local_size=24, flip=flip)
    for name, found in made(batch, cfg, size=50).items():
        exact = multicrop_view(raw(), cfg, size=50, drop_rates=None, dtype=torch.float64)(batch, 0)[name]
        difference = float((found - exact).abs().max())
        assert 1e-4 < difference <= 1.5 / 255, name
        assert float((found * 255 - (found * 255).round()).abs().max()) < 1e-4


def test_pixels_are_normalised_last() -> None:
    batch, scale = batch_of(3), PixelScale((0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 8)
    view = multicrop_view(scale, PAPER, size=16, drop_rates=None, dtype=torch.float32)
    found, plain = view(batch, 0), made(batch)
    for name in ("globals", "locals"):
        restored = scale.restore(found[name].flatten(0, 1))
        assert torch.allclose(restored, plain[name].flatten(0, 1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("large", [1, 128])
def test_crops_of_views_are_the_crops_of_images(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "_LARGE", large)  # 1: one by one
    images = torch.rand(3, 2, 20, 13, dtype=torch.float64)  # not square
    u = uniform(make_key(0, "b", torch.arange(15)), 4).double().view(3, 5, 4)
    extent = 1 + u[:, :, 2:] * (torch.tensor([20.0, 13.0]) - 1)
    start = u[:, :, :2] * (torch.tensor([20.0, 13.0]) - extent)
    boxes, flip = torch.cat([start, extent], dim=2), u[:, :, 0] < 0.5
    found = augment.crop_resize(images, boxes, 7, flip)
    for v in range(5):
        assert torch.allclose(found[:, v], augment.crop_resize(images, boxes[:, v], 7, flip[:, v]), rtol=0, atol=1e-12)
    plain = augment.crop_resize(images, boxes, 7)
    turned = torch.where(flip[:, :, None, None, None], found.flip(4), found)
    assert torch.allclose(turned, plain, rtol=0, atol=1e-12)


# Whose a crop is


@pytest.mark.parametrize("at_once", [1, 10**9])
def test_a_crop_is_the_same_in_any_batch(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicrop, "_AT_ONCE", 10**9)
    whole = made(batch_of(10), drop=0.2)
    monkeypatch.setattr(multicrop, "_AT_ONCE", at_once)  # 1: in pieces of four
    parts = [made(batch_of(3), drop=0.2), made(batch_of(7, first=3), drop=0.2)]
    for name, expected in whole.items():
        found = torch.cat([part[name] for part in parts])
        assert float((found - expected).abs().max()) < 1e-6, name  # products may add up in another order


def test_views_samples_epochs_and_seeds_differ() -> None:
    batch = batch_of(2)
    batch.images[1] = batch.images[0]
    found = made(batch, replace(PAPER, local_size=16), drop=0.9)
    views = torch.cat([found["globals"], found["locals"]], dim=1).flatten(0, 1)
    for i in range(len(views)):
        for j in range(i):
            assert not torch.equal(views[i], views[j])
    drops = torch.cat([found["drop_globals"], found["drop_locals"]], dim=1).flatten(0, 1)
    assert len(drops.flatten(1).unique(dim=0)) > len(drops) // 2
    assert not torch.equal(made(batch, seed=1)["globals"], made(batch)["globals"])
    later = replace(batch, epoch=batch.epoch + 1)
    assert not torch.equal(made(later)["globals"], made(batch)["globals"])
    assert torch.equal(made(batch)["globals"], made(batch)["globals"])


def test_more_local_crops_leave_the_others_as_they_are() -> None:
    batch = batch_of(3)
    few, many = made(batch), made(batch, replace(PAPER, local_crops=6))
    assert torch.allclose(few["globals"], many["globals"], rtol=0, atol=1e-6)
    assert torch.allclose(few["locals"], many["locals"][:, :4], rtol=0, atol=1e-6)


def test_areas_of_crops_are_in_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    own = random_resized_crop

    def spy(*given: object) -> Tensor:
        seen.append(own(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(multicrop, "random_resized_crop", spy)
    monkeypatch.setattr(multicrop, "_AT_ONCE", 10**9)
    made(replace(batch_of(200, 8), sizes=torch.full((200, 2), 500.0), native=False))
    for boxes, count, (least, most) in zip(seen, (400, 800), ((0.4, 1.0), (0.05, 0.4)), strict=True):
        assert len(boxes) == count
        area = boxes[:, 2] * boxes[:, 3] / 500**2
        assert least - 0.01 < float(area.min()) < least + 0.05
        assert most - 0.05 < float(area.max()) < most + 0.01


# Draws


def share(draws: Draws, name: str) -> float:
    return float((draws.steps == OPERATIONS.index(name)).any(dim=0).double().mean())


@pytest.mark.parametrize(("view", "blur", "solarise"), [(0, 1.0, 0.0), (1, 0.1, 0.2), (2, 0.5, 0.0), (7, 0.5, 0.0)])
def test_chances_are_the_papers(view: int, blur: float, solarise: float) -> None:
    n = 5000
    draws = draws_of(n, view)
    seen = 1 - (1 / 6 - 0.1) / 1.9  # narrower blurs change nothing
    expected = {"blur": blur * seen, "solarise": solarise, "grey": 0.2, **dict.fromkeys(OPERATIONS[:4], 0.8)}
    for name, chance in expected.items():
        assert abs(share(draws, name) - chance) <= 4.5 * (chance * (1 - chance) / n) ** 0.5, name


def test_half_of_the_crops_are_mirrored() -> None:
    ramp = torch.arange(16, dtype=torch.uint8).expand(500, 1, 16, 16).contiguous()
    found = made(replace(batch_of(500, channels=1), images=ramp), replace(OFF, flip=True))["globals"]
    assert abs(float((found[..., 0] > found[..., -1])[..., 0].double().mean()) - 0.5) < 4.5 * 0.5 / 1000**0.5


def test_amounts_fill_their_ranges() -> None:
    draws = draws_of(5000, 0)
    ends = [(0.6, 1.4), (0.6, 1.4), (0.8, 1.2), (-0.1, 0.1), (0.1, 2.0)]
    for value, (low, high) in zip(draws.values, ends, strict=False):
        slack = 0.005 * (high - low)
        assert low <= float(value.min()) < low + slack
        assert high - slack < float(value.max()) <= high + 1e-6
        assert abs(float(value.mean()) - (low + high) / 2) < 4.5 * (high - low) / (12 * 5000) ** 0.5
    strong = draws_of(5000, 0, replace(PAPER, jitter=4.0)).values
    assert float(strong[0].min()) >= 0  # no negative brightness
    assert float(strong[3].abs().max()) > 0.35


def test_every_order_of_the_jitter_is_as_likely() -> None:
    steps = draws_of(6000, 0).steps[:4]
    jittered = steps[:, steps[0] != NOTHING]
    assert bool((jittered.sort(dim=0).values == torch.arange(4)[:, None]).all())
    counts = torch.unique(jittered, dim=1, return_counts=True)[1].double()
    assert len(counts) == 24
    expected = float(counts.mean())
    assert float((counts - expected).abs().max()) < 4.5 * expected**0.5


@given(seed=st.integers(0, 10_000), n=st.integers(1, 9), view=st.integers(0, 2))
def test_every_crop_is_changed_in_its_own_order(seed: int, n: int, view: int) -> None:
    images = torch.rand(n, 3, 12, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = uniform(make_key(seed, "t", torch.arange(n)), NUMBERS)
    draws = draw(u, torch.full((n,), view), PAPER, RGB)
    found = images.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(colour, "_LUMA", (0.2989, 0.587, 0.114))  # as torchvision rounds it
        apply(found, group(draws, found.device), bits=8, widest=2.0)
    for i in range(n):
        expected = images[i]
        for number in draws.steps[:, i].tolist():
            if number != NOTHING:
                expected = TORCHVISIONS[OPERATIONS[number]](expected, float(draws.values[number, i]))
        assert float((found[i] - expected).abs().max()) < 1e-5


@pytest.mark.parametrize("several", [2, 4])
def test_all_orders_are_kept_where_crops_that_share_an_operation_are_changed_together(several: int) -> None:
    orders = torch.tensor(list(itertools.permutations(range(several))))
    still = torch.full((1, several), NOTHING)
    jitter = torch.cat([orders, still]).T  # the last crop has no jitter
    after = torch.tensor([[OPERATIONS.index(name)] * jitter.shape[1] for name in ("grey", "blur", "solarise")])
    steps = torch.cat([jitter, after])
    values = torch.arange(len(OPERATIONS))[:, None] + torch.arange(steps.shape[1]) / 100
    seen: list[list[int]] = [[] for _ in range(steps.shape[1])]
    changes = group(Draws(steps, values, several), torch.device("cpu"))
    for operation, crops, amounts in changes:
        assert torch.equal(amounts, values[operation, crops])
        for crop in crops.tolist():
            seen[crop].append(operation)
    assert seen == [[i for i in column if i != NOTHING] for column in steps.T.tolist()]
    assert len(changes) == {2: 3, 4: 12}[several] + 3
    if several == 4:
        assert sum(change.operation == OPERATIONS.index("hue") for change in changes) == 2


# What makes no sense


@pytest.mark.parametrize(("channels", "bits"), [(3, 8), (1, 8), (5, 8), (3, 16), (1, 16)])
def test_what_makes_no_sense_is_left_out_and_said(channels: int, bits: int) -> None:
    found = set(operations(channels, bits))
    for name in ("saturation", "hue", "grey"):
        assert (name in found) == (channels == 3 and bits == 8)
    assert ("solarise" in found) == (bits == 8)
    assert {"brightness", "contrast", "blur"} <= found
    said = notice(channels, bits)
    assert bool(said) == (len(found) < len(OPERATIONS))
    for name in set(OPERATIONS) - found:
        assert name in said
    drawn = draws_of(300, 1, names=operations(channels, bits))
    assert {OPERATIONS[i] for i in drawn.steps.unique().tolist() if i != NOTHING} == found


def test_channels_that_are_no_colours_are_not_mixed() -> None:
    batch = batch_of(40, deep=True)
    batch.images[:, 1] = 0
    found = made(batch, replace(PAPER, blur=(0.0, 0.0, 0.0)))
    for name in ("globals", "locals"):
        # Only contrast about the mean of all channels lifts the empty one, and evenly.
        assert float(found[name][:, :, 1].flatten(2).std(dim=2).max()) < 1e-6
        assert float(found[name][:, :, 0].std()) > 0.05
