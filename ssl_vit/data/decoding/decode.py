"""Bytes to pixels: uint8 or uint16 arrays [C, H, W], upright, never clipped or silently rescaled.

EXIF rotation is applied; alpha is dropped; CMYK and palettes become RGB; of animations the first frame counts; pages
and samples of a TIFF, and several files of one image, are its channels. A set has the widest format that its images
need: grey is repeated over RGB, 8 bits times 257 are 16. Channels of 8-bit files lie together, as they were decoded.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps

from ssl_vit.data.decoding import deep, jpeg
from ssl_vit.data.decoding.formats import MOST, Format, Header, Pixels, Raw, Unreadable, check_area
from ssl_vit.data.decoding.remarks import told_of
from ssl_vit.data.decoding.resize import Interpolation, as_tensor, resize_8bit, resize_bytes, resize_planes

T = TypeVar("T")

_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_SWAPPED = (5, 6, 7, 8)  # EXIF orientations that exchange width and height


def _open(raw: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(raw))
    except Image.DecompressionBombError as error:
        raise Unreadable(f"too large: {error}") from error
    except Exception as error:
        raise Unreadable("not an image that Pillow can read" if raw else "empty file") from error


def read_header(raw: Raw) -> Header:
    """As ``open_image``; no pixels are decoded."""
    return open_image(raw)[0]


def open_image(raw: Raw) -> tuple[Header, Image.Image | None]:
    """The header, and what Pillow opened to read it, if it did: ``decode_crop`` goes on from there."""
    if isinstance(raw, np.ndarray):
        return Header(raw.shape[0], raw.dtype.itemsize * 8, raw.shape[1], raw.shape[2]), None
    if isinstance(raw, tuple):
        headers = _each_part(raw, read_header)
        _check_one_size([h[2:] for h in headers])
        return Header(sum(h.channels for h in headers), max(h.bits for h in headers), *headers[0][2:]), None
    if (header := deep.header(raw)) is not None:
        return header, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = _open(raw)
        width, height = image.size
        if image.format != "TIFF" and _orientation(image, raw) in _SWAPPED:  # a TIFF's size is upright already
            width, height = height, width
        if deep.is_deep_png(raw):  # Pillow calls 16-bit grey with alpha "RGBA"
            return Header(deep.png_channels(raw), 16, height, width), image
        return Header(1 if image.mode in _GREY else 3, 16 if image.mode.startswith("I") else 8, height, width), image


def _each_part(parts: tuple[bytes, ...], read: Callable[[bytes], T]) -> list[T]:
    """Something of every file that holds channels of an image; says which of them is unreadable."""
    found = []
    for n, part in enumerate(parts, 1):
        try:
            found.append(read(part))
        except Unreadable as error:
            raise Unreadable(f"part {n} of {len(parts)}: {error}") from error
    return found


def _check_one_size(sizes: Sequence[tuple[int, ...]]) -> None:
    for n, (height, width) in enumerate(sizes, 1):
        if (height, width) != sizes[0]:
            raise Unreadable(
                f"part {n} of {len(sizes)} has {width} x {height} pixels, but part 1 {sizes[0][1]} x {sizes[0][0]}"
            )


def _orientation(image: Image.Image, raw: bytes) -> int:
    try:
        if image.format == "PNG" and "exif" not in image.info:
            held = deep.png_exif(raw)  # Pillow would decode the whole file to look for it at the end
            if held is None:
                return 1
            image.info["exif"] = held
        return image.getexif().get(0x0112, 1)
    except Exception:  # a broken EXIF block does not make the pixels unreadable
        return 1


class _Found(NamedTuple):
    """An image, perhaps decoded at a part of its size."""

    pixels: Pixels
    size: tuple[int, int]
    """Height and width of the whole upright image."""
    step: int
    """How many of its pixels became one, in either direction."""
    in_bytes: bool
    """Whether it is resized in 8-bit integers."""


def decode(raw: Raw, form: Format, canvas: tuple[int, int] | None, most: int = MOST) -> tuple[Pixels, tuple[int, int]]:
    """Decodes one image.

    Args:
        raw: A file's bytes, pixels [C, H, W] as they are, or the files that hold the image's channels.
        form: Channels and bits of the set.
        canvas: Height and width that the result is resized to (antialiased bicubic, a JPEG of several times its size
            from a decode at 1/2, 1/4 or 1/8); None keeps its size.
        most: ``--data.max_pixels``: a larger image is not decoded.

    Returns:
        Pixels [C, H, W] and the upright image's own height and width.

    Raises:
        Unreadable: With the reason, for files that are broken or hold what the set's format cannot.
    """
    pixels, size, step, in_bytes = _find(raw, form, canvas, most)
    if canvas in (None, size, pixels.shape[1:]):
        return pixels, size
    if in_bytes:
        return resize_8bit(pixels, canvas, (size[0] / step, size[1] / step)), size
    return resize_planes(pixels, canvas), size


def decode_crop(
    raw: Raw,
    opened: tuple[Header, Image.Image | None],
    form: Format,
    box: tuple[int, int, int, int],
    side: int,
    interpolation: Interpolation,
    most: int = MOST,
) -> Pixels:
    """Decodes as much of an image as a crop of it needs: a large JPEG at 1/2, 1/4 or 1/8 where the crop is large, too.

    ``opened`` is what ``open_image`` made of it; it cannot be used again. The box is top, left, height and width in
    pixels of the upright image, inside it; ``side`` is what the crop is resized to, antialiased; ``most`` is as for
    ``decode``.

    Returns:
        Pixels [C, side, side]. The edges of a crop from a part of the size lie on whole pixels of that.
    """
    top, left, height, width = box
    size = (opened[0].height, opened[0].width)
    # What the whole image would be resized to: a decode at a part of its size must leave that much, as for a canvas.
    wanted = (math.ceil(size[0] * side / height), math.ceil(size[1] * side / width))
    pixels, found, step, in_bytes = _find(raw, form, wanted, most, opened[1])
    if found != size:
        raise Unreadable(f"{found[1]} x {found[0]} pixels, but its header says {size[1]} x {size[0]}")
    up, start = round(top / step), round(left / step)
    down, end = max(up + 1, round((top + height) / step)), max(start + 1, round((left + width) / step))
    inside = pixels[:, up:down, start:end]
    if inside.shape[1:] == (side, side):
        return inside
    if in_bytes:
        return resize_bytes(as_tensor(inside), side, interpolation)[0].numpy()
    return resize_planes(inside, (side, side), interpolation)


def _find(
    raw: Raw, form: Format, canvas: tuple[int, int] | None, most: int, opened: Image.Image | None = None
) -> _Found:
    """An image's pixels before they are resized; as many as the canvas needs, where that saves work."""
    if isinstance(raw, np.ndarray):
        pixels = _to_format(raw, form, colour=False)
    elif isinstance(raw, tuple):
        # Each part has as many channels as it has by itself.
        planes = _each_part(
            raw, lambda part: decode(part, Format(read_header(part).channels, form.bits), None, most)[0]
        )
        _check_one_size([p.shape[1:] for p in planes])
        pixels = _to_format(np.concatenate(planes), form, colour=False)
    else:
        with warnings.catch_warnings(), told_of(is_tiff=deep.is_tiff(raw)):
            warnings.simplefilter("ignore")
            try:
                pixels = deep.pixels(raw, most)
                if pixels is None:
                    with opened or _open(raw) as image:
                        check_area(image.height, image.width, most)
                        _refuse(image, raw)
                        if form.bits == 8 and form.channels in (1, 3) and _is_simple(image):
                            return _decode_8bit(image, raw, form, canvas)
                        pixels = _decode_any(image, raw)
            except Unreadable:
                raise
            except Exception as error:
                raise Unreadable(_said(error)) from error
        pixels = _to_format(pixels, form, colour=not deep.is_tiff(raw))
    return _Found(pixels, (pixels.shape[1], pixels.shape[2]), 1, in_bytes=False)


def _is_simple(image: Image.Image) -> bool:
    return not image.mode.startswith("I") and image.mode != "F"


def _refuse(image: Any, raw: bytes) -> None:
    """Refuses what Pillow would cut without a word: further pages of a TIFF, colour of more than 8 bits."""
    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if pages > 1:
        raise Unreadable(f"a TIFF of {pages} pages, of which only one would be read")
    if image.format == "TIFF":
        deep.check_compression(image.tag_v2.get(259))
    depth = max(image.tag_v2.get(258, (1,))) if image.format == "TIFF" else deep.cut_depth(raw, image.format)
    if depth > 8 and _is_simple(image):
        raise Unreadable(f"{depth} bits per channel in colour, which Pillow cuts to 8; save it as a 16-bit PNG")


def _decode_8bit(image: Image.Image, raw: bytes, form: Format, canvas: tuple[int, int] | None) -> _Found:
    orientation, stored = _orientation(image, raw), (image.height, image.width)
    turned = orientation in _SWAPPED
    step = jpeg.part_for(image, (canvas[1], canvas[0]) if turned else canvas) if canvas else 1
    pixels = jpeg.decode_quickly(raw, image, form, step) if orientation == 1 else None
    if pixels is None:
        step = jpeg.draft(image, step)
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        mode = "L" if form.channels == 1 else "RGB"
        image = image if image.mode == mode else image.convert(mode)
        pixels = deep.planes(np.asarray(image if orientation == 1 else ImageOps.exif_transpose(image)))
    height, width = pixels.shape[1:] if step == 1 else stored[::-1] if turned else stored
    return _Found(pixels, (height, width), step, in_bytes=True)


def picture_pixels(image: Image.Image) -> Pixels:
    """Pixels [C, H, W] of a picture that Pillow has open: upright, as those of its file would be.

    Args:
        image: Of any mode but 32-bit floats.

    Raises:
        Unreadable: With the reason.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _refuse(image, b"")
            return _decode_any(image.copy(), b"")  # a copy is of no file's format: nobody looks for its bytes
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(_said(error)) from error


def _said(error: Exception) -> str:
    line = str(error).partition("\n")[0] or type(error).__name__
    return re.sub(r" <[^<>]* at 0x[0-9a-f]+>", "", line)  # Pillow names its own object where it has no file


def _decode_any(image: Image.Image, raw: bytes) -> Pixels:
    if image.mode == "F":
        raise Unreadable("32-bit float pixels; save them as 8- or 16-bit integers with a range you choose")
    if _is_simple(image):
        return _decode_8bit(image, raw, Format(1 if image.mode in _GREY else 3, 8), None).pixels
    if _orientation(image, raw) != 1:
        image = ImageOps.exif_transpose(image)
    return np.ascontiguousarray(deep.as_pixels(np.asarray(image))[None])


def _to_format(pixels: Pixels, form: Format, *, colour: bool) -> Pixels:
    """Brings pixels to a set's format; three channels may become grey only where they are known to be colours."""
    if pixels.dtype == np.uint16 and form.bits == 8:
        raise Unreadable("16 bits per channel among 8-bit images; convert one or the other")
    if pixels.dtype == np.uint8 and form.bits == 16:
        pixels = pixels.astype(np.uint16) * np.uint16(257)
    if pixels.shape[0] == form.channels:
        return pixels
    if pixels.shape[0] == 1 and form.channels == 3:
        return np.repeat(pixels, form.channels, axis=0)
    if pixels.shape[0] == 3 and form.channels == 1 and colour:  # ITU-R 601 luma, as Pillow's "L"
        luma = np.tensordot(np.array([0.299, 0.587, 0.114]), pixels.astype(np.float64), axes=1)
        return np.rint(luma).astype(pixels.dtype)[None]
    raise Unreadable(f"{pixels.shape[0]} channels among images of {form.channels}")
