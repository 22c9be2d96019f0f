"""Files to pixels: every mode upright and exact, 16 bits never cut, and a reason for whatever is broken."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.data.decoding.decode import (
    Format,
    Header,
    Unreadable,
    decode,
    decode_crop,
    open_image,
    read_header,
)
from ssl_vit.data.decoding.deep import cut_depth

RNG = np.random.default_rng(0)
GREY8, RGB8 = Format(1, 8), Format(3, 8)
GREY16, RGB16 = Format(1, 16), Format(3, 16)
ORIENTATION = 0x0112

# What has to happen to stored pixels [H, W, ...] so that they stand upright, by EXIF orientation.
UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


def grey(height: int = 5, width: int = 7) -> np.ndarray:
    return RNG.integers(0, 256, (height, width), dtype=np.uint8)


def rgb(height: int = 5, width: int = 7) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def deep(*shape: int) -> np.ndarray:
    return RNG.integers(0, 65536, shape, dtype=np.uint16)


def encode(image: Image.Image | np.ndarray, kind: str, orientation: int | None = None, **options: object) -> bytes:
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if orientation is not None:
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def late(raw: bytes) -> bytes:
    """A PNG with its EXIF block behind the pixels."""
    start = raw.index(b"eXIf") - 4
    end = start + 12 + struct.unpack(">I", raw[start : start + 4])[0]
    last = raw.index(b"IEND") - 4
    return raw[:start] + raw[end:last] + raw[start:end] + raw[last:]


def deep_png(pixels: np.ndarray, orientation: int | None = None) -> bytes:
    """A 16-bit PNG of 1 to 4 channels, which Pillow cannot write; pixels [H, W, C]."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    exif = b""
    if orientation is not None:
        exif = chunk(b"eXIf", b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, ORIENTATION, 3, 1, orientation, 0, 0))
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0))
        + exif
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def deep_rgb_tiff(pixels: np.ndarray) -> bytes:
    """A 16-bit RGB TIFF, as microscopes and cameras write it; pixels [H, W, 3]."""
    height, width, channels = pixels.shape
    body = pixels.astype("<u2").tobytes()
    tags = [
        *((256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, 8), (259, 3, 1, 1), (262, 3, 1, 2)),
        *((273, 4, 1, 14), (277, 3, 1, channels), (278, 4, 1, height), (279, 4, 1, len(body)), (284, 3, 1, 1)),
    ]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + b"\0\0\0\0"
    return b"II*\0" + struct.pack("<I", 14 + len(body)) + struct.pack("<HHH", 16, 16, 16) + body + directory


def deep_rgb_ppm(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    return b"P6 %d %d 65535\n" % (width, height) + pixels.astype(">u2").tobytes()


def channels_first(array: np.ndarray) -> np.ndarray:
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def pixels_of(raw: bytes, form: Format) -> np.ndarray:
    pixels, size = decode(raw, form, None)
    assert size == pixels.shape[1:]
    assert pixels.dtype == (np.uint8 if form.bits == 8 else np.uint16)
    assert pixels.shape[0] == form.channels
    return pixels


# 8 bits


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_rotation_that_stands_behind_a_pngs_pixels_counts_from_the_start(orientation: int) -> None:
    early = encode(rgb(), "PNG", orientation)
    raw = late(early)
    assert raw.index(b"eXIf") > raw.index(b"IDAT")
    expected = pixels_of(early, Format(3, 8))
    assert np.array_equal(pixels_of(raw, Format(3, 8)), expected)
    assert (read_header(raw).height, read_header(raw).width) == expected.shape[1:]
    crop = decode_crop(raw, open_image(raw), Format(3, 8), (1, 1, 4, 4), 4, "bicubic")
    assert np.array_equal(crop, expected[:, 1:5, 1:5])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM"])
def test_grey_and_rgb_are_exact(kind: str) -> None:
    one, three = grey(), rgb()
    assert read_header(encode(one, kind)) == Header(1, 8, 5, 7)
    assert read_header(encode(three, kind)) == Header(3, 8, 5, 7)
    assert np.array_equal(pixels_of(encode(one, kind), GREY8), one[None])
    assert np.array_equal(pixels_of(encode(three, kind), RGB8), three.transpose(2, 0, 1))


@pytest.mark.parametrize("form", [RGB8, RGB16])
def test_grey_is_repeated_in_an_rgb_set(form: Format) -> None:
    one = grey()
    expected = one.astype(np.uint16) * 257 if form.bits == 16 else one
    assert np.array_equal(pixels_of(encode(one, "PNG"), form), np.stack([expected] * 3))


def test_rgb_becomes_luma_in_a_grey_set() -> None:
    three = rgb()
    luma = three @ np.array([0.299, 0.587, 0.114])
    assert np.abs(pixels_of(encode(three, "PNG"), GREY8)[0] - luma).max() <= 1
    wide = pixels_of(encode(three, "PNG"), GREY16)[0]
    assert np.abs(wide - 257 * luma).max() <= 257
    many = deep(5, 7, 3)
    assert np.abs(pixels_of(deep_png(many), GREY16)[0] - many @ np.array([0.299, 0.587, 0.114])).max() <= 1


def test_alpha_is_dropped() -> None:
    three, one, alpha = rgb(), grey(), grey()
    with_alpha = encode(Image.fromarray(np.dstack([three, alpha])), "PNG")
    assert read_header(with_alpha) == Header(3, 8, 5, 7)
    assert np.array_equal(pixels_of(with_alpha, RGB8), three.transpose(2, 0, 1))
    grey_with_alpha = encode(Image.merge("LA", [Image.fromarray(one), Image.fromarray(alpha)]), "PNG")
    assert read_header(grey_with_alpha) == Header(1, 8, 5, 7)
    assert np.array_equal(pixels_of(grey_with_alpha, GREY8), one[None])
    assert np.array_equal(pixels_of(grey_with_alpha, RGB8), np.stack([one] * 3))


@pytest.mark.parametrize(
    ("kind", "transparency"), [("PNG", None), ("PNG", 1), ("PNG", bytes([0, 128, 255])), ("GIF", None), ("GIF", 1)]
)
def test_palettes_become_their_colours(kind: str, transparency: int | bytes | None) -> None:
    colours = np.array([[250, 0, 3], [7, 200, 30], [1, 2, 255]], dtype=np.uint8)
    numbers = RNG.integers(0, 3, (5, 7), dtype=np.uint8)
    image = Image.fromarray(numbers)
    image.putpalette(colours.tobytes())
    options = {} if transparency is None else {"transparency": transparency}
    raw = encode(image, kind, **options)
    with Image.open(io.BytesIO(raw)) as again:
        assert again.mode == "P"
        assert ("transparency" in again.info) == (transparency is not None)
    assert read_header(raw) == Header(3, 8, 5, 7)
    assert np.array_equal(pixels_of(raw, RGB8), colours[numbers].transpose(2, 0, 1))
    assert np.array_equal(pixels_of(raw, RGB16), colours[numbers].transpose(2, 0, 1).astype(np.uint16) * 257)


def test_one_bit_becomes_black_and_white() -> None:
    image = Image.fromarray(grey()).convert("1")
    expected = np.where(np.asarray(image), 255, 0).astype(np.uint8)
    raw = encode(image, "PNG")
    assert read_header(raw) == Header(1, 8, 5, 7)
    assert np.array_equal(pixels_of(raw, GREY8), expected[None])
    assert np.array_equal(pixels_of(raw, GREY16), expected[None].astype(np.uint16) * 257)


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk_becomes_rgb(kind: str) -> None:
    inks = {(0, 0, 0, 0): (255, 255, 255), (0, 0, 0, 255): (0, 0, 0), (255, 0, 0, 0): (0, 255, 255)}
    for ink, colour in inks.items():
        raw = encode(Image.new("CMYK", (7, 5), ink), kind)
        assert read_header(raw) == Header(3, 8, 5, 7)
        assert np.abs(pixels_of(raw, RGB8).transpose(1, 2, 0).astype(int) - np.array(colour)).max() <= 2


def test_of_an_animation_the_first_frame_counts() -> None:
    frames = [Image.fromarray(grey()) for _ in range(3)]
    raw = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.array_equal(pixels_of(raw, RGB8)[0], np.asarray(frames[0]))


# 16 bits


def test_8_bit_images_fill_a_16_bit_set() -> None:
    one = np.arange(256, dtype=np.uint8).reshape(16, 16)
    wide = pixels_of(encode(one, "PNG"), GREY16)
    assert np.array_equal(wide[0], one.astype(np.int64) * 257)
    assert wide.min() == 0
    assert wide.max() == 65535
    three = rgb()
    assert np.array_equal(pixels_of(encode(three, "PNG"), RGB16), three.transpose(2, 0, 1).astype(np.int64) * 257)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_exact(kind: str) -> None:
    many = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    raw = encode(many, kind)
    assert read_header(raw) == Header(1, 16, 256, 256)
    assert np.array_equal(pixels_of(raw, GREY16)[0], many)
    assert np.array_equal(pixels_of(raw, RGB16), np.stack([many] * 3))


def test_big_endian_tiff_is_exact() -> None:
    many = deep(5, 7)
    raw = encode(Image.frombytes("I;16B", (7, 5), many.astype(">u2").tobytes()), "TIFF")
    assert raw[:2] == b"MM"
    assert read_header(raw) == Header(1, 16, 5, 7)
    assert np.array_equal(pixels_of(raw, GREY16)[0], many)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bit_png_of_any_channels_is_exact(channels: int) -> None:
    many = deep(5, 7, channels)
    many[0, 0], many[0, 1] = 65535, 256  # a cut to 8 bits would lose the second one
    raw = deep_png(many)
    colours = 1 if channels < 3 else 3
    assert read_header(raw) == Header(colours, 16, 5, 7)
    assert np.array_equal(pixels_of(raw, Format(colours, 16)), many[:, :, :colours].transpose(2, 0, 1))


@pytest.mark.parametrize("write", [deep_rgb_tiff, deep_rgb_ppm])
def test_16_bit_colour_is_never_cut(write) -> None:
    many = deep(5, 7, 3)
    raw = write(many)
    with Image.open(io.BytesIO(raw)) as image:
        assert image.size == (7, 5)  # a file that Pillow opens, and would cut
    assert read_header(raw) == Header(3, 16, 5, 7)
    assert np.array_equal(pixels_of(raw, RGB16), many.transpose(2, 0, 1))
    for form in (GREY8, RGB8):
        with pytest.raises(Unreadable, match="16 bits"):
            decode(raw, form, None)


def test_a_ppms_own_maximum_is_full_range() -> None:
    values = np.array([[[0, 1, 1023]]], dtype=np.uint16)
    raw = b"P6 # made by hand\n1 1\n# maximum:\n1023\n" + values.astype(">u2").tobytes()
    assert read_header(raw) == Header(3, 16, 1, 1)
    assert pixels_of(raw, RGB16).flatten().tolist() == [0, 64, 65535]
    # Grey ones are Pillow's, and the same.
    grey_one = b"P5 3 1 1023\n" + values.astype(">u2").tobytes()
    assert pixels_of(grey_one, GREY16).flatten().tolist() == [0, 64, 65535]
    with pytest.raises(Unreadable, match="ends before"):
        decode(raw[:-1], RGB16, None)


def test_deep_colour_that_only_pillow_reads_is_refused() -> None:
    jpeg2000 = bytearray(encode(rgb(), "JPEG2000"))
    assert decode(bytes(jpeg2000), RGB8, None)[1] == (5, 7)
    marker = jpeg2000.index(b"\xff\x4f\xff\x51")
    jpeg2000[marker + 42] = 15  # what a file with 16 bits per component says
    with pytest.raises(Unreadable, match="16 bits per channel"):
        decode(bytes(jpeg2000), RGB8, None)
    # An AVIF file states its depth in two flags behind this word.
    assert decode(encode(rgb(16, 16), "AVIF"), RGB8, None)[1] == (16, 16)
    for flags, depth in ((0x0C, 8), (0x4C, 10), (0x6C, 12)):
        assert cut_depth(b"....av1C\x81\x00" + bytes([flags, 0]), "AVIF") == depth


@pytest.mark.parametrize("raw", [encode(deep(5, 7), "PNG"), encode(deep(5, 7), "TIFF"), deep_png(deep(5, 7, 3))])
@pytest.mark.parametrize("form", [GREY8, RGB8])
def test_16_bits_are_refused_among_8_bit_images(raw: bytes, form: Format) -> None:
    with pytest.raises(Unreadable, match="16 bits"):
        decode(raw, form, None)


def test_32_bit_integers_are_exact_up_to_16_bits_and_refused_beyond() -> None:
    fits = np.array([[0, 1, 65535], [256, 300, 40000]], dtype=np.int32)
    assert np.array_equal(pixels_of(encode(fits, "TIFF"), GREY16)[0], fits)
    for beyond in (-1, 65536, 2**31 - 1):
        raw = encode(np.array([[5, beyond]], dtype=np.int32), "TIFF")
        with pytest.raises(Unreadable, match="16 bits"):
            decode(raw, GREY16, None)


# Upright


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied_exactly(kind: str, orientation: int) -> None:
    stored = rgb()
    upright = channels_first(UPRIGHT[orientation](stored))
    raw = encode(stored, kind, orientation, **({"lossless": True} if kind == "WEBP" else {}))
    assert np.array_equal(pixels_of(raw, RGB8), upright)
    assert np.array_equal(pixels_of(raw, RGB16), upright.astype(np.int64) * 257)
    assert read_header(raw)[2:] == upright.shape[1:]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_of_a_jpeg_is_applied(orientation: int) -> None:
    stored = np.kron(np.array([[0, 80, 160], [240, 40, 120]], dtype=np.uint8), np.ones((16, 16), dtype=np.uint8))
    upright = UPRIGHT[orientation](stored)
    raw = encode(stored, "JPEG", orientation, quality=95)
    assert read_header(raw) == Header(1, 8, *upright.shape)
    pixels = pixels_of(raw, GREY8)
    assert np.abs(pixels[0].astype(int) - upright).max() <= 8
    canvas, size = decode(raw, GREY8, (8, 8))
    assert size == upright.shape
    assert canvas.shape == (1, 8, 8)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["grey PNG", "grey TIFF", "colour PNG"])
def test_exif_orientation_of_16_bits_is_applied_exactly(kind: str, orientation: int) -> None:
    stored = deep(5, 7, 3) if kind == "colour PNG" else deep(5, 7)
    raw = deep_png(stored, orientation) if kind == "colour PNG" else encode(stored, kind[5:], orientation)
    upright = channels_first(UPRIGHT[orientation](stored))
    assert np.array_equal(pixels_of(raw, Format(upright.shape[0], 16)), upright)
    assert read_header(raw)[2:] == upright.shape[1:]


# Refusals


def test_float_tiff_is_refused_with_advice() -> None:
    raw = encode(np.array([[0.5, 3.2]], dtype=np.float32), "TIFF")
    for form in (GREY8, GREY16, RGB8, RGB16):
        with pytest.raises(Unreadable, match="32-bit float"):
            decode(raw, form, None)
    with pytest.raises(Unreadable, match="32-bit float"):
        read_header(raw)


HTML = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>Not Found</body></html>\n" * 20


@pytest.mark.parametrize(("raw", "reason"), [(b"", "empty"), (HTML, "not an image"), (b"\xff\xd8", "not an image")])
def test_what_is_no_image_is_named(raw: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_header(raw)
    for form in (GREY8, RGB16):
        with pytest.raises(Unreadable, match=reason):
            decode(raw, form, None)


FILES = {
    "JPEG": encode(Image.fromarray(rgb(40, 40)), "JPEG"),
    "PNG": encode(rgb(40, 40), "PNG"),
    "TIFF": encode(rgb(40, 40), "TIFF"),
    "BMP": encode(rgb(40, 40), "BMP"),
    "16-bit PNG": encode(deep(40, 40), "PNG"),
    "16-bit colour PNG": deep_png(deep(40, 40, 3)),
}


@pytest.mark.parametrize("name", FILES)
def test_half_a_file_is_unreadable(name: str) -> None:
    raw = FILES[name]
    with pytest.raises(Unreadable) as raised:
        decode(raw[: len(raw) // 2], RGB16, None)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_damaged_file_gives_pixels_or_a_reason(name: str, data: st.DataObject) -> None:
    raw = bytearray(FILES[name][: data.draw(st.integers(0, len(FILES[name])))])
    if name.endswith("PNG") and raw:  # other formats' sizes could be turned into gigabytes
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(0, 255))
    try:
        pixels, _ = decode(bytes(raw), RGB16, (8, 8))
    except Unreadable as error:
        assert str(error)
    else:
        assert pixels.shape == (3, 8, 8)
        assert pixels.dtype == np.uint16
    try:
        read_header(bytes(raw))
    except Unreadable as error:
        assert str(error)


def test_enormous_images_are_unreadable_and_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = encode(grey(10, 10), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)  # Pillow warns above this and refuses twice as much
    assert decode(raw, GREY8, None)[1] == (10, 10)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    for call in (lambda: decode(raw, GREY8, None), lambda: read_header(raw)):
        with pytest.raises(Unreadable, match="too large"):
            call()


@pytest.mark.parametrize(
    "raw", [deep_png(deep(10, 10, 3)), deep_rgb_ppm(deep(10, 10, 3)), deep_rgb_tiff(deep(10, 10, 3))]
)
def test_the_limit_holds_for_files_that_pillow_does_not_read(raw: bytes) -> None:
    assert decode(raw, RGB16, None, most=100)[1] == (10, 10)
    with pytest.raises(Unreadable, match="too large"):
        decode(raw, RGB16, None, most=99)


# Several files of one image


def test_parts_are_joined_along_channels() -> None:
    one, three, many = grey(), rgb(), deep(5, 7)
    raw = (encode(many, "PNG"), encode(one, "PNG"), encode(three, "TIFF"))
    assert read_header(raw) == Header(5, 16, 5, 7)
    pixels, size = decode(raw, Format(5, 16), None)
    assert size == (5, 7)
    assert pixels.dtype == np.uint16
    assert np.array_equal(pixels[0], many)
    assert np.array_equal(pixels[1], one.astype(np.uint16) * 257)
    assert np.array_equal(pixels[2:], three.transpose(2, 0, 1).astype(np.uint16) * 257)
    narrow = decode((encode(one, "PNG"), encode(three, "PNG")), Format(4, 8), None)[0]
    assert np.array_equal(narrow, np.concatenate([one[None], three.transpose(2, 0, 1)]))


def test_parts_share_a_canvas() -> None:
    raw = tuple(encode(deep(5, 7), "PNG") for _ in range(2))
    pixels, size = decode(raw, Format(2, 16), (8, 8))
    assert size == (5, 7)
    for part, plane in zip(raw, pixels, strict=True):
        assert np.array_equal(plane, decode(part, GREY16, (8, 8))[0][0])


def test_parts_of_different_sizes_are_named() -> None:
    raw = (encode(grey(5, 7), "PNG"), encode(grey(5, 7), "PNG"), encode(grey(7, 5), "PNG"))
    for call in (lambda: read_header(raw), lambda: decode(raw, RGB8, None)):
        with pytest.raises(Unreadable, match="part 3 of 3 has 5 x 7 pixels, but part 1 7 x 5"):
            call()


def test_a_broken_part_is_named() -> None:
    whole = encode(grey(40, 40), "PNG")
    for broken in (b"", whole[: len(whole) // 2]):
        with pytest.raises(Unreadable, match="part 2 of 2: "):
            decode((whole, broken), Format(2, 8), None)
    with pytest.raises(Unreadable, match="part 1 of 2: empty"):
        read_header((b"", whole))


def test_parts_are_never_repeated_or_mixed_to_fit() -> None:
    raw = (encode(grey(), "PNG"), encode(grey(), "PNG"), encode(grey(), "PNG"))
    for form in (GREY8, Format(2, 8), Format(5, 8)):
        with pytest.raises(Unreadable, match="3 channels among images of"):
            decode(raw, form, None)
    with pytest.raises(Unreadable, match="1 channels among images of 5"):
        decode(encode(grey(), "PNG"), Format(5, 8), None)


# Canvas


def resampling(length: int, out: int) -> torch.Tensor:
    """Torch's antialiased bicubic weights [out, length] along one axis, in float64.

    Of one axis at a time, because torch 2.15 itself goes wrong where the other axis is resized to a single pixel.
    """
    if length == 1:
        return torch.ones(out, 1, dtype=torch.float64)
    eye = torch.eye(length, dtype=torch.float64)[None, None]
    return F.interpolate(eye, size=(out, length), mode="bicubic", antialias=True, align_corners=False)[0, 0]


def reference(stored: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """Torch's result, clamped to the range of the type as integers have to be."""
    x = torch.from_numpy(stored.astype(np.float64))
    x = resampling(x.shape[1], canvas[0]) @ x @ resampling(x.shape[2], canvas[1]).T
    return x.clamp(0, np.iinfo(stored.dtype).max).numpy()


@given(
    height=st.integers(1, 24),
    width=st.integers(1, 24),
    canvas=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    bits=st.sampled_from([8, 16]),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_the_canvas_is_antialiased_bicubic(
    height: int, width: int, canvas: tuple[int, int], bits: int, channels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    if bits == 16:  # black and white noise overshoots most: it must be clamped, never wrap around
        stored = (rng.integers(0, 2, (height, width, channels)) * 65535).astype(np.uint16)
    else:  # Pillow rounds and clamps 8-bit images between its two passes; stay where the clamp does nothing
        stored = rng.integers(80, 176, (height, width, channels)).astype(np.uint8)
    raw = deep_png(stored) if bits == 16 else encode(stored[:, :, 0] if channels == 1 else stored, "PNG")
    pixels, size = decode(raw, Format(channels, bits), canvas)
    assert size == (height, width)
    assert pixels.shape == (channels, *canvas)
    assert pixels.dtype == stored.dtype
    tolerance = 2.0 if bits == 8 else 1.0  # two roundings, or one and float32
    assert np.abs(pixels - reference(stored.transpose(2, 0, 1), canvas)).max() <= tolerance


def test_an_8_bit_edge_does_not_wrap_around_on_the_canvas() -> None:
    edge = np.repeat(np.array([[0, 0, 0, 255, 255, 255]], dtype=np.uint8), 4, axis=0)
    for form, top in ((GREY8, 255), (GREY16, 65535)):
        pixels = decode(encode(edge, "PNG"), form, (4, 18))[0][0].astype(int)
        assert bool((np.diff(np.clip(pixels, 0.1 * top, 0.9 * top), axis=1) >= 0).all())
        assert (pixels[:, :6] <= 0.1 * top).all()
        assert (pixels[:, -6:] >= 0.9 * top).all()


@pytest.mark.parametrize("form", [GREY8, RGB8, GREY16, RGB16])
def test_the_canvas_of_a_constant_image_is_constant(form: Format) -> None:
    pixels, _ = decode(encode(np.full((9, 14), 199, dtype=np.uint8), "PNG"), form, (20, 6))
    assert pixels.shape == (form.channels, 20, 6)
    assert np.unique(pixels).tolist() == [199 if form.bits == 8 else 199 * 257]


def test_an_image_of_the_canvas_size_is_untouched() -> None:
    one, many = grey(), deep(5, 7)
    assert np.array_equal(decode(encode(one, "PNG"), GREY8, (5, 7))[0][0], one)
    assert np.array_equal(decode(encode(many, "PNG"), GREY16, (5, 7))[0][0], many)


def test_pixels_pass_as_they_are() -> None:
    for pixels in (rgb().transpose(2, 0, 1), deep(1, 5, 7)):
        header = read_header(pixels)
        assert header == Header(pixels.shape[0], pixels.dtype.itemsize * 8, 5, 7)
        same, size = decode(pixels, Format(header.channels, header.bits), None)
        assert np.array_equal(same, pixels)
        assert size == (5, 7)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_a_deep_png_is_turned_by_what_stands_behind_its_pixels_too(channels: int, orientation: int) -> None:
    stored = deep(4, 6, channels)
    upright = channels_first(UPRIGHT[orientation](stored))[: 1 if channels == 2 else 3]
    for raw in (deep_png(stored, orientation), late(deep_png(stored, orientation))):
        header = read_header(raw)
        assert (header.height, header.width) == upright.shape[1:]
        assert np.array_equal(pixels_of(raw, Format(header.channels, 16)), upright)
