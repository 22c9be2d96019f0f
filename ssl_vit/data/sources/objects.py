"""Data sets that are objects of Python: whatever has a length and gives row i, which is an image or holds one.

An object has no path, so it gets a name that stands where a path stands: ``python:CIFAR10-3fa91c02``. The name is made
of what is in it, and so is the same wherever the object is made again; a run on it continues there. Only a process that
was handed the object can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from PIL import Image

from ssl_vit.configs import OBJECT, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Pixels, Unreadable
from ssl_vit.data.images import evenly
from ssl_vit.data.sources import items
from ssl_vit.data.sources.items import Order
from ssl_vit.data.sources.part import SPLITS, Part
from ssl_vit.data.sources.table_files import Opened, holds_images, open_datasets, parts_of, undecoded


@dataclass(frozen=True)
class _Handed:
    """What a process was handed."""

    splits: dict[str, Any]
    title: str
    channels: Order | None
    prints: dict[str, str]
    """Hash of each split's length and of some of its rows."""
    opened: dict[tuple[str, str | None], Opened] = field(default_factory=dict)
    """What was read of each split, where this part of a row is the image."""


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
        inner = "; perhaps its .dataset is meant" if hasattr(dataset, "dataset") else ""
        raise UserError(
            f"{kind} is no data set; give a path, a torch.utils.data.Dataset, a datasets.Dataset, a list of images or "
            f"an array of them{inner}"
        )
    if not len(dataset):
        raise UserError(f"{title} has no rows")
    source = undecoded(dataset) if isinstance(dataset, datasets.Dataset) else dataset
    rows = evenly(len(dataset), items.READ).tolist()
    first, again = ([_hashed(items.row_of(source, row, title)) for row in rows] for _ in range(2))
    changed = [row for row, one, other in zip(rows, first, again, strict=True) if one != other]
    if changed:
        raise UserError(
            f"row {changed[0]} of {title} is not the same when it is read again: it changes images at random; give the "
            "data set without its random transforms (views are drawn here, so that a run can be continued exactly)"
        )
    return hashlib.sha256(f"{len(dataset)} {first}".encode()).hexdigest()


def _hashed(value: Any) -> str:
    """Hash of what can be told apart in a row."""
    if isinstance(value, Image.Image):
        seen: object = (value.mode, value.size, hashlib.sha256(value.tobytes()).hexdigest())
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = items.as_array(value)
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
    for name in own.splits:
        if (name, cfg.image_column) not in own.opened:
            own.opened[name, cfg.image_column] = _opened(own, name, cfg)
    splits = {name: own.opened[name, cfg.image_column] for name in own.splits}
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
            image = items.at(self.dataset[self._of(row)], self.key)
        except Exception as error:  # whatever somebody's own class raises
            raise Unreadable(items.said(error)) from error
        return items.pixels_of(image, self.channels, self.bits)

    def where(self, row: int) -> str:
        return f"{self.title} row {self._of(row)}"


@dataclass(frozen=True)
class _Items(Opened):
    """One split of an object; ``data`` is what stands beside its images."""

    rows: _ObjectRows | None = None

    def split(self, name: str, rows: np.ndarray) -> Opened:
        assert self.rows is not None
        return replace(super().split(name, rows), rows=replace(self.rows, chosen=rows))

    def part(self, images: tuple[str, ...], most: int) -> Part:
        assert self.rows is not None
        return Part(self.rows, self.fingerprint)


def _opened(own: _Handed, name: str, cfg: SourceConfig) -> _Items:
    dataset, title = own.splits[name], own.title if name == "all" else f"{own.title} ({name})"
    if isinstance(dataset, datasets.Dataset) and dataset.format["type"] is None:
        dataset = items.Arrays(dataset)
    first = items.row_of(dataset, 0, title)
    keys = items.keys_of(first)
    image = items.image_key({key: items.at(first, keys[key]) for key in keys}, cfg.image_column, title)
    pictures = [
        items.at(items.row_of(dataset, row, title), keys[image]) for row in evenly(len(dataset), items.READ).tolist()
    ]
    rows = _ObjectRows(dataset, title, keys[image], own.channels, items.bits_of(pictures))
    try:
        items.pixels_of(pictures[0], own.channels, rows.bits)
    except Unreadable as error:
        raise UserError(f"row 0 of {title} is no image that can be used: {error}") from error
    table = items.beside(dataset, first, {k: v for k, v in keys.items() if k != image}, title)
    mark = f"{own.prints[name]} {image} {own.channels} {rows.bits}"
    return _Items(table, title, fingerprint=hashlib.sha256(mark.encode()).hexdigest(), rows=rows)
