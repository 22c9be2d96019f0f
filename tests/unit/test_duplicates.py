"""What counts as a near duplicate, inside one collection and between two."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter, zoom
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.leaks import duplicates
from ssl_vit.leaks.duplicates import near_copies, near_duplicates, thumbnail
from ssl_vit.leaks.registering import Registered, Ways, best_ways, register


def scene(seed: int, side: int = 64, channels: int = 3) -> np.ndarray:
    """A picture with structure at several scales, as photographs have: uint8 [C, H, W]."""
    rng = np.random.default_rng(seed)
    whole = np.zeros((channels, side, side))
    for blur in (side / 8, side / 20, 1.0):
        layer = gaussian_filter(rng.normal(size=(1 + channels, side, side)), (0, blur, blur))
        layer /= layer.std()
        whole += blur**0.5 * (layer[:1] + 0.3 * layer[1:])
    return np.clip(128 + 45 * whole / whole.std(), 0, 255).astype(np.uint8)


def encoded(pixels: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file)).transpose(2, 0, 1)


def resized(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    image = Image.fromarray(pixels.transpose(1, 2, 0)).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)


def brighter(pixels: np.ndarray) -> np.ndarray:
    return np.clip(pixels * 0.8 + 45.0, 0, 255).astype(np.uint8)


def deep(pixels: np.ndarray) -> np.ndarray:
    return pixels.astype(np.uint16) * 11 + 300


CHANGED = {
    "encoded again": lambda p: encoded(p, 40),
    "half the size": lambda p: resized(p, 32, 32),
    "another shape": lambda p: resized(p, 48, 80),
    "larger and encoded": lambda p: encoded(resized(p, 150, 150), 60),
    "brighter": brighter,
    "16 bits": deep,
    "noisy": lambda p: np.clip(p + np.random.default_rng(0).normal(0, 6, p.shape), 0, 255).astype(np.uint8),
    "mirrored": lambda p: p[:, :, ::-1],
    "mirrored and encoded": lambda p: encoded(np.ascontiguousarray(p[:, :, ::-1]), 50),
    "grey": lambda p: np.rint(np.tensordot([0.299, 0.587, 0.114], p, axes=1)).astype(np.uint8)[None],
    "five channels": lambda p: np.concatenate([deep(p), deep(p[:2])]),
}


def small(*images: np.ndarray) -> np.ndarray:
    found = [thumbnail(pixels) for pixels in images]
    assert all(t is not None for t in found)
    return np.stack([t for t in found if t is not None])


@pytest.mark.parametrize("change", CHANGED)
def test_changed_copies_are_found_and_nothing_else(change: str) -> None:
    scenes = [scene(i) for i in range(80)]
    copies = [CHANGED[change](scenes[i]) for i in range(0, 80, 4)]
    found = near_duplicates(small(*scenes, *copies))
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(4 * i, 80 + i) for i in range(20)]
    assert set(found.change) == {"mirrored" if "mirrored" in change else ""}
    assert found.distance.max() < duplicates.FARTHEST


@pytest.mark.parametrize("copies", [2, 6, 14])
def test_several_copies_of_every_image_do_not_hide_each_other(copies: int) -> None:
    scenes = [scene(i) for i in range(40 if copies < 10 else 16)]
    each = [encoded(s, 90 - 5 * n) for s in scenes for n in range(copies)]
    found = near_duplicates(small(*each))
    assert len(found.first) == len(scenes) * copies * (copies - 1) // 2
    assert (found.first // copies == found.second // copies).all()


def digits() -> np.ndarray:
    found = open_labelled(DataConfig(), LabelledDataConfig())
    return np.stack([images.read(i)[0] for images in (found.train, found.test) for i in range(len(images))])


def test_digits_are_alike_but_no_copies() -> None:
    assert not len(near_duplicates(small(*digits())).first)


def test_a_digit_a_little_brighter_is_a_copy() -> None:
    """Of nearly all digits: some are so alike that even this may be another one."""
    images = digits()
    copies = [np.clip(images[i] * 0.9 + 10.0, 0, 255).astype(np.uint8) for i in range(0, 1000, 50)]
    found = near_duplicates(small(*images, *copies))
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs <= {(50 * i, len(images) + i) for i in range(20)}
    assert len(pairs) > 15


@pytest.mark.parametrize("what", ["one blob somewhere", "noise", "shading"])
def test_images_with_little_in_them_are_no_copies(what: str) -> None:
    """However alike they are: a blob has two coordinates, and a thousand blobs come very close to each other."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:40, :40]
    images = []
    for _ in range(1000):
        centre = rng.uniform(8, 32, 2)
        image = {
            "one blob somewhere": 200 * np.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / 60),
            "noise": rng.normal(128, 2, (40, 40)),
            "shading": 100 + x + rng.normal(0, 3, (40, 40)),
        }[what]
        images.append(np.clip(image, 0, 255).astype(np.uint8)[None])
    assert len(near_duplicates(small(*images)).first) <= 1


def test_what_shows_nothing_has_no_thumbnail() -> None:
    assert thumbnail(np.full((3, 20, 30), 77, np.uint8)) is None
    assert thumbnail(np.full((1, 20, 30), 40_000, np.uint16)) is None
    one = np.zeros((4, 20, 30), np.uint16)
    one[2] = scene(0, 30, 1)[0, :20]
    assert thumbnail(one) is not None


def test_channels_that_cancel_each_other() -> None:
    plane = scene(0, channels=1)
    found = thumbnail(np.concatenate([plane, 255 - plane]).astype(np.uint16) * 100)
    assert found is not None
    assert found.std() > 20


def test_few_images_and_none() -> None:
    assert not len(near_duplicates(np.empty((0, 32, 32), np.uint8)).first)
    found = near_duplicates(small(scene(0), scene(1), brighter(scene(0))))
    assert (found.first.tolist(), found.second.tolist()) == ([0], [2])


def cropped(pixels: np.ndarray, seed: int, share: float) -> np.ndarray:
    side = round(share * pixels.shape[1])
    y, x = np.random.default_rng(seed).integers(0, pixels.shape[1] - side + 1, 2)
    return pixels[:, y : y + side, x : x + side]


def shifted(pixels: np.ndarray, down: int, right: int) -> np.ndarray:
    whole = np.pad(pixels, ((0, 0), (8, 8), (8, 8)), mode="edge")
    return whole[:, 8 - down : 72 - down, 8 - right : 72 - right]


MOVED = {
    "mirrored top to bottom": lambda p, i: p[:, ::-1],
    "turned by 180 degrees": lambda p, i: p[:, ::-1, ::-1],
    "turned by 90 degrees": lambda p, i: np.rot90(p, 1, (1, 2)),
    "turned by 270 degrees": lambda p, i: np.rot90(p, 3, (1, 2)),
    "mirrored and turned by 90 degrees": lambda p, i: p.transpose(0, 2, 1),
    "mirrored and turned by 270 degrees": lambda p, i: p.transpose(0, 2, 1)[:, ::-1, ::-1],
    "inverted": lambda p, i: 255 - p,
    "four fifths of either side": lambda p, i: cropped(p, i, 0.8),
    "four fifths of the area": lambda p, i: cropped(p, i, 0.8**0.5),
    "a black border": lambda p, i: np.pad(p, ((0, 0), (6, 6), (6, 6))),
    "bars above and below": lambda p, i: np.pad(p, ((0, 0), (8, 8), (0, 0))),
    "shifted by a few pixels": lambda p, i: shifted(p, 3, -4),
    "cut, mirrored and encoded": lambda p, i: encoded(np.ascontiguousarray(cropped(p, i, 0.85)[:, :, ::-1]), 60),
}


@pytest.mark.parametrize("change", MOVED)
def test_moved_copies_are_found_in_another_collection(change: str) -> None:
    pool = [scene(i) for i in range(120)]
    copies = [MOVED[change](pool[i], i) for i in range(0, 120, 10)]
    others = [scene(1000 + i) for i in range(12)]
    found = near_copies(small(*copies, *others), small(*pool))
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(i, 10 * i) for i in range(12)]
    said = {words for words in found.change if words}
    if change.startswith(("mirrored", "turned", "inverted")):
        assert len(said) == 1


@pytest.mark.parametrize("copies", [9, 12, 40, 150])
def test_every_copy_of_an_image_is_found(copies: int) -> None:
    """Turned and encoded again many times, among images that were not: neighbours that are copies tell nothing of
    how near others are, and more are looked for where a search has found as many as it can."""
    pool = [scene(i) for i in range(100, 220)]
    pool += [encoded(np.ascontiguousarray(np.rot90(scene(0), n % 4, (1, 2))), 95 - n % 50) for n in range(copies)]
    found = near_copies(small(scene(0), scene(1)), small(*pool))
    assert found.first.tolist() == [0] * copies
    assert sorted(found.second.tolist()) == list(range(120, 120 + copies))


def test_a_pair_is_always_as_near_as_one_of_them_asks() -> None:
    """A window inside the other counts for the whole one, and everything else for both."""
    rng = np.random.default_rng(0)
    start, length = rng.uniform(-0.1, 0.2, (500, 2)), rng.uniform(0.75, 1.25, (500, 2))
    none = np.zeros(500, dtype=np.int64)
    ways = Ways(none.astype(np.float32), none, none, none, none)
    through, whole = duplicates._compared_whole(ways, Registered(ways.score, start, length, ways.score))
    assert (through | whole).all()
    inside = ((start > 0) & (start + length < 1)).all(axis=1) & (length < 0.95).all(axis=1)
    assert inside.any()
    assert not through[inside].any()
    outside = ((start < 0) & (start + length > 1)).all(axis=1) & (length > 1.05).all(axis=1)
    assert not whole[outside].any()
    assert through[outside].all()


def test_sizes_do_not_matter() -> None:
    """The same scene from 8 to 400 pixels a side has nearly the same thumbnail."""
    large = scene(3, 400)
    for factor in (0.5, 0.25, 0.1):
        other = zoom(large.astype(float), (1, factor, factor), order=1, mode="reflect", grid_mode=True)
        pair = small(large)[[0]], small(other.astype(np.uint8))[[0]]
        score = register(*pair, best_ways(*pair, windows=False)).score
        assert score[0] > 0.9


def cell(seed: int, grain: float) -> np.ndarray:
    """A smooth blob, like many others, with a grain of its own: uint16 [1, 40, 40]."""
    rng = np.random.default_rng(seed)
    (y, x), (down, right), (long, wide) = np.mgrid[:40, :40] - 19.5, rng.uniform(-2, 2, 2), rng.uniform(6, 10, 2)
    angle = rng.uniform(0, np.pi)
    along, across = (np.cos(a) * (y - down) + np.sin(a) * (x - right) for a in (angle, angle + np.pi / 2))
    blob = np.exp(-((along / long) ** 2) - (across / wide) ** 2)
    noise = gaussian_filter(rng.normal(size=(40, 40)), 1.0)
    return np.asarray(2000 + 8000 * blob * (1 + grain * noise / noise.std()), dtype=np.uint16)[None]


CELLS = {
    "shifted by a pixel": lambda p: np.pad(p, ((0, 0), (1, 0), (0, 1)), mode="edge")[:, :40, 1:],
    "shifted by two pixels": lambda p: np.pad(p, ((0, 0), (0, 2), (2, 0)), mode="edge")[:, 2:, :40],
    "four fifths of either side": lambda p: p[:, 3:35, 5:37],
    "a white border": lambda p: np.pad(p, ((0, 0), (4, 4), (4, 4)), constant_values=65535),
    "a black border, turned": lambda p: np.pad(np.rot90(p, 1, (1, 2)), ((0, 0), (2, 2), (2, 2))),
}


@pytest.mark.parametrize("change", CELLS)
def test_grain_tells_copies_of_smooth_cells(change: str) -> None:
    pool = [cell(i, 0.1) for i in range(200)]
    copies = [CELLS[change](pool[i]) for i in range(0, 200, 10)]
    others = [cell(1000 + i, 0.1) for i in range(20)]
    found = near_copies(small(*copies, *others), small(*pool))
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs <= {(i, 10 * i) for i in range(20)}
    assert len(pairs) >= 15


def test_cells_without_grain_are_no_copies() -> None:
    for seed in (0, 1000, 2000):
        cells = [cell(seed + i, 0.0) for i in range(160)]
        assert not len(near_copies(small(*cells[:80]), small(*cells[80:])).first)


def test_grain_is_no_evidence_where_it_goes_with_the_rest() -> None:
    """Of pictures in which what is fine follows from what is coarse, agreement in both counts once."""
    rng = np.random.default_rng(0)
    crowd = duplicates._Crowd(small(*(scene(i) for i in range(40))), windows=True)
    coarse, own = rng.normal(0.8, 0.2, 500), rng.normal(0, 0.05, 500)
    many = np.array([0.99])
    pair = Registered(many, np.zeros((1, 2)), np.ones((1, 2)), many)
    crowd.known[True] = (1.0, np.stack([coarse, coarse + own]))
    assert crowd.likelihood(pair, np.array([0]))[0] > 0.5
    crowd.known[True] = (1.0, np.stack([coarse, own]))
    assert crowd.likelihood(pair, np.array([0]))[0] == duplicates._UNLIKELY
    # Where it partly follows among pairs that are further apart, it does so wholly in pairs that nearly lie on another.
    crowd.known[True] = (1.0, np.stack([coarse, coarse / 2 + rng.normal(0, 0.17, 500)]))
    assert crowd.likelihood(pair._replace(grain=np.array([0.97])), np.array([0]))[0] == 1


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("sides", [(4, 4, 4, 4), (5, 5, 0, 0), (2, 0, 0, 3), (0, 2, 3, 0), (0, 2, 0, 3), (0, 0, 0, 0)])
def test_frames_of_one_colour_are_taken_off(sides: tuple[int, int, int, int], value: int) -> None:
    picture = np.random.default_rng(0).integers(1, 255, (3, 40, 30)).astype(np.uint8)
    framed = np.pad(picture, ((0, 0), sides[:2], sides[2:]), constant_values=value)
    assert np.array_equal(duplicates._unframed(framed), picture)


def test_the_background_of_a_drawing_is_no_frame() -> None:
    drawing = np.zeros((1, 40, 40), np.uint8)
    drawing[0, 4:36, 18:22] = 200
    drawing[0, 18:22, 4:36] = 200
    assert np.array_equal(duplicates._unframed(drawing), drawing)
    assert duplicates._unframed(np.full((1, 5, 5), 7, np.uint8)).shape == (1, 5, 5)
