"""Files that Pillow would cut: PNG and PPM of 16 bits, TIFFs (by tifffile) of pages, many channels or 16-bit colour.

Pages of one size are channels, as are the samples of a pixel; alpha is dropped. Depth and time are refused by name,
because which plane or moment is meant cannot be guessed.
"""

from __future__ import annotations

import io
import logging
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torchvision
from PIL import Image

from ssl_vit.data.decoding.formats import Header, Pixels, Unreadable, check_area

if TYPE_CHECKING:
    from tifffile import TiffPageSeries

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
_PPM = re.compile(rb"P6" + (_GAP + rb"(\d{1,9})") * 3 + rb"\s")

# What it cannot read becomes a reason of ours; without a handler its remarks would be printed as well.
logging.getLogger("tifffile").addHandler(logging.NullHandler())

_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _YCBCR = 0, 1, 2, 6
_ALPHA = (1, 2)  # ExtraSamples: premultiplied or not; 0 is a channel of unspecified meaning
_CHANNELS = "CSIQ"  # axes: channel, sample of a pixel, page, unknown
_FAX = (2, 3, 4, 32771)  # compressions
_STACKS = {"Z": "depth", "T": "time"}
_ORIENTATION = 0x0112
_UPRIGHT = {2: (1, -1, 0), 3: (-1, -1, 0), 4: (-1, 1, 0), 5: (1, 1, 1), 6: (-1, 1, 1), 7: (-1, -1, 1), 8: (1, -1, 1)}
"""By orientation: steps along stored rows and columns, and whether to exchange them then."""


def header(raw: bytes) -> Header | None:
    """Channels, bits and upright size; None where Pillow says all that there is."""
    ppm = _deep_ppm(raw)
    return _tiff_header(raw) if ppm is None else ppm[0]


def pixels(raw: bytes, most: int) -> Pixels | None:
    """Pixels [C, H, W], upright; None where Pillow reads all that there is; ``Unreadable`` says why there are none.

    Args:
        raw: A file.
        most: ``--data.max_pixels``.
    """
    if is_deep_png(raw):
        return _decode_deep_png(raw, most)
    ppm = _deep_ppm(raw)
    return _decode_tiff(raw, most) if ppm is None else _decode_deep_ppm(raw, *ppm, most)


def is_deep_png(raw: bytes) -> bool:
    """A PNG with 16 bits per channel and colour or alpha."""
    return raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) > 25 and raw[24] == 16 and raw[25] in (2, 4, 6)


def png_exif(raw: bytes) -> bytes | None:
    """What a PNG says of its camera, wherever it stands among its chunks; None where it says nothing."""
    at, found = 8, None
    while at + 8 <= len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        if kind == b"eXIf":
            found = b"Exif\0\0" + raw[at + 8 : at + 8 + size]
        at += 12 + size
    return found


def png_channels(raw: bytes) -> int:
    """Of such a PNG without alpha."""
    return 1 if raw[25] == 4 else 3


def _decode_deep_png(raw: bytes, most: int) -> Pixels:
    """Without alpha."""
    check_area(*struct.unpack(">II", raw[16:24]), most)
    data = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    mode = torchvision.io.ImageReadMode.UNCHANGED
    # torchvision turns by what stands before the pixels alone.
    array = torchvision.io.decode_image(data, mode=mode, apply_exif_orientation=False).numpy()[: png_channels(raw)]
    down, across, exchanged = _UPRIGHT.get(_png_orientation(raw), (1, 1, 0))
    array = array[:, ::down, ::across]
    return np.ascontiguousarray(array.transpose(0, 2, 1) if exchanged else array)


def _png_orientation(raw: bytes) -> int:
    held, exif = png_exif(raw), Image.Exif()
    with suppress(Exception):  # a broken EXIF block does not make the pixels unreadable
        exif.load(held or b"")
    return int(exif.get(_ORIENTATION, 1))


def _deep_ppm(raw: bytes) -> tuple[Header, int, int] | None:
    """Header, maximum and first byte of a colour PPM of more than 8 bits; None for every other file."""
    match = _PPM.match(raw[:2000])
    width, height, top = map(int, match.groups()) if match else (0, 0, 0)
    return (Header(3, 16, height, width), top, match.end()) if match and 255 < top < 65536 else None


def _decode_deep_ppm(raw: bytes, header: Header, top: int, start: int, most: int) -> Pixels:
    """Pixels [3, H, W]; the file's own maximum becomes 65535, as Pillow has it for grey ones."""
    height, width = header[2:]
    check_area(height, width, most)
    if len(raw) - start < 6 * width * height:
        raise Unreadable("the file ends before its pixels do")
    values = np.frombuffer(raw, ">u2", 3 * width * height, start).reshape(height, width, 3).transpose(2, 0, 1)
    wide = np.minimum(values, top).astype(np.uint32)
    return ((wide * 65535 + top // 2) // top).astype(np.uint16)


def cut_depth(raw: bytes, kind: str | None) -> int:
    """Bits per channel of a JPEG 2000 or AVIF file's colour, which Pillow gives as 8; 8 for other files."""
    if kind == "JPEG2000":
        start = raw.find(b"\xff\x4f\xff\x51")  # the codestream begins with the size marker: components and their bits
        if start >= 0 and len(raw) > start + 42:
            components = int.from_bytes(raw[start + 40 : start + 42], "big")
            return max(((depth & 0x7F) + 1 for depth in raw[start + 42 : start + 42 + 3 * components : 3]), default=8)
    if kind == "AVIF":
        start = raw.find(b"av1C")
        if start >= 0 and len(raw) > start + 6 and raw[start + 6] & 0x40:
            return 12 if raw[start + 6] & 0x20 else 10
    return 8


def is_tiff(raw: bytes) -> bool:
    """Whether a file begins as TIFF or BigTIFF does."""
    return raw[:4] in _MAGIC


def _tiff_header(raw: bytes) -> Header | None:
    with _opened(raw) as series:
        if series is None:
            return None
        size = _size(series)[:: -1 if _upright(series)[2] else 1]
        count = math.prod(n for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YXS")
        return Header(count * len(_kept(series)), 8 if series.dtype in (bool, np.uint8) else 16, *size)


def _decode_tiff(raw: bytes, most: int) -> Pixels | None:
    with _opened(raw) as series:
        if series is None:
            return None
        check_area(*_size(series), most, _pages(series))
        try:
            array = series.asarray()
        except Exception as error:
            if (pages := _pages_by_pillow(raw, series)) is not None:
                return pages
            reason = "needs the package imagecodecs" if "imagecodecs" in str(error) else str(error).partition("\n")[0]
            raise Unreadable(f"a TIFF with compression {_name(series.keyframe.compression)}: {reason}") from error
        down, right, exchange = _upright(series)
        pixels = _channels(array, series)[:, ::down, ::right]
        return np.ascontiguousarray(pixels.swapaxes(1, 2) if exchange else pixels)


@contextmanager
def _opened(raw: bytes) -> Iterator[TiffPageSeries | None]:
    """The one image of a file, checked; None where Pillow serves as well or tifffile cannot make sense of it."""
    if not is_tiff(raw):
        yield None
        return
    from tifffile import TiffFile  # takes a tenth of a second to import, which other images need not wait for

    try:
        file = TiffFile(io.BytesIO(raw))
    except Exception:
        file = None
    if file is None:
        yield None
        return
    with file:
        try:
            found = [s for s in file.series if not (s.keyframe.is_reduced or s.keyframe.is_mask)]
            pages, end = len(file.pages), file.pages.next_page_offset
        except Exception as error:
            raise Unreadable(str(error).partition("\n")[0] or type(error).__name__) from error
        # tifffile stops without an error where the chain of pages breaks: what is left would be too few channels.
        if pages and end and raw[end : end + file.tiff.offsetsize] != bytes(file.tiff.offsetsize):
            raise Unreadable(f"a TIFF that breaks off after {pages} page(s)")
        if not found or found[0].dtype is None or not {"Y", "X"} <= set(found[0].axes):
            yield None
            return
        _refuse(found)
        # Beside a smaller copy of the image Pillow sees two pages.
        yield None if _is_plain(found[0]) and pages == 1 else found[0]


def _refuse(found: list[TiffPageSeries]) -> None:
    series = found[0]
    if len(found) > 1:
        shapes = ", ".join(f"{'x'.join(map(str, s.shape))} {s.dtype}" for s in found[:3])
        raise Unreadable(f"a TIFF of {len(found)} images unlike each other ({shapes}); channels must have one size")
    for axis, count in zip(series.axes, series.shape, strict=True):
        if axis not in "YX" + _CHANNELS and count > 1:
            what = _STACKS.get(axis, "an axis that is no channel")
            raise Unreadable(f"a TIFF of {count} planes along {axis} ({what}); save one image per plane")
    if series.dtype.kind not in "bui":
        kind, bits = "float" if series.dtype.kind == "f" else "complex", 8 * series.dtype.itemsize
        raise Unreadable(f"{bits}-bit {kind} pixels; save them as 8- or 16-bit integers with a range you choose")


def _is_plain(series: TiffPageSeries) -> bool:
    """One page of up to 8 unsigned bits, in colours that Pillow knows and reads whole."""
    page = series.keyframe
    if len(series.pages) > 1 or set(series.axes) - set("YXS") or page.bitspersample > 8 or series.dtype.kind == "i":
        return False
    if page.photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO):
        return len(_kept(series)) == 1
    return page.photometric != _RGB or len(_kept(series)) == 3


def _kept(series: TiffPageSeries) -> list[int]:
    """Which samples of a pixel are not alpha."""
    page = series.keyframe
    colours = page.samplesperpixel - len(page.extrasamples)
    return [*range(colours), *(colours + i for i, extra in enumerate(page.extrasamples) if extra not in _ALPHA)]


def _name(code: Any) -> str:
    return getattr(code, "name", code)


def _size(series: TiffPageSeries) -> tuple[int, int]:
    """Height and width as stored."""
    height, width = (series.shape[series.axes.index(axis)] for axis in "YX")
    return height, width


def _pages(series: TiffPageSeries) -> int:
    """How many planes take memory; the samples of a pixel are one, unless they are more than colours and alpha."""
    sizes = dict(zip(series.axes, series.shape, strict=True))
    others = math.prod(size for axis, size in sizes.items() if axis not in "YXS")
    samples = sizes.get("S", 1)
    return others * (samples if samples > 4 else 1)


def _upright(series: TiffPageSeries) -> tuple[int, int, int]:
    return _UPRIGHT.get(series.keyframe.tags.valueof(274, 1), (1, 1, 0))


def planes(array: np.ndarray) -> Pixels:
    """Channels first, of one plane or of a picture's [H, W, C]."""
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _channels(array: np.ndarray, series: TiffPageSeries) -> Pixels:
    """What tifffile has read as uint8 or uint16 [C, H, W], not yet upright."""
    page, axes = series.keyframe, series.axes
    if page.photometric not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):
        colours = f"{_name(page.photometric)} colours"
        raise Unreadable(f"a TIFF of {colours} with several pages or more than 8 bits; save it as RGB")
    if "S" in axes:
        array = array.take(_kept(series), axis=axes.index("S"))
    array = array.transpose(sorted(range(len(axes)), key=lambda i: "SYX".find(axes[i])))  # other axes first
    array = as_pixels(array.reshape(-1, *array.shape[-2:]))
    bits = min(page.bitspersample, 16)
    if page.photometric == _WHITE_IS_ZERO:
        array = array.dtype.type(2**bits - 1) - array
    # Fewer than 8 bits fill the 8-bit range, as Pillow has them.
    return array * np.uint8(255 // (2**bits - 1)) if bits in (1, 2, 4) else array


def as_pixels(array: np.ndarray) -> Pixels:
    """Integers of any width as uint8 or uint16."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    if array.dtype in (np.uint8, np.uint16):
        return array
    if array.size and (array.min() < 0 or array.max() > 65535):
        raise Unreadable("integer pixels beyond 16 bits; save them as 8- or 16-bit integers")
    return array.astype(np.uint16)


def check_compression(compression: int | None) -> None:
    """Refuses compressions of fax machines: where one is damaged, rows hold whatever lay in memory before.

    Args:
        compression: As a TIFF gives it.

    Raises:
        Unreadable: For those.
    """
    if compression in _FAX:
        raise Unreadable("a TIFF with compression of fax (CCITT), in which damage passes unnoticed; save it as PNG")


def _pages_by_pillow(raw: bytes, series: TiffPageSeries) -> Pixels | None:
    """Pages in a compression that only Pillow has (LZW, JPEG), where it reads every page whole; else None."""
    page = series.keyframe
    check_compression(page.compression)
    grey = page.photometric == _BLACK_IS_ZERO and page.samplesperpixel == 1 and page.bitspersample in (1, 8, 16)
    colour = page.photometric in (_RGB, _YCBCR) and page.samplesperpixel == 3 and page.bitspersample == 8
    if not (grey or colour) or series.dtype.kind == "i":
        return None
    pages = [page for page in series.pages if page is not None]
    if len(pages) < len(series.pages):
        return None
    found = []
    with Image.open(io.BytesIO(raw)) as image:
        for each in pages:
            image.seek(each.index)
            image.load()  # turns it upright
            found.append(
                planes(np.asarray(image if image.mode.startswith("I") else image.convert("L" if grey else "RGB")))
            )
    return as_pixels(np.concatenate(found))
