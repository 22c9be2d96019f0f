"""Parquet files read in place, one row group at a time: nothing is converted, copied or held but what is in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
from datasets.table import InMemoryTable

from ssl_vit.configs import SourceConfig
from ssl_vit.configs.paths import folders
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.order import BUFFER
from ssl_vit.data.sources.part import Part
from ssl_vit.data.sources.readers import first_line, not_read, open_parquet
from ssl_vit.data.sources.remote import File, Place, for_arrow
from ssl_vit.data.sources.table_files import Opened, fitted, image_columns, image_in, parts_of, print_of, undecoded

_HELD = 2**29
"""Bytes of a row group from which it is said that loader processes hold it."""
_HEAVY = (pyarrow.types.is_binary, pyarrow.types.is_large_binary, pyarrow.types.is_struct)


@dataclass(frozen=True)
class _RowGroups:
    files: tuple[File, ...]
    columns: tuple[str, ...]
    roots: tuple[Place, ...]
    place: np.ndarray
    """Int[n, 3]: file, row group and row inside it."""
    most: int
    """``--data.max_pixels``, which bounds files that cells name, too."""
    held: OrderedDict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=OrderedDict, compare=False)

    def __len__(self) -> int:
        return len(self.place)

    def __getstate__(self) -> dict[str, Any]:
        """Loader processes start with nothing read."""
        return {**self.__dict__, "held": OrderedDict()}

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        file, group, inside = self.place[row].tolist()
        if (file, group) not in self.held:
            try:
                opened = pyarrow.parquet.ParquetFile(for_arrow(self.files[file]))
                table = opened.read_row_group(group, columns=list(self.columns))
            except pyarrow.ArrowException as error:
                raise Unreadable(f"its row group is damaged: {first_line(error)}") from error
            self.held[file, group] = table.to_pylist()
            # A shuffle buffer's worth of row groups is kept, so that each of them is read once.
            while sum(map(len, self.held.values())) - len(next(iter(self.held.values()))) >= BUFFER:
                self.held.popitem(last=False)
        self.held.move_to_end((file, group))
        return image_in(self.held[file, group][inside], self.columns, self.roots, self.most)

    def where(self, row: int) -> str:
        file, group, inside = self.place[row].tolist()
        return f"{self.files[file]} row group {group} row {inside}"


@dataclass(frozen=True)
class _Split(Opened):
    """Of the table only what is written beside the images; without labels only the column ``split``."""

    files: tuple[File, ...] = ()
    place: np.ndarray = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))

    def split(self, name: str, rows: np.ndarray) -> Opened:
        return replace(super().split(name, rows), place=self.place[rows])

    def part(self, images: tuple[str, ...], most: int) -> Part:
        _, blocks = np.unique(self.place[:, :2], axis=0, return_inverse=True)
        rows = _RowGroups(self.files, images, self.roots, self.place, most)
        return Part(rows, self.fingerprint, blocks=blocks.reshape(-1))


def open_row_groups(files: Mapping[str, Sequence[File]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Parquet files of every split, without reading more of them than their labels."""
    folder = next(iter(files.values()))[0].parent
    images = image_columns(_beginning(files), cfg.image_column, str(folder))
    roots = (folder, *folders(cfg.root))
    splits = {name: _opened(part, images, labelled, roots) for name, part in files.items()}
    cfg = cfg if labelled else replace(cfg, group=None)  # of a pool no more than the column split is read
    return parts_of(splits, images, cfg, labelled=labelled, place=str(folder))


def _opened(files: Sequence[File], images: tuple[str, ...], labelled: bool, roots: tuple[Place, ...]) -> _Split:
    found, tables, largest = [], [], 0
    for number, file in enumerate(files):
        opened = open_parquet(file)
        schema = opened.schema_arrow
        lacking = [c for c in images if c not in schema.names]
        if lacking:
            raise UserError(f"{file} has no column {lacking[0]} as the others; its columns: {', '.join(schema.names)}")
        for group in range(opened.metadata.num_row_groups):
            largest = max(largest, opened.metadata.row_group(group).total_byte_size)
            rows = np.arange(opened.metadata.row_group(group).num_rows)
            found.append(np.stack([np.full_like(rows, number), np.full_like(rows, group), rows], axis=1))
        kept = [f.name for f in schema if f.name not in images and not any(heavy(f.type) for heavy in _HEAVY)]
        with not_read(file):
            tables.append(_as_dataset(opened.read(columns=kept if labelled else [c for c in kept if c == "split"])))
    if largest > _HELD:
        say_once(
            f"note: {files[0].parent} has row groups of up to {largest / 1e9:.1f} GB, and every loader process holds "
            "one; written with fewer images in each (pandas: row_group_size=1000) they take less memory"
        )
    table = fitted(tables, files[0].parent)
    return _Split(table, str(roots[0]), roots, print_of(files), tuple(files), np.concatenate(found))


def _as_dataset(table: pyarrow.Table) -> datasets.Dataset:
    return undecoded(datasets.Dataset(InMemoryTable(table)))


def _beginning(files: Mapping[str, Sequence[File]]) -> datasets.Dataset:
    """A few rows, enough to see what the columns hold."""
    file = next(iter(files.values()))[0]
    first = open_parquet(file)
    with not_read(file):
        group = next(g for g in range(first.num_row_groups) if first.metadata.row_group(g).num_rows)
        batch = next(first.iter_batches(batch_size=8, row_groups=[group]))
        schema = batch.schema.with_metadata(first.schema_arrow.metadata)
        return _as_dataset(pyarrow.Table.from_batches([batch], schema=schema))
