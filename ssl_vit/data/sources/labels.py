"""From columns of a table to labels: one class, several labels or numbers per image; says which row is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.data.sources.part import Labels, scattered
from ssl_vit.data.targets import Kind

_USUAL = ("label", "labels", "class", "target", "fine_label", "category", "cls")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_NONE = {"NA", "N/A", "n/a", "NaN", "nan", "null", "None"}
"""What programs write where a cell is empty; somebody's class may be called so."""
_COMMA = re.compile(r"[-+]?\d+(,\d+)?")
_FRACTION = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
_LISTS = (list, datasets.LargeList, getattr(datasets, "List", datasets.Sequence))  # before datasets 4: Sequence
_BETWEEN = re.compile(r"\s*[;|,]\s*")
_OTHER = re.compile(
    r"^(id|idx|index|fold|split|unnamed.*)$|(^|[_ ])(patient|slide|scene|subject|case|donor|sample|image|file)"
    r"([_ ]?(id|idx|index|no|nr|number|name|path))?$",
    re.IGNORECASE,
)
"""Names of columns that tell images apart, and are no labels unless somebody says so."""

_Found = tuple[np.ndarray, tuple[str, ...], Kind]
"""One row per image of all splits; names; kind."""


class _Column(NamedTuple):
    """A column of all splits, one after another."""

    name: str
    place: str
    cells: list[Any]
    rows: list[int]
    """Where in its split each cell stands."""

    def __str__(self) -> str:
        return f"column {self.name} in {self.place}"

    def refuse(self, wrong: Callable[[Any], bool], problem: str) -> None:
        for row, cell in zip(self.rows, self.cells, strict=True):
            if wrong(cell):
                raise UserError(f"row {row} of {self} {problem.format(cell)}")


def columns_of(data: datasets.Dataset) -> str:
    """Names of all columns, for messages."""
    return ", ".join(data.column_names)


def cells(data: datasets.Dataset, column: str) -> list[Any]:
    """The values of a column; decimals, which databases export, as plain numbers."""
    values = data.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    return [float(value) if isinstance(value, Decimal) else value for value in values]


def no_column(name: str, data: datasets.Dataset, place: str) -> str:
    """What messages say of a column that is not there."""
    return f"{place} has no column {name}{did_you_mean(name, data.column_names)}; columns: {columns_of(data)}"


def named_columns(given: str, data: datasets.Dataset, place: str) -> list[str]:
    """The columns of a comma-separated option."""
    known, wanted = data.column_names, [word.strip() for word in given.split(",") if word.strip()]
    if given in known:
        wanted = [given]
    for name in wanted:
        if name not in known:
            raise UserError(no_column(name, data, place))
    if not wanted or len(set(wanted)) < len(wanted):
        raise UserError(f"{given!r} names no column of {place}, or one of them twice; columns: {columns_of(data)}")
    return wanted


def read_labels(
    splits: dict[str, datasets.Dataset], cfg: SourceConfig, place: str, images: tuple[str, ...]
) -> Labels | None:
    """The labels of a table's splits; None where no column looks like labels and none was named."""
    first = next(iter(splits.values()))
    names, why = _label_columns(splits, cfg, place, images)
    if not names:
        return None
    for split, data in splits.items():
        for name in names:
            if name not in data.column_names:
                raise UserError(f"split {split} in {place} has no column {name}; its columns: {columns_of(data)}")
            if not _alike(data.features[name], first.features[name]):
                raise UserError(f"the splits in {place} disagree on the classes of column {name}")
    rows = [row for data in splits.values() for row in range(len(data))]
    columns = [_Column(name, place, [v for d in splits.values() for v in cells(d, name)], rows) for name in names]
    feature = first.features[names[0]]
    lines = zip(*(column.cells for column in columns), strict=True)
    whole = ~np.array([all(map(_missing, line)) for line in lines], dtype=bool)
    if not whole.any():
        raise UserError(f"{columns[0]} is empty in every row; name another with --data.label_column")
    columns = [c._replace(cells=[*compress(c.cells, whole)], rows=[*compress(c.rows, whole)]) for c in columns]
    if len(names) > 1:
        values, classes, kind = _several(columns, cfg.target)
    elif isinstance(feature, _LISTS):
        values, classes, kind = _lists(columns[0], _inner(feature), cfg.target)
    elif isinstance(feature, (datasets.ClassLabel, datasets.Value)):
        values, classes, kind = _single(columns[0], feature, cfg.target)
    else:
        raise UserError(f"{columns[0]} holds {feature}, not one class per image")
    values = values if whole.all() else scattered(values, np.flatnonzero(whole), len(whole), kind)
    parts = np.split(values, np.cumsum([len(data) for data in splits.values()])[:-1])
    told = f"column{'s' * (len(names) > 1)} {', '.join(names)} of {Path(place).name or place}{why}"
    return Labels({split: part.copy("K") for split, part in zip(splits, parts, strict=True)}, classes, kind, told)


def _inner(feature: Any) -> Any:
    """What lists hold."""
    return feature[0] if isinstance(feature, list) else feature.feature


def _alike(one: Any, other: Any) -> bool:
    """Whether values of two splits can be compared: the same classes, or numbers in both, or text in both."""
    if isinstance(one, _LISTS) and isinstance(other, _LISTS):
        return _alike(_inner(one), _inner(other))
    if isinstance(one, datasets.Value) and isinstance(other, datasets.Value):
        return "null" in (one.dtype, other.dtype) or ("string" in one.dtype) == ("string" in other.dtype)
    return one == other


def _label_columns(
    splits: dict[str, datasets.Dataset], cfg: SourceConfig, place: str, images: tuple[str, ...]
) -> tuple[list[str], str]:
    """The columns that were named, that are called so, or the only one that can hold labels; and why, in words."""
    data = next(iter(splits.values()))
    if cfg.label_column is not None:
        columns = named_columns(cfg.label_column, data, place)
        both = [c for c in columns if c in images]
        if both:
            raise UserError(f"column {both[0]} in {place} is named as image and as label; it can be only one of them")
        return columns, ""
    usual = [name for name in _USUAL if name in data.column_names and name not in images]
    if usual:
        _agree(splits, usual, place)
        return usual[:1], ""
    declared = [c for c, f in data.features.items() if isinstance(f, datasets.ClassLabel)]
    if len(declared) == 1:
        return declared, ""
    others = [c for c in data.column_names if c not in (*images, cfg.group) and not _OTHER.search(c)]
    able = {c: _able(data, c) for c in others}
    classes, numbers = ([c for c, some in able.items() if some and some.measured == which] for which in (False, True))
    if len(classes) == 1 or (not classes and len(numbers) == 1):
        return classes or numbers, ", the only one that can hold labels"
    if not classes + numbers:
        if cfg.labels is not None:
            raise UserError(
                f"no column of {place} looks like labels, whose values several images share: "
                f"{_first_cells(data, others)}. Name one: --data.label_column COLUMN (--eval.data.label_column)"
            )
        return [], ""
    listed = "; ".join(f"{c} ({', '.join(some.examples)})" for c in classes + numbers if (some := able[c]))
    raise UserError(
        f"{len(classes + numbers)} columns of {place} can hold labels: {listed}. Name one: --data.label_column "
        f"{(classes + numbers)[0]} (--eval.data.label_column)"
    )


def _first_cells(data: datasets.Dataset, columns: list[str]) -> str:
    """Columns with what stands in their first rows."""
    told = [
        f"{column} ({', '.join(map(str, cells(data.select(range(min(3, len(data)))), column)))})" for column in columns
    ]
    return "; ".join(told) or "it has none but names"


class _Able(NamedTuple):
    """A column that can hold labels."""

    examples: list[str]
    measured: bool = False
    """Whether they are numbers with fractions."""


def _able(data: datasets.Dataset, column: str) -> _Able | None:
    """What stands in a column that can hold labels: values that are not all alike, and not all of one image."""
    feature = data.features[column]
    if isinstance(feature, datasets.ClassLabel):
        return _Able(feature.names[:3])
    if not isinstance(feature, datasets.Value) or feature.dtype in ("null", "binary", "large_binary"):
        return None
    values = data.select_columns([column]).with_format("arrow")[:][column].drop_null()
    if feature.dtype.startswith("float"):
        known = values.to_numpy()
        known = known[np.isfinite(known)]
        if (known % 1).any():
            return _Able([f"{v:.4g}" for v in known[:3]], measured=True) if np.ptp(known) else None
    counts = values.value_counts()
    if len(counts) > len(values) // 2 + 1:  # one of them may say that there is no label
        return None
    known = sorted((c for c in counts.to_pylist() if not _missing(c["values"])), key=lambda c: -c["counts"])
    several = 2 <= len(known) <= sum(c["counts"] for c in known) / 2
    return _Able([str(c["values"]) for c in known[:3]]) if several else None


def _agree(splits: dict[str, datasets.Dataset], columns: list[str], place: str) -> None:
    """Two columns that both look like the label must say the same in every row of every split."""
    for other in columns[1:]:
        pairs: dict[str, str] = {}
        for data in splits.values():
            if not {columns[0], other} <= set(data.column_names):
                continue
            first, second = (map(str, cells(data, column)) for column in (columns[0], other))
            for row, (a, b) in enumerate(zip(first, second, strict=True)):
                if {a.strip(), b.strip()} & {"", "None", "nan"}:  # without a label in one of them
                    continue
                if pairs.setdefault(a, b) != b:
                    raise UserError(
                        f"columns {columns[0]} and {other} in {place} contradict each other (row {row}: {a} with {b}, "
                        f"earlier with {pairs[a]}); name the labels with --data.label_column "
                        "(--eval.data.label_column)"
                    )


def _missing(value: Any) -> bool:
    """Whether a cell says that there is no label."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _complete(column: _Column) -> None:
    column.refuse(_missing, "has no label, but its other columns have; fill it in, or empty them all")
    column.refuse(_infinite, "is infinite; correct or remove it")


def _fractions(column: _Column) -> list[float]:
    return [v for v in column.cells if isinstance(v, float) and not v.is_integer()]


def _numbering(column: _Column, feature: Any) -> tuple[dict[Any, int], tuple[str, ...]]:
    """Numbers of the classes by value, and their names; refuses numbers that can be no class."""
    column.refuse(
        lambda v: isinstance(v, (int, float)) and v < 0,
        "has the label {}; classes start at 0, and a cell without a label is empty",
    )
    if isinstance(feature, datasets.ClassLabel):
        known = len(feature.names)
        column.refuse(lambda v: v >= known, f"has the label {{}}, but only 0 to {known - 1} have names")
        return {i: i for i in range(known)}, tuple(feature.names)
    found = sorted(set(column.cells), key=lambda v: (isinstance(v, str), v))
    return {value: i for i, value in enumerate(found)}, tuple(map(str, found))


def _single(column: _Column, feature: Any, target: str | None) -> _Found:
    """A column of one value per image."""
    _complete(column)
    column = column._replace(cells=_plain(column.cells))
    fractions = _fractions(column)
    if target == "multilabel":
        return _separated(column)
    if target == "regression" or (target is None and fractions):
        return _numbers([_as_numbers(column)])
    if not isinstance(feature, datasets.ClassLabel):
        column = column._replace(cells=[int(v) if isinstance(v, float) and v.is_integer() else v for v in column.cells])
    number, names = _numbering(column, feature)
    if fractions:
        raise UserError(
            f"{column} holds fractions ({fractions[0]:g}), not classes; numbers to predict are --data.target regression"
        )
    # A column of fractions becomes text by one cell such as "n/a", and every number a class of its own.
    values = [v for v in column.cells if isinstance(v, str)]
    words = [v for v in values if not _FRACTION.fullmatch(v.strip())]
    if words and len(words) < 0.2 * len(values):
        raise UserError(
            f"{column} holds {words[0]!r} among numbers; correct or remove that row, or name classes by words "
            "throughout"
        )
    return np.array([number[v] for v in column.cells], dtype=np.int64), names, "class"


def _plain(values: list[Any]) -> list[Any]:
    """Text without blanks around it; as numbers where all are numbers with fractions, as one blank cell makes text."""
    if not all(isinstance(v, str) for v in values):
        return [v.strip() if isinstance(v, str) else v for v in values]
    texts = [v.strip() for v in values]
    if any(_FRACTION.fullmatch(v) for v in texts) and all(_NUMBER.fullmatch(v) for v in texts):
        return [float(v) for v in texts]
    if lacking := sum(v in _NONE for v in texts):
        say_once(
            f"note: {lacking:,} cell(s) say {next(v for v in texts if v in _NONE)}, which counts as a class; an image "
            "without a label has an empty cell"
        )
    return texts


def _as_numbers(column: _Column) -> _Column:
    """Text as numbers where all of it is: one blank cell makes text of a column, decimal commas of every one."""
    texts = [v.strip() if isinstance(v, str) else "" for v in column.cells]
    if all(map(_COMMA.fullmatch, texts)):
        texts = [v.replace(",", ".") for v in texts]
    return column._replace(cells=[*map(float, texts)]) if all(map(_NUMBER.fullmatch, texts)) else column


def _numbers(columns: list[_Column]) -> _Found:
    for column in columns:
        for value in column.cells:
            if not isinstance(value, (int, float)):
                raise UserError(f"{column} holds {value!r}, which is no number to predict")
    return _flags(columns)[0], tuple(c.name for c in columns), "regression"


def _flags(columns: list[_Column]) -> _Found:
    return np.array([c.cells for c in columns], dtype=np.float64).T, tuple(c.name for c in columns), "multilabel"


def _several(columns: list[_Column], target: str | None) -> _Found:
    """Several columns of numbers."""
    for column in columns:
        _complete(column)
    columns = [_as_numbers(column) for column in columns]
    names, place = ", ".join(c.name for c in columns), columns[0].place
    if target == "class":
        raise UserError(f"one class per image cannot come from several columns ({names}) in {place}")
    binary = all(v in (0, 1) for c in columns for v in c.cells)
    if target == "multilabel" and not binary:
        raise UserError(f"the columns {names} in {place} hold more than 0 and 1; name 0/1 columns")
    return _numbers(columns) if target == "regression" or not binary else _flags(columns)


def _lists(column: _Column, inner: Any, target: str | None) -> _Found:
    """A column of lists: of targets, of 0 and 1 for every label, or of the labels that apply."""
    column.refuse(lambda v: any(map(_missing, v)), "has no labels (an empty list says none)")
    column.refuse(
        lambda v: any(not isinstance(x, (int, float, str)) for x in v), "lists neither classes nor numbers: {}"
    )
    column.refuse(lambda v: any(map(_infinite, v)), "is infinite; correct or remove it")
    if target == "class":
        raise UserError(f"{column} holds lists, not one class per image; use --data.target multilabel")
    flat = column._replace(
        cells=[v for value in column.cells for v in value],
        rows=[row for row, value in zip(column.rows, column.cells, strict=True) for _ in value],
    )
    if not flat.cells:
        raise UserError(f"{column} holds empty lists only; there is nothing to learn from them")
    one_length = len({len(value) for value in column.cells}) == 1
    across = zip(*column.cells, strict=one_length)
    each = [column._replace(name=f"{column.name}[{i}]", cells=list(part)) for i, part in enumerate(across)]
    if target == "regression" or (target is None and _fractions(flat)):
        if not one_length:
            raise UserError(f"the lists of {column} have different lengths; they are no targets")
        return _numbers(each)
    # 0/1 for every label ([0, 1, 0]), not the numbers of those that apply ([1])? Of two labels, one of which applies,
    # flags are [0, 1] or [1, 0], and as numbers every image would have both.
    repeated = any(len(set(value)) < len(value) for value in column.cells)
    both = all(len(set(value)) > 1 for value in column.cells)
    if one_length and (repeated or both) and all(v in (0, 1) for v in flat.cells):
        return _flags(each)
    return _hot(column.cells, *_numbering(flat, inner))


def _separated(column: _Column) -> _Found:
    """Text such as "cat; dog" as several labels."""
    if any(not isinstance(v, str) for v in column.cells):
        raise UserError(
            f"{column} holds single values; several labels per image are lists, 0/1 columns, or text separated by ; | "
            "or ,"
        )
    words = [[w for w in _BETWEEN.split(v.strip()) if w] for v in column.cells]
    found = sorted({w for value in words for w in value})
    return _hot(words, {w: i for i, w in enumerate(found)}, tuple(found))


def _hot(lists: list[list[Any]], number: dict[Any, int], names: tuple[str, ...]) -> _Found:
    hot = np.zeros((len(lists), len(names)))
    for row, value in enumerate(lists):
        hot[row, [number[v] for v in value]] = 1.0
    return hot, names, "multilabel"
