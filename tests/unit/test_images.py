"""Sets of images: one format or a clear refusal, windows at native scale, and words for the protocol."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np
import pytest
from PIL import Image
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.decode import Format, Unreadable
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes, measure


@dataclass(frozen=True)
class Memory:
    """Encoded images, one or several files each."""

    files: list[bytes | tuple[bytes, ...]]

    def __len__(self) -> int:
        return len(self.files)

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        return self.files[row]

    def where(self, row: int) -> str:
        return f"image {row}"


def png(*shape: int, kind: type = np.uint8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros(shape, dtype=kind)).save(file, "PNG")
    return file.getvalue()


def places(height: int, width: int) -> np.ndarray:
    """One image [1, 2, H, W] whose pixels hold their own row and column."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns])[None].astype(np.uint16)


def array_set(pixels: np.ndarray) -> ImageSet:
    size = (pixels.shape[2], pixels.shape[3])
    form = Format(pixels.shape[1], 8 * pixels.dtype.itemsize)
    return ImageSet("arrays", ArrayRows(pixels, "arrays"), np.arange(len(pixels)), form, Sizes(size, min(size)), "")


# Format


def test_grey_and_colour_mix_and_the_widest_format_wins() -> None:
    form, sizes = measure(Memory([png(4, 6), png(4, 6, 3), png(4, 6, kind=np.uint16)]), "memory")
    assert form == Format(3, 16)
    assert sizes == Sizes((4, 6), 4)


def test_several_files_of_one_image_are_its_channels() -> None:
    rows = Memory([(png(4, 6), png(4, 6, kind=np.uint16), png(4, 6, 3))] * 3)
    form, sizes = measure(rows, "memory")
    assert form == Format(5, 16)
    assert ImageSet("memory", rows, np.arange(3), form, sizes, "").read(1)[0].shape == (5, 4, 6)


@pytest.mark.parametrize(("numbers", "mix"), [((1, 2), False), ((3, 4, 3), False), ((1, 3, 5), False), ((2, 2), True)])
def test_other_numbers_of_channels_are_refused_with_an_example_of_each(numbers: tuple[int, ...], mix: bool) -> None:
    rows = Memory([tuple(png(4, 4) for _ in range(n)) for n in numbers])
    if mix:
        assert measure(rows, "memory")[0] == Format(2, 8)
        return
    with pytest.raises(UserError, match="memory have different numbers of channels") as raised:
        measure(rows, "memory")
    for n in set(numbers):
        assert f"{n} (image {numbers.index(n)})" in str(raised.value)


def test_an_odd_image_met_later_is_unreadable() -> None:
    rows = Memory([(png(4, 4), png(4, 4)), (png(4, 4),) * 3])
    images = ImageSet("memory", rows, np.arange(2), Format(2, 8), Sizes((4, 4), 4), "")
    images.read(0)
    with pytest.raises(Unreadable, match="3 channels among images of 2"):
        images.read(1)


# Windows


def test_windows_are_cut_at_native_scale_where_they_are_asked_for() -> None:
    images = array_set(places(20, 31)).on_canvas(None, 8, 9)
    assert images.sizes == Sizes((9, 9), 9)
    for at, corner in (((0.0, 0.0), (0, 0)), ((1.0, 1.0), (11, 22)), ((0.0, 1.0), (0, 22)), ((0.26, 0.5), (3, 11))):
        pixels, size = images.read(0, at)
        assert size == (9, 9)
        assert pixels.shape == (2, 9, 9)
        top, left = corner
        assert np.array_equal(pixels, places(20, 31)[0, :, top : top + 9, left : left + 9])
    # Unless told otherwise the middle: eleven columns to the left, eleven to the right.
    assert images.read(0)[0][:, 0, 0].tolist() == [6, 11]


def test_every_place_of_a_window_is_equally_likely() -> None:
    images = array_set(places(5, 4)).on_canvas(None, 2, 4)
    shares = (np.arange(1000) + 0.5) / 1000
    tops = [int(images.read(0, (share, share))[0][0, 0, 0]) for share in shares]
    assert np.bincount(tops).tolist() == [500, 500]
    assert {int(images.read(0, (0.3, share))[0][1, 0, 0]) for share in shares} == {0}


def test_an_image_of_the_windows_size_is_whole_and_a_smaller_one_unreadable() -> None:
    assert np.array_equal(array_set(places(9, 9)).on_canvas(None, 8, 9).read(0, (0.9, 0.1))[0], places(9, 9)[0])
    with pytest.raises(Unreadable, match=r"40 x 30 pixels, smaller than --data\.window 64"):
        replace(array_set(places(30, 40)), window=64).read(0)
    with pytest.raises(UserError, match=r"--data\.window 64 is larger than most images of .* 30 pixels"):
        array_set(places(30, 40)).on_canvas(None, 8, 64)


def test_images_of_any_size_give_windows_of_one() -> None:
    rows = Memory([png(20, 30), png(50, 16)])
    form, sizes = measure(rows, "memory")
    images = ImageSet("memory", rows, np.arange(2), form, sizes, "").on_canvas(None, 16, 16)
    assert [images.read(i)[0].shape for i in range(2)] == [(1, 16, 16)] * 2


def test_windows_that_make_no_sense_are_refused() -> None:
    images = array_set(places(30, 40))
    with pytest.raises(UserError, match=r"--data\.window 8 is smaller than the model's input of 16 pixels"):
        images.on_canvas(None, 16, 8)
    with pytest.raises(UserError, match=r"--data\.canvas .* --data\.window"):
        images.on_canvas(24, 16, 16)


# Canvas


@pytest.mark.parametrize(
    ("size", "canvas"),
    [((40, 40), None), ((40, 60), None), ((60, 40), None), ((40, 61), 40), ((42, 42), 40), ((500, 300), 40)],
)
def test_images_of_one_size_stay_as_they_are_unless_large(size: tuple[int, int], canvas: int | None) -> None:
    images = array_set(places(*size)).on_canvas(None, 20)
    assert images.canvas == (None if canvas is None else (canvas, canvas))
    assert images.read(0)[0].shape[1:] == (images.canvas or size)
    assert images.read(0)[1] == size


@pytest.mark.parametrize(
    ("size", "canvas"),
    [
        ((60, 70), (30, 35)),  # a half
        ((81, 65), (41, 33)),  # rounded up, as JPEG decoders do
        ((130, 150), (33, 38)),  # a quarter
        ((300, 250), (38, 32)),  # an eighth
        ((58, 60), (40, 40)),  # a half would leave less than one and a half times the model's side
        ((60, 130), (40, 40)),  # a half is too long
    ],
)
def test_larger_images_of_one_size_become_a_part_that_jpeg_decodes_at(
    size: tuple[int, int], canvas: tuple[int, int]
) -> None:
    images = array_set(places(*size))
    assert images.on_canvas(None, 20).canvas == canvas
    usual = replace(images, sizes=Sizes(None, min(size), size))
    assert usual.on_canvas(None, 20).canvas == canvas
    assert replace(images, sizes=Sizes(None, min(size))).on_canvas(None, 20).canvas == (40, 40)


def test_a_usual_size_below_the_models_does_not_decide() -> None:
    images = array_set(places(28, 28))
    assert replace(images, sizes=Sizes(None, 28, (28, 28))).on_canvas(None, 40).canvas == (40, 40)
    assert images.on_canvas(None, 40).canvas is None  # nothing is lost where all have it


def test_the_few_of_another_size_are_squeezed_onto_the_usual_one() -> None:
    usual = Sizes(None, 30, (30, 40))
    rows = Memory([png(30, 40), png(44, 33)])
    images = ImageSet("files", rows, np.arange(2), Format(1, 8), usual, "").on_canvas(None, 20)
    assert images.canvas == (30, 40)
    assert images.read(0)[0].shape == images.read(1)[0].shape == (1, 30, 40)
    assert [images.read(i)[1] for i in range(2)] == [(30, 40), (44, 33)]


@pytest.mark.parametrize(("others", "usual"), [(0, None), (1, (6, 8)), (10, (6, 8)), (12, None)])
def test_nine_in_ten_images_make_a_size_the_usual_one(others: int, usual: tuple[int, int] | None) -> None:
    rows = Memory([png(6, 8)] * (100 - others) + [png(9, 7)] * others)
    _, sizes = measure(rows, "files")
    assert sizes.usual == usual
    assert sizes.common == (None if others else (6, 8))


# Protocol


def test_the_policy_says_what_is_decoded() -> None:
    images = array_set(places(30, 40))
    assert images.on_canvas(None, 20).policy() == {
        "channels": 2,
        "bits": 16,
        "size": "native, 40 x 30",
        "crop_boxes": "in pixels of the original",
    }
    squeezed = replace(images, sizes=Sizes(None, 30)).on_canvas(None, 16).policy()
    assert squeezed["size"] == "squeezed onto 30 x 30, antialiased bicubic; large JPEG from 1/2, 1/4, 1/8"
    assert squeezed["crop_boxes"] == "in pixels of the original, mapped onto the canvas"
    window = images.on_canvas(None, 16, 24).policy()
    assert window["size"] == "windows of 24 x 24 at native scale"
    assert window["crop_boxes"] == "in pixels of the window"
