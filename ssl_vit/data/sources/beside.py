"""Images in files, and a table beside them that names some of these files with their labels (``--data.labels``)."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
from jaxtyping import Int

from ssl_vit.configs import SourceConfig
from ssl_vit.configs.paths import check_table, folders
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import Raw
from ssl_vit.data.images import Rows
from ssl_vit.data.sources.folder import SUFFIXES, NoGroup
from ssl_vit.data.sources.labels import cells, named_columns, no_column, read_labels
from ssl_vit.data.sources.part import Labels, Part, described, file_of, given, scattered
from ssl_vit.data.sources.readers import read_table
from ssl_vit.data.sources.table_files import groups_of, split_column


@dataclass(frozen=True)
class SomeRows:
    """Some rows of a source."""

    rows: Rows
    chosen: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.chosen)

    def raw(self, row: int) -> Raw:
        """What the source has."""
        return self.rows.raw(int(self.chosen[row]))

    def where(self, row: int) -> str:
        """What the source says."""
        return self.rows.where(int(self.chosen[row]))

    def file(self, row: int) -> str | None:
        """What the source says."""
        return file_of(self.rows, int(self.chosen[row]))


def open_beside(
    cfg: SourceConfig, images: Callable[[SourceConfig], dict[str, Part]], *, labelled: bool
) -> dict[str, Part]:
    """Every split of a source of files, with the labels that a table has for them; images it does not name have none.

    A column ``split`` of the table takes images apart that have no splits of their own; what it does not name is then
    to train on. Where ``--data.group`` is a column, such images are groups of their own.

    Args:
        cfg: The source; ``labels`` names the table, whose columns ``label_column``, ``target`` and ``group`` are of.
        images: Opens the same source without its labels.
        labelled: Whether labels are asked for.

    Raises:
        UserError: For a table that cannot be read, names no image of the source, or one of them twice in two ways.
    """
    file = check_table("--data.labels", cfg.labels or "")
    datasets.disable_progress_bars()
    table = read_table(file)
    of_table = cfg.group in table.column_names
    try:
        found = images(replace(cfg, labels=None, label_column=None, target=None, group=None if of_table else cfg.group))
    except NoGroup as error:
        raise UserError(f"{error}. If it means a column: {no_column(str(cfg.group), table, file.name)}") from error
    files = {split: [file_of(part.rows, i) for i in range(len(part.rows))] for split, part in found.items()}
    known = [_whole(path) for paths in files.values() for path in paths if path is not None]
    if len(known) < sum(map(len, files.values())):
        raise UserError(
            f"--data.labels {file} names labels of image files, but {cfg.path} keeps images otherwise; put labels in a "
            "column of it"
        )
    column, at = _matched(table, file, known, cfg)
    where = dict(zip(found, np.split(at, np.cumsum([len(paths) for paths in files.values()])[:-1]), strict=True))
    if list(found) == ["all"] and (named := split_column(table, file.name)):
        found, where = _taken_apart(found["all"], at, named)
    labels = read_labels({"all": table}, cfg, str(file), (column,)) if labelled else None
    groups: dict[str, list[object]] = {}
    if cfg.group is not None and of_table:
        names = groups_of(table, cfg.group, str(file))
        groups = {
            split: [names[row] if row >= 0 else part.rows.where(i) for i, row in enumerate(where[split])]
            for split, part in found.items()
        }  # fmt: skip
    return described(found, None if labels is None else _joined(labels, where, file), groups)


def _joined(labels: Labels, where: dict[str, np.ndarray], file: Path) -> Labels:
    """Labels of a table's rows as labels of the images that ``where`` says have one."""
    whole = labels.values["all"]
    hit = {split: np.flatnonzero(rows >= 0) for split, rows in where.items()}
    values = {s: scattered(whole[rows[hit[s]]], hit[s], len(rows), labels.kind) for s, rows in where.items()}
    if not any(given(found).any() for found in values.values()):
        raise UserError(f"of the images that {file} names none has a label ({labels.origin})")
    return labels._replace(values=values)


def _taken_apart(
    part: Part, at: np.ndarray, named: dict[str, np.ndarray]
) -> tuple[dict[str, Part], dict[str, np.ndarray]]:
    """The splits that a column of the table says; images that it does not name are to train on."""
    split = np.full(len(at), "train", dtype=object)
    for name, rows in named.items():
        split[np.isin(at, rows)] = name
    found, where = dict[str, Part](), dict[str, np.ndarray]()
    for name in sorted(set(split.tolist())):
        chosen = np.flatnonzero(split == name)
        digest = hashlib.sha256(f"{part.fingerprint} {name}".encode() + chosen.tobytes()).hexdigest()
        groups = None if part.groups is None else part.groups[chosen]
        found[name] = replace(part, rows=SomeRows(part.rows, chosen), fingerprint=digest, groups=groups)
        where[name] = at[chosen]
    return found, where


_ALONE = "by the file's name alone"


class _Match(NamedTuple):
    """What the names in a column are among the images."""

    rows: Int[np.ndarray, " t"]
    """The image of every name; -1 where there is none."""
    places: Counter[str]
    """How many were found where."""
    whole: int
    """How many of these names end as image files do."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """How surely these are the names of images.

        A row's number may match 1.png, 2.png, 3.png by the name alone, and so may a column of classes; names have a
        place or an ending, and are different everywhere.
        """
        placed = sum(count for place, count in self.places.items() if place != _ALONE)
        return placed, self.whole, len(np.unique(self.rows[self.rows >= 0]))


def _matched(table: datasets.Dataset, file: Path, known: list[str], cfg: SourceConfig) -> tuple[str, np.ndarray]:
    """The column that names images, and for each image the row of the table that names it, or -1."""
    wanted = cfg.image_column if cfg.image_column in table.column_names or Path(cfg.path or "").is_dir() else None
    texts = [c for c, f in table.features.items() if getattr(f, "dtype", "") in ("string", "large_string", "int64")]
    candidates = texts if wanted is None else named_columns(wanted, table, str(file))
    source = Path(cfg.path or "").expanduser()
    places = {
        "beside the table": file.parent, f"in {source}": source if source.is_dir() else source.parent,
        **{f"in {folder}": folder for folder in folders(cfg.root)},
    }  # fmt: skip
    finder = _Finder(known, places)
    names = {column: [str(value) for value in cells(table, column)] for column in candidates}
    found = {column: finder.find(values) for column, values in names.items()}
    column = max(found, key=lambda c: found[c].rank, default=None)
    if column is None or not (found[column].rows >= 0).any():
        some = ", ".join(f"{c} ({', '.join(values[:2])})" for c, values in names.items())
        raise UserError(
            f"{file} names no image of {cfg.path}: its columns are {some or ', '.join(table.column_names)}, and images "
            f"are called {Path(known[0]).name} (looked {', '.join(places)}, and for the file's name alone). "
            f"--data.root FOLDER says where names begin; images that are not in {cfg.path}: --eval.data.path {file}"
        )
    rows, count = found[column].rows, found[column].places
    same = [c for c in found if found[c].rank == found[column].rank and (found[c].rows != rows).any()]
    if same:
        raise UserError(
            f"in {file} both {column or 'the column without a name'} and {same[0] or 'the column without a name'} may "
            f"name images, and they name different ones; say which with --data.image_column"
        )
    lost = [name for name, row in zip(names[column], rows, strict=True) if row < 0]
    told = ", ".join(f"{n:,} found {place}" for place, n in count.items() if n)
    some = f"; {len(lost):,} are no images there: {', '.join(lost[:3])}{', ...' * (len(lost) > 3)}" if lost else ""
    say_once(f"note: column {column} of {file} names {len(rows):,} images: {told}{some}")
    at = np.full(len(known), -1, dtype=np.int64)
    for row, image in enumerate(rows.tolist()):
        if image >= 0 and at[image] >= 0 and table[int(at[image])] != table[row]:
            raise UserError(
                f"rows {at[image]} and {row} of {file} both name {known[image]}, and differ; keep one of them"
            )
        if image >= 0:
            at[image] = row
    return column, at


def _composed(name: str) -> str:
    """With letters and their accents as one sign: some systems write file names as two."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _whole(path: str | Path) -> str:
    return os.path.normpath(Path(path).absolute())


class _Finder:
    """Looks for names of images where they may begin, and at last by the file's name alone."""

    def __init__(self, known: list[str], places: dict[str, Path]) -> None:
        self.rows = {_composed(path): row for row, path in enumerate(known)}
        self.places = {words: Path(_whole(folder)) for words, folder in places.items()}
        self.alone: dict[str, int] = {}
        for path, row in self.rows.items():
            name, stem = Path(path).name, Path(path).stem
            for short in {name, stem, str(int(stem)) if stem.isdecimal() else stem}:  # a table may have 3 for 003.png
                self.alone[short] = row if short not in self.alone else -1  # of two images of one name none is meant

    def find(self, names: list[str]) -> _Match:
        """The images that some names mean."""
        count = Counter(dict.fromkeys((*self.places, _ALONE), 0))
        rows = np.full(len(names), -1, dtype=np.int64)
        for i, name in enumerate(names):
            rows[i], words = self._placed(name)
            count[words] += int(rows[i] >= 0)
        left, taken = np.flatnonzero(rows < 0).tolist(), set(rows[rows >= 0].tolist())
        meant = {i: self._alone(names[i], strictly=bool(taken)) for i in left}
        said: dict[int, set[str]] = {}
        for i, row in meant.items():
            said.setdefault(row, set()).add(names[i])
        for i, row in meant.items():
            # Not where another name has a place, or two files of one name are told apart by their folders.
            if row >= 0 and row not in taken and len(said[row]) == 1:
                rows[i] = row
                count[_ALONE] += 1
        ends = [Path(name).suffix.lower() in SUFFIXES for name in names]
        return _Match(rows, count, int((np.array(ends, dtype=bool) & (rows >= 0)).sum()))

    def _placed(self, name: str) -> tuple[int, str]:
        name = _composed(name)
        for words, folder in self.places.items():
            if (row := self.rows.get(_composed(os.path.normpath(folder / name)))) is not None:
                return row, words
        return -1, _ALONE

    def _alone(self, name: str, *, strictly: bool) -> int:
        """``strictly`` is where other names have places: one that begins with a folder then has none."""
        short = Path(_composed(name).replace("\\", "/"))
        if strictly and len(short.parts) > 1:
            return -1
        stem = short.stem if short.suffix.lower() in SUFFIXES else ""
        return self.alone.get(short.name, self.alone.get(stem, -1))
