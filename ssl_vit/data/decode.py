"""Bytes to pixels: uint8 or uint16 arrays [C, H, W], upright, never clipped or silently rescaled.

Policy: EXIF rotation is applied; alpha is dropped; CMYK and palettes become RGB; of animations the first frame counts.
A set has one format, the widest that its images need: grey images in an RGB set are repeated over the channels, 8-bit
images in a 16-bit set are multiplied by 257 (full range to full range).
"""

from __future__ import annotations

import io
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision
from PIL import Image, ImageOps

Pixels = np.ndarray
"""uint8 or uint16, [C, H, W]."""


class Unreadable(Exception):
    """An image that cannot be decoded, with the reason in words."""


class Format(NamedTuple):
    """What every image of a set is brought to."""

    channels: int
    bits: int


class Header(NamedTuple):
    """What a file says about itself before its pixels are decoded."""

    channels: int
    bits: int
    height: int
    width: int


_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_SWAPPED = (5, 6, 7, 8)  # EXIF orientations that exchange width and height


def _is_deep_colour_png(raw: bytes) -> bool:
    """A PNG with 16 bits per channel and colour, which Pillow would cut to 8 bits."""
    return raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) > 25 and raw[24] == 16 and raw[25] in (2, 4, 6)


def _open(raw: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(raw))
    except Image.DecompressionBombError as error:
        raise Unreadable(f"too large: {error}") from error
    except Exception as error:
        kind = "empty file" if not raw else "not an image that Pillow can read"
        raise Unreadable(kind) from error


def read_header(raw: bytes | np.ndarray) -> Header:
    """Channels, bits and size from a file's header (no pixels are decoded).

    Raises:
        Unreadable: When it is no image.
    """
    if isinstance(raw, np.ndarray):
        return Header(raw.shape[0], raw.dtype.itemsize * 8, raw.shape[1], raw.shape[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _open(raw) as image:
            width, height = image.size
            if image.format != "TIFF" and _orientation(image) in _SWAPPED:  # a TIFF's size is upright already
                width, height = height, width
            # Pillow calls 16-bit grey with alpha "RGBA".
            channels = 1 if image.mode in _GREY or (_is_deep_colour_png(raw) and raw[25] == 4) else 3
            deep = image.mode.startswith("I") or _is_deep_colour_png(raw)
            return Header(channels, 16 if deep else 8, height, width)


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # Pillow would decode the whole file to look for it at the end
    try:
        return image.getexif().get(0x0112, 1)
    except Exception:  # a broken EXIF block does not make the pixels unreadable
        return 1


def decode(raw: bytes | np.ndarray, form: Format, canvas: tuple[int, int] | None) -> tuple[Pixels, tuple[int, int]]:
    """Decodes one image.

    Args:
        raw: A file's bytes, or pixels [C, H, W] as they are.
        form: Channels and bits of the set.
        canvas: Height and width that the result is resized to (antialiased bicubic); None keeps its size.

    Returns:
        Pixels [C, H, W] and the upright image's own height and width.

    Raises:
        Unreadable: With the reason, for files that are broken or hold what the set's format cannot.
    """
    if isinstance(raw, np.ndarray):
        size = (raw.shape[1], raw.shape[2])
        return (_resize(raw, canvas) if canvas and canvas != size else raw), size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if _is_deep_colour_png(raw):
                pixels = _decode_deep_png(raw)
            else:
                with _open(raw) as image:
                    _refuse(image)
                    if form.bits == 8 and _is_simple(image):
                        return _decode_8bit(image, form, canvas)
                    pixels = _decode_any(image)
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(str(error).partition("\n")[0] or type(error).__name__) from error
    size = (pixels.shape[1], pixels.shape[2])
    pixels = _to_format(pixels, form)
    return (_resize(pixels, canvas) if canvas and canvas != size else pixels), size


def _is_simple(image: Image.Image) -> bool:
    return not image.mode.startswith("I") and image.mode != "F"


def _refuse(image: Any) -> None:
    """Refuses what Pillow would cut without a word: further pages of a TIFF, colour of more than 8 bits."""
    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if pages > 1:
        raise Unreadable(f"a TIFF of {pages} pages, of which only one would be read")
    depth = 8
    if image.format == "TIFF":
        depth = max(image.tag_v2.get(258, (1,)))
    elif image.format == "PPM" and image.tile and image.tile[0][0].startswith("ppm"):
        args = image.tile[0][3]
        depth = (args[-1] if isinstance(args, tuple) else args).bit_length()
    if depth > 8 and _is_simple(image):
        raise Unreadable(f"{depth} bits per channel in colour, which Pillow cuts to 8; save it as a 16-bit PNG")


def _decode_8bit(image: Image.Image, form: Format, canvas: tuple[int, int] | None) -> tuple[Pixels, tuple[int, int]]:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if form.channels == 1 else "RGB")
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    size = (image.height, image.width)
    if canvas and canvas != size:
        image = image.resize((canvas[1], canvas[0]), Image.Resampling.BICUBIC)
    array = np.asarray(image)
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1)), size


def _decode_deep_png(raw: bytes) -> Pixels:
    data = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    mode = torchvision.io.ImageReadMode.UNCHANGED
    array = torchvision.io.decode_image(data, mode=mode, apply_exif_orientation=True).numpy()
    return array[:-1] if array.shape[0] in (2, 4) else array  # the last of 2 or 4 channels is alpha


def _decode_any(image: Image.Image) -> Pixels:
    if image.mode == "F":
        raise Unreadable("32-bit float pixels; save them as 8- or 16-bit integers with a range you choose")
    if _is_simple(image):
        return _decode_8bit(image, Format(1 if image.mode in _GREY else 3, 8), None)[0]
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    array = np.asarray(image)
    if array.dtype != np.uint16:
        if array.size and (array.min() < 0 or array.max() > 65535):
            raise Unreadable("integer pixels beyond 16 bits; save them as 8- or 16-bit integers")
        array = array.astype(np.uint16)
    return np.ascontiguousarray(array[None])


def _to_format(pixels: Pixels, form: Format) -> Pixels:
    if pixels.dtype == np.uint16 and form.bits == 8:
        raise Unreadable("16 bits per channel among 8-bit images; convert one or the other")
    if pixels.dtype == np.uint8 and form.bits == 16:
        pixels = pixels.astype(np.uint16) * np.uint16(257)
    if pixels.shape[0] == form.channels:
        return pixels
    if pixels.shape[0] == 1:
        return np.repeat(pixels, form.channels, axis=0)
    if pixels.shape[0] == 3 and form.channels == 1:  # ITU-R 601 luma, as Pillow's "L"
        luma = np.tensordot(np.array([0.299, 0.587, 0.114]), pixels.astype(np.float64), axes=1)
        return np.rint(luma).astype(pixels.dtype)[None]
    raise Unreadable(f"{pixels.shape[0]} channels among images of {form.channels}")


def _resize(pixels: Pixels, canvas: tuple[int, int]) -> Pixels:
    """Bicubic through Pillow's float mode, because Pillow cannot filter 16-bit integers."""
    height, width = canvas
    top = np.iinfo(pixels.dtype).max
    planes = [
        np.asarray(Image.fromarray(p.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC))
        for p in pixels
    ]
    return np.clip(np.rint(np.stack(planes)), 0, top).astype(pixels.dtype)
