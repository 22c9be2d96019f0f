"""A set of images: rows that can be decoded one by one, labels only if they were asked for."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding import current, jpeg
from ssl_vit.data.decoding.decode import decode, read_header
from ssl_vit.data.decoding.formats import MOST, Format, Header, Pixels, Raw, Unreadable
from ssl_vit.data.targets import Kind, TargetScale

_PROBES = 512  # images whose headers decide a set's format
_ODD, _FEW = 0.01, 10  # share of images whose channels may be others, and how many usual ones each of them needs
_USUAL = 0.9  # share of the probed images that make a size the usual one
_PROBED_BLOCKS = 16  # stretches of files that they come from, where one image costs a whole stretch


@runtime_checkable
class Rows(Protocol):
    """Where a source's images are; must survive being sent to a loader process."""

    def __len__(self) -> int:
        """Number of images."""
        ...

    def raw(self, row: int) -> Raw:
        """A file's bytes, or pixels [C, H, W], or the bytes of several files that hold the image's channels."""
        ...

    def where(self, row: int) -> str:
        """A name a person can find the image by."""
        ...


@dataclass(frozen=True)
class ArrayRows:
    """Images that are already pixels."""

    pixels: np.ndarray
    name: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.pixels)

    def raw(self, row: int) -> np.ndarray:
        """Pixels [C, H, W]."""
        return self.pixels[row]

    def where(self, row: int) -> str:
        """Name and row."""
        return f"{self.name} row {row}"


class Sizes(NamedTuple):
    """Sizes of a set's images in pixels."""

    common: tuple[int, int] | None
    """Height and width when all probed images share them."""
    short_side: int
    """Median of the shorter side."""
    usual: tuple[int, int] | None = None
    """Height and width of nine in ten probed images, where not all are known to share them."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of images beside their pixels."""

    labels: np.ndarray | None = None
    """One row per image as ``kind`` says, or None where labels were not asked for."""
    classes: tuple[str, ...] = ()
    """Names of the classes, of the K labels, or of the R numbers to predict."""
    kind: Kind = "class"
    """How labels are to be read."""
    origin: str = ""
    """Where labels come from, in words: ``column phase of labels.csv``."""
    groups: np.ndarray | None = None
    """Int[n]: the group (patient, slide, scene) of every image, if named; each stays on one side of a split."""
    group_names: tuple[str, ...] = ()
    """Of the groups' numbers, in the whole source."""
    blocks: np.ndarray | None = None
    """Int[n]: the shard or row group of every image, where they are best read block by block."""


def reads_here(rows: Rows) -> bool:
    """Whether rows are read by the process that has them unless others are asked for, of several splits any."""
    return any(getattr(part, "read_here", False) for part in getattr(rows, "parts", (rows,)))


@dataclass(frozen=True)
class ImageSet(Known):
    """Some rows of a source, in one pixel format."""

    name: str
    """What the source is called in files and on screen."""
    rows: Rows
    ids: np.ndarray
    """Int[n]: the rows that belong to this set, in its order."""
    form: Format
    sizes: Sizes
    source: str
    """Hash of the names and sizes (or pixels) of all rows of the source."""
    canvas: tuple[int, int] | None = None
    """Height and width images are decoded to; None where all have one size anyway."""
    pieces: tuple[tuple[str, int], ...] = ()
    """Hash and length of every split that ``rows`` runs through."""
    splits: frozenset[str] = frozenset()
    """Hashes of all splits of the source, of these and of others."""
    window: int | None = None
    """Side in pixels of the window that is cut from every image at native scale; None takes images whole."""
    most: int = MOST
    """Pixels above which an image is not decoded (``--data.max_pixels``)."""

    def __len__(self) -> int:
        """Number of images."""
        return len(self.ids)

    @property
    def truth(self) -> np.ndarray:
        """``labels``, for whoever was handed labelled images; a ValueError where they were not asked for."""
        if self.labels is None:
            raise ValueError(f"the images of {self.name} were opened without their labels")
        return self.labels

    @property
    def shape(self) -> tuple[int, int] | None:
        """Height and width of decoded images; None where they have many."""
        return self.canvas or self.sizes.common

    @property
    def fingerprint(self) -> str:
        """Hash of the source, of the rows in this set and of their labels."""
        digest = hashlib.sha256(self.source.encode() + self.ids.astype(np.int64).tobytes())
        if self.labels is not None:
            digest.update(self.labels.astype(np.int64 if self.kind == "class" else np.float64).tobytes())
        return digest.hexdigest()[:16]

    def raw(self, i: int) -> Raw:
        """What the source has of image i; ``Unreadable`` where it cannot be opened, or is in quarantine."""
        current.begin(self.where, i)
        try:
            return self.rows.raw(int(self.ids[i]))
        except OSError as error:
            raise Unreadable(f"cannot be opened ({error.strerror or error})") from error

    def read(self, i: int, at: tuple[float, float] = (0.5, 0.5)) -> tuple[Pixels, tuple[int, int]]:
        """Pixels [C, H, W] of image i on the canvas and its own height and width; of a window, the window's.

        ``at`` is where the window lies, as shares in [0, 1] of the free way down and to the right. ``Unreadable`` says
        why there are none.
        """
        pixels, size = decode(self.raw(i), self.form, self.canvas, self.most)
        if self.window is not None:
            return _cut(pixels, self.window, at), (self.window, self.window)
        if self.canvas is None and self.sizes.common not in (None, size):
            raise Unreadable(f"{size[1]} x {size[0]} pixels, unlike the others")
        return pixels, size

    def where(self, i: int) -> str:
        """A name a person can find image i by."""
        return self.rows.where(int(self.ids[i]))

    def standardised(self, scale: TargetScale) -> ImageSet:
        """The same images with numbers in deviations from their mean, to learn from.

        Batches have them in single precision, which keeps few digits of a date in seconds.
        """
        return replace(self, labels=scale.standardise(self.truth))

    def subset(self, chosen: np.ndarray) -> ImageSet:
        """The images at these positions, in this order."""
        each = {name: getattr(self, name) for name in ("ids", "labels", "groups", "blocks")}
        return replace(self, **{name: None if v is None else v[chosen] for name, v in each.items()})

    def shared_with(self, other: ImageSet) -> int | None:
        """How many of these images the other has; None where some are of no split that its source is known to have."""
        own, others = ({piece for piece, _ in images.pieces} for images in (self, other))
        if not own or not own <= others | other.splits:
            return None
        return sum(int(np.isin(self._of_piece(piece), other._of_piece(piece)).sum()) for piece in own & others)

    def _of_piece(self, piece: str) -> np.ndarray:
        """Rows of one split that are in this set, counted from the split's first."""
        names = [name for name, _ in self.pieces]
        before = sum(length for _, length in self.pieces[: names.index(piece)])
        own = self.ids - before
        return own[(own >= 0) & (own < self.pieces[names.index(piece)][1])]

    def on_canvas(self, side: int | None, img_size: int, window: int | None = None) -> ImageSet:
        """Decides what images are decoded to.

        Images of one size stay as they are while their short side is up to twice the model's and their long side up to
        three times: resizing a photograph takes almost as long as decoding it. Larger ones become a half, a quarter or
        an eighth of it, which a JPEG can be decoded at, where that leaves one and a half times the model's side; where
        only nine in ten have one size, the others are squeezed onto it. Everything else is squeezed onto one square,
        of the given side or of the median short side, kept between the model's image size and twice that. Crop boxes
        are still drawn in original coordinates, so that crop statistics are those of the papers. With a window nothing
        is resized: a square of that side is cut from every image, in training at random, else from the middle.
        ``side`` is ``--data.canvas``, ``img_size`` the side of the model's input in pixels.

        Raises:
            UserError: For a window smaller than the model's input, larger than most images, or beside a canvas.
        """
        if window is not None:
            if side is not None:
                raise UserError("--data.canvas resizes images and --data.window cuts them; give one or the other")
            if window < img_size:
                raise UserError(
                    f"--data.window {window} is smaller than the model's input of {img_size} pixels; "
                    f"give at least {img_size}, or a smaller --model.img_size"
                )
            if window > self.sizes.short_side:
                raise UserError(
                    f"--data.window {window} is larger than most images of {self.name}, whose shorter side is "
                    f"{self.sizes.short_side} pixels"
                )
            return replace(self, window=window, canvas=None, sizes=Sizes((window, window), window))
        shape = self.sizes.common or self.sizes.usual
        if side is None and shape is not None:
            steps = (1, *jpeg.STEPS)
            parts = [(math.ceil(shape[0] / k), math.ceil(shape[1] / k)) for k in steps]
            fitting = [part for part in parts if min(part) <= 2 * img_size and max(part) <= 3 * img_size]
            if fitting and fitting[0] == self.sizes.common:
                return self
            if fitting and (2 * min(fitting[0]) >= 3 * img_size or (fitting[0] == shape and min(shape) >= img_size)):
                return replace(self, canvas=fitting[0])
        if side is not None and side < img_size:
            say_once(
                f"warning: --data.canvas {side} is smaller than the input of {img_size} pixels: images lose detail and "
                "are enlarged again"
            )
        side = side or max(img_size, min(self.sizes.short_side, 2 * img_size))
        return replace(self, canvas=(side, side))

    def policy(self) -> dict[str, Any]:
        """What images are decoded to, for the protocol of a result."""
        size, crops = "native", "in pixels of the original"
        if self.window is not None:
            size, crops = f"windows of {self.window} x {self.window} at native scale", "in pixels of the window"
        elif self.canvas is not None:
            size = "squeezed onto {1} x {0}, antialiased bicubic; large JPEG from 1/2, 1/4, 1/8".format(*self.canvas)
            crops += ", mapped onto the canvas"
        elif self.sizes.common is not None:
            size += ", {1} x {0}".format(*self.sizes.common)
        return {**self.form._asdict(), "size": size, "crop_boxes": crops}


def _cut(pixels: Pixels, side: int, at: tuple[float, float]) -> Pixels:
    height, width = pixels.shape[1:]
    if min(height, width) < side:
        raise Unreadable(f"{width} x {height} pixels, smaller than --data.window {side}")
    # A share below 1 falls on each of the free places equally often; 0.5 is the middle one.
    top, left = (
        min(int(share * (extent - side + 1)), extent - side) for share, extent in zip(at, (height, width), strict=True)
    )
    return np.ascontiguousarray(pixels[:, top : top + side, left : left + side])


def evenly(count: int, most: int) -> Int[np.ndarray, " n"]:
    """Up to so many positions, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def _probed(count: int, blocks: np.ndarray | None) -> np.ndarray:
    """Rows to look at: evenly spaced, or from a few blocks where each that is touched is read whole."""
    if blocks is None or count <= _PROBES:
        return evenly(count, _PROBES)
    names = np.unique(blocks)
    names = names[evenly(len(names), _PROBED_BLOCKS)]
    members = [np.flatnonzero(blocks == name) for name in names]
    return np.concatenate([rows[evenly(len(rows), _PROBES // len(names))] for rows in members])


def counted_channels(headers: Sequence[Header]) -> set[int]:
    """Numbers of channels that count: an image or two among hundreds with others are as ones that cannot be read.

    Args:
        headers: Of at least one image.
    """
    kinds = Counter((1, 3) if h.channels in (1, 3) else (h.channels,) for h in headers)
    most, times = kinds.most_common(1)[0]
    odd = len(headers) - times
    if odd > max(1, _ODD * len(headers)) or _FEW * odd > times:
        return {h.channels for h in headers}
    return set(most)


def measure(rows: Rows, name: str, blocks: np.ndarray | None = None) -> tuple[Format, Sizes]:
    """Reads headers of up to 512 images, evenly spaced, and decides the format that holds them all.

    ``blocks`` are as in ``ImageSet``; ``name`` is what the images are called in messages. A UserError says where none
    of them is an image, or they have channels that do not mix.
    """
    headers, reasons, example = [], [], dict[int, str]()
    for row in _probed(len(rows), blocks).tolist():
        try:
            headers.append(read_header(rows.raw(row)))
            example.setdefault(headers[-1].channels, rows.where(row))
        except (Unreadable, OSError) as error:
            reasons.append(f"{rows.where(row)} ({error})")
    if not headers:
        raise UserError(f"no image in {name} can be read: {'; '.join(reasons[:5])}")
    counted = counted_channels(headers)
    headers = [header for header in headers if header.channels in counted]
    example = {channels: where for channels, where in example.items() if channels in counted}
    if len(example) > 1 and set(example) != {1, 3}:
        found = ", ".join(f"{channels} ({where})" for channels, where in sorted(example.items()))
        raise UserError(
            f"the images of {name} have different numbers of channels: {found}; only grey (1) and RGB (3) mix, "
            "so sort them into sets of their own"
        )
    form = Format(max(example), max(h.bits for h in headers))
    short = int(np.median([min(h[2:]) for h in headers]))
    usual, times = Counter((h.height, h.width) for h in headers).most_common(1)[0]
    # A common size is only believed when nothing was unreadable or unseen: a later odd one would not fit a batch.
    if times == len(headers) and (len(headers) == len(rows) or isinstance(rows, ArrayRows)):
        return form, Sizes(usual, short)
    return form, Sizes(None, short, usual if times >= _USUAL * len(headers) else None)
