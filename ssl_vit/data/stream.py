"""Parquet files read in place, one row group at a time: nothing is converted, copied or held but what is in use."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
from datasets.table import InMemoryTable

from ssl_vit.configs import SourceConfig
from ssl_vit.data.labels import read_labels
from ssl_vit.data.part import Part
from ssl_vit.data.tables import cell_bytes, first_line, groups_of, image_columns, print_of, undecoded
from ssl_vit.errors import UserError

_OPEN_GROUPS = 64
"""Row groups that a process keeps, so that a shuffle buffer's worth of them is read once."""


@dataclass(frozen=True)
class RowGroups:
    """Images in row groups of parquet files."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    root: Path
    place: np.ndarray
    """Int[n, 3]: file, row group and row inside it."""
    _held: OrderedDict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=OrderedDict, compare=False)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.place)

    def __getstate__(self) -> dict[str, Any]:
        """Loader processes start with nothing read."""
        return {**self.__dict__, "_held": OrderedDict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The inverse of ``__getstate__``."""
        self.__dict__.update(state)

    def _cells(self, row: int) -> dict[str, Any]:
        file, group, inside = (int(v) for v in self.place[row])
        if (file, group) not in self._held:
            table = pyarrow.parquet.ParquetFile(self.files[file]).read_row_group(group, columns=list(self.columns))
            self._held[file, group] = table.to_pylist()
            if len(self._held) > _OPEN_GROUPS:
                self._held.popitem(last=False)
        self._held.move_to_end((file, group))
        return self._held[file, group][inside]

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        """The image's bytes."""
        cells = self._cells(row)
        found = tuple(cell_bytes(cells[column], self.root) for column in self.columns)
        return found[0] if len(found) == 1 else found

    def where(self, row: int) -> str:
        """File and row."""
        file, group, inside = (int(v) for v in self.place[row])
        return f"{self.files[file]} row group {group} row {inside}"


def open_row_groups(files: dict[str, list[Path]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Parquet files of every split, without reading more of them than their labels.

    Args:
        files: Files by split name.
        cfg: Options of the source.
        labelled: Whether labels and groups are wanted.

    Raises:
        UserError: For broken files and wrong columns.
    """
    folder = next(iter(files.values()))[0].parent
    place = str(folder)
    images = image_columns(_beginning(files), cfg.image_column, place)
    labels, groups = None, {}
    if labelled:
        beside = {split: _without_pictures(part, images) for split, part in files.items()}
        labels = read_labels(beside, cfg, place, images)
        groups = groups_of(beside, cfg.group, place) if cfg.group else {}
    parts = {}
    for split, found in files.items():
        where = _places(found)
        _, blocks = np.unique(where[:, :2], axis=0, return_inverse=True)
        part = Part(RowGroups(tuple(found), images, folder, where), print_of(found), groups=groups.get(split))
        if labels is not None:
            part = replace(part, labels=labels.values[split], classes=labels.names, kind=labels.kind)
        parts[split] = replace(part, blocks=blocks.reshape(-1))
    return parts


def _opened(file: Path) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{file} cannot be read as parquet: {first_line(error)}") from error


def _as_dataset(table: pyarrow.Table) -> datasets.Dataset:
    return undecoded(datasets.Dataset(InMemoryTable(table)))


def _beginning(files: dict[str, list[Path]]) -> datasets.Dataset:
    """A few rows, enough to see what the columns hold."""
    first = _opened(next(iter(files.values()))[0])
    batch = next(first.iter_batches(batch_size=8), None)
    if batch is None:
        raise UserError(f"{next(iter(files.values()))[0]} has no rows")
    return _as_dataset(
        pyarrow.Table.from_batches([batch], schema=batch.schema.with_metadata(first.schema_arrow.metadata))
    )


def _without_pictures(files: list[Path], images: tuple[str, ...]) -> datasets.Dataset:
    tables = []
    for file in files:
        opened = _opened(file)
        kept = [f.name for f in opened.schema_arrow if f.name not in images and not _is_heavy(f.type)]
        tables.append(_as_dataset(opened.read(columns=kept)))
    return datasets.concatenate_datasets(tables) if len(tables) > 1 else tables[0]


def _is_heavy(kind: pyarrow.DataType) -> bool:
    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind) or pyarrow.types.is_struct(kind)


def _places(files: list[Path]) -> np.ndarray:
    """File, row group and row inside it of every row."""
    found = []
    for number, file in enumerate(files):
        about = _opened(file).metadata
        for group in range(about.num_row_groups):
            rows = np.arange(about.row_group(group).num_rows)
            found.append(np.stack([np.full_like(rows, number), np.full_like(rows, group), rows], axis=1))
    return np.concatenate(found)
