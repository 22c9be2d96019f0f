"""Colour of more than 8 bits per channel, which Pillow cuts to 8: PNG and PPM are read whole, others are refused."""

from __future__ import annotations

import re
import struct

import numpy as np
import torch
import torchvision

from ssl_vit.data.decoding.formats import Header, Pixels, Unreadable, check_area

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
_PPM = re.compile(rb"P6" + (_GAP + rb"(\d{1,9})") * 3 + rb"\s")


def is_deep_png(raw: bytes) -> bool:
    """A PNG with 16 bits per channel and colour or alpha."""
    return raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) > 25 and raw[24] == 16 and raw[25] in (2, 4, 6)


def deep_png_channels(raw: bytes) -> int:
    """Channels of such a PNG without alpha."""
    return 1 if raw[25] == 4 else 3


def decode_deep_png(raw: bytes) -> Pixels:
    """Pixels [C, H, W] without alpha, upright."""
    check_area(*struct.unpack(">II", raw[16:24]))
    data = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    mode = torchvision.io.ImageReadMode.UNCHANGED
    array = torchvision.io.decode_image(data, mode=mode, apply_exif_orientation=True).numpy()
    return array[: deep_png_channels(raw)]


def deep_ppm(raw: bytes) -> tuple[Header, int, int] | None:
    """Header, maximum and first byte of a colour PPM of more than 8 bits; None for every other file."""
    match = _PPM.match(raw[:2000])
    width, height, top = map(int, match.groups()) if match else (0, 0, 0)
    return (Header(3, 16, height, width), top, match.end()) if match and 255 < top < 65536 else None


def decode_deep_ppm(raw: bytes, header: Header, top: int, start: int) -> Pixels:
    """Pixels [3, H, W]; the file's own maximum becomes 65535, as Pillow has it for grey ones."""
    height, width = header[2:]
    check_area(height, width)
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
