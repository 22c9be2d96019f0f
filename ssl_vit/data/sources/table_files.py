"""Tables of images: parquet, arrow, csv, jsonl, what save_to_disk wrote, and datasets.Dataset objects.

An image is a cell of bytes, of {bytes, path} as Hugging Face stores it, or the name of a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import datasets
import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.configs.paths import folders
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import MOST
from ssl_vit.data.images import evenly
from ssl_vit.data.sources.folder import SUFFIXES, NoImageColumn, bytes_of, image_bytes
from ssl_vit.data.sources.labels import cells, columns_of, named_columns, read_labels
from ssl_vit.data.sources.part import SPLITS, Part, described, judged_splits
from ssl_vit.data.sources.readers import first_line, read_table
from ssl_vit.data.sources.remote import File, Place

_FILE_COLUMNS = ("image", "img", "file_name", "filename", "file", "path", "image_path", "filepath", "image_file")
_PADDED = re.compile(r"0+[0-9]+")
"""Text that loses its zeros where it is read as a number."""


@dataclass(frozen=True)
class _TableRows:
    dataset: datasets.Dataset
    columns: tuple[str, ...]
    roots: tuple[Place, ...]
    name: str
    table: tuple[str, ...]
    """All columns of the table that the images are from."""
    most: int
    """``--data.max_pixels``, which bounds files, too."""

    def __len__(self) -> int:
        return len(self.dataset)

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        return image_in(self.dataset[row], self.columns, self.roots, self.most)

    def where(self, row: int) -> str:
        """Table and row, and the file where the table only names one."""
        cell = self.dataset[row][self.columns[0]]
        return f"{self.name} row {row}" + (f" ({cell})" if isinstance(cell, str) else "")

    def file(self, row: int) -> str | None:
        """The file that the table names, where it names one and no more."""
        cell = self.dataset[row][self.columns[0]] if len(self.columns) == 1 else None
        return str(found_in(self.roots, cell)) if isinstance(cell, str) else None

    def called(self, row: int) -> str | None:
        """The name that is kept beside an image's bytes."""
        cell = self.dataset[row][self.columns[0]]
        return cell.get("path") if isinstance(cell, dict) else None


def found_in(roots: tuple[Place, ...], name: str) -> Path:
    """Where a file lies: in the first folder that has it, else where it should be in the first of all."""
    places = [root / name for root in roots]
    return next((place for place in places if place.is_file()), places[0]) if len(places) > 1 else places[0]


def image_in(
    row: Mapping[str, Any], columns: tuple[str, ...], roots: tuple[Place, ...], most: int
) -> bytes | tuple[bytes, ...]:
    """An image's bytes, of several columns those of its channels; a cell that only names a file reads that file."""
    found = []
    for cell in (row[column] for column in columns):
        held, name = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, cell)
        held = cell if isinstance(cell, bytes) else held
        found.append(held if held is not None else image_bytes(found_in(roots, name), most) if name else b"")
    return found[0] if len(found) == 1 else tuple(found)


@dataclass(frozen=True)
class Opened:
    """One split's table, and what the table does not know of itself."""

    data: datasets.Dataset
    title: str
    """What it is called in messages."""
    roots: tuple[Place, ...] = (Path(),)
    """Where relative file names may start."""
    fingerprint: str = ""
    """Hash of its files; empty: of size, columns and a sample of rows."""

    def split(self, name: str, rows: np.ndarray) -> Opened:
        """One split of it."""
        digest = hashlib.sha256(f"{self.fingerprint} {name}".encode() + rows.astype(np.int64).tobytes()).hexdigest()
        return replace(self, data=self.data.select(rows), title=f"{self.title} ({name})", fingerprint=digest)

    def part(self, images: tuple[str, ...], most: int) -> Part:
        """Its images."""
        pictures, beside = self.data.select_columns(list(images)), tuple(self.data.column_names)
        rows = _TableRows(pictures, images, self.roots, self.title, beside, most)
        return Part(rows, self.fingerprint)


def open_tables(files: Mapping[str, Sequence[Path]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Table files of every split."""
    datasets.disable_progress_bars()
    splits = {}
    for name, part in files.items():
        folder = part[0].parent
        title = part[0].name if len(part) == 1 else f"{folder} ({name})"
        table = fitted([undecoded(read_table(file)) for file in part], folder)
        splits[name] = Opened(table, title, (folder, *folders(cfg.root)), print_of(part))
    only = files.get("all", [])
    place = str(only[0] if len(only) == 1 else next(iter(files.values()))[0].parent)
    return _whole_tables(splits, cfg, labelled=labelled, place=place)


def print_of(files: Sequence[File]) -> str:
    """Fingerprint of some files: their names and sizes."""
    return hashlib.sha256("".join(f"{f.name}\0{f.stat().st_size}\0" for f in files).encode()).hexdigest()


def fitted(tables: list[datasets.Dataset], folder: Place) -> datasets.Dataset:
    """The tables of a folder's files as one."""
    try:
        return datasets.concatenate_datasets(tables) if len(tables) > 1 else tables[0]
    except ValueError as error:
        raise UserError(f"the files of {folder} do not fit together: {first_line(error)}") from error


def open_datasets(
    tables: Mapping[str, datasets.Dataset], cfg: SourceConfig, *, labelled: bool, place: str
) -> dict[str, Part]:
    """Tables that are already open, by split name."""
    titles = {name: place if name == "all" else f"{place} ({name})" for name in tables}
    splits = {name: Opened(undecoded(data), titles[name]) for name, data in tables.items()}
    return _whole_tables(splits, cfg, labelled=labelled, place=place)


def _whole_tables(splits: Mapping[str, Opened], cfg: SourceConfig, *, labelled: bool, place: str) -> dict[str, Part]:
    images = image_columns(next(iter(splits.values())).data, cfg.image_column, place)
    for name, part in splits.items():
        lacking = [c for c in images if c not in part.data.column_names]
        if lacking:
            raise UserError(f"split {name} in {place} has no column {lacking[0]}; its columns: {columns_of(part.data)}")
        if not len(part.data):
            raise UserError(f"split {name} in {place} has no rows")
    splits = {name: replace(part, fingerprint=_fingerprint(part, images)) for name, part in splits.items()}
    return parts_of(splits, images, cfg, labelled=labelled, place=place)


def parts_of(
    splits: Mapping[str, Opened], images: tuple[str, ...], cfg: SourceConfig, *, labelled: bool, place: str
) -> dict[str, Part]:
    """Columns of open tables as images, labels and groups; groups in a pool too, because mistakes should not wait.

    A single table is taken apart by its column ``split``, else by the folders that its files lie in.
    """
    if len(splits) == 1:
        (whole,) = splits.values()
        apart = split_column(whole.data, whole.title) or _split_folders(whole.data, images)
        splits = {name: whole.split(name, rows) for name, rows in apart.items()} or splits
    tables = {name: splits[name].data for name in judged_splits(splits, cfg)}
    labels = read_labels(tables, cfg, place, images) if labelled else None
    groups = {name: groups_of(data, cfg.group, place) for name, data in tables.items()} if cfg.group else {}
    _check_groups(groups, f"column {cfg.group} in {place}")
    most = cfg.max_pixels or MOST
    return described({name: opened.part(images, most) for name, opened in splits.items()}, labels, groups)


def undecoded(data: datasets.Dataset) -> datasets.Dataset:
    """The same table with image cells as bytes instead of pictures, whatever format it was set to."""
    data = data.with_format(None)
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            data = data.cast_column(column, datasets.Image(decode=False))
    return data


def split_column(data: datasets.Dataset, title: str) -> dict[str, np.ndarray]:
    """Rows by what a column ``split`` says; empty where there is none, or one that has nothing to do with splits.

    Options have no say in it, so that pre-training and evaluation see the same splits.

    Args:
        data: The table.
        title: What it is called in messages.

    Raises:
        UserError: For a row that names none where others do.
    """
    if "split" not in data.column_names or not _names_files(data, "split"):
        return {}
    values = [(v or "").strip() for v in cells(data, "split")]
    names = np.array([SPLITS.get(v.lower(), v) for v in values])
    if len(set(names)) < 2 or not set(names) & set(SPLITS.values()):
        return {}
    if "" in values:
        raise UserError(f"row {values.index('')} of column split in {title} names no split; fill it in")
    return {name: np.flatnonzero(names == name) for name in sorted(set(names.tolist()))}


def _split_folders(data: datasets.Dataset, images: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Rows by the folder that their file's name begins with, where each is one of several splits; else nothing."""
    column = next(iter(images))
    if len(images) > 1 or column not in data.column_names or not _names_files(data, column):
        return {}

    def split(name: object) -> str:
        folder, _, file = str(name).replace("\\", "/").removeprefix("./").partition("/")
        return SPLITS.get(folder.lower(), "") if file else ""

    if not split(data[0][column]):  # of a million names the first tells
        return {}
    names = np.array([split(name) for name in cells(data, column)])
    found = set(names.tolist())
    if "train" not in found or "" in found or len(found) < 2:
        return {}
    return {name: np.flatnonzero(names == name) for name in sorted(found)}


def _check_groups(groups: Mapping[str, Sequence[object]], what: str) -> None:
    """Refuses numbers in one split beside text in another that a number may have lost its zeros of."""
    numbers = any(isinstance(v, int) for values in groups.values() for v in values)
    padded = next(
        (v for values in groups.values() for v in values if isinstance(v, str) and _PADDED.fullmatch(v)), None
    )
    if numbers and padded is not None:
        raise UserError(
            f"{what} is numbers in one file and text in another, where {padded} and {int(padded)} may be one group; "
            "write it alike in both, for example p17"
        )


def groups_of(data: datasets.Dataset, column: str, place: str) -> list[object]:
    """The values of ``--data.group``.

    Args:
        data: The table.
        column: What the option names.
        place: What the table is called in messages.

    Raises:
        UserError: For several columns, and for a row without a group.
    """
    named = named_columns(column, data, place)
    if len(named) > 1:
        raise UserError(f"--data.group {column} names {len(named)} columns of {place}; give one")
    found = cells(data, named[0])
    empty = next((i for i, v in enumerate(found) if v is None or not str(v).strip() or v != v), None)
    if empty is not None:
        raise UserError(f"row {empty} of column {column} in {place} has no group; fill it in")
    return found


def _fingerprint(part: Opened, images: tuple[str, ...]) -> str:
    """A hash that changes with the images: of the table, or a sample of it, and of the sizes of files it names."""
    data = part.data
    digest = hashlib.sha256()
    if not part.fingerprint:
        digest.update(f"{len(data)} {data.features}".encode())
        for row in evenly(len(data), 64):
            digest.update(str([data[int(row)][column] for column in images]).encode())
    named = [c for c in images if _names_files(data, c)]
    for column in named:
        names = [str(name) for name in cells(data, column)]
        files = [found_in(part.roots, name) for name in names]
        sizes = [bytes_of(file) for file in files]
        _say_where(part, column, names, files, sizes)
        for name, size in zip(names, sizes, strict=True):
            digest.update(f"{name}\0{size}\n".encode())
    return digest.hexdigest() if named or not part.fingerprint else part.fingerprint


def _say_where(part: Opened, column: str, names: list[str], files: list[Path], sizes: list[int]) -> None:
    """Where the files of a column were looked for, unless all lie beside the table; UserError where none was found."""
    lost = [name for name, size in zip(names, sizes, strict=True) if size < 0]
    if not lost and len(part.roots) == 1:
        return
    found = [(name, file) for name, file, size in zip(names, files, sizes, strict=True) if size >= 0]
    there = [sum(file == root / name for name, file in found) for root in part.roots]
    if there[0] == len(names):
        return
    told = ", ".join(f"{n:,} found in {root}" for n, root in zip(there, part.roots, strict=True))
    what = f"column {column} of {part.title} names {len(names):,} files"
    some = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
    if len(lost) == len(names):
        looked = " and ".join(map(str, part.roots))
        beside = sorted(folder for root in part.roots if isinstance(root, Path) for folder in root.glob("*"))
        holds = next((f for f in beside if any(bytes_of(f / name) >= 0 for name in lost[:3])), None)
        where = (
            "Where names begin is said by --data.root FOLDER (--eval.data.root), another column by --data.image_column"
            if holds is None
            else f"{holds} holds them: add --data.root {quote(str(holds))} (--eval.data.root)"
        )
        raise UserError(f"{what}, and none is there: {some} (looked in {looked}). {where}")
    say_once(f"note: {what}: {told}" + (f"; {len(lost):,} are not there: {some}" if lost else ""))


def _names_files(data: datasets.Dataset, column: str) -> bool:
    feature = data.features[column]
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def holds_images(data: datasets.Dataset, column: str) -> bool:
    """Whether a column can hold images: bytes, or names of image files."""
    feature = data.features[column]
    if _names_files(data, column):
        some = next((v for v in data[:100][column] if v), "")
        return Path(some).suffix.lower() in SUFFIXES
    return (
        isinstance(feature, datasets.Image)
        or (isinstance(feature, dict) and "bytes" in feature)
        or (isinstance(feature, datasets.Value) and feature.dtype in ("binary", "large_binary"))
    )


def image_columns(data: datasets.Dataset, wanted: str | None, place: str) -> tuple[str, ...]:
    """The columns that were named, or the only one that can hold images."""
    candidates = [c for c in data.column_names if holds_images(data, c)]
    if wanted is not None:
        columns = named_columns(wanted, data, place)
        for column in columns:
            if column not in candidates and not _names_files(data, column):
                raise UserError(f"column {column} in {place} holds no images but {data.features[column]}")
        return tuple(columns)
    usual = next((name for name in _FILE_COLUMNS if name in candidates), None)
    if usual is None and len(candidates) != 1:
        state = "several columns with images" if candidates else "no column with images"
        raise (UserError if candidates else NoImageColumn)(
            f"{place} has {state}; columns: {columns_of(data)}. Name one with --data.image_column "
            "(--eval.data.image_column), or several joined by commas that are channels of one image"
        )
    if usual is not None and len(candidates) > 1:
        others = ", ".join(c for c in candidates if c != usual)
        say_once(
            f"note: column {usual} of {place} holds the images; {others} could too (--data.image_column "
            f"{usual},{others.replace(' ', '')} makes them channels of one image)"
        )
    return (usual or candidates[0],)
