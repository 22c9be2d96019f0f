"""What a row of an object holds: which part is the image, its pixels, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import datasets
import numpy as np
import torch
from PIL import Image

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.decode import picture_pixels
from ssl_vit.data.decoding.formats import Pixels, Unreadable
from ssl_vit.data.images import evenly

Order = Literal["first", "last"]
"""Where the channels of arrays stand."""

READ = 64
"""Rows that an object is known by."""
_SIDE = 8  # pixels of the shorter side of an image; an array with less is none
_WHOLE = 0.07  # how far a number of half precision may be from one of 256 steps
_LEFT_OUT = object()


def row_of(dataset: Any, row: int, title: str) -> Any:
    """A row of a data set; a UserError says what its own code raised."""
    try:
        return dataset[row]
    except Exception as error:  # whatever somebody's own class raises
        raise UserError(f"row {row} of {title} cannot be read ({said(error)})") from error


def said(error: Exception) -> str:
    """What somebody else's code raised, on one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@dataclass(frozen=True)
class Arrays:
    """A table of Hugging Face whose nested lists are arrays of the numbers that it declares."""

    table: datasets.Dataset

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.table)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """A row by column."""
        kinds = {name: _numbers_of(feature) for name, feature in self.table.features.items()}
        return {k: v if kinds[k] is None else np.asarray(v, dtype=kinds[k]) for k, v in self.table[row].items()}


def _numbers_of(feature: Any) -> str | None:
    """The kind of numbers in two or more dimensions; None for everything else."""
    depth = len(getattr(feature, "shape", ()))
    while hasattr(feature, "feature"):
        feature, depth = feature.feature, depth + 1
    return feature.dtype if depth > 1 else None


def keys_of(row: Any) -> dict[str, Any]:
    """Names of what a row holds, and how to get it: of a pair image and label, of a longer tuple 0, 1, 2."""
    if isinstance(row, Mapping):
        return {str(key): key for key in row}
    if not isinstance(row, (tuple, list)):
        return {"image": None}
    if len(row) == 2 and sum(map(_is_picture, row)) == 1:
        return {"image" if _is_picture(one) else "label": place for place, one in enumerate(row)}
    return {str(place): place for place in range(len(row))}


def at(row: Any, key: Any) -> Any:
    """A part of a row; with the key None the row itself."""
    return row if key is None else row[key]


def _is_picture(value: Any) -> bool:
    if isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim in (2, 3):
        array = as_array(value)
        return (array.dtype in (np.uint8, np.uint16) or array.dtype.kind == "f") and sorted(array.shape)[-2] >= _SIDE
    return isinstance(value, Image.Image)


def image_key(row: dict[str, Any], wanted: str | None, title: str) -> str:
    """Which part of a row is the image: the one that was named, or the only one that can be."""
    held = ", ".join(f"{name} ({_kind(value)})" for name, value in row.items())
    if wanted is not None:
        if wanted not in row:
            raise UserError(f"a row of {title} has no part {wanted}{did_you_mean(wanted, row)}; it holds {held}")
        return wanted
    pictures = [name for name, value in row.items() if _is_picture(value)]
    if len(pictures) != 1:
        raise UserError(
            f"a row of {title} holds {'several images' if pictures else 'no image'}: {held}. "
            + (f"Name one: data={{'path': dataset, 'image_column': '{pictures[0]}'}}" if pictures else _EXPECTED)
        )
    return pictures[0]


_EXPECTED = (
    "Expected are Pillow's images, or arrays and tensors of 8 or 16 bits or of numbers from 0 to 1, of at least "
    f"{_SIDE} x {_SIDE} pixels"
)


def _kind(value: Any) -> str:
    if isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim:
        return f"{'array' if isinstance(value, np.ndarray) else 'tensor'} {' x '.join(map(str, value.shape))}"
    return f"image {value.width} x {value.height}" if isinstance(value, Image.Image) else type(value).__name__


def as_array(value: np.ndarray | torch.Tensor) -> np.ndarray:
    """An array or a tensor as an array."""
    if isinstance(value, np.ndarray):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def bits_of(pictures: list[Any]) -> int:
    """What numbers from 0 to 1 become: 8 bits where all of them are one of 256 steps, else 16."""
    arrays = [as_array(p) for p in pictures if isinstance(p, (np.ndarray, torch.Tensor))]
    return 8 if all(_stepped(a) for a in arrays if a.dtype.kind == "f") else 16


def _stepped(array: np.ndarray) -> bool:
    values = 255 * array.astype(np.float32)
    return bool((np.abs(values - np.rint(values)) < _WHOLE).all())


def pixels_of(image: Any, channels: Order | None, bits: int) -> Pixels:
    """Pixels [C, H, W] of 8 or 16 bits of an item; ``Unreadable`` says what is wrong with it."""
    if isinstance(image, Image.Image):
        return picture_pixels(image)
    if not isinstance(image, (np.ndarray, torch.Tensor)):
        raise Unreadable(f"{type(image).__name__}, no image")
    array, first = as_array(image), channels == "first" if channels else isinstance(image, torch.Tensor)
    if array.ndim not in (2, 3):
        raise Unreadable(f"{_kind(image)}; an image has two or three dimensions")
    if array.ndim == 2:
        array = array[None]
    elif not first:
        array = array.transpose(2, 0, 1)
    if channels is None and array.shape[0] > min(array.shape[1:]):
        order = "channels x height x width" if first else "height x width x channels"
        raise Unreadable(
            f"{_kind(image)}: {'tensors' if first else 'arrays'} are {order}, and so it would have {array.shape[0]} "
            f"channels; turn it, or say so: data={{'path': dataset, 'channels': '{'last' if first else 'first'}'}}"
        )
    if array.dtype.kind == "f":
        if not (array.size and array.min() >= 0 and array.max() <= 1):  # NaN is in no range
            raise Unreadable(
                f"numbers from {array.min():.4g} to {array.max():.4g}; numbers with fractions must lie between 0 and 1 "
                "(give them before they are standardised)"
            )
        if bits == 8 and not _stepped(array):
            raise Unreadable("numbers between the 256 steps that the others keep to")
        array = np.rint(array.astype(np.float64) * (2**bits - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    if array.dtype not in (np.uint8, np.uint16):
        raise Unreadable(f"pixels of {array.dtype}; give uint8, uint16, or numbers from 0 to 1")
    return np.ascontiguousarray(array)


def beside(dataset: Any, first: Any, keys: dict[str, Any], title: str) -> datasets.Dataset:
    """What stands beside the images, as a table of one row each; every row is read once where there is something."""
    keys = {name: key for name, key in keys.items() if _cell(at(first, key)) is not _LEFT_OUT}
    if not keys:
        return datasets.Dataset.from_dict({"row": range(len(dataset))})
    known = _known_labels(dataset, keys)
    if known is None:
        say_once(f"note: {title} is read once for what stands beside its images: {', '.join(keys)}")
        rows = (row_of(dataset, row, title) for row in range(len(dataset)))
        cells = [[_cell(at(row, key)) for key in keys.values()] for row in rows]
        known = dict(zip(keys, map(list, zip(*cells, strict=True)), strict=True))
    try:
        table = datasets.Dataset.from_dict(known)
    except (ValueError, TypeError, OverflowError) as error:  # pyarrow's own are ValueErrors
        raise UserError(f"what stands beside the images of {title} is no table ({said(error)})") from error
    names: Any = getattr(dataset, "classes", None)
    named = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
    if named and list(known) == ["label"] and {*known["label"]} <= {*range(len(names))}:
        table = table.cast_column("label", datasets.ClassLabel(names=list(names)))
    return table


def _known_labels(dataset: Any, keys: dict[str, Any]) -> dict[str, list[Any]] | None:
    """The labels as torchvision's data sets list them (``targets``), where that is what the rows say."""
    listed = getattr(dataset, "targets", None)
    if list(keys) != ["label"] or not isinstance(listed, (list, np.ndarray, torch.Tensor)):
        return None
    labels = [_cell(one) for one in listed]
    rows = evenly(len(dataset), READ).tolist()
    if len(labels) != len(dataset) or any(_cell(dataset[row][keys["label"]]) != labels[row] for row in rows):
        return None
    return {"label": labels}


def _cell(value: Any) -> Any:
    """A value as it stands in a table; ``_LEFT_OUT`` for what is none."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        if value.ndim > 1:
            return _LEFT_OUT
        value = as_array(value).tolist() if isinstance(value, torch.Tensor) else value.tolist()
    many = value if isinstance(value, (list, tuple)) else [value]
    plain = all(one is None or isinstance(one, (str, int, float)) for one in many)
    return value if plain else _LEFT_OUT
