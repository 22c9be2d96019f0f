"""Data sets that are objects of Python: whatever has a length and gives row i, which is an image or holds one.

An object has no path, so it gets a name that stands where a path stands: ``python:CIFAR10-3fa91c02``. The name is made
of what is in it, and so is the same wherever the object is made again; a run on it continues there. Only a process that
was handed the object can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import datasets
import numpy as np
import torch
from PIL import Image

from ssl_vit.configs import OBJECT, SourceConfig
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.decode import picture_pixels
from ssl_vit.data.decoding.formats import Pixels, Unreadable
from ssl_vit.data.images import evenly
from ssl_vit.data.sources.part import SPLITS, Part
from ssl_vit.data.sources.table_files import Opened, holds_images, open_datasets, parts_of, undecoded

Order = Literal["first", "last"]
"""Where the channels of arrays stand."""

_READ = 64  # rows that an object is known by; each is read twice
_SIDE = 8  # pixels of the shorter side of an image; an array with less is none
_WHOLE = 0.07  # how far a number of half precision may be from one of 256 steps
_LEFT_OUT = object()


@dataclass(frozen=True)
class _Handed:
    """What a process was handed."""

    splits: dict[str, Any]
    title: str
    channels: Order | None
    prints: dict[str, str]
    """Hash of each split's length and of some of its rows."""
    beside: dict[str, datasets.Dataset] = field(default_factory=dict)
    """What stands beside the images of each split, once it was read."""


_handed: dict[str, _Handed] = {}


def handed(dataset: Any, channels: Order | None = None) -> str:
    """The name that stands for a data set where a path is expected; the data set stays in memory.

    Args:
        dataset: A ``datasets.Dataset``, a ``torch.utils.data.Dataset``, a list of images, an array; or several by
            split name.
        channels: Where the channels of arrays and tensors stand; default: last in arrays, first in tensors.

    Raises:
        UserError: Where it cannot be read row by row, is empty, or a row is not the same when it is read again.
    """
    splits = _splits(dataset)
    title = type(next(iter(splits.values()))).__name__
    prints = {name: _print(one, title if name == "all" else f"{title} ({name})") for name, one in splits.items()}
    path = f"{OBJECT}{title}-{hashlib.sha256(f'{channels}{prints}'.encode()).hexdigest()[:8]}"
    before = _handed.get(path)
    if before is None or any(before.splits[name] is not one for name, one in splits.items()):
        _handed[path] = _Handed(splits, title, channels, prints)
    return path


def _splits(dataset: Any) -> dict[str, Any]:
    if not isinstance(dataset, Mapping):
        return {"all": dataset}
    splits = {SPLITS.get(str(name).lower(), str(name)): one for name, one in dataset.items()}
    if not splits or len(splits) < len(dataset):
        raise UserError(f"{', '.join(map(str, dataset)) or 'nothing'} names no splits, or one of them twice")
    return splits


def _print(dataset: Any, title: str) -> str:
    """Hash of a data set's length and of some of its rows, which must not change."""
    kind = type(dataset).__name__
    if isinstance(dataset, (datasets.IterableDataset, torch.utils.data.IterableDataset)):
        raise UserError(
            f"{title} can only be read from its beginning, so a run on it could not be continued exactly; give a data "
            "set with rows by number: list(dataset) where it fits, or files (parquet or tar shards are read in place)"
        )
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        inner = ", here .dataset of it" if hasattr(dataset, "dataset") else ""
        raise UserError(
            f"{kind} is no data set; give a path, a torch.utils.data.Dataset, a datasets.Dataset, a list of images or "
            f"an array of them{inner}"
        )
    if not len(dataset):
        raise UserError(f"{title} has no rows")
    source = undecoded(dataset) if isinstance(dataset, datasets.Dataset) else dataset
    rows = evenly(len(dataset), _READ).tolist()
    first, again = ([_hashed(_row(source, row, title)) for row in rows] for _ in range(2))
    changed = [row for row, one, other in zip(rows, first, again, strict=True) if one != other]
    if changed:
        raise UserError(
            f"row {changed[0]} of {title} is not the same when it is read again: it changes images at random; give the "
            "data set without its random transforms (views are drawn here, so that a run can be continued exactly)"
        )
    return hashlib.sha256(f"{len(dataset)} {first}".encode()).hexdigest()


def _row(dataset: Any, row: int, title: str) -> Any:
    try:
        return dataset[row]
    except Exception as error:  # whatever somebody's own class raises
        raise UserError(f"row {row} of {title} cannot be read ({_said(error)})") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _hashed(value: Any) -> str:
    """Hash of what can be told apart in a row."""
    if isinstance(value, Image.Image):
        seen: object = (value.mode, value.size, hashlib.sha256(value.tobytes()).hexdigest())
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = _as_array(value)
        seen = (str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest())
    elif isinstance(value, Mapping):
        seen = [(str(name), _hashed(one)) for name, one in value.items()]
    elif isinstance(value, (tuple, list)):
        seen = [_hashed(one) for one in value]
    else:
        seen = value if isinstance(value, (str, bytes, int, float, np.generic)) else type(value).__name__
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def open_handed(cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Every split of an object, by name.

    Args:
        cfg: Its ``path`` is what ``handed`` returned; columns are the names (or numbers) of what a row holds.
        labelled: Whether labels are wanted.

    Raises:
        UserError: Where this process was not handed it, or it is not clear which part of a row is the image.
    """
    path = cfg.path or ""
    if path not in _handed:
        raise UserError(
            f"{path} is an object of Python that this process was not handed; hand it again, as "
            "ssl_vit.evaluate(run, data=dataset), or name images in files"
        )
    own = _handed[path]
    if all(isinstance(one, datasets.Dataset) and _tabled(one) for one in own.splits.values()):
        return open_datasets(own.splits, cfg, labelled=labelled, place=own.title)
    splits = {name: _opened(own, name, cfg) for name in own.splits}
    return parts_of(splits, ("image",), cfg, labelled=labelled, place=own.title)


def _tabled(data: datasets.Dataset) -> bool:
    """Whether a table's cells are images as files hold them, and not arrays."""
    return any(holds_images(undecoded(data), column) for column in data.column_names)


@dataclass(frozen=True)
class _ObjectRows:
    """Rows of an object, or some of them, that hold an image each."""

    dataset: Any
    title: str
    key: Any
    """Where in a row its image stands; None where the row is the image."""
    channels: Order | None
    bits: int
    """What numbers from 0 to 1 become."""
    chosen: np.ndarray | None = None
    read_here: ClassVar[bool] = True
    """Not in loader processes, unless they are asked for: an open file of the object would be shared between them."""

    def __len__(self) -> int:
        return len(self.dataset) if self.chosen is None else len(self.chosen)

    def _of(self, row: int) -> int:
        return row if self.chosen is None else int(self.chosen[row])

    def raw(self, row: int) -> Pixels:
        try:
            image = _at(self.dataset[self._of(row)], self.key)
        except Exception as error:  # whatever somebody's own class raises
            raise Unreadable(_said(error)) from error
        return _pixels(image, self.channels, self.bits)

    def where(self, row: int) -> str:
        return f"{self.title} row {self._of(row)}"


@dataclass(frozen=True)
class _Items(Opened):
    """One split of an object; ``data`` is what stands beside its images."""

    rows: _ObjectRows | None = None

    def split(self, name: str, rows: np.ndarray) -> Opened:
        assert self.rows is not None
        return replace(super().split(name, rows), rows=replace(self.rows, chosen=rows))

    def part(self, images: tuple[str, ...]) -> Part:
        assert self.rows is not None
        return Part(self.rows, self.fingerprint)


@dataclass(frozen=True)
class _Arrays:
    """A table of Hugging Face whose nested lists are arrays of the numbers that it declares."""

    table: datasets.Dataset

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> dict[str, Any]:
        kinds = {name: _numbers_of(feature) for name, feature in self.table.features.items()}
        return {k: v if kinds[k] is None else np.asarray(v, dtype=kinds[k]) for k, v in self.table[row].items()}


def _numbers_of(feature: Any) -> str | None:
    """The kind of numbers in two or more dimensions; None for everything else."""
    depth = len(getattr(feature, "shape", ()))
    while hasattr(feature, "feature"):
        feature, depth = feature.feature, depth + 1
    return feature.dtype if depth > 1 else None


def _opened(own: _Handed, name: str, cfg: SourceConfig) -> _Items:
    dataset, title = own.splits[name], own.title if name == "all" else f"{own.title} ({name})"
    if isinstance(dataset, datasets.Dataset) and dataset.format["type"] is None:
        dataset = _Arrays(dataset)
    first = _row(dataset, 0, title)
    keys = _keys(first)
    image = _image_key({key: _at(first, keys[key]) for key in keys}, cfg.image_column, title)
    pictures = [_at(_row(dataset, row, title), keys[image]) for row in evenly(len(dataset), _READ).tolist()]
    rows = _ObjectRows(dataset, title, keys[image], own.channels, _bits(pictures))
    try:
        _pixels(pictures[0], own.channels, rows.bits)
    except Unreadable as error:
        raise UserError(f"row 0 of {title} is no image that can be used: {error}") from error
    if name not in own.beside:
        own.beside[name] = _beside(dataset, first, {k: v for k, v in keys.items() if k != image}, title)
    mark = f"{own.prints[name]} {image} {own.channels} {rows.bits}"
    return _Items(own.beside[name], title, fingerprint=hashlib.sha256(mark.encode()).hexdigest(), rows=rows)


def _keys(row: Any) -> dict[str, Any]:
    """Names of what a row holds, and how to get it: of a pair image and label, of a longer tuple 0, 1, 2."""
    if isinstance(row, Mapping):
        return {str(key): key for key in row}
    if not isinstance(row, (tuple, list)):
        return {"image": None}
    if len(row) == 2 and sum(map(_is_picture, row)) == 1:
        return {"image" if _is_picture(one) else "label": place for place, one in enumerate(row)}
    return {str(place): place for place in range(len(row))}


def _at(row: Any, key: Any) -> Any:
    return row if key is None else row[key]


def _is_picture(value: Any) -> bool:
    if isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim in (2, 3):
        array = _as_array(value)
        return (array.dtype in (np.uint8, np.uint16) or array.dtype.kind == "f") and sorted(array.shape)[-2] >= _SIDE
    return isinstance(value, Image.Image)


def _image_key(row: dict[str, Any], wanted: str | None, title: str) -> str:
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


def _as_array(value: np.ndarray | torch.Tensor) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _bits(pictures: list[Any]) -> int:
    """What numbers from 0 to 1 become: 8 bits where all of them are one of 256 steps, else 16."""
    arrays = [_as_array(p) for p in pictures if isinstance(p, (np.ndarray, torch.Tensor))]
    return 8 if all(_stepped(a) for a in arrays if a.dtype.kind == "f") else 16


def _stepped(array: np.ndarray) -> bool:
    values = 255 * array.astype(np.float32)
    return bool((np.abs(values - np.rint(values)) < _WHOLE).all())


def _pixels(image: Any, channels: Order | None, bits: int) -> Pixels:
    """Pixels [C, H, W] of 8 or 16 bits of an item; ``Unreadable`` says what is wrong with it."""
    if isinstance(image, Image.Image):
        return picture_pixels(image)
    if not isinstance(image, (np.ndarray, torch.Tensor)):
        raise Unreadable(f"{type(image).__name__}, no image")
    array, first = _as_array(image), channels == "first" if channels else isinstance(image, torch.Tensor)
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


def _beside(dataset: Any, first: Any, keys: dict[str, Any], title: str) -> datasets.Dataset:
    """What stands beside the images, as a table of one row each; every row is read once where there is something."""
    keys = {name: key for name, key in keys.items() if _cell(_at(first, key)) is not _LEFT_OUT}
    if not keys:
        return datasets.Dataset.from_dict({"row": range(len(dataset))})
    known = _known_labels(dataset, keys)
    if known is None:
        say_once(f"note: {title} is read once for what stands beside its images: {', '.join(keys)}")
        rows = (_row(dataset, row, title) for row in range(len(dataset)))
        cells = [[_cell(_at(row, key)) for key in keys.values()] for row in rows]
        known = dict(zip(keys, map(list, zip(*cells, strict=True)), strict=True))
    try:
        table = datasets.Dataset.from_dict(known)
    except (ValueError, TypeError, OverflowError) as error:  # pyarrow's own are ValueErrors
        raise UserError(f"what stands beside the images of {title} is no table ({_said(error)})") from error
    names = getattr(dataset, "classes", None)
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
    rows = evenly(len(dataset), _READ).tolist()
    if len(labels) != len(dataset) or any(_cell(dataset[row][keys["label"]]) != labels[row] for row in rows):
        return None
    return {"label": labels}


def _cell(value: Any) -> Any:
    """A value as it stands in a table; ``_LEFT_OUT`` for what is none."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        if value.ndim > 1:
            return _LEFT_OUT
        value = _as_array(value).tolist() if isinstance(value, torch.Tensor) else value.tolist()
    many = value if isinstance(value, (list, tuple)) else [value]
    plain = all(one is None or isinstance(one, (str, int, float)) for one in many)
    return value if plain else _LEFT_OUT
