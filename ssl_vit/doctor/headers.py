"""Every image's header: kind, mode, size and bytes, what cannot be read, and which files are the same."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from PIL import Image

from ssl_vit.data.decoding import deep
from ssl_vit.data.decoding.decode import open_image
from ssl_vit.data.decoding.formats import Header, Raw, Unreadable
from ssl_vit.data.images import Rows, counted_channels
from ssl_vit.doctor.findings import Findings, listed, share
from ssl_vit.leaks.relations import counted

_AT_ONCE = 256
_MODES = {
    "1": "black and white", "L": "grey", "LA": "grey with alpha", "La": "grey with alpha", "P": "palette",
    "RGB": "RGB", "RGBA": "RGB with alpha", "CMYK": "CMYK", "YCbCr": "YCbCr", "F": "32-bit float",
}  # fmt: skip
_FEW = 0.01
"""Share of images from which on an unreadable one stops training."""


class Looked(NamedTuple):
    """What the header of one image says."""

    header: Header | None
    """None where it cannot be read."""
    kind: str
    """Of file and pixels, in words; why it cannot be read where it cannot."""
    size: int
    """Bytes."""
    content: bytes
    """Hash of the file; empty for pixels in memory."""
    turned: bool
    """Whether EXIF turns it by a quarter."""


class Headers(NamedTuple):
    """Of all images."""

    rows: Rows
    looked: list[Looked]

    @property
    def read(self) -> list[Header]:
        """Of images that can be read."""
        return [each.header for each in self.looked if each.header is not None]

    def unreadable(self) -> list[str]:
        """Names and reasons."""
        return [f"{self.rows.where(i)} ({one.kind})" for i, one in enumerate(self.looked) if one.header is None]

    def copies(self) -> list[list[int]]:
        """Images whose files are equal to the last byte, the largest groups first."""
        places: dict[bytes, list[int]] = {}
        for i, one in enumerate(self.looked):
            if one.content and one.header is not None:
                places.setdefault(one.content, []).append(i)
        return sorted((group for group in places.values() if len(group) > 1), key=len, reverse=True)


def read_headers(rows: Rows) -> Headers:
    """Looks at every image without decoding it, on all cores.

    Args:
        rows: The images.
    """

    def some(start: int) -> list[Looked]:
        return [_look(rows, i) for i in range(start, min(start + _AT_ONCE, len(rows)))]

    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as threads:
        warnings.simplefilter("ignore")  # here, because threads share what is ignored
        looked = [one for part in threads.map(some, range(0, len(rows), _AT_ONCE)) for one in part]
    return Headers(rows, looked)


def _look(rows: Rows, row: int) -> Looked:
    try:
        raw = rows.raw(row)
    except (OSError, Unreadable) as error:
        return Looked(None, f"cannot be opened ({getattr(error, 'strerror', None) or error})", 0, b"", False)
    size = sum(map(len, raw)) if isinstance(raw, tuple) else raw.nbytes if isinstance(raw, np.ndarray) else len(raw)
    try:
        header, image = open_image(raw)
    except Unreadable as error:
        return Looked(None, str(error), size, b"", False)
    turned = image is not None and image.size == (header.height, header.width) != (header.width, header.height)
    return Looked(header, _kind(raw, header, image), size, _content(raw), turned)


def _content(raw: Raw) -> bytes:
    if isinstance(raw, np.ndarray):
        return b""
    found = hashlib.blake2b(digest_size=16)
    for part in (raw,) if isinstance(raw, bytes) else raw:
        found.update(part)
    return found.digest()


def _kind(raw: Raw, header: Header, image: Image.Image | None) -> str:
    """Such as "JPEG, RGB" or "TIFF, 3 channels of 16 bits"."""
    told = f"{header.channels} channel{'s' * (header.channels > 1)} of {header.bits} bits"
    if isinstance(raw, np.ndarray):
        return f"in memory, {told}"
    if isinstance(raw, tuple):
        return f"{len(raw)} files for each image, {told}"
    if image is None:
        return f"{'TIFF' if deep.is_tiff(raw) else 'PPM'}, {told}"
    return f"{image.format}, {told if header.bits > 8 else _MODES.get(image.mode, image.mode)}"


def examine_headers(headers: Headers, splits: Sequence[tuple[str, int]]) -> Findings:
    """Numbers, kinds and sizes of all images, unreadable files and exact copies.

    Args:
        headers: As read.
        splits: Names and lengths, in the order of the rows.
    """
    found, read, total = Findings("images"), headers.read, len(headers.looked)
    apart = "" if len(splits) < 2 else f": {', '.join(f'{count:,} {name}' for name, count in splits)}"
    size = sum(one.size for one in headers.looked)
    found.say("number", f"{total:,}{apart}; {in_bytes(size)}")
    kinds = Counter(one.kind for one in headers.looked if one.header is not None)
    found.say("kind", "; ".join(f"{kind}{'' if len(kinds) == 1 else f' {share(n, len(read))}'}" for kind, n in
                                kinds.most_common(6)))  # fmt: skip
    if read:
        found.say("size", _sizes(read))
    turned = sum(one.turned for one in headers.looked)
    found.say("turned", f"{counted(turned, 'image')} stored on the side, turned upright as EXIF says" if turned else "")
    _refused(found, headers, read)
    lost = headers.unreadable()
    found.name_some("unreadable", f"{len(lost):,}" if lost else "none, by their headers", lost, "unreadable images")
    if len(lost) > max(1, _FEW * total):
        found.warn(
            f"{share(len(lost), total)} of the images cannot be read; training stops at more than 1 % and more than "
            "one: repair them or move them away"
        )
    _copies(found, headers, len(read))
    return found


def _sizes(read: list[Header]) -> str:
    sizes = Counter((one.width, one.height) for one in read)
    (width, height), times = sizes.most_common(1)[0]
    if len(sizes) == 1:
        return f"all {width} x {height} px"
    shorter = sorted(min(one.height, one.width) for one in read)
    longest = max(max(one.height, one.width) for one in read)
    usual = f"; {share(times, len(read))} are {width} x {height} px" if times > 0.1 * len(read) else ""
    middle = shorter[len(shorter) // 2]
    sides = f"shorter side {shorter[0]:,} to {shorter[-1]:,} px (median {middle:,}), longer side at most {longest:,}"
    return f"{len(sizes):,} sizes, {sides}{usual}"


def _refused(found: Findings, headers: Headers, read: list[Header]) -> None:
    """Says what cannot be trained on together."""
    known = counted_channels(read) if read else ()
    channels = Counter(one.channels for one in read if one.channels in known)
    if len(channels) > 1 and set(channels) != {1, 3}:
        rare = min(channels, key=lambda c: channels[c])
        first = next(i for i, one in enumerate(headers.looked) if one.header and one.header.channels == rare)
        numbers = ", ".join(f"{n:,} with {c}" for c, n in sorted(channels.items()))
        found.warn(
            f"images have different numbers of channels ({numbers}; e.g. {headers.rows.where(first)} has {rare}), "
            "which training refuses: sort them into sets of their own"
        )
    odd = [
        f"{headers.rows.where(i)} has {one.header.channels}"
        for i, one in enumerate(headers.looked)
        if one.header and one.header.channels not in known
    ]
    if odd:
        what = "with others, as if unreadable"
        found.name_some("channels", f"{counted(len(odd), 'image')} {what}", odd, "images with other channels")
    bits = Counter(one.bits for one in read)
    if len(bits) > 1:
        found.warn(
            f"{counted(bits[8], 'image')} of 8 bits among {bits[16]:,} of 16: those of 8 are multiplied by 257, so "
            "that white stays white; if 16 bits are only partly used, they will look far brighter than the others"
        )
    extremes = sum(max(one.height, one.width) > 4 * min(one.height, one.width) for one in read)
    if extremes > _FEW * len(read):
        found.warn(
            f"{counted(extremes, 'image')} more than four times as long as wide, which are squeezed onto a square "
            "before crops are cut; cut them into tiles, or use --data.window"
        )


def _copies(found: Findings, headers: Headers, readable: int) -> None:
    groups = headers.copies()
    many = sum(len(group) - 1 for group in groups)
    if not groups:
        found.say("copies", "no two files are equal")
        return
    some = [" = ".join(headers.rows.where(i) for i in group[:2]) for group in groups[:2]]
    found.say(
        "copies", f"{counted(many, 'file')} equal to another to the last byte ({share(many, readable)}): {listed(some)}"
    )
    if many > _FEW * readable:
        found.warn(
            f"{many:,} exact copies: a made test split would put copies on both sides; remove them, or name their "
            "group with --data.group"
        )


def in_bytes(size: float) -> str:
    """A size in powers of a thousand."""
    for power, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= power:
            return f"{size / power:.3g} {unit}"
    return f"{size:.0f} bytes"
