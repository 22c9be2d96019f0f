"""Windows of pictures in all sixteen ways, and bringing them into register."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from ssl_vit.leaks.registering import (
    CENTRE,
    INSIDE,
    NATURAL,
    SIDE,
    TURNS,
    best_ways,
    described,
    projections,
    register,
    resemblance,
    turned,
    weights_of,
)


def some(count: int, seed: int = 0) -> np.ndarray:
    """Smooth pictures, uint8 [n, 32, 32]."""
    rng = np.random.default_rng(seed)
    found = gaussian_filter(rng.normal(size=(count, SIDE, SIDE)), (0, 1.5, 1.5))
    return np.clip(128 + 28 * found / found.std(axis=(1, 2), keepdims=True), 0, 255).astype(np.uint8)


def test_projections_are_integrals_over_windows() -> None:
    """Of the constant 1 the mean is left alone; of a cosine over a window the frequency that it is."""
    start, length = torch.tensor([0.0, 0.25, 0.5]), torch.tensor([1.0, 0.5, 0.25])
    found = projections(start, length).sum(-1)
    assert torch.allclose(found[:, 0], torch.ones(3), atol=1e-6)
    assert torch.allclose(found[:, 1:], torch.zeros(3, 7), atol=1e-6)
    x = (torch.arange(SIDE) + 0.5) / SIDE
    for window in range(3):
        t = (x - start[window]) / length[window]
        coefficients = projections(start, length)[window] @ torch.cos(torch.pi * 2 * t)
        assert coefficients.argmax() == 2


def test_turns_are_the_eight_of_the_square() -> None:
    picture = torch.arange(SIDE * SIDE).view(SIDE, SIDE)
    found = [turned(picture, turn) for turn in range(len(TURNS))]
    assert len({tuple(f.flatten().tolist()) for f in found}) == 8
    assert torch.equal(found[TURNS.index("turned by 90 degrees")], picture.rot90(-1))
    assert torch.equal(found[TURNS.index("turned by 270 degrees")], picture.rot90(1))
    assert torch.equal(found[TURNS.index("turned by 180 degrees")], picture.rot90(2))
    assert torch.equal(found[TURNS.index("mirrored")], picture.flip(1))


def test_resemblance_is_the_largest_product_of_all_ways() -> None:
    """As the loops have it: windows of one, eight turns of the other, either sign."""
    one, two = some(3), some(4, 1)
    windows, whole = described(one, windows=True), described(two, windows=False)[:, 0]
    expected = torch.zeros(3, 4)
    for turn in range(len(TURNS)):
        other = turned(torch.from_numpy(two), turn).contiguous().numpy()
        products = torch.einsum("nwyx,myx->nwm", windows, described(other, windows=False)[:, 0])
        expected = torch.maximum(expected, products.abs().amax(1))
    assert torch.allclose(resemblance(windows, whole), expected, atol=1e-5)


@pytest.mark.parametrize("turn", range(8))
@pytest.mark.parametrize("inverted", [0, 1])
def test_the_way_is_told(turn: int, inverted: int) -> None:
    whole = some(5)
    first = turned(torch.from_numpy(whole), turn).contiguous().numpy()
    first = 255 - first if inverted else first
    ways = best_ways(first, whole, windows=True)
    assert (ways.score > 0.999).all()
    back = {5: 6, 6: 5}.get(turn, turn)  # of the first, where the second is looked at through the window
    assert (ways.turn == np.where(ways.side == 1, back, turn)).all()
    assert set(ways.inverted.tolist()) == {inverted}
    found = register(first, whole, ways)
    assert (found.score > 0.999).all()
    assert np.abs(found.start).max() < 0.02
    assert np.abs(found.length - 1).max() < 0.02


@pytest.mark.parametrize("swap", [False, True])
def test_a_cut_is_brought_into_register(swap: bool) -> None:
    """24 of 30 pixels from the third on, down and across, of pictures enlarged without a trace."""
    large = np.kron(some(8), np.ones((4, 4)))
    small = lambda p: p.reshape(8, SIDE, 4, SIDE, 4).mean((2, 4)).round().astype(np.uint8)  # noqa: E731
    inside = np.stack(
        [np.kron(p[8:104, 16:112], np.ones((4, 4))).reshape(SIDE, 12, SIDE, 12).mean((1, 3)) for p in large]
    )
    whole, cut = small(large), inside.round().astype(np.uint8)
    first, second = (cut, whole) if swap else (whole, cut)
    ways = best_ways(first, second, windows=True)
    found = register(first, second, ways)
    assert (found.score > 0.9).all()
    assert (ways.side == int(swap)).all()
    assert np.abs(found.start - [8 / 128, 16 / 128]).max() < 0.06
    assert np.abs(found.length - 96 / 128).max() < 0.08


def test_a_shift_is_brought_into_register() -> None:
    large = some(1, 3)[0]
    wide = np.kron(large, np.ones((2, 2)))  # 64 pixels a side, of which 32 are seen twice, three apart
    first, second = (wide[y : y + SIDE, y : y + SIDE].astype(np.uint8)[None] for y in (10, 13))
    found = register(first, second, best_ways(first, second, windows=True))
    assert found.score[0] > 0.97
    assert np.abs(np.abs(found.start) - 3 / SIDE).max() < 0.03


def test_windows_by_number() -> None:
    assert CENTRE in INSIDE
    picture = some(1)
    middle = described(picture, windows=True)[0, CENTRE]
    for turn in range(8):
        other = turned(torch.from_numpy(picture), turn).contiguous().numpy()
        assert torch.allclose(described(other, windows=True)[0, CENTRE].abs().sort().values.sum(),
                              middle.abs().sort().values.sum(), atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("blur", [1.5, 2.0])
def test_frequencies_of_many_pictures_count_alike(blur: float) -> None:
    """However smooth these are; of few pictures they count as in photographs."""
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.normal(size=(500, SIDE, SIDE)), (0, blur, blur))
    smooth = np.clip(128 + 28 * smooth / smooth.std(axis=(1, 2), keepdims=True), 0, 255).astype(np.uint8)
    weights = weights_of(smooth)
    assert weights.shape == NATURAL.shape
    assert torch.equal(weights, weights.T)
    assert weights[0, 0] == 0
    across = projections(torch.tensor(0.0), torch.tensor(1.0))
    plain = across @ (torch.from_numpy(smooth).float() - 128) @ across.T
    even = lambda w: (p := (plain * w[:8, :8]).square().mean(0)[1:, 1:]).max() / p.min()  # noqa: E731
    assert even(weights) < 3
    assert even(NATURAL) > 2 * even(weights)
    assert torch.allclose(weights_of(smooth[:0])[0, 1:], NATURAL[0, 1:], rtol=0.25)


def test_grain_agrees_in_copies_only() -> None:
    """Of pictures that have the coarse structure in common, and one of them everything."""
    rng = np.random.default_rng(0)
    coarse, *fine = (gaussian_filter(rng.normal(size=(6, SIDE, SIDE)), (0, blur, blur)) for blur in (4, 0.8, 0.8))
    coarse /= coarse.std()
    one, other = (np.clip(128 + 28 * (coarse + 0.1 * f / f.std()), 0, 255).astype(np.uint8) for f in fine)
    for second, same in ((one[:, ::-1].copy(), True), (other[:, ::-1].copy(), False)):
        found = register(one, second, best_ways(one, second, windows=True))
        assert (found.score > 0.9).all()
        assert (found.grain > 0.9).all() if same else (np.abs(found.grain) < 0.5).all()
