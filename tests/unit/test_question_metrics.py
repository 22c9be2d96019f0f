"""What is read off networks, in cases whose answer is known; and images that are permuted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from ssl_vit.configs import DataConfig
from ssl_vit.configs.data import LabelledDataConfig
from ssl_vit.configs.model import ResolvedModel
from ssl_vit.data.images import ArrayRows
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.questions.course import _groups
from ssl_vit.questions.images import looked_at
from ssl_vit.questions.looking import _blocks
from ssl_vit.questions.memory import in_memory
from ssl_vit.questions.metrics import (
    amplitudes,
    attention_distance,
    attention_information,
    patch_distances,
    relative_change,
    shifted,
)
from ssl_vit.questions.permuting import order_of, permuted
from ssl_vit.questions.scope import PERMUTED

GRID = (4, 4)
N = 16


def attention(rows: torch.Tensor, prefix: int = 1) -> torch.Tensor:
    """One image, one head: these rows over patches, and a class token that half of everything attends to."""
    whole = torch.full((1, 1, N + prefix, N + prefix), 0.5, dtype=torch.float64)
    whole[0, 0, prefix:, prefix:] = 0.5 * rows
    return whole


def test_identity_reaches_nowhere_and_uniform_attention_the_mean_distance() -> None:
    between = patch_distances(GRID, 2)
    assert (between[0, 1], between[0, 4], between[0, 5]) == (2.0, 2.0, pytest.approx(2 * math.sqrt(2)))
    assert attention_distance(attention(torch.eye(N).double()), GRID, 2, prefix=1).item() < 1e-20
    uniform = attention(torch.full((N, N), 1 / N, dtype=torch.float64))
    assert attention_distance(uniform, GRID, 2, prefix=1).item() == pytest.approx(between.mean().item(), rel=1e-12)


def test_information_is_0_where_all_queries_are_alike_and_1_where_each_has_its_key() -> None:
    same = torch.softmax(torch.arange(N, dtype=torch.float64), dim=0).expand(N, N)
    assert abs(attention_information(attention(same), prefix=1).item()) < 1e-12
    each = torch.eye(N, dtype=torch.float64)[torch.randperm(N, generator=torch.Generator().manual_seed(0))]
    assert attention_information(attention(each), prefix=1).item() == pytest.approx(1.0, abs=1e-5)


def test_a_constant_map_has_no_frequencies_and_white_noise_has_all_alike() -> None:
    constant = amplitudes(torch.ones(1, 3, 6, 6))
    assert constant[0, 0] == 0 and constant[0, 1:].tolist() == pytest.approx([math.log(1e-6) - math.log(36 + 1e-6)] * 2)
    noise = torch.randn(200, 64, 8, 8, generator=torch.Generator().manual_seed(0))
    found = amplitudes(noise).mean(dim=0)
    # Real noise: the mean is a real number, all other frequencies complex ones, whose logarithm is larger.
    assert found[1:].tolist() == pytest.approx([0.34] * 3, abs=0.04)
    with pytest.raises((ValueError, TypeCheckError)):
        amplitudes(torch.ones(1, 3, 6, 4))


def test_change_is_counted_in_changes_from_image_to_image() -> None:
    features = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert relative_change(features, (features, features)).tolist() == [0.0, 0.0]
    assert relative_change(features, (features.flip(0), features)).tolist() == pytest.approx([0.5, 0.5])
    sorted_by_class = torch.tensor([[0.0], [0.0], [0.0], [6.0], [6.0], [6.0]])  # neighbours in a file are alike
    assert relative_change(sorted_by_class, (sorted_by_class + 1,)).tolist() == pytest.approx([1 / 3.6] * 6)
    with pytest.raises(ValueError, match="the same features"):
        relative_change(torch.ones(3, 2), (torch.ones(3, 2),))


def small_vit(positions: str) -> ViTBackbone:
    torch.manual_seed(0)
    args = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 16, "depth": 2, "num_heads": 2}
    args |= {"global_pool": "avg", "fc_norm": False} | ({"pos_embed": "none"} if positions == "none" else {})
    made = make_backbone("vit_tiny_patch16_224", args, positions=positions)
    assert isinstance(made, ViTBackbone)
    return made.double().eval()


def images(seed: int = 0) -> torch.Tensor:
    return torch.randn(3, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_a_vit_without_positions_does_not_notice_a_shift_by_a_patch() -> None:
    net, x = small_vit("none"), images()
    still = net.forward_pooled(x, pool="mean")
    whole = relative_change(still, tuple(net.forward_pooled(one, pool="mean") for one in shifted(x, 2)))
    half = relative_change(still, tuple(net.forward_pooled(one, pool="mean") for one in shifted(x, 1)))
    assert whole.max() < 1e-12 and half.min() > 1e-3


@pytest.mark.parametrize("kind", ["whole", *PERMUTED])
def test_orders_are_permutations_of_their_kind(kind: str) -> None:
    side, patch = 8, 2
    order = order_of(kind, side, patch)
    assert sorted(order) == list(range(side * side))
    assert (order == np.arange(side * side)).all() == (kind == "whole")
    assert (order == order_of(kind, side, patch)).all()

    def patches(x: np.ndarray) -> np.ndarray:
        return x.reshape(side // patch, patch, side // patch, patch).transpose(0, 2, 1, 3).reshape(-1, patch * patch)

    own, usual = patches(order), patches(np.arange(side * side))
    if kind == "patches":
        assert sorted(map(tuple, own)) == sorted(map(tuple, usual))
    if kind == "pixels":
        place = [list(usual[0]).index(one) for one in own[0]]
        assert sorted(place) == [0, 1, 2, 3] and (own == usual[:, place]).all()


@pytest.mark.parametrize("patch", [2, 4])
def test_nothing_stays_in_its_place_whatever_the_seed(patch: int) -> None:
    whole = order_of("whole", 8, patch)
    for seed in range(200):
        assert (order_of("all", 8, patch, seed) != whole).all()
        assert (order_of("patches", 8, patch, seed) != whole).all()
        assert (order_of("pixels", 8, patch, seed) != whole).all()
    assert (order_of("pixels", 8, 1) == whole).all()


@pytest.mark.parametrize("kind", ["patches", "pixels"])
@torch.no_grad()
def test_a_vit_with_its_weights_permuted_alike_does_not_notice(kind: str) -> None:
    """Weights and positions that are drawn independently are as likely permuted: so is everything trained from them."""
    net, other, x, order = small_vit("learnable"), small_vit("learnable"), images(), order_of(kind, 8, 2)
    moved = x.flatten(2)[:, :, torch.from_numpy(order)].reshape(x.shape)
    before = net.forward_pooled(x, pool="mean")
    assert not torch.allclose(net.forward_pooled(moved, pool="mean"), before, atol=1e-3)
    if kind == "patches":
        numbers = torch.from_numpy(order.reshape(4, 2, 4, 2)[:, 0, :, 0])  # of the first pixel of every patch
        came_from = (numbers // 16 * 4 + numbers % 8 // 2).flatten()
        table = other.vit.get_parameter("pos_embed")
        table[0, 1:] = table[0, 1:][came_from].clone()
    else:
        inside = torch.from_numpy(order.reshape(4, 2, 4, 2)[0, :, 0].ravel())
        inside = inside // 8 * 2 + inside % 8
        weight = other.vit.patch_embed.proj.weight
        weight.copy_(weight.flatten(2)[:, :, inside].reshape(weight.shape))
    assert torch.allclose(other.forward_pooled(moved, pool="mean"), before, atol=1e-12)


def test_permuted_images_hold_the_same_pixels_and_labels() -> None:
    digits = open_labelled(DataConfig(), LabelledDataConfig()).test
    assert permuted(digits, "whole", 8, 2) is digits
    for kind in PERMUTED:
        other = permuted(digits, kind, 8, 2)
        assert len(other) == len(digits) and (other.truth == digits.truth).all()
        assert other.fingerprint != digits.fingerprint and other.shape == (8, 8)
        for i in (0, 7):
            one, two = digits.read(i)[0], other.read(i)[0]
            assert (one.reshape(1, -1)[:, order_of(kind, 8, 2)] == two.reshape(1, -1)).all()
        chosen = other.subset(np.array([7, 0]))
        assert (chosen.read(0)[0] == other.read(7)[0]).all()


def test_images_of_another_size_become_squares(photos_of_many_sizes) -> None:
    square = permuted(photos_of_many_sizes, "whole", 16, 4)
    assert {square.read(i)[0].shape for i in range(3)} == {(3, 16, 16)} and square.shape == (16, 16)


def test_images_are_held_as_they_are_decoded(photos_of_many_sizes) -> None:
    images = photos_of_many_sizes.on_canvas(None, 16)
    held = in_memory(images)
    assert isinstance(held.rows, ArrayRows) and held.shape == images.shape and (held.truth == images.truth).all()
    assert all((held.read(i)[0] == images.read(i)[0]).all() for i in range(len(images)))
    assert in_memory(held) is held
    assert in_memory(photos_of_many_sizes) is photos_of_many_sizes  # of many sizes
    assert in_memory(images, most=100) is images
    assert isinstance(in_memory(permuted(images, "patches", 16, 4)).rows, ArrayRows)


@pytest.fixture
def photos_of_many_sizes(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(8):
            pixels = rng.integers(0, 255, (20 + i, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    return open_labelled(DataConfig(path=str(tmp_path)), LabelledDataConfig()).train


def test_a_vit_is_read_off_block_by_block() -> None:
    torch.manual_seed(0)
    backbone = build_backbone(ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 3, 2, "learnable", "mean"), 1).eval()
    assert isinstance(backbone, ViTBackbone)
    with torch.inference_mode():
        found = _blocks(backbone, torch.randn(5, 1, 16, 16))
    assert {name: array.shape for name, array in found.items()} == dict.fromkeys(
        ("distance", "information", "amplitude"), (3, 5)
    )
    assert all(np.isfinite(array).all() for array in found.values())


def test_groups_are_those_of_images_that_could_be_read() -> None:
    test = open_labelled(DataConfig(path="digits"), LabelledDataConfig()).test
    named = replace(test, groups=np.arange(len(test)) // 2)
    chosen = looked_at(test)
    assert _groups(test, {}) is None
    assert np.array_equal(_groups(named, {}), named.groups[chosen])
    read = np.delete(np.arange(len(chosen)), 3)
    found = _groups(named, {"a": {"weights": np.zeros(3)}, "b": {"index": read}})
    assert np.array_equal(found, np.delete(named.groups[chosen], 3))
