"""Tables of images: parquet, arrow, csv, jsonl, what save_to_disk wrote, and datasets.Dataset objects.

An image is a cell of bytes, of {bytes, path} as Hugging Face stores it, or the name of a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.sources.folder import SUFFIXES, bytes_of
from ssl_vit.data.sources.labels import cells, columns_of, named_columns, read_labels
from ssl_vit.data.sources.part import SPLITS, Groups, Part, judged_splits, numbered
from ssl_vit.data.sources.readers import first_line, read_table

_FILE_COLUMNS = ("image", "img", "file_name", "filename", "file", "path", "image_path", "filepath", "image_file")


@dataclass(frozen=True)
class TableRows:
    """Images in one column of a table, or in several that are channels of one image."""

    dataset: datasets.Dataset
    columns: tuple[str, ...]
    root: Path
    """Where relative file names start."""
    name: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.dataset)

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        """The image's bytes; a cell that only names a file reads that file."""
        cells = self.dataset[row]
        found = tuple(cell_bytes(cells[column], self.root) for column in self.columns)
        return found[0] if len(found) == 1 else found

    def where(self, row: int) -> str:
        """Table and row, and the file where the table only names one."""
        cell = self.dataset[row][self.columns[0]]
        return f"{self.name} row {row}" + (f" ({cell})" if isinstance(cell, str) else "")


def cell_bytes(cell: Any, root: Path) -> bytes:
    """A cell's bytes; a cell that only names a file reads that file."""
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, dict):
        if cell.get("bytes") is not None:
            return cell["bytes"]
        cell = cell.get("path")
    return (root / cell).read_bytes() if cell else b""


@dataclass(frozen=True)
class Opened:
    """One split's table, and what the table does not know of itself."""

    data: datasets.Dataset
    title: str
    """What it is called in messages."""
    root: Path = Path()
    """Where relative file names start."""
    fingerprint: str = ""
    """Hash of its files; empty: of size, columns and a sample of rows."""


def open_tables(files: dict[str, list[Path]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Table files of every split.

    Args:
        files: Files by split name.
        cfg: Options of the source.
        labelled: Whether labels and groups are wanted.

    Raises:
        UserError: For files that cannot be read, missing, ambiguous or contradictory columns.
    """
    datasets.disable_progress_bars()
    splits = {}
    for name, part in files.items():
        folder = part[0].parent
        title = part[0].name if len(part) == 1 else f"{folder} ({name})"
        splits[name] = Opened(_load(part), title, folder, print_of(part))
    only = files.get("all", [])
    place = str(only[0] if len(only) == 1 else next(iter(files.values()))[0].parent)
    return parts_of(splits, cfg, labelled=labelled, place=place)


def print_of(files: list[Path]) -> str:
    """Fingerprint of some files: their names and sizes."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
    return digest.hexdigest()


def open_datasets(
    tables: Mapping[str, datasets.Dataset], cfg: SourceConfig, *, labelled: bool, place: str
) -> dict[str, Part]:
    """Tables that are already open, by split name; see ``parts_of``."""
    splits = {name: Opened(data, place if name == "all" else f"{place} ({name})") for name, data in tables.items()}
    return parts_of(splits, cfg, labelled=labelled, place=place)


def parts_of(splits: Mapping[str, Opened], cfg: SourceConfig, *, labelled: bool, place: str) -> dict[str, Part]:
    """Columns of open tables as images, labels and groups.

    Args:
        splits: Tables by split name.
        cfg: Options of the source.
        labelled: Whether labels and groups are wanted.
        place: What the source is called in messages.

    Raises:
        UserError: For missing, ambiguous or contradictory columns, and splits without rows.
    """
    splits = {name: replace(part, data=undecoded(part.data)) for name, part in splits.items()}
    first = next(iter(splits.values())).data
    images = image_columns(first, cfg.image_column, place)
    for name, part in splits.items():
        lacking = [c for c in images if c not in part.data.column_names]
        if lacking:
            raise UserError(f"split {name} in {place} has no column {lacking[0]}; its columns: {columns_of(part.data)}")
        if not len(part.data):
            raise UserError(f"split {name} in {place} has no rows")
    splits = {name: replace(part, fingerprint=_fingerprint(part, images)) for name, part in splits.items()}
    splits = _by_column(splits) or splits
    tables = {name: splits[name].data for name in judged_splits(splits, cfg)}
    labels = read_labels(tables, cfg, place, images) if labelled else None
    groups = (
        groups_of(tables, cfg.group, place) if cfg.group else Groups({}, ())
    )  # in a pool too: mistakes should not wait
    parts = {}
    for name, opened in splits.items():
        rows = TableRows(opened.data.select_columns(list(images)), images, opened.root, opened.title)
        part = Part(rows, opened.fingerprint, **groups.of(name))
        if labels is not None and name in labels.values:
            part = replace(part, labels=labels.values[name], classes=labels.names, kind=labels.kind)
        parts[name] = part
    return parts


def _load(files: list[Path]) -> datasets.Dataset:
    parts = [undecoded(read_table(file)) for file in files]
    try:
        return datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]
    except ValueError as error:
        raise UserError(f"the files of {files[0].parent} do not fit together: {first_line(error)}") from error


def undecoded(data: datasets.Dataset) -> datasets.Dataset:
    """The same table with image cells as bytes instead of pictures, whatever format it was set to."""
    data = data.with_format(None)
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            data = data.cast_column(column, datasets.Image(decode=False))
    return data


def _by_column(splits: Mapping[str, Opened]) -> dict[str, Opened] | None:
    """A table with a column ``split`` of split names, taken apart; None for any other."""
    if len(splits) != 1:
        return None
    whole = next(iter(splits.values()))
    return {
        name: replace(
            whole,
            data=whole.data.select(rows),
            title=f"{whole.title} ({name})",
            fingerprint=split_print(whole.fingerprint, name),
        )
        for name, rows in rows_by_split(whole.data, whole.title).items()
    }


def split_print(whole: str, name: str) -> str:
    """Fingerprint of one split of a table."""
    return hashlib.sha256(f"{whole} {name}".encode()).hexdigest()


def rows_by_split(data: datasets.Dataset, place: str) -> dict[str, np.ndarray]:
    """Rows by what a column ``split`` says; empty where there is none, or one that has nothing to do with splits.

    Options have no say in it, so that pre-training and evaluation see the same splits.

    Raises:
        UserError: For a row whose split is not filled in.
    """
    if "split" not in data.column_names or not _names_files(data, "split"):
        return {}
    values = [(v or "").strip() for v in cells(data, "split")]
    names = np.array([SPLITS.get(v.lower(), v) for v in values])
    if len(set(names)) < 2 or not set(names) & set(SPLITS.values()):
        return {}
    if "" in values:
        raise UserError(f"row {values.index('')} of column split in {place} names no split; fill it in")
    return {name: np.flatnonzero(names == name) for name in sorted(set(names.tolist()))}


def groups_of(splits: Mapping[str, datasets.Dataset], column: str, place: str) -> Groups:
    """The values of ``--data.group`` as numbers."""
    found: dict[str, list[object]] = {}
    for name, data in splits.items():
        named = named_columns(column, data, place)
        if len(named) > 1:
            raise UserError(f"--data.group {column} names {len(named)} columns of {place}; give one")
        found[name] = cells(data, named[0])
        empty = next((i for i, v in enumerate(found[name]) if v is None or not str(v).strip() or v != v), None)
        if empty is not None:
            raise UserError(f"row {empty} of column {column} in {place} has no group; fill it in")
    return numbered(found)


def _fingerprint(part: Opened, images: tuple[str, ...]) -> str:
    """A hash that changes with the images: of the table, or a sample of it, and of the sizes of files it names."""
    data = part.data
    digest = hashlib.sha256()
    if not part.fingerprint:
        digest.update(f"{len(data)} {data.features}".encode())
        for row in np.unique(np.linspace(0, len(data) - 1, min(64, len(data))).astype(int)):
            digest.update(str([data[int(row)][column] for column in images]).encode())
    named = [c for c in images if _names_files(data, c)]
    for column in named:
        for name in cells(data, column):
            digest.update(f"{name}\0{bytes_of(part.root / str(name))}\n".encode())
    return digest.hexdigest() if named or not part.fingerprint else part.fingerprint


def _names_files(data: datasets.Dataset, column: str) -> bool:
    feature = data.features[column]
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def _holds_images(data: datasets.Dataset, column: str) -> bool:
    feature = data.features[column]
    if isinstance(feature, datasets.Image):
        return True
    if isinstance(feature, dict):
        return "bytes" in feature
    if not isinstance(feature, datasets.Value):
        return False
    if feature.dtype in ("binary", "large_binary"):
        return True
    if not _names_files(data, column):
        return False
    some = next((v for v in data[:100][column] if v), "")
    return Path(some).suffix.lower() in SUFFIXES


def image_columns(data: datasets.Dataset, wanted: str | None, place: str) -> tuple[str, ...]:
    """The columns that were named, or the only one that can hold images.

    Raises:
        UserError: For a column that does not exist or holds no images, and where there is none or a choice.
    """
    candidates = [c for c in data.column_names if _holds_images(data, c)]
    if wanted is not None:
        columns = named_columns(wanted, data, place)
        for column in columns:
            if column not in candidates and not _names_files(data, column):
                raise UserError(f"column {column} in {place} holds no images but {data.features[column]}")
        return tuple(columns)
    usual = next((name for name in _FILE_COLUMNS if name in candidates), None)
    if usual is not None:
        if len(candidates) > 1:
            others = ", ".join(c for c in candidates if c != usual)
            say_once(
                f"note: column {usual} of {place} holds the images; {others} could too (--data.image_column "
                f"{usual},{others.replace(' ', '')} makes them channels of one image)"
            )
        return (usual,)
    if len(candidates) != 1:
        state = "several columns with images" if candidates else "no column with images"
        raise UserError(
            f"{place} has {state}; columns: {columns_of(data)}. Name one with --data.image_column "
            "(--eval.data.image_column), or several joined by commas that are channels of one image"
        )
    return (candidates[0],)
