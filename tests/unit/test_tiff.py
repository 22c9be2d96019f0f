"""TIFFs of several pages, channels and depths: exact, upright, or refused with the reason."""

from __future__ import annotations

import io
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.data.decoding.decode import Format, Header, Unreadable, decode, read_header

RNG = np.random.default_rng(0)


def values(*shape: int, kind: type = np.uint16) -> np.ndarray:
    return RNG.integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)


def write(array: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, array, **{"photometric": "minisblack", "metadata": None} | options)
    return file.getvalue()


def write_pages(pages: np.ndarray, compression: str | None = None, orientation: int = 1) -> bytes:
    """Pages as Pillow writes them."""
    images = [Image.fromarray(page) for page in pages]
    file = io.BytesIO()
    images[0].save(
        file, "TIFF", save_all=True, append_images=images[1:], compression=compression, tiffinfo={274: orientation}
    )
    return file.getvalue()


def pixels_of(raw: bytes) -> np.ndarray:
    """Decoded in the file's own format, which must be what its header says."""
    header = read_header(raw)
    pixels, size = decode(raw, Format(header.channels, header.bits), None)
    assert header == Header(pixels.shape[0], 8 * pixels.dtype.itemsize, *size)
    assert size == pixels.shape[1:]
    return pixels


# Channels


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("compression", [None, "tiff_deflate", "packbits", "tiff_lzw"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_pages_are_channels(kind: type, compression: str | None, n: int) -> None:
    pages = values(n, 5, 7, kind=kind)
    assert np.array_equal(pixels_of(write_pages(pages, compression)), pages)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 12])
@pytest.mark.parametrize(
    "options", [{}, {"byteorder": ">"}, {"bigtiff": True}, {"compression": "zlib"}, {"tile": (16, 16)}]
)
def test_samples_are_channels_stored_together_or_apart(kind: type, n: int, options: dict[str, object]) -> None:
    planes = values(n, 20, 17, kind=kind)
    extra = {"extrasamples": [0] * (n - 1)}  # of unspecified meaning, not alpha
    together = write(planes.transpose(1, 2, 0).copy(), planarconfig="contig", **extra, **options)
    apart = write(planes, planarconfig="separate", **extra, **options)
    assert np.array_equal(pixels_of(together), planes)
    assert np.array_equal(pixels_of(apart), planes)


def test_samples_of_pages_are_all_channels() -> None:
    pages = values(4, 5, 7, 3)
    raw = write(pages, photometric="rgb")
    expected = [pages[page, :, :, sample] for page in range(4) for sample in range(3)]
    assert np.array_equal(pixels_of(raw), expected)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_alpha_is_dropped_and_an_unspecified_sample_is_not(kind: type) -> None:
    stored = values(5, 7, 4, kind=kind)
    planes = stored.transpose(2, 0, 1)
    assert np.array_equal(pixels_of(write(stored, photometric="rgb", extrasamples=["unassalpha"])), planes[:3])
    assert np.array_equal(pixels_of(write(stored, photometric="rgb", extrasamples=["unspecified"])), planes)
    grey = write(stored[:, :, :2].copy(), planarconfig="contig", extrasamples=["unassalpha"])
    assert np.array_equal(pixels_of(grey), planes[:1])


def test_channels_of_microscopes_are_channels() -> None:
    planes = values(4, 5, 7)
    assert np.array_equal(pixels_of(write(planes, imagej=True, metadata={"axes": "CYX"})), planes)
    assert np.array_equal(pixels_of(write(planes, ome=True, metadata={"axes": "CYX"})), planes)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"imagej": True, "metadata": {"axes": "ZYX"}}, "4 planes along Z .depth."),
        ({"imagej": True, "metadata": {"axes": "TYX"}}, "4 planes along T .time."),
        ({"ome": True, "metadata": {"axes": "ZYX"}}, "4 planes along Z .depth."),
        ({"ome": True, "metadata": {"axes": "TYX"}}, "4 planes along T .time."),
    ],
)
def test_depth_and_time_are_refused_by_name(options: dict[str, object], reason: str) -> None:
    raw = write(values(4, 5, 7), **options)
    for call in (lambda: read_header(raw), lambda: decode(raw, Format(4, 16), None)):
        with pytest.raises(Unreadable, match=reason):
            call()


def test_depth_beside_channels_is_refused_too() -> None:
    raw = write(values(2, 3, 5, 7), imagej=True, metadata={"axes": "ZCYX"})
    with pytest.raises(Unreadable, match="2 planes along Z"):
        read_header(raw)


def test_pages_unlike_each_other_are_refused_and_a_thumbnail_is_left_out() -> None:
    def file(subfile: int) -> bytes:
        memory = io.BytesIO()
        with tifffile.TiffWriter(memory) as tif:
            tif.write(whole, photometric="minisblack", metadata=None)
            tif.write(whole[:4, :6].copy(), photometric="minisblack", metadata=None, subfiletype=subfile)
        return memory.getvalue()

    whole = values(5, 7)
    assert np.array_equal(pixels_of(file(1))[0], whole)
    with pytest.raises(Unreadable, match=r"2 images unlike each other \(5x7 uint16, 4x6 uint16"):
        read_header(file(0))


def test_channels_are_not_mixed_to_grey_or_repeated() -> None:
    three, five = write_pages(values(3, 5, 7)), write_pages(values(5, 5, 7))
    for raw, channels in ((three, 1), (three, 5), (five, 3), (five, 1)):
        with pytest.raises(Unreadable, match=f"channels among images of {channels}"):
            decode(raw, Format(channels, 16), None)


# Depth


def test_8_bit_channels_fill_a_16_bit_set() -> None:
    pages = values(4, 5, 7, kind=np.uint8)
    pixels, _ = decode(write_pages(pages), Format(4, 16), None)
    assert np.array_equal(pixels, pages.astype(np.int64) * 257)


def test_white_is_zero() -> None:
    for kind in (np.uint8, np.uint16):
        stored = values(5, 7, kind=kind)
        assert np.array_equal(pixels_of(write(stored, photometric="miniswhite"))[0], np.iinfo(kind).max - stored)


def test_pages_of_one_bit_are_black_and_white() -> None:
    pages = values(2, 5, 7, kind=np.uint8) > 100
    for compression in (None, "tiff_lzw"):
        assert np.array_equal(pixels_of(write_pages(pages, compression)), pages * 255)


@pytest.mark.parametrize("compression", ["group3", "group4", "tiff_ccitt"])
@pytest.mark.parametrize("count", [1, 2])
def test_compressions_of_fax_are_refused(compression: str, count: int) -> None:
    """Where they are damaged, nobody notices, and rows hold what lay in memory."""
    pages = values(count, 5, 7, kind=np.uint8) > 100
    with pytest.raises(Unreadable, match=r"fax \(CCITT\).*save it as PNG"):
        decode(write_pages(pages, compression), Format(count, 8), None)


@pytest.mark.parametrize("kind", [np.uint32, np.int32, np.int16, np.uint64])
def test_wider_integers_are_exact_up_to_16_bits_and_refused_beyond(kind: type) -> None:
    fits = RNG.integers(0, 32768, (2, 5, 7)).astype(kind)
    pixels = pixels_of(write(fits))
    assert pixels.dtype == np.uint16
    assert np.array_equal(pixels, fits)
    beyond = fits.copy()
    beyond[1, 0, 0] = -1 if np.iinfo(kind).min < 0 else 65536
    with pytest.raises(Unreadable, match="beyond 16 bits"):
        decode(write(beyond), Format(2, 16), None)


def test_signed_bytes_are_no_unsigned_ones() -> None:
    assert np.array_equal(pixels_of(write(np.array([[0, 127]], dtype=np.int8)))[0], [[0, 127]])
    with pytest.raises(Unreadable, match="beyond 16 bits"):
        decode(write(np.array([[0, -1]], dtype=np.int8)), Format(1, 16), None)


@pytest.mark.parametrize(
    ("kind", "name"), [("f2", "16-bit float"), ("f4", "32-bit float"), ("f8", "64-bit float"), ("c8", "64-bit complex")]
)
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7)])
def test_what_is_no_integer_is_refused_by_name(kind: str, name: str, shape: tuple[int, ...]) -> None:
    raw = write(np.ones(shape, dtype=kind))
    for call in (lambda: read_header(raw), lambda: decode(raw, Format(3, 16), None)):
        with pytest.raises(Unreadable, match=name):
            call()


def test_deep_inks_are_refused() -> None:
    raw = write(values(5, 7, 4), photometric="separated")
    with pytest.raises(Unreadable, match="SEPARATED"):
        decode(raw, Format(4, 16), None)


# Upright


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_orientation_is_applied(orientation: int, compression: str | None) -> None:
    pages = values(2, 5, 7)
    upright = {
        1: lambda a: a,
        2: lambda a: a[:, :, ::-1],
        3: lambda a: a[:, ::-1, ::-1],
        4: lambda a: a[:, ::-1],
        5: lambda a: a.swapaxes(1, 2),
        6: lambda a: np.rot90(a, -1, (1, 2)),
        7: lambda a: a[:, ::-1, ::-1].swapaxes(1, 2),
        8: lambda a: np.rot90(a, 1, (1, 2)),
    }[orientation](pages)
    assert np.array_equal(pixels_of(write_pages(pages, compression, orientation)), upright)


# Broken or beyond us


def test_a_header_costs_no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_pages(values(3, 5, 7), "tiff_deflate")
    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", None)
    assert read_header(raw) == Header(3, 16, 5, 7)


def test_a_compression_that_cannot_be_read_is_named() -> None:
    raw = bytearray(write(values(5, 7, 3), photometric="rgb"))
    entry = raw.index(struct.pack("<HHI", 259, 3, 1))
    raw[entry + 8 : entry + 10] = struct.pack("<H", 34712)
    assert read_header(bytes(raw)) == Header(3, 16, 5, 7)
    with pytest.raises(Unreadable, match="compression JPEG2000"):
        decode(bytes(raw), Format(3, 16), None)


@pytest.mark.parametrize("compression", [None, "tiff_deflate", "tiff_lzw"])
def test_half_a_file_is_unreadable(compression: str | None) -> None:
    raw = write_pages(values(3, 40, 40), compression)
    with pytest.raises(Unreadable) as raised:
        decode(raw[: len(raw) // 2], Format(3, 16), None)
    assert str(raised.value)


FILES = [write_pages(values(3, 20, 20), c) for c in (None, "tiff_deflate", "tiff_lzw")]


@given(which=st.integers(0, 2), data=st.data())
def test_a_damaged_file_gives_pixels_or_a_reason(which: int, data: st.DataObject) -> None:
    raw = bytearray(FILES[which][: data.draw(st.integers(0, len(FILES[which])))])
    if raw:
        raw[data.draw(st.integers(0, min(200, len(raw) - 1)))] ^= data.draw(st.integers(0, 255))
    for call in (lambda: read_header(bytes(raw)), lambda: decode(bytes(raw), Format(3, 16), (8, 8))):
        try:
            call()
        except Unreadable as error:
            assert str(error)


def test_threads_give_the_process_its_stderr_back() -> None:
    raw, before = write(values(8, 8)), os.fstat(2)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(lambda _: decode(raw, Format(1, 16), None)[1], range(200)))) == 200
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_smaller_copy_of_the_image_is_no_page(kind: type, channels: int) -> None:
    """As cameras and viewers write it, for a quick look."""
    array = values(*(32, 32, channels)[: 3 if channels > 1 else 2], kind=kind)
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        form = "rgb" if channels == 3 else "minisblack"
        writer.write(array, photometric=form, metadata=None)
        writer.write(array[::4, ::4], photometric=form, subfiletype=1, metadata=None)
    expected = array[None] if channels == 1 else array.transpose(2, 0, 1)
    assert np.array_equal(pixels_of(file.getvalue()), expected)
