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
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.order import BUFFER
from ssl_vit.data.sources.labels import read_labels
from ssl_vit.data.sources.part import Groups, Part, judged_splits
from ssl_vit.data.sources.readers import first_line, open_parquet
from ssl_vit.data.sources.table_files import (
    cell_bytes,
    groups_of,
    image_columns,
    print_of,
    rows_by_split,
    split_print,
    undecoded,
)


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
            try:
                table = pyarrow.parquet.ParquetFile(self.files[file]).read_row_group(group, columns=list(self.columns))
            except pyarrow.ArrowException as error:
                raise Unreadable(f"its row group is damaged: {first_line(error)}") from error
            self._held[file, group] = table.to_pylist()
            # A shuffle buffer's worth of row groups is kept, so that each of them is read once.
            while sum(map(len, self._held.values())) - len(next(iter(self._held.values()))) >= BUFFER:
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
    splits = {name: _opened(part, images, labelled) for name, part in files.items()}
    if len(splits) == 1:
        whole = next(iter(splits.values()))
        rows = rows_by_split(whole.beside, place)
        splits = {name: _taken(whole, name, chosen) for name, chosen in rows.items()} or splits
    labels, groups = None, Groups({}, ())
    if labelled:
        tables = {name: splits[name].beside for name in judged_splits(splits, cfg)}
        labels = read_labels(tables, cfg, place, images)
        groups = groups_of(tables, cfg.group, place) if cfg.group else Groups({}, ())
    parts = {}
    for name, found in splits.items():
        _, blocks = np.unique(found.place[:, :2], axis=0, return_inverse=True)
        rows = RowGroups(found.files, images, folder, found.place)
        part = Part(rows, found.fingerprint, **groups.of(name), blocks=blocks.reshape(-1))
        if labels is not None and name in labels.values:
            part = replace(part, labels=labels.values[name], classes=labels.names, kind=labels.kind)
        parts[name] = part
    return parts


@dataclass(frozen=True)
class _Split:
    files: tuple[Path, ...]
    place: np.ndarray
    beside: datasets.Dataset
    """What is written beside the images; only the column ``split`` where labels are not wanted."""
    fingerprint: str


def _opened(files: list[Path], images: tuple[str, ...], labelled: bool) -> _Split:
    found, tables = [], []
    for number, file in enumerate(files):
        opened = open_parquet(file)
        lacking = [c for c in images if c not in opened.schema_arrow.names]
        if lacking:
            raise UserError(
                f"{file} has no column {lacking[0]} as the others; its columns: {', '.join(opened.schema_arrow.names)}"
            )
        for group in range(opened.metadata.num_row_groups):
            rows = np.arange(opened.metadata.row_group(group).num_rows)
            found.append(np.stack([np.full_like(rows, number), np.full_like(rows, group), rows], axis=1))
        kept = [f.name for f in opened.schema_arrow if f.name not in images and not _is_heavy(f.type)]
        try:
            tables.append(_as_dataset(opened.read(columns=kept if labelled else [c for c in kept if c == "split"])))
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{file} cannot be read as parquet: {first_line(error)}") from error
    try:
        beside = datasets.concatenate_datasets(tables) if len(tables) > 1 else tables[0]
    except ValueError as error:
        raise UserError(f"the files of {files[0].parent} do not fit together: {first_line(error)}") from error
    return _Split(tuple(files), np.concatenate(found), beside, print_of(files))


def _taken(whole: _Split, name: str, rows: np.ndarray) -> _Split:
    return _Split(whole.files, whole.place[rows], whole.beside.select(rows), split_print(whole.fingerprint, name))


def _as_dataset(table: pyarrow.Table) -> datasets.Dataset:
    return undecoded(datasets.Dataset(InMemoryTable(table)))


def _beginning(files: dict[str, list[Path]]) -> datasets.Dataset:
    """A few rows, enough to see what the columns hold."""
    file = next(iter(files.values()))[0]
    first = open_parquet(file)
    try:
        group = next(g for g in range(first.num_row_groups) if first.metadata.row_group(g).num_rows)
        batch = next(first.iter_batches(batch_size=8, row_groups=[group]))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read as parquet: {first_line(error)}") from error
    return _as_dataset(
        pyarrow.Table.from_batches([batch], schema=batch.schema.with_metadata(first.schema_arrow.metadata))
    )


def _is_heavy(kind: pyarrow.DataType) -> bool:
    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind) or pyarrow.types.is_struct(kind)
