"""From columns of a table to labels: one class, several labels or numbers per image; says which row is wrong."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import datasets
import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.targets import Kind

_USUAL = ("label", "labels", "class", "target", "fine_label", "category", "cls")
_FRACTION = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
_LISTS = (list, datasets.LargeList, getattr(datasets, "List", datasets.Sequence))  # before datasets 4: Sequence
_BETWEEN = re.compile(r"\s*[;|,]\s*")


class Labels(NamedTuple):
    """Labels of every split in one numbering."""

    values: dict[str, np.ndarray]
    names: tuple[str, ...]
    kind: Kind


def columns_of(data: datasets.Dataset) -> str:
    """Names of all columns, for messages."""
    return ", ".join(data.column_names)


def cells(data: datasets.Dataset, column: str) -> list[Any]:
    """The values of a column."""
    return data.select_columns([column]).with_format("arrow")[:][column].to_pylist()


def named_columns(given: str, data: datasets.Dataset, place: str) -> list[str]:
    """The columns of a comma-separated option.

    Raises:
        UserError: For one that does not exist, or is named twice.
    """
    wanted = [word.strip() for word in given.split(",") if word.strip()]
    if given in data.column_names:
        wanted = [given]
    for name in wanted:
        if name not in data.column_names:
            raise UserError(
                f"{place} has no column {name}{did_you_mean(name, data.column_names)}; columns: {columns_of(data)}"
            )
    if not wanted or len(set(wanted)) < len(wanted):
        raise UserError(f"{given!r} names no column of {place}, or one of them twice; columns: {columns_of(data)}")
    return wanted


def read_labels(
    splits: dict[str, datasets.Dataset], cfg: SourceConfig, place: str, images: tuple[str, ...]
) -> Labels | None:
    """The labels of a table.

    Args:
        splits: The table's splits; all have the same columns.
        cfg: ``label_column`` and ``target``.
        place: What the table is called.
        images: Columns that hold images.

    Returns:
        None where no column looks like labels and none was named.

    Raises:
        UserError: For columns that do not exist, contradict each other, or lack a value in some row.
    """
    first = next(iter(splits.values()))
    columns = _label_columns(splits, cfg.label_column, place, images)
    if not columns:
        return None
    for name, data in splits.items():
        for column in columns:
            if column not in data.column_names:
                raise UserError(f"split {name} in {place} has no column {column}; its columns: {columns_of(data)}")
            if not _alike(data.features[column], first.features[column]):
                raise UserError(f"the splits in {place} disagree on the classes of column {column}")
    values = {name: [cells(data, c) for c in columns] for name, data in splits.items()}
    features = [first.features[c] for c in columns]
    if len(columns) > 1:
        return _several(values, columns, cfg.target, place)
    alone = {name: part[0] for name, part in values.items()}
    column, feature = columns[0], features[0]
    if _is_list(feature):
        return _lists(alone, column, feature, cfg.target, place)
    if not isinstance(feature, (datasets.ClassLabel, datasets.Value)):
        raise UserError(f"column {column} in {place} holds {feature}, not one class per image")
    for part in alone.values():
        _complete(part, column, place)
    if cfg.target == "multilabel":
        return _separated(alone, column, place)
    if cfg.target == "regression" or (cfg.target is None and _fractions(alone)):
        return _numbers({name: [part] for name, part in alone.items()}, [column], place)
    return _classes(alone, column, feature, place)


def _alike(one: Any, other: Any) -> bool:
    """Whether values of two splits can be compared: the same classes, or numbers in both, or text in both."""
    if isinstance(one, datasets.Value) and isinstance(other, datasets.Value):
        return "null" in (one.dtype, other.dtype) or ("string" in one.dtype) == ("string" in other.dtype)
    return one == other


def _label_columns(
    splits: dict[str, datasets.Dataset], wanted: str | None, place: str, images: tuple[str, ...]
) -> list[str]:
    data = next(iter(splits.values()))
    if wanted is not None:
        columns = named_columns(wanted, data, place)
        both = [c for c in columns if c in images]
        if both:
            raise UserError(f"column {both[0]} in {place} is named as image and as label; it can be only one of them")
        return columns
    usual = [name for name in _USUAL if name in data.column_names and name not in images]
    if usual:
        _agree(splits, usual, place)
        return usual[:1]
    classes = [c for c, f in data.features.items() if isinstance(f, datasets.ClassLabel)]
    return classes if len(classes) == 1 else []


def _agree(splits: dict[str, datasets.Dataset], columns: list[str], place: str) -> None:
    """Two columns that both look like the label must say the same in every row of every split."""
    for other in columns[1:]:
        pairs: dict[str, str] = {}
        for data in splits.values():
            if not {columns[0], other} <= set(data.column_names):
                continue
            first, second = (map(str, cells(data, column)) for column in (columns[0], other))
            for row, (a, b) in enumerate(zip(first, second, strict=True)):
                if pairs.setdefault(a, b) != b:
                    raise UserError(
                        f"columns {columns[0]} and {other} in {place} contradict each other (row {row}: {a} with {b}, "
                        f"earlier with {pairs[a]}); name the labels with --data.label_column "
                        "(--eval.data.label_column)"
                    )


def _is_list(feature: Any) -> bool:
    return isinstance(feature, _LISTS)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _complete(values: list[Any], column: str, place: str) -> None:
    for row, value in enumerate(values):
        if _missing(value) or (isinstance(value, str) and not value.strip()):
            raise UserError(f"row {row} of column {column} in {place} has no label; remove it or label it")
        if isinstance(value, float) and math.isinf(value):
            raise UserError(f"row {row} of column {column} in {place} is infinite; correct or remove it")


def _fractions(splits: dict[str, list[Any]]) -> bool:
    return any(isinstance(v, float) and not v.is_integer() for part in splits.values() for v in part)


def _natural(value: Any) -> tuple[bool, Any]:
    return (isinstance(value, str), value)


def _is_class(value: Any, known: int | None, row: int, column: str, place: str) -> None:
    """Refuses numbers that can be no class; ``known``: how many classes have names."""
    if isinstance(value, (int, float)) and value < 0:
        raise UserError(f"row {row} of column {column} in {place} has the label {value}; classes start at 0")
    if known is not None and value >= known:
        raise UserError(
            f"row {row} of column {column} in {place} has the label {value}, but only 0 to {known - 1} have names"
        )


def _classes(splits: dict[str, list[Any]], column: str, feature: Any, place: str) -> Labels:
    known = len(feature.names) if isinstance(feature, datasets.ClassLabel) else None
    for part in splits.values():
        for row, value in enumerate(part):
            _is_class(value, known, row, column, place)
            if isinstance(value, float) and not value.is_integer():
                raise UserError(
                    f"column {column} in {place} holds fractions ({value:g}), not classes; numbers to predict are "
                    "--data.target regression"
                )
    if isinstance(feature, datasets.ClassLabel):
        names = tuple(feature.names)
        return Labels({name: np.array(part, dtype=np.int64) for name, part in splits.items()}, names, "class")
    _refuse_text_among_numbers(splits, column, place)
    splits = {name: [int(v) if isinstance(v, float) else v for v in part] for name, part in splits.items()}
    found = sorted({v for part in splits.values() for v in part}, key=_natural)
    number = {value: i for i, value in enumerate(found)}
    values = {name: np.array([number[v] for v in part], dtype=np.int64) for name, part in splits.items()}
    return Labels(values, tuple(str(v) for v in found), "class")


def _refuse_text_among_numbers(splits: dict[str, list[Any]], column: str, place: str) -> None:
    """A column of fractions becomes text by one cell such as "n/a", and every number a class of its own."""
    values = [str(v) for part in splits.values() for v in part if isinstance(v, str)]
    words = [v for v in values if not _FRACTION.fullmatch(v.strip())]
    if words and len(words) < 0.2 * len(values):
        raise UserError(
            f"column {column} in {place} holds {words[0]!r} among numbers; correct or remove that row, or name classes "
            "by words throughout"
        )


def _numbers(splits: dict[str, list[list[Any]]], columns: list[str], place: str) -> Labels:
    arrays = {}
    for name, parts in splits.items():
        for column, part in zip(columns, parts, strict=True):
            wrong = next((v for v in part if not isinstance(v, (int, float))), None)
            if wrong is not None:
                raise UserError(f"column {column} in {place} holds {wrong!r}, which is no number to predict")
        arrays[name] = np.array(parts, dtype=np.float64).T
    return Labels(arrays, tuple(columns), "regression")


def _several(splits: dict[str, list[list[Any]]], columns: list[str], target: str | None, place: str) -> Labels:
    for parts in splits.values():
        for column, part in zip(columns, parts, strict=True):
            _complete(part, column, place)
    binary = all(v in (0, 1, True, False) for parts in splits.values() for part in parts for v in part)
    if target == "class":
        raise UserError(f"one class per image cannot come from several columns ({', '.join(columns)}) in {place}")
    if target == "regression" or not binary:
        if target == "multilabel":
            raise UserError(f"the columns {', '.join(columns)} in {place} hold more than 0 and 1; name 0/1 columns")
        return _numbers(splits, columns, place)
    return Labels(
        {name: np.array(parts, dtype=np.float64).T for name, parts in splits.items()}, tuple(columns), "multilabel"
    )


def _lists(splits: dict[str, list[Any]], column: str, feature: Any, target: str | None, place: str) -> Labels:
    for part in splits.values():
        for row, value in enumerate(part):
            if value is None or any(_missing(v) for v in value):
                raise UserError(f"row {row} of column {column} in {place} has no labels (an empty list says none)")
            if any(not isinstance(v, (int, float, str)) for v in value):
                raise UserError(f"row {row} of column {column} in {place} lists neither classes nor numbers: {value}")
            if any(isinstance(v, float) and math.isinf(v) for v in value):
                raise UserError(f"row {row} of column {column} in {place} is infinite; correct or remove it")
    inner = feature[0] if isinstance(feature, list) else feature.feature
    flat = {name: [v for value in part for v in value] for name, part in splits.items()}
    if target == "class":
        raise UserError(
            f"column {column} in {place} holds lists, not one class per image; use --data.target multilabel"
        )
    if not any(flat.values()):
        raise UserError(f"column {column} in {place} holds empty lists only; there is nothing to learn from them")
    widths = {len(value) for part in splits.values() for value in part}
    names = [f"{column}[{i}]" for i in range(max(widths))]
    if target == "regression" or (target is None and _fractions(flat)):
        if len(widths) != 1:
            raise UserError(f"the lists of column {column} in {place} have different lengths; they are no targets")
        return _numbers({n: [list(c) for c in zip(*part, strict=True)] for n, part in splits.items()}, names, place)
    if len(widths) == 1 and _are_flags(splits):
        return Labels({n: np.array(part, dtype=np.float64) for n, part in splits.items()}, tuple(names), "multilabel")
    known = len(inner.names) if isinstance(inner, datasets.ClassLabel) else None
    for part in splits.values():
        for row, value in enumerate(part):
            for v in value:
                _is_class(v, known, row, column, place)
    if isinstance(inner, datasets.ClassLabel):
        return _several_labels(splits, {i: i for i in range(len(inner.names))}, tuple(inner.names))
    found = sorted({v for part in flat.values() for v in part}, key=_natural)
    return _several_labels(splits, {v: i for i, v in enumerate(found)}, tuple(str(v) for v in found))


def _are_flags(splits: dict[str, list[Any]]) -> bool:
    """Whether lists of one length are 0/1 for every label ([0, 1, 0]), not the numbers of those that apply ([1])."""
    lists = [value for part in splits.values() for value in part]
    return all(v in (0, 1) for value in lists for v in value) and any(len(set(value)) < len(value) for value in lists)


def _separated(splits: dict[str, list[Any]], column: str, place: str) -> Labels:
    """Text such as "cat; dog" as several labels."""
    words: dict[str, list[list[str]]] = {}
    for name, part in splits.items():
        if any(not isinstance(v, str) for v in part):
            raise UserError(
                f"column {column} in {place} holds single values; several labels per image are lists, 0/1 columns, or "
                "text separated by ; | or ,"
            )
        words[name] = [[w for w in _BETWEEN.split(v.strip()) if w] for v in part]
    found = sorted({w for part in words.values() for value in part for w in value})
    return _several_labels(words, {w: i for i, w in enumerate(found)}, tuple(found))


def _several_labels(splits: dict[str, list[Any]], number: dict[Any, int], names: tuple[str, ...]) -> Labels:
    arrays = {}
    for name, part in splits.items():
        hot = np.zeros((len(part), len(names)))
        for row, value in enumerate(part):
            hot[row, [number[v] for v in value]] = 1.0
        arrays[name] = hot
    return Labels(arrays, names, "multilabel")
