"""Decoders that are faster than Pillow's: the same pixels, sizes and refusals; and JPEG files decoded at a part."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.data.decoding import jpeg
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Format, Unreadable

GREY, RGB = Format(1, 8), Format(3, 8)
BOUND = 2
"""Levels between builds of libjpeg-turbo; those of one version agree exactly."""


def picture(height: int, width: int) -> Image.Image:
    """Smooth coloured noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str = "JPEG", orientation: int | None = None, **options: object) -> bytes:
    if orientation is not None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


PLAIN = encode(picture(40, 56), quality=90)
GREY_FILE = encode(picture(40, 56).convert("L"))
FILES = {
    "plain": PLAIN,
    "one pixel": encode(picture(1, 1)),
    "grey": GREY_FILE,
    "CMYK": encode(picture(40, 56).convert("CMYK")),
    "progressive": encode(picture(37, 51), progressive=True),
    "full colour": encode(picture(37, 51), subsampling=0, quality=97),
    "odd sides": encode(picture(33, 17), subsampling=2),
    "restarts": encode(picture(40, 56), restart_marker_blocks=2),
    "junk after": PLAIN + b"junk" * 100,
    "no end marker": PLAIN[:-2],
    "cut in the last bytes": PLAIN[:-20],
    "cut in half": PLAIN[: len(PLAIN) // 2],
    "half and an end marker": PLAIN[: len(PLAIN) // 2] + b"\xff\xd9",
    "zeros inside": PLAIN[: len(PLAIN) // 2] + bytes(40) + PLAIN[len(PLAIN) // 2 + 40 :],
    "zeros at the end": PLAIN[: len(PLAIN) // 2] + bytes(len(PLAIN) // 2),
    "header alone": PLAIN[:300],
    "zeros": bytes(500),
    "WebP": encode(picture(40, 56), "WEBP", quality=80),
    "cut WebP": encode(picture(40, 56), "WEBP", quality=80)[:-50],
    "WebP with alpha": encode(Image.merge("RGBA", [*picture(40, 56).split(), picture(40, 56).convert("L")]), "WEBP"),
    **{f"turned {n}": encode(picture(40, 56), orientation=n) for n in range(1, 9)},
}


def outcome(raw: bytes, form: Format, canvas: tuple[int, int] | None) -> tuple[np.ndarray, tuple[int, int]] | str:
    try:
        return decode(raw, form, canvas)
    except Unreadable as error:
        return str(error)


def check_as_pillow(raw: bytes, form: Format, canvas: tuple[int, int] | None) -> None:
    found = outcome(raw, form, canvas)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg, "decode_quickly", lambda raw, image, form, step: None)
        expected = outcome(raw, form, canvas)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert found[1] == expected[1]
    assert found[0].shape == expected[0].shape
    assert found[0].dtype == expected[0].dtype == np.uint8
    assert np.abs(found[0].astype(int) - expected[0]).max() <= BOUND


@pytest.mark.parametrize("canvas", [None, (24, 24), (15, 15), (6, 7)])
@pytest.mark.parametrize("form", [GREY, RGB])
@pytest.mark.parametrize("name", FILES)
def test_pixels_sizes_and_reasons_are_pillows(name: str, form: Format, canvas: tuple[int, int] | None) -> None:
    check_as_pillow(FILES[name], form, canvas)


@given(data=st.data(), name=st.sampled_from(["plain", "grey", "progressive", "restarts"]))
def test_damaged_files_are_what_pillow_makes_of_them(name: str, data: st.DataObject) -> None:
    raw = bytearray(FILES[name])
    body = raw.index(b"\xff\xda") + 12  # damage in the picture; sizes in the header could be turned into gigabytes
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(body, len(raw) - 1))] = data.draw(st.integers(0, 255))
    canvas = data.draw(st.sampled_from([None, (15, 15), (6, 7)]))
    check_as_pillow(bytes(raw[: data.draw(st.integers(body, len(raw)))]), RGB, canvas)


def quickly(raw: bytes, form: Format) -> np.ndarray | None:
    with Image.open(io.BytesIO(raw)) as image, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that bytes cannot be written to
        return jpeg.decode_quickly(raw, image, form, 1)


def test_plain_files_are_decoded_quickly_and_others_left_to_pillow() -> None:
    for raw, form in ((PLAIN, RGB), (GREY_FILE, GREY), (GREY_FILE, RGB), (FILES["progressive"], RGB)):
        pixels = quickly(raw, form)
        assert pixels is not None
        with Image.open(io.BytesIO(raw)) as image:
            expected = np.asarray(image.convert("RGB" if form == RGB else "L")).reshape(*image.size[::-1], -1)
        assert np.abs(pixels.transpose(1, 2, 0).astype(int) - expected).max() <= BOUND
    assert quickly(FILES["WebP"], RGB) is not None
    assert quickly(PLAIN, GREY) is None  # Pillow's luma is not the file's
    for name in ("CMYK", "cut in half", "WebP with alpha"):
        assert quickly(FILES[name], RGB) is None, name
    assert quickly(encode(picture(40, 56), "PNG"), RGB) is None


# At a part of the size


@pytest.mark.parametrize(("side", "step"), [(151, 1), (150, 2), (76, 2), (75, 4), (38, 4), (37, 8), (3, 8)])
def test_a_reserve_is_kept(side: int, step: int) -> None:
    with Image.open(io.BytesIO(encode(picture(400, 520)))) as image:
        assert jpeg.part_for(image, (side, side)) == step
        assert jpeg.draft(image, step) == step
        assert image.size == (520 // step, 400 // step)
    with Image.open(io.BytesIO(encode(picture(520, 400)))) as image:
        assert jpeg.part_for(image, (1, 151)) == 1  # the narrower way counts
    with Image.open(io.BytesIO(encode(picture(400, 520), "PNG"))) as image:
        assert jpeg.part_for(image, (3, 3)) == 1


@pytest.mark.parametrize(("canvas", "step"), [((200, 260), 2), ((100, 130), 4), ((50, 65), 8), ((200, 259), 1)])
def test_a_canvas_that_is_a_part_needs_no_reserve(canvas: tuple[int, int], step: int) -> None:
    raw = encode(picture(399, 520))
    with Image.open(io.BytesIO(raw)) as image:
        assert jpeg.part_for(image, canvas) == step
        assert jpeg.draft(image, step) == step
        expected = np.asarray(image).transpose(2, 0, 1)
    pixels, size = decode(raw, RGB, canvas)
    assert size == (399, 520)
    if step > 1:  # as the decoder made them: nothing is resized
        assert np.abs(pixels.astype(int) - expected).max() <= BOUND


@pytest.mark.parametrize("step", [2, 4, 8])
@pytest.mark.parametrize("name", ["plain", "grey", "progressive", "full colour", "odd sides", "restarts"])
def test_parts_are_decoded_quickly_to_pillows_pixels(name: str, step: int) -> None:
    raw = FILES[name]
    with Image.open(io.BytesIO(raw)) as image:
        form = GREY if image.mode == "L" else RGB
        pixels = jpeg.decode_quickly(raw, image, form, step)
        assert jpeg.draft(image, step) == step
        expected = np.asarray(image).reshape(*image.size[::-1], -1).transpose(2, 0, 1)
    assert pixels is not None
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).max() <= BOUND


def full(raw: bytes, form: Format, canvas: tuple[int, int]) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg, "part_for", lambda image, canvas: 1)
        return decode(raw, form, canvas)[0].astype(int)


@pytest.mark.parametrize("form", [GREY, RGB])
@pytest.mark.parametrize(("height", "width"), [(400, 520), (397, 523), (801, 555)])
@pytest.mark.parametrize("side", [140, 60, 30])
def test_a_part_is_close_to_the_whole_and_the_size_exact(form: Format, height: int, width: int, side: int) -> None:
    raw = encode(picture(height, width), quality=92)
    pixels, size = decode(raw, form, (side, side))
    assert size == (height, width)
    assert pixels.shape == (form.channels, side, side)
    difference = np.abs(pixels - full(raw, form, (side, side)))
    assert 0 < difference.max() <= 8
    assert difference.mean() < 1


def test_a_part_keeps_its_place_where_sides_do_not_divide() -> None:
    # Of 803 pixels an eighth are 100.4: taken for 101, the right edge would lie half a pixel of 30 further left.
    ramp = Image.fromarray(np.broadcast_to(np.linspace(0, 255, 803), (401, 803)).round().astype(np.uint8))
    raw = encode(ramp, quality=95)
    for side in (140, 60, 37):
        difference = decode(raw, GREY, (side, side))[0].astype(int) - full(raw, GREY, (side, side))
        assert np.abs(difference[:, :, 2:-2]).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images_are_decoded_at_a_part_too(orientation: int) -> None:
    raw = encode(picture(400, 700), orientation=orientation)
    size = (700, 400) if orientation > 4 else (400, 700)
    canvas = (100, 60) if orientation > 4 else (60, 100)
    pixels, found = decode(raw, RGB, canvas)
    assert found == size
    assert pixels.shape == (3, *canvas)
    difference = np.abs(pixels - full(raw, RGB, canvas))
    assert difference.mean() < 1
    assert difference.max() > 0


def test_a_cut_file_is_refused_at_a_part_as_it_is_whole() -> None:
    raw = encode(picture(400, 520))
    with pytest.raises(Unreadable, match="truncated"):
        decode(raw[: len(raw) // 2], RGB, (30, 30))
